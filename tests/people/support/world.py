"""A cluster that is ready to migrate, one controller that runs on it, and what a person makes a mistake with."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess, controller_properties, migration_properties
from migrator.migration.machine.states import State
from migrator.parts.certificates import Authority
from migrator.parts.processes import free_port
from tests.patience import PATIENCE_SECONDS
from tests.preflight.support.ready_cluster import BROKERS, CONTROLLER, ReadyCluster, ReadyZooKeeper

WAITS = State.WAITING_FOR_BROKERS.value
POLL_SECONDS = 0.05
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"

Changes = Mapping[str, str | None]
"""Of keys; None takes one away."""


class World:
    """What all mistakes share, and none of them changes."""

    def __init__(self, client: KazooClient, hosts: str, directory: Path, broker_port: int) -> None:
        self.cluster = ReadyCluster(ReadyZooKeeper(client, hosts, broker_port), directory, broker_port, broker_port)
        self.hosts = hosts
        self.server, _, self.chroot = hosts.partition("/")
        self.running = ControllerProcess(CONTROLLER, directory / "running", self.controller())
        self.running.metadata_directory.parent.mkdir()
        self.cluster.format(self.running.properties)
        self.running.start()
        asyncio.run(self._until_it_waits())

    async def _until_it_waits(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := await self.running.status()) is None or status.migration.internal_state != WAITS:
            assert time.monotonic() < deadline, status
            await asyncio.sleep(POLL_SECONDS)

    def controller(self) -> dict[str, str]:
        """Properties of a good controller, on a port of its own."""
        return controller_properties(CONTROLLER, {CONTROLLER: free_port()}) | migration_properties(self.hosts)


class Scene:
    """Files of one mistake, and its surroundings."""

    def __init__(self, world: World, directory: Path, at_end: Callable[[Callable[[], object]], object]) -> None:
        self.world = world
        self.directory = directory
        self.metadata = directory / "metadata"
        self.environment = dict(os.environ)
        self._at_end = at_end

    @property
    def running(self) -> str:
        """The file of the controller that runs."""
        return str(self.world.running.property_file)

    def controller(self, changes: Changes | None = None, *, name: str = "controller") -> str:
        """A good controller's file, but for the changes."""
        return self.file(f"{name}.properties", self.lines(changes))

    def lines(self, changes: Changes | None = None) -> str:
        """What stands in it."""
        return _lines(self.world.controller() | {"log.dirs": str(self.metadata)}, changes)

    def formatted(self, changes: Changes | None = None, *, cluster_id: str = CLUSTER_ID) -> str:
        """The same, and its directory is formatted."""
        self.world.cluster.format(self.world.controller() | {"log.dirs": str(self.metadata)}, cluster_id)
        return self.controller(changes)

    def preflight(self, changes: Changes | None = None, *, of_broker: Changes | None = None) -> list[str]:
        """`migrator preflight` of a good controller and three good brokers, but for the changes; those of a broker are
        in the second file."""
        words = ["preflight", "-c", self.controller(changes), "--brokers"]
        for number, keys in zip(BROKERS, self.world.cluster.brokers, strict=True):
            changed = of_broker if number == BROKERS[1] else None
            words.append(self.file(f"broker-{number}.properties", _lines(keys, changed)))
        return words

    def file(self, name: str, content: str) -> str:
        """A file with this content, without a change of its line ends."""
        path = self.directory / name
        path.write_bytes(content.encode())
        return str(path)

    def store(self, *, password: str) -> str:
        """A key store of TLS, as keytool writes it."""
        key, certificate, *_ = Authority("people").issue("controller")
        path = self.directory / "store.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"controller",
                load_pem_private_key(key.encode(), None),  # type: ignore[arg-type] # an RSA or EC key
                load_pem_x509_certificate(certificate.encode()),
                None,
                BestAvailableEncryption(password.encode()),
            )
        )
        return str(path)

    def port_in_use(self) -> int:
        """A port on which another process listens."""
        taken = socket.create_server(("127.0.0.1", 0))
        self._at_end(taken.close)
        return int(taken.getsockname()[1])

    def nothing_on_the_path(self) -> None:
        """As on a machine where Java is not installed."""
        self.environment["PATH"] = str(self.directory)
        self.environment.pop("JAVA_HOME", None)

    def no_network(self) -> None:
        """Java's connections go to a proxy that is not there, and nothing was fetched before."""
        proxy = f"Host=127.0.0.1 -D{{0}}.proxyPort={free_port()}"
        options = " ".join(f"-D{kind}.proxy{proxy.format(kind)}" for kind in ("http", "https"))
        self.environment |= {"JAVA_TOOL_OPTIONS": options, "XDG_CACHE_HOME": str(self.directory)}


def _lines(keys: Mapping[str, str], changes: Changes | None) -> str:
    return "".join(f"{key}={text}\n" for key, text in {**keys, **(changes or {})}.items() if text is not None)
