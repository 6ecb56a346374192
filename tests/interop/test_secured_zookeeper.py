"""A migration of stock Kafka on a ZooKeeper where every znode has an owner: there, back, there again and to the end.

What our controllers create has, path by path, the access control list that stock 3.9.1 gave its like before. Nothing
is lost on the way, and the cases of the long lane give every command that comes to ZooKeeper.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from migrator.config.load import load_settings, typed_settings
from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.cluster import BROKER_JVM, KafkaBrokerMode, until
from migrator.drill.security.protection import InClear
from migrator.errors import ExitCode
from migrator.image.model import MetadataImage
from migrator.migration.machine.states import State
from migrator.parts.certificates import Authority, write_private
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, ZooKeeperSasl, ZooKeeperTls
from migrator.zookeeper.ops import Applied, Create
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, default_acl, options_from
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.faults.support.cluster import different_rows, rows_of
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import alter_quotas, broker_is_controller, stage
from tests.parts.support.jaas import client_jaas

CHROOT = "/kafka"
CLUSTER = encode_cluster_id(CLUSTER_ID)
USER = "kafka"
PASSWORD = "zookeeper-secret"
"""Of the login, and of the private key that the controllers have."""
KINDS = 4
"""Kinds of rows that an entity of every family makes, at least."""
Acls = frozenset[tuple[str, str, int]]
BROKERS_OWN = re.compile(r"/(brokers/ids/.*|brokers/seqid|isr_change_notification/.*|log_dir_event_notification/.*)")
"""Znodes that come and go with brokers alone."""
FIRST, SECOND, THIRD, BACK = "alpha", "bravo", "charlie", "delta"
"""Texts in the names of entities: those made by stock Kafka, those made by us, and those made on the second way, and
by stock Kafka between the two."""


class Logged(InClear):
    """Everybody may do everything in Kafka, and nothing in ZooKeeper who does not prove who he is.

    :param keys: how a controller's property file says that.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys = {**keys, "zookeeper.set.acl": "true"}

    def session(self, hosts: str) -> SessionOptions:
        """See `InClear`."""
        return options_from(typed_settings(self.keys, "the test"), hosts)


@dataclass(frozen=True)
class Identity:
    """How everybody proves who they are: the server's options, and what brokers and controllers are given."""

    server: ZooKeeperOptions
    security: Logged
    jvm: Jvm
    brokers: dict[str, str]
    owner: tuple[str, str]


def by_sasl(directory: Path) -> Identity:
    """DIGEST-MD5, by the JAAS file that stock brokers are started with. Nobody else is served."""
    jaas = directory / "client-jaas.conf"
    jaas.write_text(client_jaas(USER, PASSWORD))
    flags = (*BROKER_JVM.flags, f"-Djava.security.auth.login.config={jaas}")
    return Identity(
        ZooKeeperOptions(sasl=ZooKeeperSasl({USER: PASSWORD})),
        Logged({"migrator.zookeeper.jaas.file": str(jaas)}),
        Jvm(BROKER_JVM.heap, flags),
        {},
        ("sasl", USER),
    )


