"""Registers this controller with the active one, until its own incarnation is in the log (KIP-919).

`node.node` runs one `ControllerRegistrar` as a task. It sends a registration when the published image lacks this
incarnation, and only after the image has reached the first high watermark that this node heard of. Repetitions become
rare, because each accepted one is a record in every log.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping

from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.controller.context import SUPPORTED_FEATURES, supports
from migrator.controller.controllers import register_controller
from migrator.controller.decision import RefusedError
from migrator.controller.migration_gate import Operation
from migrator.errors import PeerError
from migrator.image.model import ControllerRegistration, ImageDelta
from migrator.machine import machine
from migrator.node.active import ActiveController
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.transport import TransportError
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.records.uuid import random_uuid
from migrator.records.versions import MinLevel
from migrator.wire.peer_clients import PeerClients
from migrator.wire.schemas import build

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.1
REQUEST_SECONDS = 5.0
FAILED_SECONDS = (0.4, 5.0)
"""The first and the longest wait after a registration without acknowledgement."""
ACKNOWLEDGED_SECONDS = (10.0, 300.0)
"""The first and the longest wait after an acknowledged registration. That is committed, and each further one is a
record in every log. Kafka never repeats it (``ControllerRegistrationManager``); we do, rarely, in case a leader has
lost a registration that it acknowledged."""


class Pace:
    """Decides when to register: once our image covers the first high watermark that we heard of, and then more and more
    rarely."""

    def __init__(self) -> None:
        self._target: int | None = None
        self._not_before = 0.0
        self._failures = 0
        self._acknowledged = 0

    def reset(self) -> None:
        """Forget the registration under way: there is nothing to register, or no leader."""
        self._target, self._not_before, self._failures, self._acknowledged = None, 0.0, 0, 0

    def is_due(self, now: float, committed: int | None, covers: Callable[[int], bool]) -> bool:
        """Whether to send a registration.

        :param committed: the leader's high watermark, None while unknown.
        :param covers: tells whether our image covers everything below an offset.
        """
        if self._target is None:
            self._target = committed
        return self._target is not None and covers(self._target) and now >= self._not_before

    def acknowledged(self, now: float) -> None:
        """The leader has committed the registration; our image will show it in a moment."""
        self._failures = 0
        self._not_before = now + _doubled(ACKNOWLEDGED_SECONDS, self._acknowledged)
        self._acknowledged += 1

    def failed(self, now: float) -> None:
        """The leader has not committed the registration."""
        self._not_before = now + _doubled(FAILED_SECONDS, self._failures)
        self._failures += 1


def _doubled(bounds: tuple[float, float], times: int) -> float:
    shortest, longest = bounds
    return min(longest, shortest * float(1 << min(times, 10)))


class ControllerRegistrar:
    """Registers this controller with the leader; one object per node.

    While this node is registered, the registrar sleeps until a published image lacks the registration.

    :param ports: listener name -> port that it is bound to, for listeners that were given port 0.
    """

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataRuntime,
        quorum: QuorumRunner,
        controller: ActiveController,
        clients: PeerClients,
        ports: Mapping[str, int],
    ) -> None:
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._clients = clients
        self._has_news = asyncio.Event()
        metadata.subscribers.append(self._published)
        listeners = tuple(
            Endpoint(at.name, at.host or "localhost", at.port or ports[at.name], SecurityProtocol[at.security_protocol])
            for at in settings.parsed_advertised_listeners
        )
        self._own = ControllerRegistration(
            controller_id=settings.node_id,
            incarnation_id=random_uuid(machine().random()),
            zk_migration_ready=settings.zookeeper_metadata_migration_enable,
            listeners=listeners,
            features=SUPPORTED_FEATURES,
        )

    @property
    def is_registered(self) -> bool:
        """Whether the published image holds this incarnation."""
        found = self._metadata.published.cluster.controllers.get(self._own.controller_id)
        return found is not None and found.incarnation_id == self._own.incarnation_id

    def _published(self, _delta: ImageDelta) -> None:
        if not self.is_registered:
            self._has_news.set()

    async def run(self) -> None:
        """Run until cancelled: when the end of the log is lost, our registration may be lost, too."""
        pace, quorum, clock = Pace(), self._quorum, asyncio.get_running_loop().time
        while True:
            self._has_news.clear()
            image, leader_id = self._metadata.published, quorum.leader_id
            if self.is_registered or not supports(image, MinLevel.CONTROLLER_REGISTRATION):
                pace.reset()
                await self._has_news.wait()
            elif leader_id is not None and pace.is_due(clock(), quorum.leader_high_watermark, self._metadata.covers):
                taken = await self._register(leader_id)
                (pace.acknowledged if taken else pace.failed)(clock())
            await asyncio.sleep(CHECK_SECONDS)

    async def _register(self, leader_id: int) -> bool:
        try:
            if leader_id == self._own.controller_id:
                own = self._own
                await self._controller.write(
                    Operation.REGISTER_CONTROLLER, lambda image, context: register_controller(image, own, context)
                )
                return True
            client = await self._clients.get(leader_id)
            response = await client.request(self._request(), REQUEST_SECONDS)
        except (RefusedError, TransportError, PeerError) as error:
            log.debug("Controller %d did not take our registration: %s", leader_id, error)
            return False
        if response.error_code is not ErrorCode.none:
            log.debug("Controller %d refused our registration: %s", leader_id, response.error_code.name)
        return response.error_code is ErrorCode.none

    def _request(self) -> object:
        own = self._own
        return build(
            ControllerRegistrationRequest,
            controller_id=own.controller_id,
            incarnation_id=uuid.UUID(bytes=own.incarnation_id),
            zk_migration_ready=own.zk_migration_ready,
            listeners=tuple(
                {"name": at.name, "host": at.host, "port": at.port, "security_protocol": at.security_protocol}
                for at in own.listeners
            ),
            features=tuple(
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_version,
                    "max_supported_version": feature.max_version,
                }
                for feature in own.features
            ),
        )
