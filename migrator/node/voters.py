"""Asks every voter whether it is ready to migrate: ZkMigrationReady of its ApiVersions, always fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from migrator.config.settings import Settings
from migrator.errors import PeerError
from migrator.rpc.transport import TransportError
from migrator.values import value
from migrator.wire.client import KafkaConnection
from migrator.wire.raft_codec import Endpoint
from migrator.wire.security import ListenerSecurity

ASK_SECONDS = 2.0
MAX_RESPONSE_BYTES = 1 << 20


@value
class VoterAnswer:
    """What a voter's process says of itself: whether its migration flag is on, and whether it is this program."""

    migrating: bool
    is_ours: bool


class VoterSignals:
    """A registration in the log outlives a restart; what a process says now does not. So each question opens a
    connection of its own, whose first answer is ApiVersions."""

    def __init__(self, settings: Settings, endpoints: Mapping[int, Endpoint], security: ListenerSecurity) -> None:
        self._node_id = settings.node_id
        self._own = VoterAnswer(settings.zookeeper_metadata_migration_enable, is_ours=True)
        self._endpoints = endpoints
        self._security = security
        self.last: dict[int, VoterAnswer | None] = dict.fromkeys(endpoints) | {self._node_id: self._own}
        """What was heard last."""

    async def ask(self) -> dict[int, VoterAnswer | None]:
        """By voter; None did not answer."""
        others = [node_id for node_id in self._endpoints if node_id != self._node_id]
        answers = await asyncio.gather(*map(self.ask_one, others))
        self.last = {self._node_id: self._own, **dict(zip(others, answers, strict=True))}
        return dict(self.last)

    async def ask_one(self, node_id: int, seconds: float = ASK_SECONDS) -> VoterAnswer | None:
        """What one voter says; None: no answer in time, or nobody's id."""
        at = self._endpoints.get(node_id)
        if at is None:
            return None
        client_id = f"controller-{self._node_id}"
        try:
            async with asyncio.timeout(seconds):
                connection = await KafkaConnection.open(at.host, at.port, client_id, self._security, MAX_RESPONSE_BYTES)
                features = connection.features
                await connection.close()
        except (TransportError, PeerError, TimeoutError):
            return None
        return VoterAnswer(features.zk_migration_ready, features.is_ours)


def ready(answers: Mapping[int, VoterAnswer | None]) -> dict[int, bool | None]:
    """By voter, whether its migration flag is on; None did not answer."""
    return {voter: None if answer is None else answer.migrating for voter, answer in answers.items()}


def stock(answers: Mapping[int, VoterAnswer | None]) -> frozenset[int]:
    """Those that answered and are not this program."""
    return frozenset(voter for voter, answer in answers.items() if answer is not None and not answer.is_ours)