def by_certificate(directory: Path) -> Identity:
    """TLS with a certificate of every client, and no port in clear; brokers and controllers have one name."""
    authority = Authority("zookeeper")
    trust = authority.trust(directory / "trust.pem")
    locked = directory / "locked.pem"
    write_private(locked, "".join(authority.issue(USER, PASSWORD)))
    keys = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(authority.store(directory / "client.pem", USER)),
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.truststore.location": str(trust),
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.enabled.protocols": "TLSv1.2",
    }
    server = ZooKeeperOptions(tls=ZooKeeperTls(authority.store(directory / "server.pem", "server"), trust))
    netty = {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty"}
    ours = keys | {"zookeeper.ssl.keystore.location": str(locked), "zookeeper.ssl.keystore.password": PASSWORD}
    return Identity(server, Logged(ours), BROKER_JVM, keys | netty, ("x509", f"CN={USER}"))


class ArgvWatch(threading.Thread):
    """Looks for the password in the arguments of every process of this machine, until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self.looks = 0
        self.found: set[str] = set()

    def run(self) -> None:
        while not self._done.wait(0.1):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    text = file.read_bytes()
                    self.looks += 1
                    if PASSWORD.encode() in text:
                        self.found.add(text.decode(errors="replace"))

    def stop(self) -> None:
        self._done.set()
        self.join()


class Journey:
    """One cluster and a session of its ZooKeeper with the identity that all its nodes have."""

    def __init__(
        self, cluster: KafkaCluster, session: ZooKeeperSession, owner: tuple[str, str], *, every_command: bool
    ) -> None:
        self.cluster = cluster
        self.session = session
        self.client: KazooClient = session.client
        self.owner = owner
        self.every_command = every_command
        self.admin = Admin(cluster.bootstrap, 1)
        self.said: list[str] = []
        """By our commands."""

    @property
    def property_file(self) -> Path:
        return self.cluster.controllers[0].property_file

    def run(self, *command: str) -> str:
        """A command of ours, as an operator types it."""
        self.said.append(run_to_end(command[0], [MIGRATOR, *command], timeout_seconds=COMMAND_SECONDS))
        return self.said[-1]

    def before(self) -> None:
        """All that looks at a ZooKeeper before a migration."""
        file = ("-c", str(self.property_file))
        assert "every partition has a state that decodes" in self.run("repair", "partition-states", *file, "--dry-run")
        self.run("rehearse", *file, "--out", str(self.cluster.directory / "rehearsal"))

    def within(self) -> None:
        """All that looks at it while it is written to, and repairs it. Spark notes what its pages would show."""
        notes = self.cluster.directory / "spark"
        notes.mkdir()
        kept = ("enabled=true", "compress=false", f"dir=file://{notes}")
        spark = [word for each in kept for word in ("--conf", f"spark.eventLog.{each}")]
        file = ("-c", str(self.property_file))
        self.run("verify", *file, *spark, "--page", str(notes / "page.html"), "--history", str(notes / "history"))
        assert any(
            b"SparkListenerEnvironmentUpdate" in each.read_bytes() for each in notes.rglob("*") if each.is_file()
        )
        self.run("verify", *file, "--repair", "--report")
        self.run("status", *file)
        self.run("gates", "rollback", *file)

    def equal(self) -> MetadataImage:
        """Wait until ZooKeeper equals the log, by the rules of `migrator verify`."""
        (controller,) = self.cluster.controllers
        until("both are equal", lambda: not different_rows(self.session.options, controller.image()))
        return controller.image()

    def lost(self, image: MetadataImage, *names: str) -> list[tuple[str, str]]:
        """Kinds of rows of the first name that another one lacks."""
        rows = rows_of(image)
        kinds = {name: {kind for kind, entity, _ in rows if name in entity} for name in names}
        assert len(kinds[names[0]]) >= KINDS, kinds
        return [(name, kind) for name in names for kind in kinds[names[0]] - kinds[name]]

    def files_with_the_password(self) -> list[Path]:
        """But for those that are there to hold it."""
        mine = (*self.cluster.controllers[0].directory.rglob("*"), *self.cluster.directory.glob("spark/**/*"))
        files = [each for each in mine if each.is_file() and each != self.property_file]
        assert files
        return [each for each in files if PASSWORD.encode() in each.read_bytes()]

    def make(self, name: str) -> None:
        """An entity of every family."""
        admin = self.admin
        admin.create(f"{name}-topic", 2, 1, retention_ms="7200000")
        credential = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"x")
        admin.wait(admin.client.alter_user_scram_credentials([credential]))
        alter_quotas(self.cluster, {"client-id": name}, producer_byte_rate=1e6)
        alter_quotas(self.cluster, {"ip": f"10.0.0.{len(name)}"}, connection_creation_rate=10)
        for pattern in (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED):
            allow = (f"User:{name}", "*", AclOperation.READ, AclPermissionType.ALLOW)
            admin.wait(admin.client.create_acls([AclBinding(ResourceType.TOPIC, f"{name}-topic", pattern, *allow)]))
        admin.alter_config(ResourceType.BROKER, "1", "num.io.threads", str(3 + len(name) % 3))
        until(
            f"ZooKeeper has what {name} stands for",
            lambda: all(self.client.exists(path) for path in self.of(name)),
        )

    @staticmethod
    def of(name: str) -> tuple[str, ...]:
        return (
            paths.partition_state(f"{name}-topic", 1),
            paths.topic_config(f"{name}-topic"),
            *(f"{parent}/{name}" for parent in (paths.USER_CONFIGS, paths.CLIENT_CONFIGS)),
            f"{paths.IP_CONFIGS}/10.0.0.{len(name)}",
            *(f"{parent}/Topic/{name}-topic" for parent in (paths.LITERAL_ACLS, paths.PREFIXED_ACLS)),
            f"{paths.BROKER_CONFIGS}/1",
        )

    def acls(self) -> dict[str, Acls]:
        """Of every znode below the chroot."""
        found: dict[str, Acls] = {}
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            try:
                waiting += [f"{path.rstrip('/')}/{name}" for name in self.client.get_children(path)]
                listed, _ = self.client.get_acls(path)
            except NoNodeError:  # of a broker, or a notice that was heard
                continue
            if path != "/" and not BROKERS_OWN.fullmatch(path):
                found[path] = frozenset((each.id.scheme, each.id.id, each.perms) for each in listed)
        return found

    def until_state(self, state: State) -> None:
        until(state.value, lambda: self.cluster.migration_state() == state.value)

    def restart(self, mode: KafkaBrokerMode) -> None:
        self.cluster.roll_brokers(mode, self.admin.in_sync)

    def migrate(self) -> None:
        self.until_state(State.WAITING_FOR_BROKERS)
        self.restart(KafkaBrokerMode.MIGRATING)
        self.until_state(State.DUAL_WRITING)
        until("the broker is unfenced", lambda: self.cluster.running_brokers() == {1: True})

    def expected(self, path: str) -> Acls:
        """The access list of a path by `default_acl`, with which we create znodes."""
        listed = default_acl(path, set_acl=True)
        return frozenset(
            (*(self.owner if each.id.scheme == "auth" else (each.id.scheme, each.id.id)), each.perms) for each in listed
        )

    def none_is_wrong(self) -> dict[str, Acls]:
        """Every znode has the access control list of its path."""
        acls = self.acls()
        assert {path: found for path, found in acls.items() if found != self.expected(path)} == {}
        return acls


LONG = pytest.mark.lane("test-long")


@pytest.fixture(
    params=[
        pytest.param((by_sasl, False), id="login"),
        pytest.param((by_sasl, True), id="login, every command", marks=LONG),
        pytest.param((by_certificate, True), id="certificate, every command", marks=LONG),
    ]
)
def journey(request: pytest.FixtureRequest, kafka_391: StockKafka, tmp_path: Path) -> Iterator[Journey]:
    """A broker in ZooKeeper mode that owns all it makes, and one controller, which is not formatted yet."""
    make: Callable[[Path], Identity]
    make, every_command = request.param
    identity = make(tmp_path)
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", options=identity.server)
    cluster = KafkaCluster(
        kafka_391,
        tmp_path,
        controllers=1,
        brokers=1,
        zookeeper=f"{server.hosts}{CHROOT}",
        broker_properties={"zookeeper.set.acl": "true", **identity.brokers},
        controller_properties=identity.security.keys,
        broker_jvm=identity.jvm,
        security=identity.security,
    )
    (controller,) = cluster.controllers
    controller.write_properties()
    options = options_from(load_settings(controller.property_file)[0])
    with server, cluster:
        with ZooKeeperSession(replace(options, hosts=options.hosts.removesuffix(CHROOT))) as whole:
            cluster_id = f"{CHROOT}{paths.CLUSTER_ID}"
            made = [*(Create(path, None) for path in paths.ancestors(cluster_id)), Create(cluster_id, CLUSTER)]
            assert isinstance(ConditionalWriter(whole).write(made), Applied)
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        with ZooKeeperSession(options) as session:
            yield Journey(cluster, session, identity.owner, every_command=every_command)


def test_there_and_back_and_to_the_end(journey: Journey) -> None:
    cluster, client = journey.cluster, journey.client
    watch = ArgvWatch()
    watch.start()
    with stage("stock Kafka makes one of everything"):
        journey.make(FIRST)
        stocks = journey.none_is_wrong()
        assert journey.owner[1] in {name for _, name, _ in stocks[f"{paths.USER_CONFIGS}/{FIRST}"]}
        assert journey.session.identity == ":".join(journey.owner)
    with stage("preflight finds nothing that we may not do"):
        text = journey.run("preflight", "-c", str(journey.property_file), "--json")
        assert '"M317"' not in text
        assert '"M318"' not in text
    if journey.every_command:
        with stage("commands before the migration"):
            journey.before()
    with stage("to dual-write"):
        cluster.start_controllers()
        journey.migrate()
        journey.make(SECOND)
        ours = journey.none_is_wrong()
        assert all(ours[path] == stocks[path.replace(SECOND, FIRST)] for path in journey.of(SECOND))
        assert {path: acl for path, acl in ours.items() if path in stocks and acl != stocks[path]} == {}
        assert journey.lost(journey.equal(), FIRST, SECOND) == []
    if journey.every_command:
        with stage("commands within the migration"):
            journey.within()
    with stage("back"):
        cluster.stop_controllers()
        journey.run("rollback", "-c", str(journey.property_file), "--yes")
        assert broker_is_controller(client)
        journey.restart(KafkaBrokerMode.ZOOKEEPER)
        journey.make(BACK)
        journey.admin.alter_config(ResourceType.TOPIC, f"{SECOND}-topic", "retention.ms", "7200001")
        until("stock writes what we made", lambda: b"7200001" in client.get(paths.topic_config(f"{SECOND}-topic"))[0])
        journey.none_is_wrong()
    with stage("there again, and to the end"):
        cluster.forget_controllers()
        cluster.start_controllers()
        journey.migrate()
        journey.make(THIRD)
        journey.none_is_wrong()
        assert journey.lost(journey.equal(), FIRST, SECOND, BACK, THIRD) == []
        journey.restart(KafkaBrokerMode.KRAFT)
        cluster.finish_migration()
        until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
        assert journey.lost(cluster.controllers[0].image(), FIRST, SECOND, BACK, THIRD) == []
        assert journey.admin.topic_config(f"{SECOND}-topic", "retention.ms") == "7200001"
    watch.stop()
    assert watch.looks
    assert watch.found == set()
    assert [said for said in journey.said if PASSWORD in said] == []
    assert journey.files_with_the_password() == []
    assert cluster.controllers[0].stop() == ExitCode.OK
