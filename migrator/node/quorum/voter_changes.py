"""Adds, removes and updates voters on the leader, one change at a time (KIP-853).

A client (`migrator.node.quorum.voter_change_apis`), the planner, or this node for its own entry asks for a change.
Source: ``AddVoterHandler``, ``RemoveVoterHandler``, ``UpdateVoterHandler`` of Kafka 3.9.

`OwnEntry` keeps this node's entry in the voter set up to date, so that other nodes find a controller that has moved
(KIP-853).

Source: ``pollFollowerAsVoter`` and ``UpdateVoterHandler`` of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.controller.context import KRAFT_VERSION
from migrator.errors import MigratorError, PeerError
from migrator.migration.machine.voters import NOBODY_ASKED, VoterKinds
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.ballot import AskVoter
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.membership import TIMED_OUT, TRY_AGAIN
from migrator.raft.states import Role
from migrator.raft.transport import TransportError
from migrator.raft.voter_changes import (
    AddVoter,
    Refusal,
    RemoveVoter,
    UpdateVoter,
    UpgradeVoters,
    VoterChange,
    VotersNotChangedError,
)
from migrator.raft.voter_set import DYNAMIC_VERSION, STATIC_RANGE, ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter, KRaftVersionRange
from migrator.wire.client import KafkaConnection
from migrator.wire.peer_clients import PeerClients
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.schemas import UPDATE_RAFT_VOTER, build, request_type
from migrator.wire.security import ListenerSecurity
from migrator.wire.voters import VoterAnswer

ASKING_SHARE = 4
"""The time-out of a change, divided by the time-out of the questions to all voters before it."""
MAX_RESPONSE_BYTES = 1 << 20
NO_OPS_MAX = 1_000
"""The most no-op records in one batch, to bring the log to the length of a voter's old log."""
PENDING = Refusal(ErrorCode.request_timed_out, f"{TIMED_OUT}waiting for leader to handle previous voter change request")
BUSY = Refusal(
    ErrorCode.request_timed_out,
    f"{TIMED_OUT}waiting for the leader to finish a large change of the metadata. Nothing was changed.{TRY_AGAIN}",
)
NOT_COMMITTED = Refusal(
    ErrorCode.request_timed_out,
    "The changed voters are in the log, but not committed yet. Look which voters are in force before you try again.",
)
UNKNOWN_END = Refusal(
    ErrorCode.not_leader_or_follower,
    "The leader has changed meanwhile. Look which voters are in force before you try again.",
)

Look = Callable[[], object]


class Change(Protocol):
    """See `ActiveController.change_voters`."""

    async def __call__(self, change: VoterChange, look: Look, /, *, kinds: VoterKinds) -> int: ...


def _nothing() -> None:
    """The default of ``look``: no check."""


