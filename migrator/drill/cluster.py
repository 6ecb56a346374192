"""The common parts of throw-away clusters: a real ZooKeeper, and our controllers as processes.

The steps in `migrator.drill.scenario` work on a `Cluster`; `kafka.real_cluster` and `light.cluster` add the brokers.
`close` ends every process, also after a failure. All files are below one directory, and all ports are on loopback.
"""

from __future__ import annotations

import asyncio
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

from kazoo.client import KazooClient

from migrator.config.endpoints import parse_host_port
from migrator.config.keys import FLAG
from migrator.config.property_edits import file_of
from migrator.drill.report import DrillReport
from migrator.drill.security.open_ports import ProcessWatch
from migrator.drill.security.protection import IN_CLEAR, LIFE, InClear, Secured
from migrator.drill.security.shaped import Shaped
from migrator.drill.shape import Shape
from migrator.drill.workload.workload import Workload
from migrator.drill.zookeeper_place import OutsideZooKeeper
from migrator.errors import InvariantViolation, OperatorError
from migrator.image.model import MetadataImage
from migrator.observe.status import JournalEvent, NodeRole, Status
from migrator.parts.certificates import Authority, PemFiles
from migrator.parts.processes import ChildProcess, free_port, run_to_end
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.rpc.operator_client import OperatorClient
from migrator.values import value
from migrator.verify.kraft.files import read_image
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession, default_acl

CHROOT = "/kafka"
CLUSTER_ID = "XkYOzJkUQQ-rHVYhnWGvTg"
ENCODER_SECRET = "drill-encoder-secret"  # noqa: S105 - of a throw-away cluster
TOKEN_SECRET = "drill-token-secret"  # noqa: S105
FIRST_CONTROLLER_ID = 3001
IDS_END = 2**31
COMMAND_SECONDS = 240.0
STATUS_SECONDS = 2.0
STOP_SECONDS = 30.0
WAIT_SECONDS = 300.0
"""How long a step waits for a condition; on a busy machine it may come late."""
ENDED_KEYS = (FLAG, "zookeeper.connect", "inter.broker.listener.name")
"""The keys that the end of the migration removes in Kafka's manual (docs/ops, "Finalizing the migration")."""
MIGRATOR = str(Path(sys.executable).with_name("migrator"))


@value
class ClusterOptions:
    """``transport``: the protocol of the quorum, ``grpc`` or ``kafka``. ``secure``: no port in clear, and permissions.
    ``outside``: a place in another ZooKeeper, used in place of a server of the drill.

    ``shape``: the shape of an operator's cluster, with as many brokers and controllers; not together with ``secure``.
    """

    partitions: int = 2000
    brokers: int = 3
    controllers: int = 3
    transport: str = "grpc"
    secure: bool = False
    outside: OutsideZooKeeper | None = None
    shape: Shape | None = None

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the brokers, in the order of their restarts."""
        if self.shape is not None:
            return tuple(node.node_id for node in self.shape.brokers)
        return tuple(range(1, self.brokers + 1))


@value
class Doors:
    """The addresses of the brokers for clients, by id, and for brokers and controllers; the addresses of the running
    controllers; and an existing topic."""

    brokers: Mapping[int, tuple[str, int]]
    between_brokers: Mapping[int, tuple[str, int]]
    controllers: Sequence[tuple[str, int]]
    topic: str


class ControllerProcess:
    """One `migrator controller` process, on its own directory and property file."""

    def __init__(self, node_id: int, directory: Path, properties: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.directory = directory
        self.metadata_directory = directory / "metadata"
        self.property_file = directory / "controller.properties"
        self.properties = {"log.dirs": str(self.metadata_directory), **properties}
        self.process: ChildProcess | None = None
        self.paused = False
        self._taken_away: dict[str, str] = {}

    @property
    def stock_properties(self) -> dict[str, str]:
        """The properties for a Kafka controller in its place."""
        return {key: text for key, text in self.properties.items() if not key.startswith("migrator.")}

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.exit_code() is None

    @property
    def listener(self) -> tuple[str, int]:
        """Its address for brokers and other controllers."""
        return parse_host_port(self.properties["listeners"].partition("://")[2])

    def address_of(self, key: str) -> tuple[str, int] | None:
        """The address in that key of its file; None without the key."""
        text = self.properties.get(key)
        return None if text is None else parse_host_port(text)

    def write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.property_file.write_text(file_of(self.properties))

    def format(self, release_version: str = "3.9") -> None:
        """:raises OperatorError: the command was refused; the error has its output."""
        self.write_properties()
        command = [MIGRATOR, "format", "-c", str(self.property_file), "-t", CLUSTER_ID]
        command += ["--release-version", release_version]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)

    def format_observer(self) -> None:
        """Format it for a quorum whose voters are in the log: it does not vote before it is added.

        :raises OperatorError: the command was refused; the error has its output.
        """
        self.write_properties()
        command = [MIGRATOR, "format", "-c", str(self.property_file), "-t", CLUSTER_ID, "--no-initial-controllers"]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)

    def start(self) -> None:
        """Start the process with the present properties, without waiting for it."""
        self.write_properties()
        self.run()

    def run(self) -> None:
        """Start the process with the property file as it is; the rollout may have written it."""
        command = [MIGRATOR, "controller", "-c", str(self.property_file)]
        self.process = ChildProcess(f"controller {self.node_id}", command, output=self.directory / "controller.log")

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        return 0 if self.process is None else self.process.stop(grace_seconds=STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Send SIGSTOP; it is not asked for its status until `resume`."""
        self.paused = True
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        if self.process is not None:
            self.process.resume()

    def set_migration(self, *, enabled: bool) -> None:
        """Set the migration for the next start: on, or ended as in Kafka's manual, which removes keys."""
        if enabled:
            self.properties |= self._taken_away | {FLAG: "true"}
        else:
            keys = [key for key in ENDED_KEYS if key in self.properties]
            self._taken_away |= {key: self.properties.pop(key) for key in keys}

    async def status(self) -> Status | None:
        """Its status; None when it does not answer."""
        if not self.runs or self.paused:
            return None
        try:
            async with OperatorClient.on_socket(self.metadata_directory) as client:
                return await client.status(STATUS_SECONDS)
        except OperatorError:
            return None

    async def journal(self) -> list[JournalEvent]:
        """Its journal, oldest first; :raises OperatorError: it does not answer."""
        async with OperatorClient.on_socket(self.metadata_directory) as client:
            return [event async for event in client.journal()]

    def image(self) -> MetadataImage:
        """The metadata in its directory; :raises OperatorError: it cannot be read."""
        return read_image(self.metadata_directory)


