"""Finalized features in ApiVersions, which ``kafka-features describe`` shows: stock controllers and ours, with voters
in the configuration (kraft.version 0) and in the log (1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.raft.transport import TransportError
from migrator.records.versions import FEATURE_NAME
from migrator.wire.client import KafkaConnection
from migrator.wire.security import PLAINTEXT
from tests.differential.test_voter_changes import LEADER, properties
from tests.patience import PATIENCE_SECONDS

KRAFT_VERSION = "kraft.version"
MOST_BYTES = 1 << 20
FIRST_LEVEL = 1
"""The answer of a stock controller until it has read the level from its log."""


async def finalized(kafka: StockKafka, directory: Path, kraft_version: int, *, is_stock: bool) -> Mapping[str, int]:
    """Of a controller that leads alone."""
    port = free_port()
    keys = properties(LEADER, port, port)
    if kraft_version == 0:
        del keys["controller.quorum.bootstrap.servers"]
        keys["controller.quorum.voters"] = f"{LEADER}@127.0.0.1:{port}"
    node: StockNode | ControllerProcess
    if is_stock:
        node = kafka.node("stock", directory / "stock", keys)
        file = node.write_properties()
    else:
        node = ControllerProcess(LEADER, directory / "ours", keys)
        node.write_properties()
        file = node.property_file
    how = ("--standalone",) if kraft_version else ()
    tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), "-r", "3.9", *how)
    await asyncio.to_thread(kafka.tool, *tool, directory=file.parent)
    try:
        await asyncio.to_thread(node.launch if isinstance(node, StockNode) else node.start)
        return await published(port)
    finally:
        node.kill()


async def published(port: int) -> Mapping[str, int]:
    """Once it has published its metadata."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                connection = await KafkaConnection.open("127.0.0.1", port, "differential", PLAINTEXT, MOST_BYTES)
            except TransportError:
                await asyncio.sleep(0.1)
                continue
            await connection.close()
            if connection.features.finalized.get(FEATURE_NAME, 0) > FIRST_LEVEL:
                return dict(connection.features.finalized)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("release", ["3.9.1", pytest.param("4.1.1", marks=pytest.mark.lane("test-long"))])
@pytest.mark.parametrize("kraft_version", [0, 1])
async def test_our_finalized_levels_are_those_of_stock(release: str, kraft_version: int, tmp_path: Path) -> None:
    kafka = KafkaRelease(release).fetch()
    stock = await finalized(kafka, tmp_path, kraft_version, is_stock=True)
    ours = await finalized(kafka, tmp_path, kraft_version, is_stock=False)
    assert ours == stock
    assert stock.get(KRAFT_VERSION, 0) == kraft_version