class VoterChanges:
    """Adds, removes and updates voters one at a time; one object per node. It refuses while this node does not lead.

    :param change: appends a change between two decisions, see `ActiveController.change_voters`.
    :param append_no_ops: appends so many no-op records, unless this node is no longer active.
    :param committed: waits until the record at an offset is committed; raises `MigratorError` when that can no longer
        be known.
    :param security: the security of connections to a new voter.
    :param ask_voter: asks a voter what it says of itself.
    :param patience_seconds: the time-out of a whole change (``controller.quorum.request.timeout.ms``).
    """

    def __init__(
        self,
        quorum: QuorumRunner,
        change: Change,
        addresses: Addresses,
        append_no_ops: Callable[[int], Awaitable[None]],
        committed: Callable[[int], Awaitable[None]],
        security: Callable[[], ListenerSecurity],
        ask_voter: AskVoter,
        is_migrating: Callable[[], bool],
        patience_seconds: float,
    ) -> None:
        self._quorum = quorum
        self._change = change
        self._addresses = addresses
        self._append_no_ops = append_no_ops
        self._committed = committed
        self._security = security
        self._ask_voter = ask_voter
        self._is_migrating = is_migrating
        self._patience_seconds = patience_seconds
        self._is_pending = False

    async def add(self, voter: DynamicVoter, look: Look = _nothing) -> int:
        """Add a voter. It is asked for its versions; those in ``voter`` are ignored.

        :param look: called between two decisions; its errors are raised, and then nothing is changed.
        :returns: the offset of the committed record.
        :raises VotersNotChangedError: the change is refused, or its outcome is unknown yet; see the refusal's error.
        """
        async with self._only_one():
            self._check(AddVoter(voter))
            begun = asyncio.get_running_loop().time()
            versions, answer = await self._answer_of(voter)
            change = AddVoter(replace(voter, k_raft_version_feature=versions))
            kinds = await self._kinds(self._addresses.voter_ids, {voter.voter_id: answer})
            return await self._changed(change, begun, look, kinds)

    async def remove(self, key: ReplicaKey, look: Look = _nothing) -> int:
        """Remove a voter, which may be this node; ``look``, result and errors as in `add`."""
        async with self._only_one():
            self._check(RemoveVoter(key))
            begun = asyncio.get_running_loop().time()
            kinds = await self._kinds(self._addresses.voter_ids - {key.node_id}, {})
            return await self._changed(RemoveVoter(key), begun, look, kinds)

    async def upgrade(self, voters: VoterSet, look: Callable[[], object]) -> int:
        """Write the configured voters into the log. Each except this node is asked for its versions.

        ``look`` is called when all have answered; result and errors as in `add`.
        """
        async with self._only_one():
            self._check_is_static()
            begun = asyncio.get_running_loop().time()
            asked = [await self._asked(voter) for voter in voters.voters]
            return await self._changed(UpgradeVoters(VoterSet.of(asked)), begun, look)

    def _check_is_static(self) -> None:
        version = self._quorum.membership.kraft_version
        if version >= DYNAMIC_VERSION:
            what = f"The voters are in the log already (kraft.version {version})."
            raise VotersNotChangedError(Refusal(ErrorCode.invalid_update_version, what))

    async def _asked(self, voter: DynamicVoter) -> DynamicVoter:
        is_own = voter.voter_id == self._addresses.node_id
        return voter if is_own else replace(voter, k_raft_version_feature=(await self._answer_of(voter))[0])

    async def update(self, voter: DynamicVoter, look: Look = _nothing) -> int:
        """Change endpoints or versions of a voter; ``look`` as in `add`.

        :returns: the offset of the record, which may be uncommitted.
        :raises VotersNotChangedError: refused.
        """
        async with self._only_one():
            return await self._appended(UpdateVoter(voter), asyncio.get_running_loop().time(), look, NOBODY_ASKED)

    async def fill(self, refusal: Refusal) -> None:
        """Append some of the records that a change needs, as its refusal says. Without other writes, the log would
        never reach the length of a voter's old log."""
        if refusal.lacking_records:
            await self._append_no_ops(min(refusal.lacking_records, NO_OPS_MAX))

    @asynccontextmanager
    async def _only_one(self) -> AsyncIterator[None]:
        if self._is_pending:
            raise VotersNotChangedError(PENDING)
        self._is_pending = True
        try:
            yield
        except VotersNotChangedError as error:
            await self.fill(error.refusal)  # so that the next attempt succeeds
            raise
        finally:
            self._is_pending = False

    def _check(self, change: VoterChange) -> None:
        refusal = self._quorum.why_not(change)
        if refusal is not None:
            raise VotersNotChangedError(refusal)

    async def _kinds(self, voters: Collection[int], answers: Mapping[int, VoterAnswer]) -> VoterKinds:
        """The answers of the future voters about themselves; needed only during a migration."""
        if not self._is_migrating():
            return NOBODY_ASKED
        asked = [voter for voter in voters if voter != self._addresses.node_id]
        seconds = self._patience_seconds / ASKING_SHARE
        found = await asyncio.gather(*(self._ask_voter(voter, seconds) for voter in asked))
        said = {voter: answer for voter, answer in zip(asked, found, strict=True) if answer is not None}
        said.update(answers)
        own = {self._addresses.node_id}
        return VoterKinds(
            frozenset(own | {voter for voter, answer in said.items() if answer.is_ours}),
            frozenset(own | {voter for voter, answer in said.items() if answer.may_lead}),
        )

    async def _answer_of(self, voter: DynamicVoter) -> tuple[KRaftVersionRange, VoterAnswer]:
        """Ask the new voter on its controller listener: wrong endpoints in the log would cost the quorum its
        majority."""
        at = self._addresses.default_of(voter)
        if at is None:
            raise ValueError(f"voter {voter.voter_id} has no listener {self._addresses.listener}")
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await self._ask(at)
        except (TransportError, PeerError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise VotersNotChangedError(
                Refusal(
                    ErrorCode.request_timed_out,
                    f"Node {voter.voter_id} does not answer at {at.host}:{at.port}, listener {at.listener}: {why}",
                )
            ) from error

    async def _ask(self, at: ListenerEndpoint) -> tuple[KRaftVersionRange, VoterAnswer]:
        connection = await KafkaConnection.open(
            at.host, at.port, f"controller-{self._addresses.node_id}", self._security(), MAX_RESPONSE_BYTES
        )
        features = connection.features
        await connection.close()
        supported = features.supported.get(KRAFT_VERSION)
        versions = STATIC_RANGE if supported is None else KRaftVersionRange(supported.min, supported.max)
        return versions, VoterAnswer.of(features)

    async def _appended(self, change: VoterChange, begun: float, look: Look, kinds: VoterKinds) -> int:
        try:
            async with asyncio.timeout_at(begun + self._patience_seconds):
                return await self._change(change, look, kinds=kinds)
        except TimeoutError as error:
            raise VotersNotChangedError(BUSY) from error

    async def _changed(self, change: VoterChange, begun: float, look: Look, kinds: VoterKinds = NOBODY_ASKED) -> int:
        offset = await self._appended(change, begun, look, kinds)
        try:
            async with asyncio.timeout_at(begun + self._patience_seconds):
                await self._committed(offset)
        except TimeoutError as error:
            raise VotersNotChangedError(NOT_COMMITTED) from error
        except MigratorError as error:
            raise VotersNotChangedError(UNKNOWN_END) from error
        return offset


log = logging.getLogger(__name__)

PERIOD_FACTOR = 3
"""How many fetch time-outs pass before each check, as in Kafka."""


class OwnEntry:
    """Sends this voter's endpoints to the leader, while another node leads; one object per node."""

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
