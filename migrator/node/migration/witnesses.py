"""Connections that this controller keeps open to brokers in ZooKeeper mode, to know after an election that they live.

Each node keeps them, whether it leads or not. A new leader sends requests on those connections that are older than its
election, for as long as answers count as heartbeats (`migrator.controller.grace`). Only those count that come on
connections which are old enough: before a younger one was opened, another process may have replaced the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from migrator.clock import monotonic_ms
from migrator.config.settings import Settings
from migrator.controller.effective import UncleanElections
from migrator.controller.grace import GRACE_MS, Evidence, replaceable
from migrator.errors import PeerError
from migrator.image.model import ImageDelta, MetadataImage
from migrator.node.core import NodeCore
from migrator.raft.states import Role
from migrator.raft.transport import TransportError
from migrator.records.metadata import Endpoint
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.turns import give_back
from migrator.values import value
from migrator.wire.client import KafkaConnection
from migrator.wire.security import ListenerSecurity

log = logging.getLogger(__name__)

WITNESS = TaskKind("broker-witness", OnError.RESTART)
GRACE = TaskKind("broker-grace", OnError.DROP)
"""Without this task brokers are fenced as if there were no grace."""

IDLE_SECONDS = 30.0
"""The time between two requests on a connection. Brokers close connections after ``connections.max.idle.ms`` without
requests, 10 minutes by default."""
ASKS_IN_A_SESSION = 8
AGAIN_SECONDS = 10.0
"""The wait before the next attempt to connect."""
ANSWER_BYTES_MAX = 1_048_576


@value
class _Place:
    broker_id: int
    epoch: int
    endpoint: Endpoint


class Witnesses:
    """One connection to each broker in ZooKeeper mode that is not fenced: a `LeaderListener`, and a subscriber of the
    published image."""

    def __init__(self, settings: Settings, core: NodeCore, security: ListenerSecurity, on_failure: OnFailure) -> None:
        self._core = core
        self._listener = settings.broker_rpc_listener
        self._security = security
        self._evidence = Evidence(settings.broker_session_timeout_ms)
        self._session_seconds = settings.broker_session_timeout_ms / 1000
        self._name = f"controller-{settings.node_id}"
        self._supervisor = Supervisor(on_failure)
        self._witnesses: dict[_Place, asyncio.Task[None]] = {}
        self._asks = asyncio.Event()
        """Set while answers count."""
        self._grace: asyncio.Task[None] | None = None
        core.leadership.listeners.append(self)
        core.metadata.subscribers.append(self._published)
        self._follow(core.metadata.published)

    async def close(self) -> None:
        self._core.leadership.listeners.remove(self)
        self._core.metadata.subscribers.remove(self._published)
        await self._supervisor.close()

    def became_active(self, epoch: int, image: MetadataImage) -> None:
        """Send requests to all brokers, as long as their answers may count (see `LeaderListener`)."""
        self._grace = self._supervisor.spawn(GRACE, self._ask_all(epoch, image))

    def lost_leadership(self, epoch: int) -> None:  # noqa: ARG002 - the listener's signature
        """Answers no longer count (see `LeaderListener`)."""
        if self._grace is not None:
            self._grace.cancel()

    async def _ask_all(self, epoch: int, image: MetadataImage) -> None:
        controller, sessions = self._core.controller, self._core.keeper.sessions
        if controller.epoch != epoch:
            return
        is_unclean = UncleanElections(image, controller.context()).enabled
        self._asks.set()  # first: the look below may take longer than a session, and undoes counted answers
        try:
            for broker_id in replaceable(image, is_unclean):
                if broker_id is None:
                    await give_back()
                else:
                    sessions.no_grace((broker_id,))
            await asyncio.sleep(GRACE_MS / 1000)
        finally:
            self._asks.clear()

    def _published(self, delta: ImageDelta) -> None:
        quorum = self._core.quorum
        is_present = delta.after.provenance.epoch == quorum.epoch  # a leader may be elected long before it is active
        if is_present and quorum.role in (Role.LEADER, Role.FOLLOWER):
            self._evidence.leads(quorum.epoch, monotonic_ms())
        if delta.changes.brokers:
            self._follow(delta.after)

    def _follow(self, image: MetadataImage) -> None:
        wanted = {
            _Place(registration.broker_id, registration.epoch, endpoint)
            for registration in image.cluster.brokers.values()
            if registration.is_migrating_zk_broker and not registration.fenced
            for endpoint in registration.listeners
            if endpoint.name == self._listener
        }
        for place in [place for place in self._witnesses if place not in wanted]:
            self._witnesses.pop(place).cancel()
        for place in sorted(wanted - self._witnesses.keys(), key=lambda place: place.broker_id):
            name = f"The connection to broker {place.broker_id}"
            self._witnesses[place] = self._supervisor.keep(WITNESS, partial(self._run, place), name)

    async def _run(self, place: _Place) -> None:
        while True:
            try:
                await self._connected(place)
            except (TransportError, PeerError, TimeoutError) as error:
                log.debug("Broker %d, on the connection that shows whether it lives: %s", place.broker_id, error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connected(self, place: _Place) -> None:
        """Send requests on one connection as long as it lasts."""
        host, port = place.endpoint.host, place.endpoint.port
        async with asyncio.timeout(self._session_seconds):
            connection = await KafkaConnection.open(host, port, self._name, self._security, ANSWER_BYTES_MAX)
        opened_ms = monotonic_ms()
        try:
            while True:
                await self._pause()
                sent_ms = monotonic_ms()
                async with asyncio.timeout(self._session_seconds):
                    await connection.ask_features()
                if self._asks.is_set() and self._evidence.covers(opened_ms):
                    self._core.keeper.sessions.answered(place.broker_id, place.epoch, sent_ms)
        finally:
            await connection.close()

    async def _pause(self) -> None:
        """Wait until the next request is due."""
        if self._asks.is_set():
            await asyncio.sleep(self._session_seconds / ASKS_IN_A_SESSION)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self._asks.wait()
