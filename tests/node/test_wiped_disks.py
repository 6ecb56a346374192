"""A controller with an empty disk takes part in elections only once it has what is committed, if that is demanded."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.quorum_state import FILE_NAME
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


async def test_a_lost_quorum_state_beside_a_log_is_said_and_does_not_stop_a_controller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some operators delete it before each start; the log's epoch is kept."""
    caplog.set_level(logging.INFO)
    cluster = Cluster(tmp_path, 1)
    cluster.format()
    cluster.start(1)
    epoch = (await cluster.leader()).quorum.epoch
    try:
        for is_deleted in (False, True, True):
            await cluster.stop(1)
            state = cluster.settings(1).metadata_directory / DIRECTORY_NAME / FILE_NAME
            if is_deleted:
                state.unlink()
            cluster.start(1)
            said = f"{state.parent}: there is no file {FILE_NAME} beside a log that knows epoch {epoch}"
            assert (said in caplog.text) is is_deleted
            leader = await cluster.leader()
            assert leader.quorum.epoch > epoch
            epoch = leader.quorum.epoch
    finally:
        await cluster.stop(1)
    assert cluster.failures == []
