"""A controller takes part in the quorum while it loads what is on its disk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.controller.index import ControllerIndex
from migrator.log.metadata_log import MetadataLog
from migrator.node.core import NodeCore
from migrator.node.metadata import MetadataRuntime
from migrator.node.node import run_node
from migrator.node.status_source import NodeStatusSource
from migrator.node.stop_reason import StopReason
from migrator.parts.processes import port_is_open
from migrator.raft.messages import VoteRequest
from migrator.raft.states import Role
from migrator.records import metadata as rec
from migrator.records.batch import Batch
from tests.node.support.cluster import CLUSTER_ID, FOLLOWS, STEADY, Cluster, until
from tests.node.test_far_behind import fill, history
from tests.node.test_own_state import Own
from tests.patience import PATIENCE_SECONDS

SMALL = 20
FETCHES = 4
"""Of the log, which a controller that was away needs."""


def hold(node: NodeCore) -> None:
    """Let it get no further with its disk."""
    node.metadata._advance = lambda turn: True  # type: ignore[method-assign] # noqa: ARG005


def told(cluster: Cluster, node: NodeCore) -> str:
    status = NodeStatusSource(cluster.settings(1), node, FOLLOWS, lambda _after: []).status()
    return " ".join(problem.what for problem in status.problems)


async def test_a_controller_that_loads_votes_and_fetches_and_does_not_lead(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3)
    cluster.format()
    for node_id in (1, 2, 3):
        fill(cluster.settings(node_id), history(SMALL))
    loading = cluster.start(1)
    hold(loading)
    end = loading.storage.log.end_offset()
    try:
        assert re.search(r"it still loads its metadata: 0\.0 of \d+\.\d MB", told(cluster, loading))
        vote = await loading.quorum.handle(VoteRequest(CLUSTER_ID, 1, 9, 2, 1, end))
        assert vote.vote_granted  # type: ignore[union-attr]
        for node_id in (2, 3):
            cluster.start(node_id)
        leader = await cluster.leader()
        assert leader is not loading
        await until(lambda: loading.quorum.status().high_watermark > end, "it follows")
        assert loading.metadata.loading is not None
        assert not loading.metadata.has_reached_high_watermark
        del loading.metadata._advance
        await until(lambda: loading.metadata.has_reached_high_watermark, "it has loaded its disk")
        assert loading.keeper.index == ControllerIndex.of(loading.metadata.image)
        assert "loads" not in told(cluster, loading)
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert cluster.failures == []


async def test_a_controller_listens_before_a_record_of_its_log_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, held, decoded, advance = Own(tmp_path, 1), True, 0, MetadataRuntime._advance
    fill(own.settings, history(SMALL))
    failure, ready = StopReason(), asyncio.Event()

    def counted(each: Batch) -> Iterator[tuple[rec.MetadataRecord, int]]:
        nonlocal decoded
        for record in sized_records(each):
            decoded += 1
            yield record

    sized_records = Batch.sized_records
    monkeypatch.setattr(Batch, "sized_records", counted)
    monkeypatch.setattr(MetadataRuntime, "_advance", lambda self, turn: held or advance(self, turn))
    run = asyncio.create_task(run_node(own.settings, failure, when_ready=ready.set))
    try:
        await until(lambda: port_is_open(own.port), "it listens")
        assert decoded <= 1, "one record is in bootstrap.checkpoint"
        assert not ready.is_set()
        held = False
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ready.wait()
        assert decoded > SMALL
    finally:
        failure.stop.set()
        await run


async def test_a_sole_voter_leads_once_it_has_loaded(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    cluster.format()
    fill(cluster.settings(1), history(SMALL))
    node = cluster.start(1)
    hold(node)
    try:
        node.quorum.look_again()
        assert node.quorum.role is not Role.LEADER
        del node.metadata._advance
        assert await cluster.leader() is node
    finally:
        await cluster.stop(1)
    assert cluster.failures == []


def test_what_has_to_be_read_is_counted_from_an_offset_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    cluster.format()
    data = history(SMALL)
    fill(cluster.settings(1), data)
    log = MetadataLog.open(cluster.settings(1).metadata_directory)
    last = log.read(log.end_offset() - 1, 1)
    sizes = log.size_from(0), log.size_from(log.end_offset() - 1), log.size_from(log.end_offset())
    log.close()
    assert sizes == (len(data), len(last), 0)


async def test_a_controller_that_was_away_is_ready_when_it_has_all_that_was_committed(tmp_path: Path) -> None:
    """After a part of the records, a user that was deleted meanwhile could log in."""
    user = rec.UserScramCredentialRecord("mallory", rec.ScramMechanism.SHA_256, b"salt", b"k" * 32, b"s" * 32, 4096)
    cluster = Cluster(tmp_path, 3, **STEADY)
    cluster.format()
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    leader = await cluster.leader()
    away = next(node_id for node_id, node in cluster.nodes.items() if node is not leader)
    try:
        epoch = leader.controller.epoch
        assert epoch is not None
        await cluster.agree(await leader.controller.append(epoch, (user,)))
        await cluster.stop(away)
        for number in range(FETCHES):
            texts = ["x" * 3_000] * 350
            many = (rec.ConfigRecord(4, f"t{number}", f"k{key}", text) for key, text in enumerate(texts))
            end = await leader.controller.append(epoch, tuple(many))
        end = await leader.controller.append(epoch, (rec.RemoveUserScramCredentialRecord("mallory", user.mechanism),))
        await until(lambda: leader.metadata.published.provenance.offset >= end, "the user is deleted")
        back, ready_with = cluster.start(away), []
        back.metadata.subscribers.append(
            lambda delta: (
                ready_with.append(bool(delta.after.scram)) if back.metadata.has_reached_high_watermark else None
            )
        )
        await until(lambda: back.metadata.has_reached_high_watermark, "it is ready")
        assert not back.metadata.published.scram
        assert not any(ready_with)
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert cluster.failures == []
