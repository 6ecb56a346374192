"""A controller with an empty disk takes part in elections only once it has what is committed, if that is demanded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.support.cluster import Cluster, until

KEY = "migrator.quorum.require.bootstrap"


async def test_an_empty_controller_says_what_it_waits_for_and_votes_after_its_first_fetch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(tmp_path, 3, **{KEY: "false"})
    cluster.format()
    try:
        for first in (1, 2):  # a majority of the new quorum, as `migrator controller --bootstrap` starts it
            cluster.start(first)
        leader = await cluster.leader()
        assert KEY not in caplog.text
        cluster.extra = {KEY: "true"}
        wiped = cluster.start(3)
        assert "migrator controller --bootstrap" in caplog.text
        await until(lambda: wiped.quorum.status().high_watermark >= leader.quorum.status().high_watermark, "it fetches")
        assert leader.quorum.leader_id is not None
        await cluster.stop(leader.quorum.leader_id)
        assert await cluster.leader() is not leader
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert cluster.failures == []
