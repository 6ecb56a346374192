"""A controller with an empty disk takes part in elections only once it has what is committed, if that is demanded."""

from __future__ import annotations

import logging
import shutil
from functools import partial
from pathlib import Path

import pytest

from migrator.log.empty_mark import FILE_NAME as MARK
from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.initial_voters import initial_voter
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.quorum_state import FILE_NAME
from migrator.node.core import NodeCore
from migrator.node.status_source import NodeStatusSource
from migrator.raft.census import Word
from migrator.raft.voter_set import VoterSet
from migrator.records.control import VoterEndpoint
from migrator.records.uuid import Uuid
from tests.node.support.cluster import FOLLOWS, Cluster, until

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


def mark_of(cluster: Cluster, node_id: int) -> EmptyMark:
    return EmptyMark(cluster.settings(node_id).metadata_directory / DIRECTORY_NAME)


def wipe(cluster: Cluster, *node_ids: int, voters: VoterSet | None = None) -> None:
    """The disks are replaced, and formatted as they were at first."""
    for node_id in node_ids:
        shutil.rmtree(cluster.settings(node_id).metadata_directory)
    cluster.format_some(node_ids, voters)


async def stopped(cluster: Cluster) -> None:
    for node_id in list(cluster.nodes):
        await cluster.stop(node_id)


@pytest.mark.parametrize("key", ["true", "false"])
async def test_the_mark_is_there_from_the_first_start_until_the_log_is_whole(tmp_path: Path, key: str) -> None:
    cluster = Cluster(tmp_path, 3, **{KEY: key})
    cluster.format()
    try:
        alone = cluster.start(1)
        assert mark_of(cluster, 1).read() is EmptyReason.UNKNOWN
        assert alone.storage.log.end_offset() == 0
        for node_id in (2, 3):
            cluster.start(node_id)
        await cluster.leader()
        for node_id in (1, 2, 3):
            await until(partial(is_gone, mark_of(cluster, node_id)), "the mark is gone")
            assert cluster.nodes[node_id].storage.log.end_offset() > 0
    finally:
        await stopped(cluster)
    assert cluster.failures == []


def is_gone(mark: EmptyMark) -> bool:
    return mark.read() is None


async def test_lost_disks_elect_no_empty_log_after_a_restart(tmp_path: Path) -> None:
    """Any refused vote leaves an election state beside the empty log. The one that has the log is down for a moment."""
    cluster = Cluster(tmp_path, 3, **{KEY: "true"})
    cluster.format()
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    try:
        await cluster.agree((await cluster.leader()).quorum.high_watermark - 1)
        await stopped(cluster)
        wipe(cluster, 2, 3)
        for node_id in (1, 2, 3):
            cluster.start(node_id)
        whole, end = cluster.nodes[1], cluster.nodes[1].storage.log.end_offset()
        lost = [cluster.nodes[2], cluster.nodes[3]]
        epoch = whole.quorum.epoch
        await until(lambda: all(node.quorum.epoch > epoch for node in lost), "votes were asked for")
        await stopped(cluster)
        assert all((mark._path.parent / FILE_NAME).exists() for mark in map(partial(mark_of, cluster), (2, 3)))
        lost = [cluster.start(2), cluster.start(3)]
        for node in lost:
            await until(
                lambda: set(node.quorum.status().waits_for.values()) == {Word.SILENT, Word.EMPTY},  # noqa: B023
                "the other one says that it is empty, too",
            )
        whole = cluster.start(1)
        for node in lost:
            await until(lambda: node.quorum.status().waits_for.get(1) is Word.HAS_LOG, "the log is known")  # noqa: B023
        (problem,) = (
            NodeStatusSource(cluster.settings(2), cluster.nodes[2], FOLLOWS, lambda _after: []).status().problems
        )
        assert "no other voter has a longer log than controller 1" in problem.remedy
        assert "migrator controller --bootstrap -c FILE" in problem.remedy
        assert [node.storage.log.end_offset() for node in (whole, *lost)] == [end, 0, 0]
        assert all(node.controller.epoch is None for node in cluster.nodes.values())
        await cluster.stop(2)
        cluster.extra = {KEY: "false"}  # as --bootstrap does it, on one of the two
        cluster.start(2)
        leader = await cluster.leader()
        assert leader is whole, "the empty one votes for the log"
        await cluster.agree(leader.quorum.high_watermark - 1)
    finally:
        await stopped(cluster)
    assert cluster.failures == []


async def test_a_directory_that_names_its_first_voters_is_empty_too(tmp_path: Path) -> None:
    """`format --initial-controllers`, run again on new disks with the same list: the ids of the directories fit."""
    ids = {node_id: Uuid(f"directory of {node_id:3}".encode()) for node_id in (1, 2, 3)}
    places = {node_id: VoterEndpoint("CONTROLLER", "localhost", 9000 + node_id) for node_id in ids}
    voters = VoterSet.of(initial_voter(node_id, ids[node_id], places[node_id]) for node_id in ids)
    cluster = Cluster(tmp_path, 3, **{KEY: "true"})
    cluster.format_some(ids, voters)
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    try:
        await cluster.agree((await cluster.leader()).quorum.high_watermark - 1)
        await stopped(cluster)
        wipe(cluster, 2, 3, voters=voters)
        for node_id in (2, 3):
            cluster.start(node_id)
        for node_id in (2, 3):
            words = {1: Word.SILENT, 5 - node_id: Word.EMPTY}
            await until(partial(says, cluster.nodes[node_id], words), "the other one is asked")
            assert mark_of(cluster, node_id).read() is EmptyReason.UNKNOWN
    finally:
        await stopped(cluster)
    assert cluster.failures == []


def says(node: NodeCore, words: dict[int, Word]) -> bool:
    return dict(node.quorum.status().waits_for) == words


async def test_a_new_quorum_is_remembered_where_nothing_was_fetched_yet(tmp_path: Path) -> None:
    """All voters have said that they are empty; then one is gone. The others need not ask it again."""
    cluster = Cluster(tmp_path, 3, **{KEY: "true"})
    cluster.format()
    for node_id in (1, 2, 3):
        (cluster.settings(node_id).metadata_directory / DIRECTORY_NAME).mkdir()
        mark_of(cluster, node_id).write(EmptyReason.NEW_QUORUM)
    try:
        for node_id in (1, 2):
            cluster.start(node_id)
        await cluster.leader()
    finally:
        await stopped(cluster)
    assert cluster.failures == []


def test_a_mark_that_nobody_understands_says_the_least(tmp_path: Path) -> None:
    mark = EmptyMark(tmp_path)
    assert mark.read() is None
    for beginning in EmptyReason:
        mark.write(beginning)
        assert mark.read() is beginning
    for content in (b"", b"{}", b"\xff" * 10):
        (tmp_path / MARK).write_bytes(content)
        assert mark.read() is EmptyReason.UNKNOWN
    mark.remove()
    assert mark.read() is None


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
