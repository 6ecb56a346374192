"""Real brokers while things die: whatever was acknowledged, records and metadata, is there in the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess, zookeeper_client
from migrator.drill.kafka.clients import ANSWER_SECONDS, Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.observe.status import BrokerState
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka, StockNode, start_together
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.faults.support.gate import MULTI_READ, Gate, Request
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import problems, stage
from tests.patience import PATIENCE_SECONDS

TOPIC = "orders"
OTHER_CLUSTER_ID = "YW5vdGhlciBjbHVzdGVyIQ"
QUICK_CONTROLLERS = {
    "controller.quorum.election.timeout.ms": "800",
    "controller.quorum.fetch.timeout.ms": "1600",
    "controller.quorum.election.backoff.max.ms": "400",
    "broker.session.timeout.ms": "6000",
    "zookeeper.session.timeout.ms": "6000",
}
"""Short waits, so that a test is."""
QUICK_BROKERS = {
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "6000",
    "min.insync.replicas": "2",
    "controller.socket.timeout.ms": "3000",
}
"""The last one: for how long a broker waits for a controller that sleeps before it looks for another one."""
GIVES_UP = {"initial.broker.registration.timeout.ms": "6000"}
"""For how long a broker that is refused tries again."""
LATE = 3
"""The broker that joins the migration when the others wait for it."""
TWO = dict.fromkeys((1, 2), True)
ZOOKEEPER_MODE = dict.fromkeys((1, 2, 3), True)
KRAFT_MODE = dict.fromkeys((1, 2, 3), False)
ANYTHING: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, ANYTHING, ResourcePatternType.ANY, ANYTHING, ANYTHING, AclOperation.ANY, AclPermissionType.ANY
)


class Changes:
    """Changes the metadata all the time, and keeps what was acknowledged; a context manager.

    Its client has little patience: brokers name one of them as the controller, and it may be the one that sleeps.
    """

    def __init__(self, admin: Admin, bootstrap: str) -> None:
        self._admin = admin
        patience = {"socket.timeout.ms": "4000", "topic.metadata.refresh.interval.ms": "1000"}
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **patience})
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def goes_on(self) -> bool:
        """Whether one more is acknowledged, soon."""
        before = len(self.acknowledged)
        until("metadata is changed", lambda: len(self.acknowledged) > before, seconds=PATIENCE_SECONDS)
        return True

    def missing(self) -> set[str]:
        """Acknowledged changes that the brokers do not know."""
        found = self._admin.client.describe_acls(EVERY_ACL).result(ANSWER_SECONDS)
        return set(self.acknowledged) - {each.principal for each in found}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.2):
            number += 1
            principal = f"User:{number}"
            entry = AclBinding(
                ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, principal, "*", AclOperation.READ,
                AclPermissionType.ALLOW,
            )  # fmt: skip
            try:
                self._admin.wait(self._client.create_acls([entry], request_timeout=4.0))
            except (KafkaException, NoAnswerError):
                continue
            self.acknowledged.append(principal)


class Scene:
    """Three controllers and three brokers, their users, and a ZooKeeper that can be killed."""

    def __init__(self, cluster: KafkaCluster, zookeeper: EmbeddedZooKeeper, changes: Changes) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.changes = changes
        self._written: dict[str, Traffic] = {}
        self.topics: list[str] = []
        self.refusals: list[str] = []
        self.copied = False
        """Before the copy it is ZooKeeper that notices that a broker is gone."""
        self.admin = Admin(cluster.bootstrap, 3)

    @contextmanager
    def writing(self, topic: str) -> Iterator[None]:
        """Records are written to this new topic."""
        self.admin.create_on(topic, [self.replicas, self.replicas[1:] + self.replicas[:1], self.replicas])
        with Traffic(self.cluster.bootstrap, topic) as traffic:
            self._written[topic] = traffic
            yield

    @property
    def replicas(self) -> list[int]:
        """Of new topics: the late broker has none before it comes, or the migration would wait for it."""
        return [1, 2, LATE] if self.copied else [1, 2]

    @property
    def traffic(self) -> Traffic:
        """The records that are written now."""
        return list(self._written.values())[-1]

    def audit(self) -> None:
        """Every record that was written is read back once."""
        for topic, traffic in self._written.items():
            assert traffic.errors == []
            values = consume(self.cluster.bootstrap, topic, "auditors", traffic.sent)
            assert sorted(map(int, values)) == list(range(traffic.sent))

    def until_settled(self, state: State, running: Mapping[int, bool]) -> None:
        """All nodes are there, all replicas are in sync, records and changes are acknowledged.

        :param running: unfenced brokers, and whether they are in ZooKeeper mode.
        """
        until(state.value, lambda: self.cluster.migration_state() == state.value, seconds=PATIENCE_SECONDS)
        until("all controllers answer", lambda: len(self.cluster.statuses()) == 3)
        until("all brokers are unfenced", lambda: self.cluster.running_brokers() == running, seconds=PATIENCE_SECONDS)
        until("all is in sync", self.admin.in_sync, seconds=PATIENCE_SECONDS)
        until("records are acknowledged", self.traffic.goes_on, seconds=PATIENCE_SECONDS)
        assert self.changes.goes_on()

    def until_gone(self, broker: int) -> None:
        """ZooKeeper has forgotten the broker."""
        with zookeeper_client(self.zookeeper.hosts + "/kafka") as client:
            until("the broker's znode is gone", lambda: client.exists(paths.broker(broker)) is None)

    def create_topic(self) -> None:
        """As users do: again, until it is there.

        Before the copy a stock broker leads. There, the topic has to be on every replica before the next fault comes: a
        broker whose session expires while it handles LeaderAndIsr keeps a partition without a log, and refuses every
        further LeaderAndIsr with it, until it is restarted (docs/interop.md).
        """
        name = f"topic-{len(self.topics)}"
        try:
            until(f"{name} is created", partial(self._created, name), seconds=PATIENCE_SECONDS)
        except OperatorError as error:
            raise AssertionError(f"{error}, but {self.refusals[-3:]}") from error
        self.topics.append(name)
        if not self.copied:
            until(f"{name} is on every replica", partial(self._is_on_disk, name), seconds=PATIENCE_SECONDS)

    def _is_on_disk(self, topic: str) -> bool:
        data = [self.cluster.brokers[broker].directory / "data" for broker in self.replicas]
        return all((directory / f"{topic}-0").is_dir() for directory in data)

    def _created(self, name: str) -> bool:
        """A client that was refused forgets who the controller was only after minutes: the next try has a new one."""
        try:
            self.admin.create_on(name, [self.replicas])
        except (NoAnswerError, KafkaException) as error:
            exists = isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            self.refusals.append(str(error))
            self.admin = Admin(self.cluster.bootstrap, 3)
            return exists
        return True

    def followers(self) -> list[ControllerProcess]:
        leader = self.cluster.leading()
        return [each for each in self.cluster.controllers if each is not leader]


def first_read_of_a_copy(gate: Gate, request: Request) -> bool:
    return request.operation == MULTI_READ and gate.claimed


@contextmanager
def held_copy(cluster: KafkaCluster, server: str, chroot: str) -> Iterator[Callable[[], bool]]:
    """Whoever copies stands still with its transaction open, until this context is left; gives whether it does."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    gates = [Gate(server) for _ in cluster.controllers]
    try:
        for gate, controller in zip(gates, cluster.controllers, strict=True):
            asyncio.run_coroutine_threadsafe(gate.__aenter__(), loop).result()
            controller.properties["zookeeper.connect"] = gate.hosts + chroot
            gate.stop_at(partial(first_read_of_a_copy, gate))
        yield lambda: any(gate.reached.is_set() for gate in gates)
    finally:
        for gate in gates:
            asyncio.run_coroutine_threadsafe(gate.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_nothing_acknowledged_is_lost(kafka_391: StockKafka, own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """kill -9 and SIGSTOP of leader, follower and broker, and a ZooKeeper that dies: while brokers are waited for,
    in the copy, in dual-write, with brokers in KRaft mode, and after the end."""
    with zookeeper_client(own_zookeeper.hosts) as client:
        client.create("/kafka" + paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(
        kafka_391,
        tmp_path,
        controllers=3,
        brokers=3,
        zookeeper=own_zookeeper.hosts + "/kafka",
        broker_properties=QUICK_BROKERS,
        controller_properties=QUICK_CONTROLLERS,
    ) as cluster:
        for broker, node in cluster.brokers.items():
            node.properties = cluster.properties_of(
                broker, KafkaBrokerMode.ZOOKEEPER if broker == LATE else KafkaBrokerMode.MIGRATING
            )
        start_together(list(cluster.brokers.values()))
        cluster.start_controllers()
        admin = Admin(cluster.bootstrap, 3)
        with Changes(admin, cluster.bootstrap) as changes:
            scene = Scene(cluster, own_zookeeper, changes)
            with scene.writing("before"):
                faults(scene, "waiting for a broker", State.WAITING_FOR_BROKERS, running=TWO)
            with stage("in the copy: a broker registers, others and a follower are killed, then the leader"):
                faults_in_the_copy(scene)
            with scene.writing("after"):
                faults(scene, "dual-write", State.DUAL_WRITING, running=ZOOKEEPER_MODE)
                cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
                faults(scene, "brokers in KRaft mode", State.DUAL_WRITING, running=KRAFT_MODE)
                so_far = [*changes.acknowledged]
                until("ZooKeeper has every change", lambda: written(own_zookeeper, so_far))
                cluster.finish_migration()
                until("the end", lambda: cluster.public_states() == {"Finished"}, seconds=PATIENCE_SECONDS)
                faults(scene, "finished", State.FINISHED, running=KRAFT_MODE)
        scene.audit()
        until("every acknowledged change is known", lambda: not changes.missing())
        until("every topic is known", lambda: set(scene.topics) <= admin.topics().keys())


def faults_in_the_copy(scene: Scene) -> None:
    """The late broker's registration must not become part of the transaction that the next leader aborts: a broker in
    ZooKeeper mode registers only once.

    Nobody writes meanwhile. A broker that starts during a copy knows no topic until its end, which is far here, and
    librdkafka fails what is sent to it. (Stock controllers keep it waiting likewise.)
    """
    cluster = scene.cluster
    cluster.stop_controllers()
    cluster.brokers[LATE].stop()
    scene.until_gone(LATE)
    with held_copy(cluster, scene.zookeeper.hosts, "/kafka") as held:
        cluster.resume_controllers()
        until("the copy is held", held)
        late = cluster.brokers[LATE]
        late.properties = cluster.properties_of(LATE, KafkaBrokerMode.MIGRATING)
        late.start()
        late.process.wait_for_output(rf"Incarnation \S+ of broker {LATE} in cluster", timeout_seconds=PATIENCE_SECONDS)
        until("the late one is not registered, and the others are", lambda: set(registered(cluster)) == {1, 2})
        follower = scene.followers()[0]
        follower.kill()
        cluster.brokers[1].kill()
        follower.start()
        cluster.restart_killed_broker(1)
        cluster.leading().kill()
    for controller in cluster.controllers:
        controller.stop()
        controller.properties["zookeeper.connect"] = f"{scene.zookeeper.hosts}/kafka"
    cluster.resume_controllers()
    until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value, seconds=PATIENCE_SECONDS)
    until("all brokers are unfenced", lambda: cluster.running_brokers() == ZOOKEEPER_MODE, seconds=PATIENCE_SECONDS)
    scene.copied = True


def written(zookeeper: EmbeddedZooKeeper, acknowledged: Sequence[str]) -> bool:
    """Whether ZooKeeper holds these."""
    with zookeeper_client(zookeeper.hosts + "/kafka") as client:
        known = client.get(f"{paths.LITERAL_ACLS}/Topic/{TOPIC}")[0].decode()
    return all(f'"{principal}"' in known for principal in acknowledged)


def faults(scene: Scene, phase: str, state: State, *, running: Mapping[int, bool]) -> None:
    """One fault after the other; the cluster settles in between."""
    kinds = (kill_the_leader, stop_the_leader, kill_a_broker_and_a_follower, stop_a_broker_and_a_follower)
    for kind in kinds if state is State.FINISHED else (*kinds, kill_zookeeper):
        with stage(f"{phase}: {kind.__name__}"):
            kind(scene)
            scene.until_settled(state, running)
            scene.create_topic()


def kill_the_leader(scene: Scene) -> None:
    scene.cluster.kill_leader()


def stop_the_leader(scene: Scene) -> None:
    """It comes back and still takes itself for the leader, for a moment."""
    asleep = scene.cluster.leading()
    asleep.pause()
    until("another controller leads", lambda: scene.cluster.leader() is not None)
    scene.create_topic()
    asleep.resume()


def kill_a_broker_and_a_follower(scene: Scene) -> None:
    scene.cluster.brokers[1].kill()
    follower = scene.followers()[0]
    follower.kill()
    assert scene.changes.goes_on()
    follower.start()
    scene.cluster.restart_killed_broker(1)


def stop_a_broker_and_a_follower(scene: Scene) -> None:
    """The broker sleeps until it is fenced."""
    broker = scene.cluster.brokers[2].process
    follower = scene.followers()[-1]
    broker.pause()
    follower.pause()
    try:
        scene.until_gone(2)
        if scene.copied:
            until("the broker is fenced", lambda: 2 not in scene.cluster.running_brokers(), seconds=PATIENCE_SECONDS)
        assert scene.changes.goes_on()
    finally:
        broker.resume()
        follower.resume()


def kill_zookeeper(scene: Scene) -> None:
    """Records are acknowledged without it."""
    scene.zookeeper.kill()
    until("records are acknowledged", scene.traffic.goes_on)
    scene.zookeeper.start()


def test_brokers_that_must_not_come_in(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with zookeeper_client(zookeeper.hosts) as client:
        client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(
        kafka_391,
        tmp_path,
        controllers=1,
        brokers=3,
        zookeeper=zookeeper.hosts,
        broker_properties=QUICK_BROKERS | GIVES_UP,
        controller_properties={"super.users": "User:somebody-else"},
    ) as cluster:
        strangers = Strangers(cluster, kafka_391, tmp_path)
        request.addfinalizer(strangers.close)
        (controller,) = cluster.controllers
        with stage("an unauthorized principal"):
            an_unauthorized_principal(cluster)
        with stage("a broker with another metadata.version"):
            a_broker_with_another_metadata_version(cluster)
        with stage("before the copy: a KRaft broker, and one of another cluster"):
            kraft = strangers.add(4, CLUSTER_ID)
            foreign = strangers.add(5, OTHER_CLUSTER_ID)
            kraft.launch()
            foreign.launch()
            until_refused(kraft, "BROKER_ID_NOT_REGISTERED")
            until_refused(foreign, "INCONSISTENT_CLUSTER_ID")
            assert set(registered(cluster)) == {1, 2}
        with stage("in dual-write: a KRaft broker with a live broker's id"):
            third = cluster.brokers[3]
            third.stop()
            third.properties = cluster.properties_of(3, KafkaBrokerMode.MIGRATING)
            third.start()
            until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value, seconds=PATIENCE_SECONDS)
            until("brokers are unfenced", lambda: cluster.running_brokers() == dict.fromkeys((1, 2, 3), True))
            namesake = strangers.add(1, CLUSTER_ID)
            namesake.launch()
            until_refused(namesake, "DUPLICATE_BROKER_REGISTRATION")
            assert cluster.running_brokers() == dict.fromkeys((1, 2, 3), True)
        with stage("in dual-write: the KRaft broker that was too early"):
            kraft.start()
            until("it is unfenced", lambda: cluster.running_brokers().get(4) is False, seconds=PATIENCE_SECONDS)
        assert controller.process is not None
        assert "Traceback" not in controller.process.output_text()


def an_unauthorized_principal(cluster: KafkaCluster) -> None:
    """The brokers' principal may do nothing; the controller lives, and takes them when its file is put right."""
    cluster.start_controllers()
    broker = cluster.brokers[3]
    broker.properties = cluster.properties_of(3, KafkaBrokerMode.MIGRATING)
    broker.launch()
    broker.process.wait_for_output(
        "CLUSTER_AUTHORIZATION_FAILED|ClusterAuthorization", timeout_seconds=PATIENCE_SECONDS
    )
    assert registered(cluster) == {}
    broker.kill()
    (controller,) = cluster.controllers
    assert controller.stop() == 0
    controller.properties["super.users"] = "User:ANONYMOUS"


def a_broker_with_another_metadata_version(cluster: KafkaCluster) -> None:
    """It is refused and named; the two others are taken."""
    for broker, node in cluster.brokers.items():
        node.properties = cluster.properties_of(broker, KafkaBrokerMode.MIGRATING)
    wrong = cluster.brokers[3]
    wrong.properties["inter.broker.protocol.version"] = "3.8"
    start_together([cluster.brokers[1], cluster.brokers[2]])
    cluster.restart_killed_broker(3)
    cluster.resume_controllers()
    until("two are registered", lambda: set(registered(cluster)) == {1, 2}, seconds=PATIENCE_SECONDS)
    wrong.process.wait_for_output("UNSUPPORTED_VERSION", timeout_seconds=PATIENCE_SECONDS)
    until(
        "the third is named", lambda: "broker 3: its registration is refused: UNSUPPORTED_VERSION" in problems(cluster)
    )


def registered(cluster: KafkaCluster) -> dict[int, BrokerState]:
    """Brokers that the leader knows, by id."""
    leader = cluster.leader()
    return {} if leader is None else {each.broker_id: each.state for each in leader.brokers}


class Strangers:
    """Brokers in KRaft mode beside the cluster's own, formatted but not started."""

    def __init__(self, cluster: KafkaCluster, kafka: StockKafka, directory: Path) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._directory = directory
        self._nodes: list[StockNode] = []

    def add(self, broker_id: int, cluster_id: str) -> StockNode:
        node = self._kafka.node(
            f"stranger {broker_id}", self._directory / f"stranger-{broker_id}", {}, jvm=Jvm(heap="320m")
        )
        node.properties |= self._cluster.properties_of(1, KafkaBrokerMode.KRAFT) | {
            "node.id": str(broker_id),
            "log.dirs": str(node.directory / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        }
        node.format(cluster_id, release_version="3.9")
        self._nodes.append(node)
        return node

    def close(self) -> None:
        for node in self._nodes:
            node.kill()


def until_refused(node: StockNode, error: str) -> None:
    """With that error; it then gives up by itself."""
    node.process.wait_for_output(error, timeout_seconds=PATIENCE_SECONDS)
    assert node.process.wait(timeout_seconds=PATIENCE_SECONDS) != 0
