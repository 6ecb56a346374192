"""A controller's messages to operators while its quorum has no leader."""

from __future__ import annotations

from pathlib import Path

from migrator.log.bootstrap import bootstrap_records, write_bootstrap
from migrator.node.status_source import NodeStatusSource, NoRoll
from migrator.records.versions import parse_version
from tests.node.support.cluster import FOLLOWS, IMPATIENT, Cluster, running, until


async def test_a_voter_without_a_leader_says_so_and_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
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


async def test_voters_that_do_not_answer_are_named(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        await cluster.leader()
        for gone in (2, 3):
            await cluster.stop(gone)
        left = cluster.nodes[1]
        roll = NoRoll({1: True, 2: False, 3: False}, "there is no answer from controllers 2, 3")
        source = NodeStatusSource(cluster.settings(1), left, FOLLOWS, lambda _after: [], roll)
        await until(lambda: not left.quorum.status().has_leader, "no leader")
        status = source.status()
        assert status.quorum.leader_id == -1, "also where a leader of the past is known"
        assert [voter.answers for voter in status.quorum.voters] == [True, False, False]
        (problem,) = status.problems
        assert problem.what.endswith("there is no answer from controllers 2, 3")
        assert problem.remedy.startswith("Start controllers 2, 3, and check that the machines reach each other")


async def test_a_node_without_metadata_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3)
    cluster.format()
    alone = cluster.start(1)
    source = NodeStatusSource(cluster.settings(1), alone, FOLLOWS, lambda _after: [])
    try:
        status = source.status()
        assert status.is_blank
        assert (status.metadata_version, status.formatted_version) == ("", "3.9-IV0")
        cluster.start(2)
        await cluster.leader()
        await until(lambda: not source.status().is_blank, "metadata")
        assert source.status().metadata_version == "3.9-IV0"
        assert source.status().migration.internal_state_age_ms == -1, "nobody has measured for how long"
    finally:
        for node in list(cluster.nodes):
            await cluster.stop(node)
    assert not cluster.failures


async def test_a_directory_that_was_formatted_with_another_version_is_named(tmp_path: Path) -> None:
    migrating = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": "localhost:1"}
    async with running(tmp_path, 1, **migrating) as cluster:
        source = NodeStatusSource(cluster.settings(1), await cluster.leader(), FOLLOWS, lambda _after: [])
        assert source.status().problems == ()
        await cluster.stop(1)
        write_bootstrap(cluster.settings(1).metadata_directory, bootstrap_records(parse_version("3.8")), now_ms=0)
        cluster.start(1)
        source = NodeStatusSource(cluster.settings(1), await cluster.leader(), FOLLOWS, lambda _after: [])
        (problem,) = source.status().problems
        assert problem.who == "controller 1"
        assert "formatted with metadata.version 3.8-IV0, but the first leader's with 3.9-IV0" in problem.what
        assert problem.warning
