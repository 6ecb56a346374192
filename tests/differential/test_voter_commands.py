"""Stock Kafka's own ``kafka-metadata-quorum`` against our leader: add, look, remove."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import free_port
from tests.differential.test_voter_changes import JOINER, LEADER, Quorum
from tests.patience import PATIENCE_SECONDS

PATIENT = {"controller.quorum.fetch.timeout.ms": "300000"}
"""One of two voters restarts at another address. A leader that had given up meanwhile, and has records that the other
lacks, could not be elected again, nor could the other: it looks for that one at the old address, as Kafka does."""
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


@pytest.fixture
async def quorum(request: pytest.FixtureRequest, kafka_391: StockKafka, tmp_path: Path) -> AsyncIterator[Quorum]:
    """Our leader, or a stock one, and one of our controllers that observes it."""
    found = Quorum(kafka_391, tmp_path, is_stock=getattr(request, "param", False), **PATIENT)
    try:
        await asyncio.to_thread(found.start)
        await found.observer_has_caught_up()
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("release", ["3.9.1", pytest.param("4.1.1", marks=pytest.mark.lane("test-long"))])
async def test_stock_commands_add_describe_and_remove_a_voter(quorum: Quorum, release: str, tmp_path: Path) -> None:
    kafka = KafkaRelease(release).fetch()

    async def command(*arguments: str) -> str:
        at = ("--bootstrap-controller", f"127.0.0.1:{quorum.ports[LEADER]}")
        return await asyncio.to_thread(kafka.tool, TOOL, *at, *arguments, directory=tmp_path)

    names = {
        node: base64.urlsafe_b64encode(disk.bytes).decode().rstrip("=") for node, disk in quorum.directories.items()
    }
    entries = {
        node: {"id": node, "directoryId": names[node], "endpoints": [f"CONTROLLER://127.0.0.1:{quorum.ports[node]}"]}
        for node in (LEADER, JOINER)
    }

    added = await command("--command-config", str(quorum.joiner.property_file), "add-controller")
    assert f"Added controller {JOINER} with directory id {names[JOINER]}" in added
    status = await command("describe", "--status")
    assert _listed(status, "CurrentVoters") == [entries[LEADER], entries[JOINER]]
    assert _listed(status, "CurrentObservers") == []
    rows = [line.split() for line in (await command("describe", "--replication")).splitlines()[1:] if line]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (str(LEADER), names[LEADER], "Leader"),
        (str(JOINER), names[JOINER], "Follower"),
    ]
    removed = await command(
        "remove-controller", "--controller-id", str(JOINER), "--controller-directory-id", names[JOINER]
    )
    assert "Removed" in removed
    await quorum.observer_has_caught_up()
    status = await command("describe", "--status")
    assert _listed(status, "CurrentVoters") == [entries[LEADER]]
    assert _listed(status, "CurrentObservers") == [{"id": JOINER, "directoryId": names[JOINER]}]


def _listed(status: str, name: str) -> Any:
    found = re.search(rf"^{name}:\s+(\[.*\])$", status, re.MULTILINE)
    assert found, status
    return json.loads(found[1])


@pytest.mark.parametrize("quorum", [False, True], ids=["ours", "stock"], indirect=True)
async def test_a_voter_that_has_moved_is_found_again(quorum: Quorum) -> None:
    """It tells the leader itself (UpdateRaftVoter), and is told where the leader is by its bootstrap server."""
    joiner = (JOINER, quorum.directories[JOINER])
    assert await quorum.change(quorum.add(*joiner, quorum.ports[JOINER])) == (ErrorCode.none, "")
    await asyncio.to_thread(quorum.joiner.stop)
    port = quorum.ports[JOINER] = free_port()
    quorum.joiner.properties["listeners"] = f"CONTROLLER://127.0.0.1:{port}"
    await asyncio.to_thread(quorum.joiner.start)

    def has_moved(answer: Any) -> bool:
        found = {node.node_id: node.listeners for node in answer.nodes}
        return [(at.host, at.port) for at in found[JOINER]] == [("127.0.0.1", port)]

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not has_moved(await quorum.until(lambda _: True)):
            await asyncio.sleep(0.1)
    moved = await quorum.until(lambda found: {row.replica_id for row in found.current_voters} == {LEADER, JOINER})
    assert moved.topics[0].partitions[0].leader_id in {LEADER, JOINER}
