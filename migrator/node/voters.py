"""Asks every voter whether it is ready to migrate: ZkMigrationReady of its ApiVersions, always fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from migrator.config.settings import Settings
from migrator.errors import PeerError
from migrator.rpc.transport import TransportError
from migrator.wire.client import KafkaConnection
from migrator.wire.raft_codec import Endpoint
from migrator.wire.security import ListenerSecurity

ASK_SECONDS = 2.0
MAX_RESPONSE_BYTES = 1 << 20


class VoterSignals:
    """A registration in the log outlives a restart; what a process says now does not. So each question opens a
    connection of its own, whose first answer is ApiVersions."""

    def __init__(self, settings: Settings, endpoints: Mapping[int, Endpoint], security: ListenerSecurity) -> None:
        self._node_id = settings.node_id
        self._own = settings.zookeeper_metadata_migration_enable
        self._endpoints = endpoints
        self._security = security
        self.last: dict[int, bool | None] = dict.fromkeys(endpoints) | {self._node_id: self._own}
        """What was heard last."""

    async def ask(self) -> dict[int, bool | None]:
        """By voter; None did not answer."""
        others = [node_id for node_id in self._endpoints if node_id != self._node_id]
        answers = await asyncio.gather(*map(self._ask, others))
        self.last = {self._node_id: self._own, **dict(zip(others, answers, strict=True))}
        return dict(self.last)

    async def _ask(self, node_id: int) -> bool | None:
        at = self._endpoints[node_id]
        client_id = f"controller-{self._node_id}"
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await KafkaConnection.open(at.host, at.port, client_id, self._security, MAX_RESPONSE_BYTES)
                ready = connection.features.zk_migration_ready
                await connection.close()
        except (TransportError, PeerError, TimeoutError):
            return None
        return ready
