"""A migrating broker without data, which behaves like a real one towards controllers.

It registers in ZooKeeper and with the quorum, sends heartbeats, leads and follows partitions as the controller orders,
refuses the requests that real brokers refuse, and notes what would harm a real broker (`violations`). Sources:
``KafkaServer``, ``BrokerLifecycleManager``, ``KafkaApis``, ``AlterPartitionManager``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light.broker_session import LightBrokerSession
from migrator.drill.light.client_apis import CLIENT_APIS, configs, metadata, reassignments
from migrator.drill.light.isr_keeper import IsrKeeper
from migrator.drill.light.log_follower import LogFollower, take_over
from migrator.drill.light.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from migrator.drill.light.replicas import HostedReplicas, Key, LightReplica
from migrator.raft.transport import TransportError
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.values import value
from migrator.wire.observer import NoAnswerError
from migrator.wire.raft_codec import METADATA_TOPIC
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    API_VERSIONS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    LEADER_AND_ISR,
    METADATA,
    STOP_REPLICA,
    UPDATE_METADATA,
    VersionRange,
    build,
    request_type,
    response_type,
)
from migrator.wire.security import PLAINTEXT, ListenerSecurity
from migrator.wire.server import KafkaListener
from migrator.zookeeper.session import SessionOptions

log = logging.getLogger(__name__)

BUSY_HEARTBEAT_SECONDS = 0.05
RETRY_SECONDS = 0.2
CATCH_UP_SECONDS = 0.3
"""How often a leader looks for followers to add to its ISR."""
FOLLOW_SECONDS = 0.5
"""How often a broker in KRaft mode reads new records of the log."""
SHUTDOWN_SECONDS = 30.0
APIS = {
    API_VERSIONS: VersionRange(0, 4),
    LEADER_AND_ISR: VersionRange(7, 7),
    STOP_REPLICA: VersionRange(4, 4),
    UPDATE_METADATA: VersionRange(8, 8),
}


def directory_of(broker_id: int) -> UUID:
    """The id of a broker's only log directory."""
    return UUID(int=(broker_id << 64) + 1000)


class LightBrokerMode(Enum):
    """The mode of a broker's configuration."""

    ZOOKEEPER = "ZooKeeper"
    """The broker's mode before a migration, or after a rollback. The quorum does not know the broker."""
    MIGRATING = "ZooKeeper, migrating"
    KRAFT = "KRaft"
    """Registered with the quorum alone; its copy of the metadata log is not played."""


@value
class LightBrokerOptions:
    """``zookeeper``: connection string with chroot, or how to connect. ``controllers``: host and port of each listener.
    ``metadata_version``: the one level that the broker's inter.broker.protocol.version stands for. ``protocol`` and
    ``security``: of the broker's listener. ``at_controllers``: how the broker connects to the controllers. ``rack``: ""
    for a rack that no other broker is in. ``file``: the keys of its property file, which DescribeConfigs returns; with
    a file, the broker follows the metadata log in KRaft mode. ``life``: distinguishes the successive processes of one
    broker."""

    broker_id: int
    cluster_id: str
    zookeeper: str | SessionOptions
    controllers: Sequence[tuple[str, int]]
    metadata_version: int = 21
    heartbeat_interval_seconds: float = 2.0
    session_seconds: float = 6.0
    listener: str = "PLAINTEXT"
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    security: ListenerSecurity = PLAINTEXT
    at_controllers: ListenerSecurity = PLAINTEXT
    rack: str = ""
    file: Mapping[str, str] | None = None
    life: int = 0


