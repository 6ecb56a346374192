"""The target of attacks: a controller with every door, or three; ours, or stock Kafka's with the same properties."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

import psutil
from kio.schema.errors import ErrorCode

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.drill.cluster import TOKEN_SECRET, ControllerProcess, leader_among, speak_grpc, statuses_of
from migrator.parts.certificates import Authority, write_private
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import ChildProcess, free_port
from migrator.records.acl_codes import AclOperation
from tests.doors.support.caller import Caller, Login
from tests.drill.support.stock_controllers import StockController
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
STOCK_VERSION = "3.9.1"
STOCK_HEAP = "1g"
POLL_SECONDS = 0.1
ACCOUNT_CHARACTERS = 50_000
"""A traceback is longer than the last lines of a log, and what came before it says why."""
CLUSTER_RIGHTS = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
SCRAPER = "prometheus:of-the-metrics"


class Door(Enum):
    """Where attackers stand. The Kafka listeners are named after their protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"
    GRPC = "gRPC"
    METRICS = "metrics"


LISTENERS = (Door.SSL, Door.PLAINTEXT, Door.SASL_PLAINTEXT, Door.SASL_SSL)
"""The first one is what the controllers use among themselves."""


class Who(Enum):
    """Kinds of callers; a user or a common name, but for strangers."""

    STRANGER = "stranger"
    """Has proved no name: without a login, or on a door that asks for none."""
    KNOWN = "app"
    """Has proved a name that has no right."""
    OPERATOR = "admin"
    """May alter and describe the cluster, and is no broker."""
    BROKER = "broker"
    """May act for the cluster."""
    VOTER = "controller-1"


def password_of(who: Who) -> str:
    return f"{who.value}-secret"


class MeasuredController(ControllerProcess):
    """One of ours, whose turns of the event loop are noted: see `tests.doors.costs.measured`."""

    @property
    def turns(self) -> Path:
        return self.directory / "turns"

    def run(self) -> None:
        command = [sys.executable, "-m", "tests.doors.costs.measured", str(self.turns)]
        command += ["controller", "-c", str(self.property_file)]
        self.process = ChildProcess(
            f"controller {self.node_id}", command, output=self.directory / "controller.log", cwd=ROOT
        )


class JavaController(StockController):
    """A stock controller with the memory and the compilers that a real one has."""

    def __init__(self, kafka: StockKafka, like: ControllerProcess) -> None:
        super().__init__(kafka, like)
        self._release = kafka

    def _node(self) -> StockNode:
        jvm = Jvm(heap=STOCK_HEAP, flags=())
        return self._release.node(f"controller {self.node_id}", self.directory, self.properties, jvm=jvm)


