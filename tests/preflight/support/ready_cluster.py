"""A small cluster that is ready to migrate: a real ZooKeeper, property files, directories, brokers that answer.

A test breaks one thing and runs preflight. A cluster with nothing broken must have no finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.config.keys import IBP as PROTOCOL_VERSION
from migrator.drill.cluster import CLUSTER_ID, ENCODER_SECRET, TOKEN_SECRET, controller_properties, migration_properties
from migrator.drill.workload.fill import FillOptions, fill
from migrator.log.formatting import FormatPlan, format_directories
from migrator.parts.processes import free_port
from migrator.preflight.asking import VERSION_WITH_IDS
from migrator.preflight.check import START, Concerns, MigrationPhase, PreflightReport, run_checks
from migrator.preflight.checks.brokers import ADD_PARTITIONS_TO_TXN
from migrator.preflight.evidence import DEFAULT_JUTE_MAXBUFFER, ControllerFile, Evidence, ZooKeeperFacts
from migrator.preflight.gather import PreflightRequest, Tell, gather, read_zookeeper
from migrator.preflight.lost_states import Partition, Reported
from migrator.preflight.table import CHECKS
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.records.versions import LATEST_SUPPORTED, version_at
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    LEADER_AND_ISR,
    METADATA,
    VersionRange,
    build,
    response_type,
)
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from tests.preflight.support.listening import listening

BROKERS = (1, 2, 3)
CONTROLLER = 3001
QUIET_TOPICS = 5
"""So many are filled without one that moves or is about to be deleted."""


KNOWN: dict[Partition, Reported] = {}
KNOWN_IDS: dict[str, UUID] = {}
"""The metadata caches of the running test's brokers."""


class _Broker:
    async def handle(self, context: RequestContext, body: Any) -> Any:
        if context.api_key == DESCRIBE_CONFIGS:
            return self._settings(context, body)
        assert context.api_key == METADATA, f"only what {answering_broker.__name__} names is asked for, not {context}"
        topics = [
            {
                "name": topic.name,
                **({"topic_id": KNOWN_IDS.get(topic.name)} if context.api_version >= VERSION_WITH_IDS else {}),
                "partitions": tuple(
                    {
                        "partition_index": partition,
                        "leader_id": it.leader,
                        "leader_epoch": it.leader_epoch,
                        "isr_nodes": it.isr,
                    }
                    for (name, partition), it in KNOWN.items()
                    if name == topic.name
                ),
            }
            for topic in body.topics
        ]
        return build(response_type(METADATA, context.api_version), topics=tuple(topics))

    def _settings(self, context: RequestContext, body: Any) -> Any:
        (resource,) = body.resources
        result = {
            "error_code": ErrorCode.none,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": ({"name": PROTOCOL_VERSION, "value": "3.9"},),
        }
        return build(response_type(DESCRIBE_CONFIGS, context.api_version), results=(result,))


@contextmanager
def answering_broker(add_partitions_to_txn: int, fetch: int) -> Iterator[int]:
    """The port of something that answers ApiVersions, Metadata and, for its protocol version, DescribeConfigs as a
    broker in ZooKeeper mode does.

    :param add_partitions_to_txn: highest version of that API, by which a broker's release shows.
    :param fetch: the same.
    """
    apis = {
        API_VERSIONS: VersionRange(0, 4),
        METADATA: VersionRange(0, 12),
        DESCRIBE_CONFIGS: VersionRange(0, 4),
        LEADER_AND_ISR: VersionRange(0, 7),
        ADD_PARTITIONS_TO_TXN: VersionRange(0, add_partitions_to_txn),
        FETCH: VersionRange(0, fetch),
    }
    with listening(_Broker(), apis) as port:
        yield port


class ReadyZooKeeper:
    """The znodes of the cluster. Tests share them until one asks for `client`, so that it may change them: filling a
    chroot and reading it took most of the time of tests that break a file."""

    def __init__(self, client: KazooClient, hosts: str, broker_port: int) -> None:
        self.hosts = hosts
        self._client = client
        self._facts: list[tuple[object, ZooKeeperFacts]] = []
        fill(client, FillOptions(CLUSTER_ID, BROKERS, QUIET_TOPICS, wall_ms(), ENCODER_SECRET))
        client.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, wall_ms())))
        for broker_id in BROKERS:
            client.create(paths.broker(broker_id), _registration(broker_port))
        self.is_as_filled = True

    @property
    def client(self) -> KazooClient:
        self.is_as_filled = False
        return self._client

    def read(self, options: SessionOptions, controllers: Sequence[ControllerFile], tell: Tell) -> ZooKeeperFacts:
        """What `read_zookeeper` reads. Znodes that nobody changes are read once for each session and encoder."""
        if not self.is_as_filled or not controllers:
            return read_zookeeper(options, controllers, tell)
        settings, secret = controllers[0].settings, controllers[0].settings.password_encoder_secret
        encoder = (settings.password_encoder_keyfactory_algorithm, settings.password_encoder_cipher_algorithm)
        numbers = (settings.password_encoder_key_length, settings.password_encoder_iterations)
        asked = (options, None if secret is None else secret.reveal(), encoder, numbers)
        for before, facts in self._facts:
            if before == asked:
                return facts
        self._facts.append((asked, read_zookeeper(options, controllers, tell)))
        return self._facts[-1][1]


