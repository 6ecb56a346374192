"""What a controller tells operators while its quorum has no leader."""

from __future__ import annotations

from pathlib import Path

from migrator.node.status_source import NodeStatusSource
from tests.node.support.cluster import FOLLOWS, running, until


async def test_a_voter_without_a_leader_says_so_and_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        for gone in (2, 3):
            await cluster.stop(gone)
        left = cluster.nodes[1]
        source = NodeStatusSource(cluster.settings(1), left, FOLLOWS, lambda _after: [])
        await until(lambda: left.quorum.leader_id is None, "no leader")
        (problem,) = source.status().problems
        assert "no controller leads" in problem.what
        assert "2 of 3 voters" in problem.what
        assert "start the controllers" in problem.remedy
        cluster.start(2)
        await cluster.leader()
        await until(lambda: source.status().problems == (), "a leader is known")
