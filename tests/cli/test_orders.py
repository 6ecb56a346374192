"""`migrator force`, `pause`, `resume` and `reopen`, run as an operator runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from migrator.cli import verify as command
from migrator.cli import verify_run
from migrator.errors import ExitCode
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Goal, JournalEvent, Orderer, VoterStatus
from migrator.verify import job
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from tests.cli.support.commands import Commands
from tests.conftest import ZooKeeperSpace
from tests.rpc.support.identities import OPERATOR, command_config
from tests.rpc.support.operator_node import WRITTEN, PlayedNode, property_file, served
from tests.verify.support.sample_pages import DIFFERENT, EQUAL


def at(server: str) -> tuple[str, ...]:
    """As the operator, who is nobody's controller."""
    return "--server", server, "--command-config", str(command_config())


Run = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Gives the exit code, and everything that was printed; ``answer`` is typed."""
    with Commands() as commands:
        yield commands.run


async def test_force_says_what_it_will_do_and_asks(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.DUAL_WRITING)
    config = str(property_file(tmp_path))
    force = ("force", "reconcile", "-c", config, "--reason", "audit")
    async with served(node, tmp_path):
        declined = await run(*force, answer="n\n")
        accepted = await run(*force, answer="y\n")
    assert "overwrite what differs in ZooKeeper" in declined[1]
    assert f"controller 1: {State.DUAL_WRITING.properties.sentence}" in declined[1]
    assert declined[0] == ExitCode.DIFFERENT
    assert "the answer was no" in declined[1]
    assert accepted[0] == ExitCode.OK
    assert "controller 1 has accepted the order" in accepted[1]
    assert node.orders == [("reconcile", "audit")]


@pytest.mark.parametrize("kind", ["reclaim", "deletes"])
async def test_force_says_first_that_nothing_waits_for_the_order(kind: str, tmp_path: Path, run: Run) -> None:
    """It does not say that the cluster was rolled back: no check has shown that."""
    node = PlayedNode(State.DUAL_WRITING)
    async with served(node, tmp_path):
        code, said = await run("force", kind, "-c", str(property_file(tmp_path)), "--reason", "x")
    assert code == ExitCode.REFUSED
    assert "nothing was forced: the state of the migration is" in said
    assert "rolled back" not in said
    assert "Go on?" not in said
    assert node.orders == []


async def test_reclaim_shows_every_fact_that_it_overrides_and_names_them_in_the_order(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.REFUSED, State.REFUSED)
    node.overridable = ("/migration holds offset 100", "/controller is held by ZooKeeper broker 2")
    force = ("force", "reclaim", "-c", str(property_file(tmp_path)), "--reason", "x")
    async with served(node, tmp_path):
        code, said = await run(*force, answer="n\n")
        assert (code, node.orders) == (ExitCode.DIFFERENT, [])
        code, said_at_once = await run(*force, "--yes")
    for text in (said, said_at_once):
        assert all(f"the order overrides: {fact}" in text for fact in node.overridable)
    assert (code, node.orders, node.overridden) == (ExitCode.OK, [("reclaim", "x")], [node.overridable])


async def test_what_no_order_can_override_is_not_ordered(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.REFUSED)
    async with served(node, tmp_path):
        code, said = await run("force", "reclaim", "-c", str(property_file(tmp_path)), "--reason", "x", "--yes")
    assert (code, node.orders) == (ExitCode.REFUSED, [])
    assert "an order cannot override what the migration waits for" in said


async def test_finish_names_the_nodes_that_are_left_out(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.FINISHING)
    node.voters = (VoterStatus(3, "localhost", 9093), VoterStatus(7, "localhost", 9093))
    finish = ("force", "finish", "-c", str(property_file(tmp_path)), "--reason", "lost")
    async with served(node, tmp_path):
        unnamed, declined, misplaced, negative, unheard = await asyncio.gather(
            run(*finish),
            run(*finish, "--without", "3", "--without", "7", answer="n\n"),
            run("force", "reconcile", "-c", str(property_file(tmp_path)), "--reason", "x", "--without", "3"),
            run(*finish, "--without", "-3"),
            run(*finish, "--without", "3", "--without", "99"),
        )
        assert node.orders == []
        accepted = await run(*finish, "--without", "3", "--without", "7", answer="y\n")
    for refused, why in ((unnamed, "Give --without ID"), (misplaced, "'finish' only"), (negative, "--without")):
        assert refused[0] == ExitCode.REFUSED
        assert why in refused[1]
    assert unheard[0] == ExitCode.REFUSED
    assert "nothing was forced: 99 is neither a controller of the quorum nor a registered broker" in unheard[1]
    assert "Go on?" not in unheard[1]
    assert "leaves these nodes out for good: 3, 7." in " ".join(declined[1].split())
    assert declined[0] == ExitCode.DIFFERENT
    assert accepted[0] == ExitCode.OK
    assert (node.orders, node.without) == ([("finish", "lost")], [(3, 7)])


async def test_orders_reach_the_server_and_its_refusals_come_back(run: Run) -> None:
    node = PlayedNode(State.REFUSED)
    async with served(node) as server:
        refused, no_reason, paused, resumed = await asyncio.gather(
            run("force", "deletes", *at(server), "--reason", "x", "--yes"),
            run("force", "reclaim", *at(server), "--yes"),
            run("pause", *at(server), "--reason", "freeze"),
            run("resume", *at(server)),
        )
    assert refused[0] == ExitCode.REFUSED
    assert "nothing was forced" in refused[1]
    assert no_reason[0] == ExitCode.REFUSED
    assert "--reason" in no_reason[1]
    assert (paused[0], resumed[0]) == (ExitCode.OK, ExitCode.OK)
    assert sorted(node.orders) == [("pause", "freeze"), ("resume", "")]
    assert {by.name for by in node.orderers} == {OPERATOR}


async def test_reopen_shows_what_stands_against_it_and_asks_twice(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.FINISHED)
    reopen = ("reopen", "-c", str(property_file(tmp_path)), "--reason", "CHG-1")
    async with served(node, tmp_path):
        refused = await run(*reopen, "--yes-cluster-id", "cluster")
        assert refused[0] == ExitCode.REFUSED
        assert "NO  brokers: brokers in ZooKeeper mode: 7. Restart them" in refused[1]
        node.goals_open |= {Goal.REOPEN}
        declined, mistaken, typed_wrong = await asyncio.gather(
            run(*reopen, answer="n\n"), run(*reopen, answer="y\nother\n"), run(*reopen, "--yes-cluster-id", "other")
        )
        assert node.orders == []
        accepted = await run(*reopen, answer="y\ncluster\n")
        kraft = tmp_path / "server.properties"
        kraft.write_text("process.roles=broker\n")
        files = [await run(*words, "--brokers", str(kraft)) for words in (reopen, ("gates", "reopen", *reopen[1:3]))]
    assert [code for code, _ in files] == [ExitCode.REFUSED, ExitCode.DIFFERENT]
    assert all("NO  files, mode: " in said and "it is of KRaft mode" in said for _, said in files)
    assert declined[0] == ExitCode.DIFFERENT
    for code, said in (mistaken, typed_wrong):
        assert code == ExitCode.REFUSED
        assert "has the id cluster, not other" in said
    assert accepted[0] == ExitCode.OK
    assert "take ZooKeeper back" in " ".join(accepted[1].split())
    assert node.orders == [("reopen", "CHG-1")]


async def test_an_empty_zookeeper_gets_the_cluster_before_the_gates_are_looked_at(
    tmp_path: Path, run: Run, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    node = PlayedNode(State.FINISHED)
    config = property_file(tmp_path)
    config.write_text(f"{config.read_text()}zookeeper.connect={zookeeper.hosts}/new\n")
    reopen = ("reopen", "--into-empty-zookeeper", "--reason", "CHG-1")
    async with served(node, tmp_path) as server:
        nowhere = await run(*reopen, *at(server))
        early = await run(*reopen, "-c", str(config), "--yes-cluster-id", "cluster")
        node.public = PublicState.FINISHED
        declined = await run(*reopen, "-c", str(config), answer="n\n")
        wrong = await run(*reopen, "-c", str(config), "--yes-cluster-id", "other")
        assert zookeeper_client.get_children("/") == []
        written = [await run(*reopen, "-c", str(config), "--yes-cluster-id", "cluster") for _ in range(2)]
        zookeeper_client.delete("/new/controller_epoch")
        other = await run(*reopen, "-c", str(config), "--yes-cluster-id", "cluster")
    assert "Give -c" in nowhere[1]
    assert "only a finished one can be reopened" in early[1]
    assert declined[0] == ExitCode.DIFFERENT
    assert "has the id cluster, not other" in wrong[1]
    assert "/controller_epoch were written" in written[0][1]
    assert "/controller_epoch are there already" in written[1][1]
    assert "NO  brokers" in written[0][1]
    assert "is not empty: it has /cluster" in other[1]
    assert decode_cluster_id("", zookeeper_client.get("/new/cluster/id")[0]) == "cluster"


async def test_the_way_back_is_closed_after_two_questions_and_only_after_the_end(tmp_path: Path, run: Run) -> None:
    node = PlayedNode(State.DUAL_WRITING)
    close = ("close-way-back", "-c", str(property_file(tmp_path)), "--reason", "CHG-2")
    async with served(node, tmp_path):
        early = await run(*close, "--yes-cluster-id", "cluster")
        node.public = PublicState.FINISHED
        declined, mistaken = await asyncio.gather(run(*close, answer="n\n"), run(*close, answer="y\nother\n"))
        assert node.orders == []
        accepted = await run(*close, answer="y\ncluster\n")
    assert early[0] == mistaken[0] == ExitCode.REFUSED
    assert "no way back has to be closed" in early[1]
    assert declined[0] == ExitCode.DIFFERENT
    assert accepted[0] == ExitCode.OK
    assert node.orders == [("close-way-back", "CHG-2")]


async def test_the_status_of_a_follower_says_whom_to_ask(run: Run) -> None:
    async with served(PlayedNode(State.INACTIVE, leader_id=3)) as server:
        code, output = await run("status", *at(server))
    assert code == ExitCode.OK
    assert "controller 3 leads" in output
    assert "as controller 1 knows it, which follows controller 3" in output
    assert "for 0 s" not in output, "nobody has measured for how long"


async def test_the_exit_codes_of_status_are_those_of_its_help(tmp_path: Path, run: Run) -> None:
    _, text = await run("status", "--help")
    said = " ".join(text.split())
    assert "0 answered, and a controller leads; 1 answered, but no controller leads; 2 no answer" in said
    config = str(property_file(tmp_path))
    async with served(PlayedNode(State.DUAL_WRITING), tmp_path):
        assert (await run("status", "-c", config))[0] == ExitCode.OK
    async with served(PlayedNode(State.INACTIVE, leader_id=-1), tmp_path):
        assert (await run("status", "-c", config))[0] == ExitCode.DIFFERENT
        assert (await run("status", "-c", config, "--json"))[0] == ExitCode.DIFFERENT
    assert (await run("status", "-c", config))[0] == ExitCode.REFUSED
    assert (await run("status"))[0] == ExitCode.REFUSED


async def test_a_controller_that_is_down_does_not_hide_the_leader(tmp_path: Path, run: Run) -> None:
    async with served(PlayedNode(State.DUAL_WRITING, node_id=2, leader_id=2)) as address:
        code, output = await run("status", "-c", str(property_file(tmp_path, address)))
    said = " ".join(output.split())
    assert code == ExitCode.OK
    assert "there is no operator socket" in said
    assert "this is what controller 2 says, which leads" in said


async def test_the_journal_says_who_gave_an_order(run: Run) -> None:
    node = PlayedNode(State.DUAL_WRITING)
    by = Orderer("User:CN=alice,O=bank", "ipv4:10.0.0.1:4711")
    before = JournalEvent(1, 1_700_000_000_000, "pause", "of a version that did not note it")
    node.events = [before, JournalEvent(2, 1_700_000_001_000, "pause", "freeze", tuple(by.details.items()))]
    async with served(node) as server:
        text, lines = await asyncio.gather(
            run("status", "--journal", *at(server)), run("status", "--journal", "--json", *at(server))
        )
    assert text[1].splitlines() == [
        "2023-11-14 22:13:20Z pause: of a version that did not note it",
        "2023-11-14 22:13:21Z pause: freeze (by User:CN=alice,O=bank, ipv4:10.0.0.1:4711)",
    ]
    assert [json.loads(line)["details"] for line in lines[1].splitlines()] == [{}, by.details]


async def test_gates_name_what_stands_in_the_way_and_change_nothing(run: Run) -> None:
    node = PlayedNode(State.DUAL_WRITING)
    async with served(node) as server:
        finish, rollback, unknown = await asyncio.gather(
            run("gates", "finish", *at(server)),
            run("gates", "rollback", *at(server)),
            run("gates", "elsewhere", *at(server)),
        )
    assert finish[0] == ExitCode.DIFFERENT
    assert "NO  brokers: brokers in ZooKeeper mode: 7. Restart them" in finish[1]
    assert "ok  state: the migration is in DualWrite" in finish[1]
    assert rollback[0] == ExitCode.OK
    assert "Restart them" not in rollback[1]
    assert unknown[0] == ExitCode.REFUSED
    assert node.orders == []


@pytest.mark.parametrize("arguments", [("resume",), ("verify", "--zookeeper", "z:1", "--metadata", "d", "--repair")])
async def test_without_a_controller_nothing_is_ordered(arguments: tuple[str, ...], run: Run) -> None:
    code, output = await run(*arguments)
    assert code == ExitCode.REFUSED
    assert "no controller is named" in output


@pytest.mark.parametrize(
    ("options", "answer", "repairs"), [([], "n\n", False), ([], "y\n", True), (["--yes"], "", True)]
)
async def test_repair_shows_what_differs_asks_and_says_what_was_written(
    options: list[str], answer: str, repairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Spark is played: one difference at first, none after the repair."""
    node = PlayedNode(State.DUAL_WRITING)
    left = [DIFFERENT, EQUAL]
    monkeypatch.setattr(verify_run, "inspect", lambda *_: None)
    monkeypatch.setattr(verify_run, "spark_session", contextmanager(lambda *_: iter([None])))
    monkeypatch.setattr(verify_run, "WorkMeter", lambda _: None)
    monkeypatch.setattr(verify_run, "_how_far", lambda _: "")
    monkeypatch.setattr(job, "verify_in", lambda *_, **__: left.pop(0))
    arguments = ["--zookeeper", "z:1", "--metadata", "d", "--repair", *options]
    async with served(node) as server:
        done = await asyncio.to_thread(CliRunner().invoke, command.command, [*arguments, *at(server)], input=answer)
    assert f"{DIFFERENT.comparison.differences} differences" in done.stdout
    assert ("Overwrite these differences in ZooKeeper" in done.stderr) is (not options)
    assert len(node.orders) == repairs
    assert (WRITTEN in done.stderr) is repairs
    assert done.exit_code == (ExitCode.OK if repairs else ExitCode.DIFFERENT)
