"""Stock Kafka's ``kafka-reassign-partitions`` and the voters of the quorum: what of it works through a broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.parts.kafka import KafkaRelease
from tests.interop.support.changing_voters import ChangingVoters
from tests.interop.support.mixed_voters import Brokers, voters_of

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
async def test_through_a_broker_the_tool_shows_and_cancels_a_target_and_cannot_set_one(
    tmp_path: Path, release: str
) -> None:
    """docs/quorum.md says so. It sets none because it asks for brokers of these ids before it asks anybody else."""
    kafka = KafkaRelease(release).fetch()
    quorum = ChangingVoters(tmp_path, size=2, voters=1)
    brokers = Brokers(tmp_path, (kafka,), ",".join(f"127.0.0.1:{port}" for port in quorum.ports.values()))
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "__cluster_metadata", "partition": 0, "replicas": [2]}]})
    )

    async def tool(*arguments: str) -> str:
        at = ("--bootstrap-server", brokers.bootstrap)
        return await asyncio.to_thread(kafka.tool, TOOL, *at, *arguments, directory=tmp_path)

    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        await asyncio.to_thread(brokers.start)
        with pytest.raises(OperatorError, match="Unknown broker id 2"):
            await tool("--reassignment-json-file", str(plan), "--execute")
        await quorum.reassign(2, 3)  # no controller 3 is there, so that the plan goes as far as it can, and waits
        await quorum.until(lambda found: voters_of(found) == {1, 2})
        assert "__cluster_metadata-0: replicas: 1,2. adding: 3. removing: 1." in await tool("--list")
        assert "__cluster_metadata-0 is still in progress" in await tool(
            "--reassignment-json-file", str(plan), "--verify"
        )
        cancelled = await tool("--reassignment-json-file", str(plan), "--cancel", "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: __cluster_metadata-0" in cancelled
        assert "No partition reassignments found" in await tool("--list")
        assert voters_of(await quorum.until(lambda _: True)) == {1, 2}
    finally:
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(quorum.close)