class LightBroker:
    """One broker; `start`, then `stop`, any number of times. Its disk (`replicas.logs`) outlives a restart."""

    raw_apis: ClassVar[frozenset[int]] = frozenset()
    """API keys whose requests a subclass takes as bytes."""

    def __init__(self, options: LightBrokerOptions) -> None:
        self.options = options
        self.cache = MetadataCache()
        self.replicas = HostedReplicas(options.broker_id)
        self.violations: list[str] = []
        self.forgotten: set[tuple[str, UUID | None]] = set()
        """Topics that lost partitions in the cache, with the ids they had; fine if they were deleted."""
        self.errors: dict[ErrorCode, int] = defaultdict(int)
        """The number of refusals, by error code."""
        self.requests: dict[int, int] = defaultdict(int)
        """Control requests by API key."""
        self.epoch = -1
        self.fenced = True
        self.port = 0
        self.mode = LightBrokerMode.MIGRATING
        self.running = asyncio.Event()
        """Set while the broker is unfenced."""
        self._controller_epoch = -1
        self._informed = False
        self._shutdown_wanted = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listener, self._channel = self._connections()
        self._session: LightBrokerSession | None = None
        self._isrs = IsrKeeper(options.broker_id, self.replicas, self._ask)
        self._random = random.Random(options.broker_id + (options.life << 32))

    @property
    def _rack(self) -> str:
        return self.options.rack or f"rack-{self.options.broker_id}"

    @property
    def elections(self) -> list[int]:
        """Controller epochs in which this broker was elected ZooKeeper controller, since its last start."""
        return [] if self._session is None else self._session.elections

    async def start(self, mode: LightBrokerMode = LightBrokerMode.MIGRATING) -> None:
        """Serve, register in ZooKeeper and begin to register with the quorum, as the mode demands.

        :raises OSError, KazooException: the port cannot be bound, or ZooKeeper does not take it.
        """
        self._begin_life()
        self._listener, self._channel = self._connections()
        self.port = await self._listener.start("127.0.0.1", self.port)
        self.mode = mode
        if mode is not LightBrokerMode.KRAFT:
            self._session = LightBrokerSession(
                self.options.broker_id,
                access if isinstance(access := self.options.zookeeper, SessionOptions) else SessionOptions(access),
                self._endpoint(),
                self._rack,
                session_seconds=self.options.session_seconds,
            )
            await asyncio.to_thread(self._session.start)
        if mode is not LightBrokerMode.ZOOKEEPER:
            self._tasks = [asyncio.create_task(self._live()), asyncio.create_task(self._take_followers_in())]
        if mode is LightBrokerMode.KRAFT and self.options.file is not None:
            self._tasks.append(asyncio.create_task(self._follow_log()))

    async def stop(self, *, controlled: bool = True) -> None:
        """Leave; ``controlled`` asks the controller first, so that leaders move before."""
        if controlled and self.epoch >= 0:
            self._shutdown_wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_SECONDS):
                    await self._may_stop.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self.running.clear()
        await self._listener.close(grace=0.0)
        await self._channel.close()
        if self._session is not None:
            await asyncio.to_thread(self._session.stop)
            self._session = None

    async def shrink_isr(self, key: Key) -> ErrorCode:
        """Remove the last follower from the ISR of a partition that this broker leads; it is added again soon."""
        replica = self.replicas.hosted.get(key)
        if replica is None or replica.leader != self.options.broker_id or len(replica.isr) < 2:
            return ErrorCode.not_leader_or_follower
        keep = tuple(member for member in replica.isr if member == self.options.broker_id)
        others = tuple(member for member in replica.isr if member != self.options.broker_id)
        errors = await self._isrs.alter(self.epoch, {key: keep + others[:-1]})
        self._count(errors.values())
        return errors.get(key, ErrorCode.unknown_server_error)

    # --- control requests ---

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """Answer a control request: the epochs first, as ``KafkaApis`` and ``ReplicaManager`` do; or a client's."""
        self.requests[context.api_key] += 1
        if context.api_key in CLIENT_APIS:
            return await self._answer_client(context, body)
        error = self.epoch_error(body.controller_epoch, body.broker_epoch)
        response = response_type(context.api_key, context.api_version)
        if error is not ErrorCode.none:
            self.errors[error] += 1
            return build(response, error_code=error)
        self._controller_epoch = body.controller_epoch
        if context.api_key == UPDATE_METADATA:
            return self._update_metadata(body, response)
        if context.api_key == LEADER_AND_ISR:
            return self._leader_and_isr(body, response)
        errors = [
            {"topic_name": topic, "partition_index": partition, "error_code": code}
            for topic, partition, code in self.replicas.stop(body)
        ]
        self._count(entry["error_code"] for entry in errors)
        return build(response, error_code=ErrorCode.none, partition_errors=errors)

    async def _answer_client(self, context: RequestContext, body: Any) -> Any:
        if context.api_key == DESCRIBE_CONFIGS:
            return configs(context, body, self.options.broker_id, self.options.file or {})
        if context.api_key == METADATA:
            if self._session is None or self._informed:
                return metadata(context, self.cache.topics)
            return metadata(context, await asyncio.to_thread(self._session.partitions))
        return reassignments(context)

    def epoch_error(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Why a control request of these epochs is refused; ``none`` when it is not."""
        if 0 <= broker_epoch < self.epoch:
            return ErrorCode.stale_broker_epoch
        if controller_epoch < self._controller_epoch:
            return ErrorCode.stale_controller_epoch
        return ErrorCode.none

    def _update_metadata(self, body: Any, response: Any) -> Any:
        for topic in body.topic_states:
            alive = any(state.leader != LEADER_DURING_DELETE for state in topic.partition_states)
            if topic.topic_id is None and alive:
                self._violation(f"UpdateMetadata without the id of topic {topic.topic_name!r}")
        self._informed = True
        self.forgotten |= self.cache.update(body)
        return build(response, error_code=ErrorCode.none)

    def _leader_and_isr(self, body: Any, response: Any) -> Any:
        if not self._informed:
            self._violation("LeaderAndIsr before any UpdateMetadata")
        if not self.replicas.heard and (missing := self.replicas.missing_from(body)):
            self._violation(
                f"the first LeaderAndIsr after a start lacks {len(missing)} of the broker's logs, "
                f"e.g. {missing[0]}: their high watermarks are forgotten"
            )
        for topic in body.topic_states:
            if topic.topic_id is None:
                self._violation(f"LeaderAndIsr without the id of topic {topic.topic_name!r}")
        answers = self.replicas.become_leader_or_follower(body)
        self._count(code for partitions in answers.values() for code in partitions.values())
        return build(
            response,
            error_code=ErrorCode.none,
            topics=[
                {
                    "topic_id": topic_id,
                    "partition_errors": [
                        {"partition_index": index, "error_code": code} for index, code in partitions.items()
                    ],
                }
                for (_, topic_id), partitions in answers.items()
            ],
        )

    def _count(self, codes: Any) -> None:
        for code in codes:
            if code is not ErrorCode.none:
                self.errors[code] += 1

    def _violation(self, text: str) -> None:
        self.violations.append(f"broker {self.options.broker_id}: {text}")
        log.warning("%s", self.violations[-1])

    # --- life cycle ---

    def _connections(self) -> tuple[KafkaListener, ControllerChannel]:
        """Make the connections of the next run, in both directions."""
        own, name = self.options, f"light-broker-{self.options.broker_id}"
        apis = APIS if own.file is None else APIS | CLIENT_APIS
        listener = KafkaListener(own.listener, self, apis=apis, security=own.security, raw_apis=self.raw_apis)
        return listener, ControllerChannel(own.controllers, name, own.at_controllers)

    def _begin_life(self) -> None:
        self.epoch = -1
        self.fenced = True
        self.cache = MetadataCache()
        self.replicas.restart()
        self._controller_epoch = -1
        self._informed = False
        self._shutdown_wanted.clear()
        self._may_stop.clear()

    def _endpoint(self) -> Endpoint:
        return Endpoint(self.options.listener, "127.0.0.1", self.port, self.options.protocol)

    async def _live(self) -> None:
        """Register once, then send heartbeats for ever: a broker in ZooKeeper mode never registers twice."""
        await self._register()
        caught_up = False
        while True:
            response = await self._heartbeat(want_fence=not caught_up)
            if response is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            caught_up = caught_up or response.is_caught_up
            self.fenced = response.is_fenced
            if not self.fenced:
                self.running.set()
            else:
                self.running.clear()
            if self._shutdown_wanted.is_set():
                if response.should_shut_down:
                    self._may_stop.set()
                await asyncio.sleep(BUSY_HEARTBEAT_SECONDS)
            else:
                settled = caught_up and not self.fenced
                await self._pause(self.options.heartbeat_interval_seconds if settled else BUSY_HEARTBEAT_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but wake when the broker is asked to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._shutdown_wanted.wait()

    async def _take_followers_in(self) -> None:
        """Add living followers to the ISR: followers of a light broker are always caught up."""
        while True:
            await asyncio.sleep(CATCH_UP_SECONDS)
            if self.running.is_set() and not self._shutdown_wanted.is_set():
                wanted = {
                    key: replica.replicas
                    for key, replica in self.replicas.hosted.items()
                    if self._can_grow(key, replica)
                }
                self._count((await self._isrs.alter(self.epoch, wanted)).values())

    async def _follow_log(self) -> None:
        follower = LogFollower(self.options.controllers, self.options.at_controllers)
        try:
            while True:
                with contextlib.suppress(NoAnswerError):
                    take_over(await follower.advance(), self.options.broker_id, self.cache, self.replicas)
                await asyncio.sleep(FOLLOW_SECONDS)
        finally:
            await follower.close()

    def _can_grow(self, key: Key, replica: LightReplica) -> bool:
        if replica.leader != self.options.broker_id or set(replica.isr) >= set(replica.replicas):
            return False
        cached = self.cache.topics.get(key[0], {}).get(key[1])
        return cached is not None and not cached.offline_replicas

    async def _register(self) -> None:
        broker_id = self.options.broker_id
        request = build(
            request_type(BROKER_REGISTRATION, 4),
            broker_id=broker_id,
            cluster_id=self.options.cluster_id,
            incarnation_id=UUID(int=self._random.getrandbits(128)),
            listeners=[
                {
                    "name": self.options.listener,
                    "host": "127.0.0.1",
                    "port": self.port,
                    "security_protocol": int(self.options.protocol),
                }
            ],
            features=[
                {
                    "name": "metadata.version",
                    "min_supported_version": 1 if self.mode is LightBrokerMode.KRAFT else self.options.metadata_version,
                    "max_supported_version": self.options.metadata_version,
                },
                {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1},
            ],
            rack=self._rack,
            is_migrating_zk_broker=self.mode is LightBrokerMode.MIGRATING,
            log_dirs=(directory_of(broker_id),),
            previous_broker_epoch=-1,
        )
        while True:
            response = await self._ask(request)
            if response is not None and response.error_code is ErrorCode.none:
                self.epoch = response.broker_epoch
                return
            if response is not None:
                self.errors[response.error_code] += 1
                log.info("broker %d: registration refused: %s", broker_id, response.error_code.name)
            await asyncio.sleep(RETRY_SECONDS)

    async def _heartbeat(self, *, want_fence: bool) -> Any:
        """Send a heartbeat; return the answer, None without one or after a refusal."""
        request = build(
            request_type(BROKER_HEARTBEAT, 1),
            broker_id=self.options.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=max(self.epoch, await self._metadata_offset()),
            want_fence=want_fence,
            want_shut_down=self._shutdown_wanted.is_set(),
        )
        response = await self._ask(request)
        if response is not None and response.error_code is not ErrorCode.none:
            self.errors[response.error_code] += 1
            return None
        return response

    async def _metadata_offset(self) -> int:
        """The offset that a broker's copy of the metadata log would be at: all that is committed. -1: unknown."""
        request = build(
            request_type(DESCRIBE_QUORUM, 1),
            topics=[{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}],
        )
        response = await self._ask(request)
        if response is None or response.error_code is not ErrorCode.none or not response.topics:
            return -1
        return int(response.topics[0].partitions[0].high_watermark) - 1

    async def _ask(self, request: Any) -> Any:
        try:
            return await self._channel.request(request, timeout_seconds=10.0)
        except TransportError as error:
            log.info("broker %d: %s", self.options.broker_id, error)
            return None