async def statuses_of(controllers: Sequence[ControllerProcess]) -> dict[int, Status]:
    answers = await asyncio.gather(*(controller.status() for controller in controllers))
    return {
        controller.node_id: status
        for controller, status in zip(controllers, answers, strict=True)
        if status is not None
    }


def free_ids(taken: Collection[int], count: int) -> tuple[int, ...]:
    """Unused ids, above the highest one if there is room: an operator's inventory may number its nodes in any way."""
    ids = chain(range(max(taken) + 1, IDS_END), range(1, IDS_END))
    return tuple(islice((node for node in ids if node not in taken), count))


def leader_among(statuses: Iterable[Status]) -> Status | None:
    """The status of the leader of the highest epoch; None when none leads."""
    leaders = [status for status in statuses if status.quorum.role is NodeRole.LEADER]
    return max(leaders, key=lambda status: status.quorum.leader_epoch, default=None)


class Cluster(ABC):
    """ZooKeeper and the controllers of a drill, in one directory; a subclass has the brokers. `close` ends all of it.

    The steps of a drill are the same for every sort of broker; the methods below have the differences. The methods that
    do nothing here are for Kafka's brokers only: light brokers have no property files, hold no records, replay no log,
    and do no work when they are elected.
    """

    brokers_own: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")
    """Paths of znodes that brokers write at any time, without a request."""

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        self.directory = directory
        self.options = options
        self.security = security_of(options, directory / "security")
        self._own_zookeeper: EmbeddedZooKeeper | None = None
        if options.outside is None:
            own = EmbeddedZooKeeper(directory / "zookeeper", options=self.security.zookeeper_options())
            self._own_zookeeper, self.zookeeper_hosts = own, own.hosts + CHROOT
        else:
            self.zookeeper_hosts = options.outside.hosts
        self.broker_ids = options.broker_ids
        self.controllers: list[ControllerProcess] = []
        self.addresses: Sequence[tuple[str, int]] = ()
        """Host and port of each controller, whether it runs or not."""
        self.watch = ProcessWatch(enabled=options.secure)

    @property
    def late_broker(self) -> int:
        """The broker that joins last: until then the migration has to wait, and to name it."""
        return self.broker_ids[-1]

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """The ZooKeeper server, which the drill may stop and damage.

        :raises InvariantViolation: the ZooKeeper is an outside one.
        """
        if self._own_zookeeper is None:
            raise InvariantViolation("this ZooKeeper server is not the drill's own")
        return self._own_zookeeper

    def start_zookeeper(self) -> None:
        """Start ZooKeeper and create the cluster's chroot; nothing if both exist. Blocks.

        :raises OperatorError: ZooKeeper does not start.
        """
        if self._own_zookeeper is None:
            return
        self.zookeeper.start()
        with zookeeper_client(self.security.session(self.zookeeper.hosts)) as client:
            client.ensure_path(CHROOT, acl=default_acl(CHROOT, set_acl=self.security.owns_znodes))

    def zookeeper_client(self) -> AbstractContextManager[KazooClient]:
        """A client below the cluster's chroot, with the login of brokers and controllers."""
        return zookeeper_client(self.security.session(self.zookeeper_hosts))

    async def statuses(self) -> dict[int, Status]:
        """The status of each controller that answers, by node id."""
        return await statuses_of(self.controllers)

    async def leader(self) -> ControllerProcess | None:
        """The controller that leads in the highest epoch; None when none does."""
        leader = leader_among((await self.statuses()).values())
        return None if leader is None else self.controller(leader.node_id)

    def controller(self, node_id: int) -> ControllerProcess:
        return next(controller for controller in self.controllers if controller.node_id == node_id)

    def use_controllers(self, controllers: Sequence[ControllerProcess]) -> None:
        """Replace the cluster's controllers, which also get all changes from now on."""
        self.controllers = [*controllers]
        self.addresses = [controller.listener for controller in controllers]

    def successors(self) -> list[ControllerProcess]:
        """As many other controllers, with new ids; neither formatted nor started.

        From their next start on, all old and new controllers use ``controller.quorum.bootstrap.servers``.
        """
        taken = {*(controller.node_id for controller in self.controllers), *self.broker_ids}
        ports = {node: free_port() for node in free_ids(taken, len(self.controllers))}
        new = [
            ControllerProcess(
                node,
                self.directory / f"controller-{node}",
                controller_properties(node, ports, self.security.controller_listener)
                | self.security.of_controller(node),
            )
            for node in ports
        ]
        controllers = [*self.controllers, *new]
        for controller in controllers:
            del controller.properties["controller.quorum.voters"]
            controller.properties |= find_by([each.listener for each in controllers])
        if self.options.transport == "grpc":
            speak_grpc(controllers, self.security.authority)
        return new

    @abstractmethod
    async def name_controllers(self, report: DrillReport, addresses: Sequence[tuple[str, int]]) -> None:
        """Restart one broker after the other, in KRaft mode, with these addresses of controllers in its file."""

    @abstractmethod
    async def begin(self, report: DrillReport) -> None:
        """Start ZooKeeper and brokers in ZooKeeper mode, with metadata of every kind, and note these metadata.

        :raises OperatorError: a part does not start.
        """

    async def prepare(self, report: DrillReport, *, hand_over: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """Run preflight and rehearsal. Returns the output of `migrator rehearse`; nothing without a rehearsal.

        :param hand_over: whether Kafka's controllers take over from these at the end of the migration.
        """
        return {}

    @abstractmethod
    async def start_quorum(self, report: DrillReport) -> None:
        """Format the controllers, and start them."""

    async def migrate_first_brokers(self, report: DrillReport) -> None:  # noqa: B027
        """All brokers but the last one run in migration mode when it returns."""

    @abstractmethod
    async def migrate_last_broker(self, report: DrillReport) -> None:
        """The last broker runs in migration mode, too, and waits for the end of the copy."""

    @abstractmethod
    def doors(self) -> Doors:
        """The present addresses of the cluster."""

    @abstractmethod
    def workload(self) -> Workload:
        """A workload with changes of every kind by brokers and clients; the caller closes it."""

    @abstractmethod
    async def differences(self, image: MetadataImage) -> list[str]:
        """A sentence for each thing that brokers, at rest, do not know or hold as the image says."""

    @abstractmethod
    def violations(self, image: MetadataImage) -> Mapping[str, Sequence[str]]:
        """The violations that each broker or client has seen, given the present metadata."""

    async def soak(self, report: DrillReport) -> None:  # noqa: B027
        """Dual-write for a while, and compare both sides, if a rollout does that for these brokers."""

    @abstractmethod
    async def roll_to_kraft(self, report: DrillReport) -> None:
        """One broker after the other restarts in KRaft mode."""

    @abstractmethod
    async def end_migration(self, report: DrillReport) -> None:
        """One controller after the other restarts without the migration."""

    @abstractmethod
    async def go_back(self, report: DrillReport, *, reopens: bool) -> float | None:
        """Stop the controllers, and take the brokers back to ZooKeeper mode.

        :param reopens: the migration is finished, and is reopened first.
        :returns: seconds without a controller, if measured.
        """

    def remember_quorum(self) -> None:  # noqa: B027
        """Put the controllers' directories back after the way back, if they were moved."""

    @abstractmethod
    async def refuse_migrating_broker(self, report: DrillReport) -> None:
        """Check that a broker that starts in migration mode after the end is refused. It is in KRaft mode when this
        returns."""

    async def hand_over(self, report: DrillReport) -> None:  # noqa: B027
        """Let other controllers take over after the end of the migration, if these brokers obey them."""

    async def take_back(self, report: DrillReport) -> None:  # noqa: B027
        """Let these controllers take over again after `hand_over`, on the same directories."""

    async def use_zookeeper_controller(self, report: DrillReport) -> None:  # noqa: B027
        """Let the ZooKeeper controller do work after the way back, if these brokers have a real one."""

    async def audit_records(self, report: DrillReport) -> None:  # noqa: B027
        """Count, at the very end, the records that clients wrote and read, if these brokers hold records."""

    async def close(self) -> None:
        """End everything that runs; safe at any time, and more than once."""
        for controller in self.controllers:
            await asyncio.to_thread(controller.kill)
        if self._own_zookeeper is not None:
            await asyncio.to_thread(self._own_zookeeper.stop)


def security_of(options: ClusterOptions, directory: Path) -> InClear:
    """The protection of the nodes; ``directory`` is for certificates and keys."""
    if options.shape is not None:
        return Shaped(directory, options.shape)
    return Secured(directory) if options.secure else IN_CLEAR


def controller_properties(node: int, ports: Mapping[int, int], listener: str = "CONTROLLER") -> dict[str, str]:
    """The properties of one controller of a quorum; ``ports``: of all voters, by node id."""
    return {
        "process.roles": "controller",
        "node.id": str(node),
        "controller.quorum.voters": voters(ports),
        "controller.listener.names": listener,
        "listeners": f"{listener}://127.0.0.1:{ports[node]}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "password.encoder.secret": ENCODER_SECRET,
        "delegation.token.secret.key": TOKEN_SECRET,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def find_by(servers: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The properties of brokers and controllers when the voters are in the log."""
    return {"controller.quorum.bootstrap.servers": ",".join(f"{host}:{port}" for host, port in servers)}


def migration_properties(zookeeper: str) -> dict[str, str]:
    """The properties with which a controller migrates from that ZooKeeper."""
    return {"zookeeper.connect": zookeeper, FLAG: "true"}


def speak_grpc(controllers: Sequence[ControllerProcess], authority: Authority | None = None) -> None:
    """Let the quorum use gRPC, each controller with a certificate for its id.

    :param authority: signs the certificates; by default an authority that nothing else trusts.
    """
    ports = {controller.node_id: free_port() for controller in controllers}
    names = {controller.node_id: f"controller-{controller.node_id}" for controller in controllers}
    signer = authority or Authority("drill")
    for controller in controllers:
        files = signer.files(controller.directory / "grpc-tls", names[controller.node_id], valid_for=LIFE)
        controller.properties |= grpc_identity(files)
        controller.properties["migrator.grpc.voter.principals"] = ";".join(
            f"{node}@User:CN={name}" for node, name in names.items()
        )
        controller.properties["migrator.grpc.listener"] = f"127.0.0.1:{ports[controller.node_id]}"
        controller.properties["migrator.grpc.voters"] = voters(ports)


def grpc_identity(files: PemFiles) -> dict[str, str]:
    """The properties that name these files."""
    return {
        "migrator.grpc.tls.certificate.file": str(files.certificate),
        "migrator.grpc.tls.key.file": str(files.key),
        "migrator.grpc.tls.ca.file": str(files.authority),
    }


def voters(ports: Mapping[int, int]) -> str:
    """The value of ``controller.quorum.voters``."""
    return ",".join(f"{node}@127.0.0.1:{port}" for node, port in ports.items())


@contextmanager
def zookeeper_client(access: str | SessionOptions) -> Iterator[KazooClient]:
    """A started client, closed at the end of the block.

    :param access: how to connect, or only the address.
    """
    # The client makes nothing ephemeral, and a server that is being filled may pause long for garbage collection.
    options = SessionOptions(access) if isinstance(access, str) else access
    with ZooKeeperSession(replace(options, session_timeout_ms=60_000, connection_timeout_ms=30_000)) as session:
        yield session.client
