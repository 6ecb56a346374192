"""`migrator quorum` from the command line to the log: real sockets, real disks, a quorum in this process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from migrator.controller.quorum_target import target_of
from migrator.errors import ExitCode
from migrator.node.quorum.storage import NodeStorage
from migrator.node.status_source import NodeStatusSource
from migrator.node.voter_orders import VoterOrders
from migrator.raft.core import QuorumInfo
from migrator.raft.effects import AppendLeaderChange
from migrator.records.control import LeaderChange, Voter
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.rpc.server import GrpcServer
from tests.cli.support.commands import Commands
from tests.node.support.cluster import FOLLOWS, until
from tests.node.support.dynamic import DynamicCluster, dynamic

MIGRATOR = (sys.executable, "-m", "tests.cli.support.patient")
PATIENT = {"controller.quorum.fetch.timeout.ms": "6000"}
"""All share one event loop: on a busy machine it may stand still for a second or two, and the same one leads on."""


@asynccontextmanager
async def served(directory: Path, size: int, voters: int) -> AsyncIterator[DynamicCluster]:
    """Each controller takes orders through the socket of its directory, which a property file names."""
    servers = []
    async with dynamic(directory, size, voters, **PATIENT) as cluster:
        for node_id, node in cluster.nodes.items():
            settings = cluster.settings(node_id)
            keys = "".join(f"{key}={text}\n" for key, text in cluster.keys(node_id).items())
            file_of(cluster, node_id).write_text(keys)
            orders = VoterOrders(settings, node, cluster.plans[node_id], cluster.journals[node_id])
            journal = cluster.journals[node_id]
            source = NodeStatusSource(settings, node, FOLLOWS, journal.after, notes=journal)
            server = GrpcServer([OperatorService(source), VotersService(orders)])
            server.listen_unix(settings.metadata_directory)
            await server.start()
            servers.append(server)
        try:
            yield cluster
        finally:
            for server in servers:
                await server.close(grace=0)


def file_of(cluster: DynamicCluster, node_id: int) -> Path:
    return cluster.directory / f"{node_id}.properties"


async def run(cluster: DynamicCluster, node_id: int, *words: str) -> tuple[int, str]:
    """Exit code, and everything that is printed: a process of its own, as gRPC has one event loop in each."""
    process = await asyncio.create_subprocess_exec(
        *MIGRATOR,
        "quorum",
        words[0],
        "-c",
        str(file_of(cluster, node_id)),
        *words[1:],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "500"},
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def said(cluster: DynamicCluster, node_id: int, *words: str) -> str:
    """Of a command that does what it is told."""
    code, output = await run(cluster, node_id, *words)
    assert code == ExitCode.OK, output
    return output


async def leader_id(cluster: DynamicCluster) -> int:
    found = (await cluster.leader()).quorum.leader_id
    assert found is not None
    return found


@pytest.mark.lane("test-all")
async def test_an_operator_moves_the_voters_and_looks_on(tmp_path: Path) -> None:
    async with served(tmp_path, 5, 3) as cluster:
        leader = await leader_id(cluster)
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        assert "target: none" in await said(cluster, leader, "describe")
        cluster.wires.cut.add(5)
        told = await said(cluster, leader, "reassign", "--to", "1,2,3,4,5")
        # After a warning about 5, if it has been silent for long enough when the order comes.
        assert told.splitlines()[-1] == (
            "the voters are going to be 1,2,3,4,5; follow the change with 'migrator quorum describe --watch'"
        )
        await until(lambda: frozenset({1, 2, 3, 4}) in cluster.voters(), "4 joins, 5 is missing")
        waits = "Reassignment of voters waits: Controller 5 does not fetch from this leader."
        await until(lambda: waits in cluster.noted(), "the reason in the journal")
        found = json.loads(await said(cluster, leader, "describe", "--json"))
        assert (found["target"], found["state"], found["kraft_version"]) == ("1,2,3,4,5", "waiting", 1)
        assert found["waiting_for"] == "Controller 5 does not fetch from this leader."
        assert found["next_steps"] == ["add controller 5", "clear the target"]
        rows = {row["node_id"]: row for row in found["replicas"]}
        assert [rows[node_id]["votes"] for node_id in (1, 2, 3, 4)] == [True] * 4
        assert rows[4]["address"] == "localhost:9004"
        assert rows[4]["rounds"] > 0
        text = await said(cluster, leader, "describe")
        assert "waits: Controller 5 does not fetch from this leader. Start the controller" in text
        code, refusal = await run(cluster, other, "cancel")
        assert code == ExitCode.REFUSED
        assert f"Run this with the property file of controller {leader}" in refusal
        resting = json.loads(await said(cluster, other, "describe", "--json"))
        assert (resting["target"], resting["state"], resting["replicas"]) == ("1,2,3,4,5", "resting", [])
        assert await said(cluster, leader, "cancel") == "cancelled: the target was 1,2,3,4,5\n"
        assert await said(cluster, leader, "cancel") == "no target was set\n"
        cluster.wires.cut.clear()
        noted = [event for event in cluster.journals[leader].after(-1) if event.by]
        assert [event.text for event in noted] == [
            "the operator has ordered: the voters shall be 1,2,3,4,5",
            "the operator has ordered: the voters stay what they are",
            "the operator has ordered: the voters stay what they are",
        ]


@pytest.mark.lane("test-all")
async def test_a_controller_that_has_lost_its_leader_says_that_nobody_leads(tmp_path: Path) -> None:
    """It remembers the last leader, perhaps itself; that does not answer which one leads now."""
    async with served(tmp_path, 2, 2) as cluster:
        leader = await leader_id(cluster)
        (other,) = {1, 2} - {leader}
        cluster.wires.cut |= {leader, other}
        for node_id in (leader, other):
            status = cluster.nodes[node_id].quorum.status
            await until(partial(_hears_nobody, status), f"controller {node_id} hears nobody")
            code, text = await run(cluster, node_id, "describe")
            assert code == ExitCode.DIFFERENT
            assert "nobody leads ('migrator status' says who does not answer)" in text
            code, refusal = await run(cluster, node_id, "cancel")
            assert code == ExitCode.REFUSED
            assert "no controller leads" in refusal


def _hears_nobody(status: Callable[[], QuorumInfo]) -> bool:
    return not status().has_leader


async def test_a_target_that_is_reached_already_is_called_so(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        told = await said(cluster, await leader_id(cluster), "reassign", "--to", "1")
        assert "warning: These controllers vote already. Nothing changes, unless one of them has a new disk." in told


async def test_add_and_remove_wait_until_it_is_done(tmp_path: Path) -> None:
    async with served(tmp_path, 4, 3) as cluster:
        leader = await leader_id(cluster)
        told = await said(cluster, leader, "add", "4", "--wait")
        assert told.splitlines()[0] == "warning: 4 voters survive no more failures than 3. Use an odd number."
        assert told.splitlines()[-1] == "the voters are 1,2,3,4"
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        rest = ",".join(str(node_id) for node_id in (1, 2, 3, 4) if node_id != other)
        told = await said(cluster, leader, "remove", str(other), "--wait")
        assert told.splitlines()[-1] == f"the voters are {rest}"
        assert target_of(cluster.nodes[leader].metadata.published) is None


REFUSED = {
    ("reassign", "--to", ""): "The target is empty. Name the controllers that shall vote, such as 4,5,6",
    ("reassign", "--to", "4,4"): "The target names controller 4 twice. Name each controller once",
    ("add", "1"): "Controller 1 is a voter already, or is going to be one",
    ("remove", "7"): "Controller 7 is no voter, and is not going to be one",
    ("reassign", "--to", "1", "--cluster-id", "another"): "this is cluster 9egfFDzKSbaonHwNn88EuQ, not another",
}


async def test_what_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        await leader_id(cluster)
        with Commands() as commands:
            for (order, *words), message in REFUSED.items():
                code, refusal = await commands.run("quorum", order, "-c", str(file_of(cluster, 1)), *words)
                assert code == ExitCode.REFUSED, order
                assert message in " ".join(refusal.split())


def change_of_stock(storage: NodeStorage, effect: AppendLeaderChange, now_ms: int) -> bytes:
    """The record that opens an epoch as Kafka's own controllers write it."""
    named = (tuple(map(Voter, effect.voters)), tuple(map(Voter, effect.granting_voters)))
    return storage._control_batch([LeaderChange(effect.leader_id, *named)], effect.epoch, now_ms)


@pytest.mark.lane("test-all")
async def test_under_a_stock_leader_nobody_is_sent_to_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no program of ours: what works is said instead."""
    monkeypatch.setattr(NodeStorage, "leader_change", change_of_stock)
    async with served(tmp_path, 3, 3) as cluster:
        leader = (await cluster.leader()).quorum.leader_id
        assert leader is not None
        follower = min(cluster.nodes.keys() - {leader})
        await until(lambda: cluster.nodes[follower].quorum.status().led_by_stock, "its first record is here")
        leads = f"controller {leader} leads, and is one of Kafka's own controllers"
        code, refusal = await run(cluster, follower, "reassign", "--to", "1,2,3")
        assert code == ExitCode.REFUSED
        assert leads in refusal
        code, described = await run(cluster, follower, "describe")
        assert code == ExitCode.OK
        assert leads in " ".join(described.split())
        for text in (refusal, described):
            assert "kafka-metadata-quorum.sh" in text
            assert "on its machine" not in text