def _registration(
    port: int,
    listener: str = "PLAINTEXT",
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    timestamp_ms: int | None = None,
) -> bytes:
    stamp = wall_ms() if timestamp_ms is None else timestamp_ms
    endpoint = Endpoint(listener, "127.0.0.1", port, protocol)
    return encode_broker(BrokerRegistrationZnode(5, (endpoint,), "127.0.0.1", port, -1, stamp))


class ReadyCluster:
    """Clean until a test breaks it. ``controllers`` and ``brokers`` are the keys of the property files."""

    def __init__(self, zookeeper: ReadyZooKeeper, directory: Path, broker_port: int, old_broker_port: int) -> None:
        self.zookeeper = zookeeper
        self.hosts = hosts = zookeeper.hosts
        self.directory = directory
        self.broker_port = broker_port
        self.old_broker_port = old_broker_port
        self.jute_maxbuffer = DEFAULT_JUTE_MAXBUFFER
        self.roll_by_rack = False
        self.undo: list[Callable[[], object]] = [KNOWN.clear, KNOWN_IDS.clear]
        self.see: Callable[[Evidence], Evidence] = lambda evidence: evidence
        """Puts into the evidence what a machine cannot be brought to."""
        ports = {CONTROLLER: free_port()}
        self.controllers = [
            controller_properties(CONTROLLER, ports)
            | migration_properties(hosts)
            | {"log.dirs": str(directory / "controller")}
        ]
        self.brokers = [self._broker(broker_id) for broker_id in BROKERS]
        self.format(self.controllers[0])

    @property
    def client(self) -> KazooClient:
        return self.zookeeper.client

    def register(self, broker_id: int, **changes: Any) -> None:
        """Write the registration of a broker; persistent, so that it needs no session."""
        self.put(paths.broker(broker_id), _registration(**{"port": self.broker_port} | changes))

    def put(self, path: str, data: bytes | dict[str, Any]) -> None:
        """Create or overwrite a znode."""
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        if not self.client.exists(path):
            self.client.create(path, makepath=True)
        self.client.set(path, content)

    def change(self, path: str, **fields: Any) -> None:
        """Set fields of a JSON znode; None removes one."""
        content = json.loads(self.client.get(path)[0]) | fields
        self.put(path, {key: field for key, field in content.items() if field is not None})

    def format(self, properties: dict[str, str], cluster_id: str = CLUSTER_ID, level: int = LATEST_SUPPORTED) -> None:
        """Give a controller's directory its identity."""
        directory = Path(properties["log.dirs"])
        plan = FormatPlan((directory,), directory, cluster_id, int(properties["node.id"]), version_at(level))
        format_directories(plan, random=Random(0), now_ms=0)

    def second_controller(self, **changes: str) -> dict[str, str]:
        """Another voter, with a file and a directory of its own."""
        ports = {CONTROLLER: free_port(), CONTROLLER + 1: free_port()}
        self.controllers[0] |= controller_properties(CONTROLLER, ports)
        second = (
            controller_properties(CONTROLLER + 1, ports)
            | migration_properties(self.hosts)
            | {"log.dirs": str(self.directory / "second")}
        )
        self.format(second)
        self.controllers.append(second | {key.replace("_", "."): text for key, text in changes.items()})
        for broker in self.brokers:
            broker["controller.quorum.voters"] = second["controller.quorum.voters"]
        return self.controllers[1]

    def request(self) -> PreflightRequest:
        """Write the files; what to look at."""
        files = {
            kind: tuple(self._write(f"{kind}-{number}", keys) for number, keys in enumerate(all_keys))
            for kind, all_keys in (("controller", self.controllers), ("broker", self.brokers))
        }
        return PreflightRequest(
            files["controller"], files["broker"], self.hosts, self.jute_maxbuffer, self.roll_by_rack, True
        )

    def report(self, concerns: Concerns = Concerns.OURS, before: MigrationPhase = START) -> PreflightReport:
        return run_checks(
            CHECKS, self.see(gather(self.request(), lambda _: None, self.zookeeper.read)), concerns, before
        )

    def _write(self, name: str, keys: dict[str, str]) -> Path:
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
        return path

    def _broker(self, broker_id: int) -> dict[str, str]:
        controller = self.controllers[0]
        copied = ("controller.quorum.voters", "controller.listener.names", "listener.security.protocol.map")
        return {key: controller[key] for key in copied} | {
            "broker.id": str(broker_id),
            "zookeeper.connect": self.hosts,
            "zookeeper.metadata.migration.enable": "true",
            "inter.broker.protocol.version": "3.9",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.broker_port}",
            "log.dirs": str(self.directory / f"broker-{broker_id}"),
            "password.encoder.secret": ENCODER_SECRET,
            "delegation.token.secret.key": TOKEN_SECRET,
            "authorizer.class.name": controller["authorizer.class.name"],
            "super.users": "User:ANONYMOUS",
        }
