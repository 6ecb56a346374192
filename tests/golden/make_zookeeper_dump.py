"""Makes `stock-3.9.1/zookeeper*.jsonl` and `stock-3.9.1/migrated.*` anew, with nothing but stock parts.

    python -m tests.golden.make_zookeeper_dump

A stock Kafka cluster in ZooKeeper mode is given metadata of every family through Kafka's own tools, is stopped in the
middle of a reassignment and of a topic deletion, and its ZooKeeper is dumped (``zookeeper.jsonl``: one JSON object a
znode, with ``path``, ``data`` in base64 or null, and ``stat``). Then a stock controller migrates it: its log is
``migrated.log``, its snapshot ``migrated.checkpoint``, the ZooKeeper that it leaves ``zookeeper-after.jsonl``, and the
settings that both used (secrets of the encrypted values among them) ``cluster.properties``.

One znode is not stock's own: the state of ``recovering``-0, because a leader that recovers is a matter of
milliseconds on a live cluster. Its form is that of ``kafka.zk.TopicPartitionStateZNode``.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import socket
import struct
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Feature, Listener
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer

from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode, start_together
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper
from tests.golden.stock import STOCK_391 as STOCK
from tests.parts.support.kafka_tools import delegation_tokens

SEGMENT = "00000000000000000000.log"
SHARED = {
    "password.encoder.secret": "encoder-secret",
    "delegation.token.secret.key": "token-secret",
    "inter.broker.listener.name": "PLAINTEXT",
}
ENCODER_SECRET = ("password.encoder.secret", SHARED["password.encoder.secret"])
LONGEST = "l" * 249
AWKWARD_USER = "c@@l dude*"
BROKER_PASSWORDS = (
    "listener.name.vault.ssl.key.password=key-password",
    "listener.name.vault.ssl.keystore.password=keystore: pass,word",
    "listener.name.vault.ssl.truststore.password=trust-pässword",
)


class StockCluster:
    """Three stock brokers in ZooKeeper mode, and the tools that talk to them."""

    def __init__(self, kafka: StockKafka, directory: Path, zookeeper: str) -> None:
        self.kafka = kafka
        self.directory = directory
        self.zookeeper = zookeeper
        self.ports = {broker: free_port() for broker in (1, 2, 3)}
        self.sasl_ports = {broker: free_port() for broker in (1, 2, 3)}
        self.brokers = {broker: self._broker(broker) for broker in (1, 2, 3)}
        self.client_properties = directory / "client.properties"
        self.client_properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="admin" password="admin-secret";\n'
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker]}" for broker in (1, 2))

    def tool(self, main_class: str, *arguments: str) -> str:
        return self.kafka.tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, directory=self.directory)

    def set_config(self, *arguments: str, add: str) -> None:
        self.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", add, *arguments)

    def allow(self, *arguments: str) -> None:
        self.tool("kafka.admin.AclCommand", "--add", *arguments)

    def _broker(self, broker: int) -> StockNode:
        properties = SHARED | {
            "broker.id": str(broker),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": "90000",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]},CLIENT://127.0.0.1:{self.sasl_ports[broker]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.client.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required"
                ' username="admin" password="admin-secret" user_admin="admin-secret";'
            ),
            "listener.name.client.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "offsets.topic.num.partitions": "1",
            "auto.create.topics.enable": "false",
            "broker.rack": f"rack-{broker}",
        }
        return self.kafka.node(f"broker-{broker}", self.directory / f"broker-{broker}", properties)


def main() -> None:
    kafka = KafkaRelease(STOCK.version).fetch()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-")))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        client = stack.enter_context(connected(zookeeper.hosts))
        cluster = StockCluster(kafka, directory, zookeeper.hosts)
        encrypt_passwords(cluster)
        try:
            cluster.brokers[1].start()  # first, so that it becomes the controller
            start_together([cluster.brokers[2], cluster.brokers[3]])
            create_topics(cluster)
            set_configs(cluster)
            set_quotas_and_credentials(cluster)
            set_acls_and_tokens(cluster)
            allocate_producer_ids(cluster)
            leave_work_unfinished(cluster, client)
            for broker in cluster.brokers.values():
                broker.process.pause()
            leave_a_leader_recovering(client)
            dump(client, STOCK.before)
        finally:
            for broker in cluster.brokers.values():
                broker.kill()
        migrate(kafka, directory, zookeeper.hosts, client)
    for file in sorted(STOCK.directory.iterdir()):
        sys.stdout.write(f"{file.stat().st_size:>8} {file.name}\n")


def encrypt_passwords(cluster: StockCluster) -> None:
    """Encrypted values of a broker; Kafka sets them directly in ZooKeeper, and only while that broker is down."""
    values = [text.split("=") for text in BROKER_PASSWORDS]
    cluster.kafka.configs(
        *("--zookeeper", cluster.zookeeper, "--alter", "--entity-type", "brokers", "--entity-name", "2"),
        *("--add-config", ",".join(f"{key}=[{text}]" for key, text in [*values, ENCODER_SECRET])),
        directory=cluster.directory,
    )


def create_topics(cluster: StockCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [
        NewTopic("plain", 3, 2),
        NewTopic("single", 1, 1),
        NewTopic("dotted.name_under-score", 2, 3),
        NewTopic(LONGEST, 1, 1),
        NewTopic("configured", 1, 2, config={"retention.ms": "86400000", "cleanup.policy": "compact,delete"}),
        NewTopic("reassigning", 2, replica_assignment=[[1, 2], [2, 1]]),
        NewTopic("gone", 1, replica_assignment=[[1, 3]]),
        NewTopic("recovering", 1, replica_assignment=[[1, 2]]),
    ]
    for created in admin.create_topics(topics).values():
        created.result(60)


def set_configs(cluster: StockCluster) -> None:
    topic = ("--entity-type", "topics", "--entity-name")
    cluster.set_config(*topic, "plain", add="leader.replication.throttled.replicas=[0:1,1:2],max.message.bytes=2097152")
    brokers = ("--entity-type", "brokers")
    cluster.set_config(*brokers, "--entity-name", "1", add="log.cleaner.threads=2")
    cluster.set_config(*brokers, "--entity-default", add="log.retention.ms=604800000,min.insync.replicas=1")


def set_quotas_and_credentials(cluster: StockCluster) -> None:
    user, client, address = ("--entity-type", "users"), ("--entity-type", "clients"), ("--entity-type", "ips")
    rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152"
    cluster.set_config(*user, "--entity-name", AWKWARD_USER, add=f"{rates},request_percentage=12.5")
    cluster.set_config(*user, "--entity-default", add="controller_mutation_rate=0.25")
    cluster.set_config(*client, "--entity-name", "client/ä b", add="consumer_byte_rate=1000")
    cluster.set_config(*client, "--entity-default", add="request_percentage=200")
    cluster.set_config(*user, "--entity-name", "CN=wéird,O=x", *client, "--entity-name", "a+b", add=rates)
    cluster.set_config(*user, "--entity-name", "alice", *client, "--entity-default", add="producer_byte_rate=10")
    cluster.set_config(*user, "--entity-default", *client, "--entity-name", "shared", add="producer_byte_rate=11")
    cluster.set_config(*user, "--entity-default", *client, "--entity-default", add="producer_byte_rate=12")
    cluster.set_config(*address, "--entity-name", "127.0.0.1", add="connection_creation_rate=5000")
    cluster.set_config(*address, "--entity-default", add="connection_creation_rate=100")
    for name in ("alice", AWKWARD_USER):
        cluster.set_config(*user, "--entity-name", name, add="SCRAM-SHA-256=[iterations=4096,password=pw]")
    cluster.set_config(*user, "--entity-name", "alice", add="SCRAM-SHA-512=[iterations=8192,password=pw]")


def set_acls_and_tokens(cluster: StockCluster) -> None:
    cluster.allow("--allow-principal", "User:alice", "--operation", "Read", "--topic", "plain")
    cluster.allow("--deny-principal", "User:bob@x", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "plain")
    cluster.allow("--allow-principal", "User:*", "--operation", "Describe", "--topic", "*")
    cluster.allow("--allow-principal", "User:CN=wéird,O=x", "--operation", "Write", "--topic", "orders-")
    cluster.allow("--allow-principal", "User:alice", "--operation", "Read", "--group", "group with space")
    cluster.allow("--allow-principal", "User:alice", "--operation", "ClusterAction", "--cluster")
    cluster.allow("--allow-principal", "User:alice", "--operation", "Write", "--transactional-id", "tx#1")
    cluster.allow("--allow-principal", "User:alice", "--operation", "Describe", "--delegation-token", "token%2Fone")
    cluster.allow("--allow-principal", "User:alice", "--operation", "CreateTokens", "--user-principal", "User:carol")
    prefixed = ("--resource-pattern-type", "prefixed", "--allow-principal", "User:alice", "--operation")
    cluster.allow(*prefixed, "Read", "--topic", "orders-")
    cluster.allow(*prefixed, "Alter", "--topic", "orders-")
    cluster.allow(*prefixed, "Read", "--group", "team:")
    cluster.allow(*prefixed, "Describe", "--transactional-id", "tx-")
    cluster.allow(*prefixed, "DescribeTokens", "--user-principal", "User:c")
    secured = f"127.0.0.1:{cluster.sasl_ports[1]}"
    for more in (("--owner-principal", "User:alice", "--renewer-principal", "User:c@@l dude*"), ()):
        delegation_tokens(
            cluster.kafka,
            *("--bootstrap-server", secured, "--command-config", str(cluster.client_properties)),
            *("--create", "--max-life-time-period", "-1", *more),
            directory=cluster.directory,
        )


def allocate_producer_ids(cluster: StockCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce("plain", b"value")
    producer.flush(60)


def leave_work_unfinished(cluster: StockCluster, client: KazooClient) -> None:
    """With broker 3 silent (but its session alive) neither a move to it nor the deletion of its replica ends."""
    cluster.brokers[3].process.pause()
    plan = cluster.directory / "plan.json"
    move = {"topic": "reassigning", "partition": 0, "replicas": [2, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    cluster.tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute"
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deletions = admin.delete_topics(["gone"], operation_timeout=0)
    broker = cluster.brokers[1].process

    def unfinished() -> bool:
        moving = json.loads(client.get("/brokers/topics/reassigning")[0])["adding_replicas"]
        return bool(moving) and client.exists("/admin/delete_topics/gone") is not None

    broker.wait_until(unfinished, "a reassignment and a deletion under way", timeout_seconds=30)
    deletions["gone"].exception(30)  # whether in time or not: it is under way


def leave_a_leader_recovering(client: KazooClient) -> None:
    path = "/brokers/topics/recovering/partitions/0/state"
    state = json.loads(client.get(path)[0])
    state |= {"isr": [state["leader"]], "leader_epoch": state["leader_epoch"] + 1, "leader_recovery_state": 1}
    client.set(path, json.dumps(state, separators=(",", ":")).encode())


def migrate(kafka: StockKafka, directory: Path, zookeeper: str, client: KazooClient) -> None:
    """A stock controller migrates what the killed brokers left; their registrations are played, and stay fenced."""
    port = free_port()
    cluster_id = json.loads(client.get("/cluster/id")[0])["id"]
    settings = SHARED | {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": f"3000@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "zookeeper.connect": zookeeper,
        "zookeeper.metadata.migration.enable": "true",
        "metadata.log.max.record.bytes.between.snapshots": "4096",
    }
    controller = kafka.node("controller", directory / "controller", settings)
    controller.format(cluster_id, release_version="3.9-IV0")
    for broker in (1, 2, 3):
        client.delete(f"/brokers/ids/{broker}")
        client.create(f"/brokers/ids/{broker}", b"{}", ephemeral=True)
    client.delete("/controller")
    log = directory / "controller/data/__cluster_metadata-0"
    with controller:
        for broker in (1, 2, 3):
            register(broker, cluster_id, port)
        controller.process.wait_for_output("to DUAL_WRITE state", timeout_seconds=90)
        controller.process.wait_until(
            lambda: any(name.name > "00000000000000000100" for name in log.glob("*.checkpoint")),
            "a snapshot after the copy",
            timeout_seconds=30,
        )
        dump(client, STOCK.after)
    shutil.copyfile(log / SEGMENT, STOCK.log)
    shutil.copyfile(max(log.glob("*.checkpoint")), STOCK.checkpoint)
    text = {"cluster.id": cluster_id} | SHARED
    STOCK.settings_file.write_text("".join(f"{key}={value}\n" for key, value in text.items()))


def register(broker: int, cluster_id: str, port: int) -> None:
    """Register as a broker in ZooKeeper mode that migrates; the process ids and directories are constants."""
    request = BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=cluster_id,
        incarnation_id=uuid.UUID(int=(broker << 64) + 1),
        listeners=(Listener(name="PLAINTEXT", host="127.0.0.1", port=9090 + broker, security_protocol=0),),
        features=(Feature(name="metadata.version", min_supported_version=21, max_supported_version=21),),
        rack=f"rack-{broker}",
        is_migrating_zk_broker=True,
        log_dirs=(uuid.UUID(int=(broker << 64) + 2),),
        previous_broker_epoch=-1,
    )
    response = call(port, request, BrokerRegistrationResponse)
    if response.error_code != 0:
        raise RuntimeError(f"broker {broker} was not registered: {response}")


def call(port: int, request: Any, response_type: type[Any]) -> Any:
    """One Kafka request with flexible headers on a connection of its own."""
    header = RequestHeader(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=1,
        client_id="golden",
    )
    body = io.BytesIO()
    entity_writer(RequestHeader)(body, header)
    entity_writer(type(request))(body, request)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as source:
        connection.sendall(struct.pack(">i", body.tell()) + body.getvalue())
        answer = source.read(struct.unpack(">i", source.read(4))[0])
    _, size = entity_reader(ResponseHeader)(answer, 0)
    return entity_reader(response_type)(answer, size)[0]


def dump(client: KazooClient, target: Path) -> None:
    """Every znode below the root but ZooKeeper's own, sorted by path, one JSON object a line."""
    with target.open("w") as sink:
        for path in sorted(walk(client.get_children, "/")):
            data, stat = client.get(path)
            text = None if data is None else base64.b64encode(data).decode()
            sink.write(json.dumps({"path": path, "data": text, "stat": stat._asdict()}) + "\n")


def walk(children: Callable[[str], list[str]], path: str) -> Iterator[str]:
    for name in children(path):
        child = f"{path.rstrip('/')}/{name}"
        if child != "/zookeeper":
            yield child
            yield from walk(children, child)


@contextmanager
def connected(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts, timeout=60)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


if __name__ == "__main__":
    main()
