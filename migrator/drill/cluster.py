"""The throw-away cluster: a real ZooKeeper, our controllers as processes, light brokers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.fill import FillOptions, fill
from migrator.drill.light_broker import LightBroker, LightBrokerOptions
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.observe.status import Role, Status
from migrator.parts.processes import ChildProcess, free_port, run_to_end
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.rpc.operator_client import OperatorClient
from migrator.values import value
from migrator.verify.kraft_files import read_image

CHROOT = "/kafka"
CLUSTER_ID = "XkYOzJkUQQ-rHVYhnWGvTg"
ENCODER_SECRET = "drill-encoder-secret"  # noqa: S105 - of a throw-away cluster
TOKEN_SECRET = "drill-token-secret"  # noqa: S105
FIRST_CONTROLLER_ID = 3001
COMMAND_SECONDS = 120.0
STATUS_SECONDS = 2.0
STOP_SECONDS = 30.0
MIGRATOR = str(Path(sys.executable).with_name("migrator"))


@value
class ClusterOptions:
    """``transport`` is what the quorum speaks: ``grpc`` or ``kafka``."""

    partitions: int = 2000
    brokers: int = 3
    controllers: int = 3
    transport: str = "grpc"


class Controller:
    """One `migrator controller` process, on its own directory and property file."""

    def __init__(self, node_id: int, directory: Path, properties: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.directory = directory
        self.metadata_directory = directory / "metadata"
        self.property_file = directory / "controller.properties"
        self.properties = {"log.dirs": str(self.metadata_directory), **properties}
        self.process: ChildProcess | None = None
        self.paused = False

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.exit_code() is None

    def write_properties(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.property_file.write_text("".join(f"{key}={text}\n" for key, text in self.properties.items()))

    def format(self, release_version: str = "3.9") -> None:
        """:raises OperatorError: it was refused; with the command's output."""
        self.write_properties()
        command = [MIGRATOR, "format", "-c", str(self.property_file), "-t", CLUSTER_ID]
        command += ["--release-version", release_version]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)

    def start(self) -> None:
        """Start the process with the properties as they are now; it is not waited for."""
        self.write_properties()
        command = [MIGRATOR, "controller", "-c", str(self.property_file)]
        self.process = ChildProcess(f"controller {self.node_id}", command, output=self.directory / "controller.log")

    def stop(self) -> int:
        """SIGTERM; gives the exit code."""
        return 0 if self.process is None else self.process.stop(grace_seconds=STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """SIGSTOP: it is not asked for its status until `resume`."""
        self.paused = True
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        if self.process is not None:
            self.process.resume()

    def set_migration(self, *, enabled: bool) -> None:
        """For the next start."""
        self.properties["zookeeper.metadata.migration.enable"] = str(enabled).lower()

    async def status(self) -> Status | None:
        """What it says about itself; None when it does not answer."""
        if not self.runs or self.paused:
            return None
        try:
            async with OperatorClient.on_socket(self.metadata_directory) as client:
                return await client.status(STATUS_SECONDS)
        except OperatorError:
            return None

    def image(self) -> MetadataImage:
        """The metadata in its directory; :raises OperatorError: it cannot be read."""
        return read_image(self.metadata_directory)


class Cluster:
    """Everything that a drill starts, in one directory. `close` ends all of it."""

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        self.directory = directory
        self.options = options
        self.zookeeper = EmbeddedZooKeeper(directory / "zookeeper")
        self.zookeeper_hosts = self.zookeeper.hosts + CHROOT
        ports = {FIRST_CONTROLLER_ID + number: free_port() for number in range(options.controllers)}
        grpc_ports = {node: free_port() for node in ports}
        self.controllers = [
            Controller(node, directory / f"controller-{node}", self._properties(node, ports, grpc_ports))
            for node in ports
        ]
        self.addresses = [("127.0.0.1", port) for port in ports.values()]
        self.brokers = [
            LightBroker(LightBrokerOptions(broker, CLUSTER_ID, self.zookeeper_hosts, self.addresses))
            for broker in range(1, options.brokers + 1)
        ]

    def fill(self) -> int:
        """Start ZooKeeper and fill it; gives the number of znodes. Blocking.

        :raises OperatorError: ZooKeeper does not start, or is not empty.
        """
        self.zookeeper.start()
        ids = tuple(broker.options.broker_id for broker in self.brokers)
        options = FillOptions(CLUSTER_ID, ids, self.options.partitions, int(time.time() * 1000), ENCODER_SECRET)
        with zookeeper_client(self.zookeeper.hosts) as client:
            client.ensure_path(CHROOT)
        with zookeeper_client(self.zookeeper_hosts) as client:
            return fill(client, options)

    async def statuses(self) -> dict[int, Status]:
        """By node id, of the controllers that answer."""
        answers = await asyncio.gather(*(controller.status() for controller in self.controllers))
        return {
            controller.node_id: status
            for controller, status in zip(self.controllers, answers, strict=True)
            if status is not None
        }

    async def leader(self) -> Controller | None:
        """The controller that leads in the highest epoch; None when none does."""
        leading = [
            (status.quorum.leader_epoch, node)
            for node, status in (await self.statuses()).items()
            if status.quorum.role is Role.LEADER
        ]
        return self.controller(max(leading)[1]) if leading else None

    def controller(self, node_id: int) -> Controller:
        return next(controller for controller in self.controllers if controller.node_id == node_id)

    def channel(self, client_id: str) -> ControllerChannel:
        """A way to the active controller; the caller closes it."""
        return ControllerChannel(self.addresses, client_id)

    async def close(self) -> None:
        """End everything that runs; safe at any time, and more than once."""
        for broker in self.brokers:
            with contextlib.suppress(OSError):
                await broker.stop(controlled=False)
        for controller in self.controllers:
            await asyncio.to_thread(controller.kill)
        await asyncio.to_thread(self.zookeeper.stop)

    def _properties(self, node: int, ports: Mapping[int, int], grpc_ports: Mapping[int, int]) -> dict[str, str]:
        properties = {
            "process.roles": "controller",
            "node.id": str(node),
            "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{port}" for id_, port in ports.items()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "zookeeper.connect": self.zookeeper_hosts,
            "zookeeper.metadata.migration.enable": "true",
            "password.encoder.secret": ENCODER_SECRET,
            "delegation.token.secret.key": TOKEN_SECRET,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        if self.options.transport == "grpc":
            properties["migrator.grpc.listener"] = f"127.0.0.1:{grpc_ports[node]}"
            properties["migrator.grpc.voters"] = ",".join(f"{id_}@127.0.0.1:{port}" for id_, port in grpc_ports.items())
        return properties


@contextmanager
def zookeeper_client(hosts: str) -> Iterator[KazooClient]:
    """A started client, closed in the end."""
    client = KazooClient(hosts=hosts, timeout=10.0)
    client.start(timeout=30.0)
    try:
        yield client
    finally:
        client.stop()
        client.close()
