"""Sends requests of brokers and clients to the active controller: tries one controller after the other until one
accepts.

Light brokers, the workload and the intruder use a `ControllerChannel`. A request fails when its time is over, or when
its answer was lost: then it may have been carried out.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.raft.transport import PeerTimeoutError, TransportError, UnreachableError
from migrator.wire.client import KafkaClient
from migrator.wire.security import PLAINTEXT, ListenerSecurity

RETRY_SECONDS = 0.05
REQUEST_SECONDS = 10.0


class ControllerChannel:
    """Sends requests to the active controller.

    :param controllers: host and port of each.
    :param security: the security of the connections.
    """

    def __init__(
        self, controllers: Sequence[tuple[str, int]], client_id: str, security: ListenerSecurity = PLAINTEXT
    ) -> None:
        self._clients = [KafkaClient(host, port, client_id, security=security) for host, port in controllers]
        self._current = 0
        self.repeats = 0
        """How many requests were sent again after a NOT_CONTROLLER. An earlier attempt may have been carried out: a
        leader that has appended the records, and then loses the leadership, gives this answer, too (Kafka's
        ``QuorumController`` fails all its pending events with it)."""

    async def request(self, body: Any, *, timeout_seconds: float) -> Any:
        """Send until a controller carries out the request, or refuses it for another reason than not being active
        (see `repeats`).

        :raises TransportError: no controller answered in time, or an answer was lost: then the request may have been
            carried out.
        """
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise PeerTimeoutError(f"no active controller within {timeout_seconds:.0f} s")
            try:
                answer = await self._clients[self._current].request(body, timeout=min(REQUEST_SECONDS, left))
            except UnreachableError:
                self._next()
            except TransportError:
                self._next()
                raise
            else:
                if not _is_not_controller(answer):
                    return answer
                self._next()
                self.repeats += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def _next(self) -> None:
        self._current = (self._current + 1) % len(self._clients)


def _is_not_controller(message: Any) -> bool:
    """Whether the answer, or any of its parts, says NOT_CONTROLLER."""
    if getattr(message, "error_code", ErrorCode.none) is ErrorCode.not_controller:
        return True
    if not dataclasses.is_dataclass(message):
        return False
    return any(
        _is_not_controller(item)
        for field in dataclasses.fields(message)
        if isinstance(items := getattr(message, field.name), tuple)
        for item in items
    )