class Place:
    """Controllers and the certificates of everybody.

    :param voters: how many; all doors of each are open.
    :param nice: of the controllers and of honest callers; attackers are 19 below.
    """

    def __init__(self, directory: Path, *, stock: bool = False, voters: int = 1, nice: int = 0) -> None:
        self.nice = nice
        self.directory = directory
        self.authority = Authority("costs")
        self.stock = stock
        self._operates = False
        nodes = range(1, voters + 1)
        self.ports = {node: {door: free_port() for door in Door} for node in nodes}
        ours = [MeasuredController(node, directory / str(node), self._properties(node)) for node in nodes]
        self.controllers: Sequence[ControllerProcess] = ours
        if stock:
            kafka = KafkaRelease(STOCK_VERSION).fetch()
            self.controllers = [JavaController(kafka, controller) for controller in ours]
        else:
            speak_grpc(ours, self.authority)
            for own in ours:
                own.properties |= self._own_doors(own)
        directory.mkdir(parents=True, exist_ok=True)
        write_private(directory / "scrapers", SCRAPER)
        for each in self.controllers:
            each.format()

    def _own_doors(self, controller: ControllerProcess) -> dict[str, str]:
        """The doors that stock does not have."""
        ports, tls = self.ports[controller.node_id], "migrator.grpc.tls"
        peers = ",".join(f"{node}@127.0.0.1:{each[Door.GRPC]}" for node, each in self.ports.items())
        return {
            "migrator.grpc.listener": f"127.0.0.1:{ports[Door.GRPC]}",
            "migrator.grpc.voters": peers,
            "migrator.grpc.operator.principals": f"User:CN={Who.OPERATOR.value}",
            "migrator.metrics.listener": f"127.0.0.1:{ports[Door.METRICS]}",
            "migrator.metrics.tls.certificate.file": controller.properties[f"{tls}.certificate.file"],
            "migrator.metrics.tls.key.file": controller.properties[f"{tls}.key.file"],
            "migrator.metrics.basic.auth.file": str(self.directory / "scrapers"),
        }

    def _properties(self, node: int) -> dict[str, str]:
        store = self.directory / f"{node}.pem"
        store.parent.mkdir(parents=True, exist_ok=True)
        self.authority.store(store, f"controller-{node}")
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        users = " ".join(f'user_{who.value}="{password_of(who)}"' for who in Who)
        jaas = f'{plain} username="{Who.BROKER.value}" password="{password_of(Who.BROKER)}" {users};'
        logins = [door.value for door in LISTENERS if door.value.startswith("SASL")]
        supers = [f"User:CN=controller-{each}" for each in self.ports]
        supers += [f"User:{Who.BROKER.value}", f"User:CN={Who.BROKER.value}"]
        return {
            "process.roles": "controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(
                f"{each}@localhost:{ports[Door.SSL]}" for each, ports in self.ports.items()
            ),
            "controller.listener.names": ",".join(door.value for door in LISTENERS),
            "listeners": ",".join(f"{door.value}://localhost:{self.ports[node][door]}" for door in LISTENERS),
            "listener.security.protocol.map": ",".join(
                ["INSIDE:PLAINTEXT", *(f"{door.value}:{door.value}" for door in LISTENERS)]
            ),
            "inter.broker.listener.name": "INSIDE",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.trust(self.directory / "ca.pem")),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": jaas for name in logins},
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": ";".join(supers),
            "delegation.token.secret.key": TOKEN_SECRET,
        }

    def caller(self, door: Door, who: Who) -> Caller:
        """How such a caller stands there."""
        tls = door not in (Door.PLAINTEXT, Door.SASL_PLAINTEXT)
        shows = who is not Who.STRANGER
        return Caller(
            authority=self.authority.pem if tls else None,
            key_and_certificate=self.authority.issue(who.value) if shows and door in (Door.SSL, Door.GRPC) else None,
            login=Login(who.value, password_of(who)) if shows and door.value.startswith("SASL") else None,
        )

    @property
    def leader(self) -> ControllerProcess:
        """The one that led when the place was opened."""
        return self._leader

    def start(self) -> None:
        """Until one leads, and it serves."""
        for controller in self.controllers:
            controller.start()
            assert controller.process is not None
            give_priority(controller.process, self.nice)
        leader, _ = self.led()
        self._leader = next(each for each in self.controllers if each.node_id == leader)

    def led(self) -> tuple[int, int]:
        """Wait for a leader; returns its id and epoch."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.leadership()) is None:
            assert time.monotonic() < deadline, self.account()
            assert all(controller.runs for controller in self.controllers), self.account()
            time.sleep(POLL_SECONDS)
        return found

    def leadership(self) -> tuple[int, int] | None:
        """Id and epoch of the leader; None without one."""
        status = leader_among(asyncio.run(statuses_of(self.controllers)).values())
        return None if status is None else (status.node_id, status.quorum.leader_epoch)

    def let_operate(self) -> None:
        """Give the operator what an operator needs, which is less than a broker's right. Not more than once."""
        if self._operates:
            return
        self._operates = True
        rule = {
            "resource_pattern_type": 3,
            "principal": f"User:{Who.OPERATOR.value}",
            "host": "*",
            "permission_type": 3,
        }
        cluster = {"resource_type": 4, "resource_name": "kafka-cluster"}
        topics = {"resource_type": 2, "resource_name": "*"}
        creations = [{**rule, **cluster, "operation": int(each)} for each in CLUSTER_RIGHTS]
        creations.append({**rule, **topics, "operation": int(AclOperation.DESCRIBE_CONFIGS)})
        caller = self.caller(Door.SASL_SSL, Who.BROKER)
        answer = caller.answer(self.ports[self.leader.node_id][Door.SASL_SSL], 30, 3, {"creations": creations})
        assert answer is not None
        assert {each.error_code for each in answer.results} == {ErrorCode.none}, answer

    def account(self) -> str:
        """Their last lines, for a failure's message."""
        said = [each.process.output_text() for each in self.controllers if each.process is not None]
        return "\n".join(text[-ACCOUNT_CHARACTERS:] for text in said)


@contextmanager
def place_in(directory: Path, *, stock: bool = False, voters: int = 1, nice: int = 0) -> Iterator[Place]:
    """Started; the parameters as `Place`'s."""
    place = Place(directory, stock=stock, voters=voters, nice=nice)
    try:
        place.start()
        yield place
    finally:
        for controller in place.controllers:
            controller.kill()


def give_priority(child: ChildProcess, nice: int) -> None:
    """As ``nice``; but where Linux shares a machine out by session first (autogroups), that of a process only counts
    within its own session, and each child of ours has one.

    :raises PermissionError: below 0 only root may go.
    """
    os.setpriority(os.PRIO_PROCESS, child.pid, nice)
    with contextlib.suppress(FileNotFoundError):
        Path(f"/proc/{child.pid}/autogroup").write_text(str(nice), encoding="ascii")


def pss_bytes(controller: ControllerProcess) -> int:
    """Memory of a controller and its worker processes, shared pages in parts; 0 when it has ended."""
    if controller.process is None:
        return 0
    total = 0
    try:
        process = psutil.Process(controller.process.pid)
        for each in (process, *process.children(recursive=True)):
            lines = Path(f"/proc/{each.pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (psutil.Error, OSError, StopIteration):
        pass
    return total
