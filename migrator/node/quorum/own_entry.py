"""Keeps this node's entry in the voter set up to date, so that other nodes find a controller that has moved (KIP-853).

Source: ``pollFollowerAsVoter`` and ``UpdateVoterHandler`` of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.errors import PeerError
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.runner import QuorumRunner
from migrator.node.quorum.voter_changes import VoterChanges
from migrator.raft.states import Role
from migrator.raft.transport import TransportError
from migrator.raft.voter_changes import VotersNotChangedError
from migrator.wire.peer_clients import PeerClients
from migrator.wire.schemas import UPDATE_RAFT_VOTER, build, request_type

log = logging.getLogger(__name__)

PERIOD_FACTOR = 3
"""How many fetch time-outs pass before each check, as in Kafka."""


class OwnEntry:
    """One per node: sends this voter's endpoints to the leader, while another node leads."""

    def __init__(
        self,
        settings: Settings,
        cluster_id: str,
        quorum: QuorumRunner,
        addresses: Addresses,
        changes: VoterChanges,
        clients: PeerClients,
    ) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._addresses = addresses
        self._changes = changes
        self._clients = clients
        self._period_seconds = PERIOD_FACTOR * settings.controller_quorum_fetch_timeout_ms / 1000
        self._request_seconds = settings.controller_quorum_request_timeout_ms / 1000

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self._period_seconds)
            if self._addresses.own_entry_is_wrong():
                why_not = await self._update()
                own = self._addresses.own_voter()
                if why_not is None:
                    log.info("The voters in the log now have this controller with %s", own.endpoints)
                else:
                    log.warning("The voters in the log have other endpoints for this controller: %s", why_not)

    async def _update(self) -> str | None:
        """Have the leader change the entry. Returns the reason when that failed."""
        if self._quorum.role is Role.LEADER:
            try:
                await self._changes.update(self._addresses.own_voter())
            except VotersNotChangedError as refused:
                return str(refused)
            return None
        leader_id = self._quorum.leader_id
        if leader_id is None:
            return "no leader is known"
        try:
            client = await self._clients.get(leader_id)
            response = await client.request(self._request(), self._request_seconds)
        except (TransportError, PeerError) as error:
            return str(error)
        code: ErrorCode = response.error_code
        return None if code is ErrorCode.none else f"controller {leader_id} answers {code.name}"

    def _request(self) -> object:
        own = self._addresses.own_voter()
        return build(
            request_type(UPDATE_RAFT_VOTER, 0),
            cluster_id=self._cluster_id,
            current_leader_epoch=self._quorum.epoch,
            voter_id=own.voter_id,
            voter_directory_id=uuid.UUID(bytes=own.voter_directory_id),
            listeners=tuple({"name": at.name, "host": at.host, "port": at.port} for at in own.endpoints),
            k_raft_version_feature={
                "min_supported_version": own.k_raft_version_feature.min_supported_version,
                "max_supported_version": own.k_raft_version_feature.max_supported_version,
            },
        )
