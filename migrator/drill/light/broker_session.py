"""A broker's ZooKeeper side: its ephemeral registration, and its candidacy for the ZooKeeper controller.

`LightBroker` uses it while it is in ZooKeeper mode. It registers again after an expired session, and elects as Kafka's
brokers do. It blocks, so callers on an event loop use a thread. Source: ``KafkaZkClient.registerBroker``,
``KafkaController.elect``.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, WatchedEvent

from migrator.clock import wall_ms
from migrator.drill.light.metadata_cache import CachedPartition
from migrator.records.metadata import Endpoint
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.controller import (
    ControllerClaim,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.topics import decode_topic

log = logging.getLogger(__name__)

START_SECONDS = 30.0


class LightBrokerSession:
    """Blocking: callers on an event loop use a thread.

    :param access: how to connect; its chroot is the cluster's.
    :param session_seconds: time-out of the ZooKeeper session.
    """

    def __init__(
        self, broker_id: int, access: SessionOptions, endpoint: Endpoint, rack: str, *, session_seconds: float
    ) -> None:
        self._broker_id = broker_id
        self._endpoint = endpoint
        self._rack = rack
        self._session = ZooKeeperSession(replace(access, session_timeout_ms=int(session_seconds * 1000)))
        self._client = self._session.client
        self._stopping = threading.Event()
        self.elections: list[int] = []
        """Controller epochs that this broker was elected with."""

    def start(self) -> None:
        """Register, then stand for election, as a broker does at its start.

        :raises KazooException: ZooKeeper does not answer, or another broker has this id.
        """
        self._client.start(timeout=START_SECONDS)
        self._client.add_listener(self._on_state)
        self._register()
        self._elect()

    def stop(self) -> None:
        """Close the session, which removes its ephemeral znodes at once."""
        self._stopping.set()
        self._client.stop()
        self._client.close()

    def partitions(self) -> dict[str, dict[int, CachedPartition]]:
        """The partitions by topic, as a ZooKeeper controller would set them now: a broker that has left is out of sync
        and leads nothing. An elected light broker changes no states itself.

        :raises KazooException: ZooKeeper does not answer.
        """
        live = {int(name) for name in self._client.get_children(paths.BROKER_IDS)}
        return {topic: self._partitions_of(topic, live) for topic in self._client.get_children(paths.TOPICS)}

    def _partitions_of(self, topic: str, live: set[int]) -> dict[int, CachedPartition]:
        path = paths.topic(topic)
        found = {}
        for number, replicas in decode_topic(path, self._client.get(path)[0]).partitions.items():
            data, stat = self._client.get(paths.partition_state(topic, number))
            state = decode_partition_state(paths.partition_state(topic, number), data)
            isr = tuple(replica for replica in state.isr if replica in live)
            leader = state.leader if state.leader in isr else next(iter(isr), -1)
            offline = tuple(replica for replica in replicas if replica not in live)
            found[number] = CachedPartition(leader, state.leader_epoch, isr, stat.version, tuple(replicas), offline)
        return found

    def _register(self) -> None:
        registration = BrokerRegistrationZnode(
            version=5,
            endpoints=(self._endpoint,),
            host=self._endpoint.host,
            port=self._endpoint.port,
            jmx_port=-1,
            timestamp_ms=wall_ms(),
            rack=self._rack,
        )
        path = paths.broker(self._broker_id)
        try:
            acl = self._session.acl_of(path)
            self._client.create(path, encode_broker(registration), acl=acl, ephemeral=True, makepath=True)
        except NodeExistsError:
            _, stat = self._client.get(path)
            if stat.ephemeralOwner != self._client.client_id[0]:
                raise

    def _on_state(self, state: str) -> bool | None:
        """Create all ephemeral znodes again after the session has expired."""
        if state == KazooState.CONNECTED and not self._stopping.is_set():
            self._client.handler.spawn(self._register_again)
        return None

    def _register_again(self) -> None:
        try:
            self._register()
            self._elect()
        except KazooException as error:
            log.info("broker %d: %s: %s", self._broker_id, type(error).__name__, error)

    def _on_controller(self, _event: WatchedEvent) -> None:
        if not self._stopping.is_set():
            self._register_again()

    def _elect(self) -> None:
        """Stand for election if there is no controller; after a failure wait until `/controller` changes."""
        if self._client.exists(paths.CONTROLLER, watch=self._on_controller) is not None:
            return
        try:
            data, stat = self._client.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            return
        epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, data) + 1
        claim = ControllerClaim(self._broker_id, wall_ms())
        transaction = self._client.transaction()
        acl = self._session.acl_of(paths.CONTROLLER)
        transaction.create(paths.CONTROLLER, encode_controller(claim), acl=acl, ephemeral=True)
        transaction.set_data(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version)
        answers = transaction.commit()
        if not any(isinstance(answer, Exception) for answer in answers):
            self.elections.append(epoch)
        elif not any(isinstance(answer, (NodeExistsError, BadVersionError)) for answer in answers):
            log.info("broker %d: not elected: %s", self._broker_id, answers)
