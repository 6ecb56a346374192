"""A chroot of a real ZooKeeper as a running Kafka cluster leaves it, and requests for a rehearsal on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
from kazoo.client import KazooClient

from migrator.clock import wall_ms
from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.drill.cluster import CLUSTER_ID, ENCODER_SECRET
from migrator.drill.workload.fill import FillOptions, fill
from migrator.parts.kafka import StockKafka
from migrator.records.versions import parse_version
from migrator.rehearse.read_only_zookeeper import PlannedQuorum
from migrator.rehearse.rehearse import RehearsalRequest, rehearse
from migrator.rehearse.report import RehearsalReport
from migrator.verify.verdict import VerifyRequest
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import options_from
from tests.conftest import connect, disconnect

NODE_ID = 3001
BROKERS = (1, 2, 3)
PATIENT_MS, IMPATIENT_MS = 30_000, 4_000
"""How long a server may be silent."""


def make_cluster(server: str, name: str, partitions: int = 60) -> str:
    """Fill a chroot, with its brokers there and the first of them as the controller; gives the connection string."""
    client = connect(server)
    client.create(f"/{name}")
    disconnect(client)
    hosts = f"{server}/{name}"
    client = connect(hosts)
    try:
        fill(client, FillOptions(CLUSTER_ID, BROKERS, partitions, wall_ms(), ENCODER_SECRET))
        for broker in BROKERS:
            client.create(f"/brokers/ids/{broker}", registration(broker))
        client.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
    finally:
        disconnect(client)
    return hosts


def registration(broker: int, listener: str = "PLAINTEXT") -> bytes:
    """As a broker leaves it in ``/brokers/ids``."""
    return orjson.dumps(
        {
            "version": 5,
            "host": "localhost",
            "port": 9092 + broker,
            "endpoints": [f"{listener}://localhost:{9092 + broker}"],
            "listener_security_protocol_map": {listener: "PLAINTEXT"},
            "features": {},
            "jmx_port": -1,
            "timestamp": "1",
        }
    )


def properties(hosts: str, directory: Path) -> dict[str, str]:
    """Of a controller that would migrate it."""
    return {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / "unformatted"),
        "password.encoder.secret": ENCODER_SECRET,
        "zookeeper.connect": hosts,
    }


def property_file(hosts: str, directory: Path) -> Path:
    file = directory / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in properties(hosts, directory).items()))
    return file


def request(
    hosts: str,
    directory: Path,
    *,
    kafka: StockKafka | str = "not here",
    spark: bool = False,
    batch_records: int = 200,
    silence_ms: int = PATIENT_MS,
) -> RehearsalRequest:
    """To rehearse into ``directory / "out"``."""
    keys = properties(hosts, directory) | {"zookeeper.session.timeout.ms": str(silence_ms)}
    settings: Settings = settings_from(keys, "a test")[0]
    out = directory / "out"
    config = str(property_file(hosts, directory))
    return RehearsalRequest(
        session=options_from(settings),
        passwords=password_encoder(settings),
        directory=out,
        quorum=PlannedQuorum(NODE_ID, settings.broker_rpc_listener),
        version=parse_version("3.9"),
        batch_records=batch_records,
        max_deletes=50,
        kafka=kafka,
        verification=VerifyRequest(None, str(out), config) if spark else None,
        broker_seconds=14.0,
        retry_seconds=silence_ms / 1000,
    )


async def run(wanted: RehearsalRequest, on_phase: Callable[[str], None] = lambda _: None) -> RehearsalReport:
    """Rehearse it."""
    return await rehearse(wanted, on_phase)


def everything(client: KazooClient, path: str = "/") -> dict[str, object]:
    """Data and Stat of every znode from there on."""
    found: dict[str, object] = {path: client.get(path)}
    for child in client.get_children(path):
        found |= everything(client, f"{path.rstrip('/')}/{child}")
    return found


def environment(**changes: str) -> dict[str, str]:
    """Of a command, without what the machine says about Java."""
    return {key: text for key, text in os.environ.items() if key != "JAVA_HOME"} | changes
