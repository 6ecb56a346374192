"""Garbage on the controller listener of a running cluster costs its sender the connection, and nobody else anything."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from migrator.migration.states import State
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import DESCRIBE_QUORUM, build, request_type
from tests.conftest import ZooKeeperSpace
from tests.faults.cluster import cluster_in, start_all

REGISTRATION, VOTE, FETCH = 62, 52, 1


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
                    await asyncio.wait_for(reader.read(), 10)
                except ConnectionResetError:
                    pass
                except TimeoutError:
                    pytest.fail(f"{sort}: the connection was left open")
                finally:
                    writer.transport.abort()
                answer = await neighbour.request(question, timeout=5.0)
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
