"""Three controllers as processes with every listener that there is, and certificates for all kinds of callers.

Tests of the doors try each caller at each listener, and compare with a table of rights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.config.load import load_settings
from migrator.drill.cluster import (
    CLUSTER_ID,
    ControllerProcess,
    controller_properties,
    leader_among,
    speak_grpc,
    statuses_of,
)
from migrator.log.formatting import FormatPlan, format_directories
from migrator.observe.status import Status
from migrator.parts.certificates import Authority, PemFiles, write_private
from migrator.parts.processes import free_port
from migrator.records.versions import parse_version
from tests.patience import PATIENCE_SECONDS

POLL_SECONDS = 0.05
OPERATOR, BOTH, SUPER_USER = "operator", "controller-and-operator", "administrator"
BOTH_SPEAKS_AS = 3
PASSWORD = "prometheus:of-the-metrics"
TIMES = {
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "60000",
}
"""Elected soon; those that follow elect no other leader for want of time, however busy the machine is."""


def name_of(node: int) -> str:
    """The common name of that controller's certificate."""
    return f"controller-{node}"


class Controllers:
    """A quorum of three. Its certificates are of ``authority``, one for each controller, the same at all its doors."""

    def __init__(self, directory: Path, extra: Mapping[str, str]) -> None:
        self.authority = Authority("doors")
        ports = {node: free_port() for node in (1, 2, 3)}
        self.nodes = [
            ControllerProcess(node, directory / str(node), controller_properties(node, ports)) for node in ports
        ]
        speak_grpc(self.nodes, self.authority)
        (directory / "passwords").write_text(PASSWORD)
        (directory / "passwords").chmod(0o400)
        for controller in self.nodes:
            controller.properties["migrator.grpc.voter.principals"] += f";{BOTH_SPEAKS_AS}@User:CN={BOTH}"
            controller.properties |= TIMES | self._kafka_door(controller) | self._metrics_door(controller, directory)
            controller.properties["migrator.grpc.operator.principals"] = f"User:CN={OPERATOR};User:CN={BOTH}"
            controller.properties |= extra
            self._format(controller)

    def _kafka_door(self, controller: ControllerProcess) -> dict[str, str]:
        store = controller.directory / "kafka.pem"
        self.authority.store(store, name_of(controller.node_id))
        supers = [f"User:CN={name_of(node.node_id)}" for node in self.nodes]
        return {
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.trust(controller.directory / "kafka-ca.pem")),
            "ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": ";".join([*supers, f"User:CN={SUPER_USER}"]),
        }

    def _metrics_door(self, controller: ControllerProcess, directory: Path) -> dict[str, str]:
        properties = controller.properties
        return {
            "migrator.metrics.listener": f"127.0.0.1:{free_port()}",
            "migrator.metrics.tls.certificate.file": properties["migrator.grpc.tls.certificate.file"],
            "migrator.metrics.tls.key.file": properties["migrator.grpc.tls.key.file"],
            "migrator.metrics.tls.ca.file": properties["migrator.grpc.tls.ca.file"],
            "migrator.metrics.basic.auth.file": str(directory / "passwords"),
        }

    def _format(self, controller: ControllerProcess) -> None:
        controller.write_properties()
        directory = load_settings(controller.property_file)[0].metadata_directory
        plan = FormatPlan((directory,), directory, CLUSTER_ID, controller.node_id, parse_version("3.9"))
        format_directories(plan, random=Random(controller.node_id), now_ms=0)

    def replace_certificate(self, controller: ControllerProcess, key_and_certificate: tuple[str, str]) -> None:
        """At the doors of gRPC and of the metrics; that of the Kafka listener stays."""
        key, certificate = key_and_certificate
        files = self.files(controller)
        write_private(files.key, key)
        write_private(files.certificate, certificate)

    def files(self, controller: ControllerProcess) -> PemFiles:
        """Its certificate for gRPC."""
        keys = ("certificate", "key", "ca")
        return PemFiles(*(Path(controller.properties[f"migrator.grpc.tls.{key}.file"]) for key in keys))

    async def statuses(self) -> dict[int, Status]:
        """By node id, of those that answer."""
        return await statuses_of(self.nodes)

    async def leader(self) -> ControllerProcess:
        """Once one leads, and all that run follow it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            statuses = await self.statuses()
            found = leader_among(statuses.values())
            known = {each.quorum.leader_id for each in statuses.values()}
            all_answer = statuses.keys() == {node.node_id for node in self.nodes if node.runs}
            if found is not None and known == {found.node_id} and all_answer and found.quorum.high_watermark > 0:
                return next(node for node in self.nodes if node.node_id == found.node_id)
            assert time.monotonic() < deadline, self.account()
            await asyncio.sleep(POLL_SECONDS)

    def account(self) -> str:
        """Their last lines, for a failure's message."""
        return "\n".join(node.process.tail() for node in self.nodes if node.process is not None)


def log_of(controller: ControllerProcess) -> str:
    """All that it said."""
    return (controller.directory / "controller.log").read_text()


@contextmanager
def controllers_in(directory: Path, **extra: str) -> Iterator[Controllers]:
    """Started, none of them waited for.

    :param extra: properties, with ``_`` for each dot.
    """
    found = Controllers(directory, {key.replace("_", "."): text for key, text in extra.items()})
    try:
        for controller in found.nodes:
            controller.start()
        yield found
    finally:
        for controller in found.nodes:
            controller.kill()
