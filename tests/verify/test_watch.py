"""`verify --watch` as a process of its own beside a cluster: every verdict is kept, shown, measured and reported."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import urllib.request
from pathlib import Path

import orjson
import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import MIGRATOR
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode, OperatorError
from migrator.parts.processes import ChildProcess
from migrator.verify.history import History
from migrator.verify.recheck import Pair
from migrator.verify.verdict import Verdict
from migrator.verify.watch import WatchMetrics, entry_of
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.patience import PATIENCE_SECONDS
from tests.verify.support.sample_pages import DIFFERENT, EQUAL


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return {name: float(number) for name, number in re.findall(r"^(migrator_\w+) (\S+)$", text, re.MULTILINE)}


def test_the_last_verdict_is_a_metric() -> None:
    metrics = WatchMetrics("127.0.0.1", 0)
    try:
        assert scraped(metrics.port)["migrator_verify_last_verdict"] == -1
        expected: list[tuple[Verdict | OperatorError, int]] = [
            (EQUAL, 1), (DIFFERENT, 0), (OperatorError("away"), -1), (EQUAL, 1),
        ]  # fmt: skip
        for found, number in expected:
            metrics.show(entry_of(found, 2, 1_000))
            assert scraped(metrics.port)["migrator_verify_last_verdict"] == number
        seen = scraped(metrics.port)
        assert seen["migrator_verify_offset"] == DIFFERENT.at.offset
        assert seen["migrator_verify_foreign_writes_total"] == 8
        with pytest.raises(OperatorError, match="cannot listen"):
            WatchMetrics("127.0.0.1", metrics.port)
    finally:
        metrics.close()
    assert Pair(1, 2) != DIFFERENT.at


@pytest.mark.lane("test-all")
async def test_a_watch_beside_a_cluster(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1, brokers=2, partitions=30) as cluster:
        start_all(cluster)
        leader = await cluster.until_dual_writing()
        page, kept, output = tmp_path / "verify.html", tmp_path / "history", tmp_path / "verify.log"
        command = [
            MIGRATOR, "verify", "-c", str(leader.property_file), "--watch", "2", "--json", "--page", str(page),
            "--history", str(kept), "--metrics-port", "0", "--report", "--master", "local[2]",
        ]  # fmt: skip
        process = ChildProcess("verify", command, output=output)

        def said() -> list[dict[str, object]]:
            lines = (line for line in output.read_text().splitlines() if line.startswith('{"'))
            return [orjson.loads(line) for line in lines]

        try:
            await cluster.until("two verdicts", lambda: len(said()) >= 2, PATIENCE_SECONDS)
            assert [one["verdict"] for one in said()[:2]] == ["equal", "equal"], output.read_text()
            ports = re.search(r"metrics on port (\d+)", output.read_text())
            assert ports is not None
            port = int(ports[1])
            assert (await asyncio.to_thread(scraped, port))["migrator_verify_last_verdict"] == 1

            topic = min(name for name in zookeeper_client.get_children(paths.TOPICS) if name.startswith(PLAIN_TOPIC))
            config = paths.topic_config(topic)
            zookeeper_client.set(config, encode_config({"retention.ms": "77"}))
            stat = zookeeper_client.get(config)[1]
            await cluster.until("it is seen", lambda: any(one["foreign_writes"] for one in said()))
            named = [write for one in said() for write in one["foreign_writes"]]  # type: ignore[attr-defined]
            assert named == [{"path": config, "zxid": stat.mzxid, "time_ms": stat.mtime, "session": None}]
            await cluster.until("it differs", lambda: said()[-1]["verdict"] == "different")
            assert (await asyncio.to_thread(scraped, port))["migrator_verify_foreign_writes_total"] == 1
            found = await cluster.active()
            assert found is not None
            assert [event.kind for event in found[1].recent_events].count("verdict") >= 2
            assert "the migration may be finished" not in str(found[1].recent_events), (
                "nothing may be finished while it dual-writes"
            )
            process.send(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, timeout_seconds=PATIENCE_SECONDS) == ExitCode.DIFFERENT
        finally:
            process.kill()
        assert topic in page.read_text()
        entries = History(kept).entries()
        assert [entry.verdict for entry in entries] == [one["verdict"] for one in said()]
        assert sum(entry.foreign_writes for entry in entries) == 1
        assert entries[0].time_ms <= time.time() * 1000
