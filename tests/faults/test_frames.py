"""Garbage on the listeners of a running controller costs its sender the connection, and nobody else anything."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.drill.cluster import ControllerProcess, speak_grpc
from migrator.migration.machine.states import State
from migrator.parts.processes import free_port, port_is_open
from migrator.rpc.operator_socket import SocketDirectory
from migrator.rpc.stubs import operator_pb2, quorum_pb2
from migrator.values import value
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.lanes import examples
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.messages import damaged_frame

REGISTRATION, VOTE, FETCH, API_VERSIONS = 62, 52, 1, 18
NODE = 3001
EXAMPLES = 43
"""Of about 14 frames each; 100,000 frames have passed."""
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
}
METHODS = tuple(
    (f"/{service.full_name}/{method.name}", method.server_streaming)
    for file in (operator_pb2, quorum_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 1, -1) + b"\x00"


GARBAGE = {
    "a size of two gigabytes": struct.pack(">i", 2**31 - 1) + b"x" * 1000,
    "a negative size": struct.pack(">i", -5) + b"x" * 10,
    "an empty frame": frame(b""),
    "a torn header": frame(b"\x00\x12\x00"),
    "an unknown API": frame(header(999, 0)),
    "an unknown version": frame(header(REGISTRATION, 99)),
    "a body of nothing": frame(header(REGISTRATION, 4)),
    "a body of noise": frame(header(VOTE, 1) + bytes(range(256))),
    "an array of two billion": frame(header(FETCH, 12) + b"\xff" * 24 + b"\x7f" * 8),
    "HTTP": b"GET / HTTP/1.1\r\nHost: controller\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 512,
}


async def test_garbage_costs_only_its_own_connection(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1, partitions=20) as cluster:
        start_all(cluster)
        controller = await cluster.until_state(State.DUAL_WRITING)
        before = await controller.status()
        assert before is not None
        (address,) = cluster.addresses
        neighbour = KafkaClient(*address, "neighbour")
        partition = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        question = build(request_type(DESCRIBE_QUORUM, 1), topics=[partition])
        try:
            for sort, data in GARBAGE.items():
                reader, writer = await asyncio.open_connection(*address)
                writer.write(data)
                try:
                    await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
                except ConnectionResetError:
                    pass
                except TimeoutError:
                    pytest.fail(f"{sort}: the connection was left open")
                finally:
                    writer.transport.abort()
                answer = await neighbour.request(question, timeout=PATIENCE_SECONDS)
                assert answer.topics[0].partitions[0].leader_id == controller.node_id, sort
        finally:
            await neighbour.close()
        after = await controller.status()
        assert after is not None
        assert after.quorum.leader_epoch == before.quorum.leader_epoch
        assert controller.process is not None
        assert "Traceback" not in controller.process.output_text()
        await cluster.until_converged()
        assert [broker.errors for broker in cluster.brokers] == [{}, {}, {}]


@value
class Lonely:
    """A controller that is a quorum by itself, and its ports."""

    controller: ControllerProcess
    port: int
    grpc_port: int
    metrics_port: int

    def secure_channel(self) -> grpc.Channel:
        """With the controller's own certificate."""
        names = ("ca", "key", "certificate")
        files = [Path(self.controller.properties[f"migrator.grpc.tls.{name}.file"]).read_bytes() for name in names]
        return grpc.secure_channel(f"127.0.0.1:{self.grpc_port}", grpc.ssl_channel_credentials(*files))

    def lives(self) -> None:
        assert self.controller.process is not None
        assert self.controller.process.exit_code() is None


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lonely]:
    port, metrics_port = free_port(), free_port()
    properties = {
        "process.roles": "controller",
        "node.id": str(NODE),
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "migrator.metrics.listener": f"127.0.0.1:{metrics_port}",
    }
    controller = ControllerProcess(NODE, tmp_path_factory.mktemp("lonely"), properties)
    speak_grpc((controller,))
    controller.properties["migrator.grpc.operator.principals"] = f"User:CN=controller-{NODE}"
    grpc_port = int(controller.properties["migrator.grpc.listener"].rpartition(":")[2])
    controller.format()
    controller.start()
    try:
        assert controller.process is not None
        everything = (port, grpc_port, metrics_port)
        controller.process.wait_until(
            lambda: all(map(port_is_open, everything)), "its ports are open", timeout_seconds=PATIENCE_SECONDS
        )
        yield Lonely(controller, port, grpc_port, metrics_port)
        assert "Traceback" not in controller.process.output_text()
    finally:
        controller.kill()


frames = st.one_of(
    st.binary(max_size=300),
    st.binary(max_size=300).map(frame),
    st.integers(0, 2**63).map(lambda seed: damaged_frame(random.Random(seed))),
    st.integers(0, 2**63).map(lambda seed: damaged_frame(random.Random(seed))),
)


@settings(
    max_examples=examples(EXAMPLES),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    database=None,
)
@given(peers=st.lists(st.lists(frames, min_size=1, max_size=4).map(b"".join), min_size=1, max_size=40))
def test_whatever_peers_send_the_process_lives(lonely: Lonely, peers: list[bytes]) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(_connected(lonely.port)) for _ in peers]
        for connection, sent in zip(connections, peers, strict=True):
            with suppress(OSError):  # closed in the middle of it
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
        for connection, sent in zip(connections, peers, strict=True):
            _drain(connection, sent)
    with _connected(lonely.port) as honest:
        honest.sendall(frame(struct.pack(">hhih", API_VERSIONS, 0, 7, -1)))
        assert len(honest.recv(4)) == 4, "an honest peer is not answered"
    lonely.lives()


@settings(max_examples=examples(EXAMPLES), suppress_health_check=[HealthCheck.too_slow], database=None, deadline=None)
@given(
    sent=st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda noise: HTTP_2 + noise),
        st.binary(max_size=300).map(lambda noise: b"GET /" + noise + b" HTTP/1.1\r\n\r\n"),
    )
)
def test_noise_on_the_other_ports(lonely: Lonely, sent: bytes) -> None:
    for port in (lonely.grpc_port, lonely.metrics_port):
        with _connected(port) as connection:
            with suppress(OSError):  # closed in the middle of it
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
            _drain(connection, sent)
    lonely.lives()


@settings(max_examples=examples(EXAMPLES), suppress_health_check=[HealthCheck.too_slow], database=None, deadline=None)
@given(method=st.sampled_from(METHODS), message=st.binary(max_size=300))
def test_grpc_messages_of_noise(lonely: Lonely, method: tuple[str, bool], message: bytes) -> None:
    """On the port, with a certificate for every call, and on the operator's socket: an answer, a stream that waits for
    events, or a refusal."""
    path, streams = method
    seconds, codes = (0.2, {*REFUSALS, grpc.StatusCode.DEADLINE_EXCEEDED}) if streams else (PATIENCE_SECONDS, REFUSALS)
    with closing(SocketDirectory(lonely.controller.metadata_directory, create=False)) as local:
        for open_channel in (lonely.secure_channel, lambda: grpc.insecure_channel(local.address)):
            with open_channel() as channel:
                try:
                    next(channel.unary_stream(path)(message, timeout=seconds), None)
                except grpc.RpcError as error:
                    assert error.code() in codes, error  # noqa: PT017 - an answer will do as well
    lonely.lives()


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def _drain(connection: socket.socket, sent: bytes) -> None:
    """Read until the controller has answered everything and closes."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        pytest.fail(f"neither answered nor closed: {sent.hex()}")
    except ConnectionError:
        pass
