"""Controllers without gRPC: whichever of them an operator asks, the leader's truth is shown (ADR 59)."""

from __future__ import annotations

import json
from pathlib import Path

from migrator.errors import ExitCode
from migrator.migration.machine.states import State
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.people.support.commands import migrator


async def test_a_follower_shows_what_its_leader_says(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=1, partitions=12, transport="kafka") as cluster:
        start_all(cluster)
        leader = await cluster.until_state(State.DUAL_WRITING)
        follower = next(each for each in cluster.controllers if each is not leader)
        config = str(follower.property_file)
        own = await follower.status()
        assert own is not None
        assert not own.migration.active, "its own view does not know what the migration waits for"

        asked = json.loads((await migrator("status", "-c", config, "--json")).text)
        assert asked["is_leaders_view"]
        assert (asked["node_id"], asked["asked_node_id"]) == (leader.node_id, follower.node_id)
        assert asked["migration"]["active"]
        shown = await migrator("status", "-c", config)
        assert shown.code == ExitCode.OK
        assert State.DUAL_WRITING.value in shown
        assert "transition" in shown, "of the leader's journal"
        assert State.DUAL_WRITING.value in await migrator("top", "-c", config, "--once")
        gates = await migrator("gates", "finish", "-c", config)
        assert gates.code == ExitCode.DIFFERENT
        assert "NO " in gates

        leader.kill()

        async def leads_anew() -> bool:
            asked = json.loads((await migrator("status", "-c", config, "--json")).text)
            return bool(asked["is_leaders_view"]) and asked["node_id"] != leader.node_id

        await cluster.until("another one leads", leads_anew)
