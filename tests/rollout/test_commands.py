"""`migrator rollout` on a model cluster: what is printed, asked and answered, and that no secret is in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from migrator.cli.main import migrator
from migrator.config.sensitive import REDACTED
from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout import site
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.inventory import Inventory
from migrator.rollout.leaving_zookeeper import keep
from migrator.rollout.meanwhile import Silences
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.ports import BrokerMode, LockHolder, Observation
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import SECRET, inventory_text, model_inventory
from tests.rollout.support.model_lock import ModelLock


async def _nobody_is_told() -> None:
    pass


class Cluster(ModelCluster):
    """Something happens each time that a node was stopped."""

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self.stopped: Callable[[], Awaitable[None]] = _nobody_is_told

    async def stop(self, node: Node) -> None:
        await super().stop(node)
        await self.stopped()


class Desk:
    """Where an operator types the commands of a rollout."""

    def __init__(self, directory: Path) -> None:
        self.inventory = directory / "model.yaml"
        self.inventory.write_text(inventory_text())
        self.state = directory / "model.rollout"
        self.cluster, self.lock, self.clock = Cluster(model_inventory()), ModelLock(), ModelClock()
        self.zookeeper_connect = "zk:2181/kafka"
        self.shown = ""
        self.reading = ""
        """The messages about a metadata log that takes long to read."""

    def type(self, words: str, *, answer: str = "") -> Result:
        name, *more = words.split()
        result = CliRunner().invoke(migrator, ["rollout", name, "-i", str(self.inventory), *more], input=answer)
        if name in ("plan", "status", "history"):  # what a command of a step said is shown once, and never kept
            self.shown += result.output + str(result.exception)
        return result

    def printed(self, words: str, *, exit_code: int = 0, answer: str = "") -> str:
        result = self.type(words, answer=answer)
        assert result.exit_code == exit_code, result.output + str(result.exception)
        return result.output

    def refused(self, words: str) -> str:
        result = self.type(words)
        assert isinstance(result.exception, OperatorError), result.output
        return str(result.exception)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk(tmp_path)

    @asynccontextmanager
    async def world(
        inventory: Inventory, path: Path, state: Path, tell: Callable[[str], None]
    ) -> AsyncIterator[tuple[RolloutParts, None]]:
        assert path == desk.inventory
        assert state == desk.state
        desk.cluster.inventory = inventory
        if desk.reading:
            tell(desk.reading)
        cluster = desk.cluster
        hands = (cluster, cluster, desk.lock, desk.clock, Silences(tell), partial(keep, None), cluster.unregister)
        yield RolloutParts(inventory, *hands, desk.zookeeper_connect), None

    monkeypatch.setattr(site, "open_world", world)
    monkeypatch.setattr("migrator.rollout.engine.reviewed._SCRYPT", {"n": 2, "r": 8, "p": 1})  # else 0.05 s for a file
    yield desk
    kept = "".join(path.read_text() for path in desk.state.rglob("*") if path.is_file() and path.suffix == ".jsonl")
    words = " ".join(" ".join(command) for command in desk.cluster.commands)
    assert SECRET not in desk.shown + kept + words


def test_a_journal_that_is_not_there_is_said(desk: Desk) -> None:
    assert "no rollout has begun" in desk.printed("history")
    assert desk.type("history --json").stdout == ""


def test_a_file_in_the_place_of_the_journals_directory_is_not_taken_for_an_empty_one(desk: Desk) -> None:
    desk.state.write_text("mine")
    for words in ("history", "status", "apply --yes"):
        said = desk.refused(words)
        assert "Not a directory" in said
        assert "name another one with 'state' in the inventory" in said
    assert desk.state.read_text() == "mine"
    desk.state.unlink()


def test_nothing_begins_without_the_lock_in_zookeeper(desk: Desk) -> None:
    """Once the migration has ended, it need not be there."""
    desk.zookeeper_connect = ""
    assert "zookeeper.connect is not set" in desk.refused("apply --yes")
    assert "no rollout has begun" in desk.printed("history")
    desk.zookeeper_connect = "zk:2181/kafka"
    desk.printed("apply --yes --until Finished")
    desk.zookeeper_connect = ""
    desk.printed("resume --yes")


def test_a_journal_of_another_cluster_is_no_journal_of_this_one(desk: Desk) -> None:
    """An inventory was copied with all that lay beside it."""
    desk.printed("apply --yes --until DualWrite")
    text = desk.inventory.read_text()
    desk.inventory.write_text(text.replace("cluster: model", "cluster: other"))
    for words in ("plan", "status", "resume", "rollback --yes"):
        assert "the journal there is of the cluster model, and the inventory is of other" in desk.refused(words)
    desk.inventory.write_text(text)
    desk.cluster.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"
    assert "this cluster has the id AAAAAAAAAAAAAAAAAAAAAA" in desk.refused("resume")


def test_an_order_to_stop_counts_from_the_first_moment_of_a_command(desk: Desk) -> None:
    """The first step comes after seconds. An order to an earlier command does not count."""
    desk.state.mkdir()
    (desk.state / ABORT_FILE).touch()
    desk.printed("apply --until rehearse")
    looks: list[str] = []
    observe = desk.cluster.observe

    async def asked_meanwhile(*, partitions: bool = True) -> Observation:
        if not looks:
            looks.append(ABORT_FILE)
            (desk.state / ABORT_FILE).touch()
        return await observe(partitions=partitions)

    desk.cluster.observe = asked_meanwhile  # type: ignore[method-assign]
    assert "as was asked for" in desk.printed("resume")
    assert not (desk.state / ABORT_FILE).exists()


def test_from_plan_to_archive(desk: Desk) -> None:
    before = dict(desk.cluster.files)
    plan = desk.printed("plan")
    assert desk.cluster.files == before
    assert not desk.state.exists()
    for piece in (
        "cluster model: 3 controllers of this program, 3 brokers, one at a time",
        "forecast: none yet",
        "migrate/broker-2 (node 2 on localhost): open",
        "why: the broker registers with the quorum; ZooKeeper still rules. An earlier attempt's log is deleted",
        "before: no partition is offline, under-replicated or being reassigned",
        "does: changes /etc/b2.properties\n        - zookeeper.metadata.migration.enable=false",
        "        + zookeeper.metadata.migration.enable=true",
        "does: restarts broker-2",
        "after: broker-2: the broker serves again, in the mode, release and settings that are expected (migration)",
        "undo: 'migrator rollout rollback'",
        "- broker.id=2",
        "+ process.roles=broker",
        f"- zookeeper.ssl.keystore.password={REDACTED}",
        "does: starts controller-3001-stock",
    ):
        assert piece in plan
    assert "it is as far as was asked for" in desk.printed("apply --until DualWrite")
    assert "dual-write, give or take 3 s" in desk.printed("plan")
    assert desk.printed("resume --pause-after kraft/broker-2").endswith(
        "it waits after this step, as was asked for. 'migrator rollout resume' goes on\n"
    )
    assert desk.cluster.modes()["broker-2"] is BrokerMode.KRAFT
    assert desk.cluster.modes()["broker-3"] is BrokerMode.MIGRATING
    ended = desk.printed("apply", answer="y\n")
    assert "After the restart of the last one 'migrator reopen' alone leads back" in ended
    assert "the rollout is complete" in ended
    assert "restarts " in ended
    archive = Path(ended.rsplit("archive: ", 1)[1].strip())
    assert {"journal.jsonl", "SHA256SUMS"} <= {path.name for path in archive.iterdir()}
    assert "complete" in desk.printed("status")
    assert len(desk.printed("history").splitlines()) == len(desk.printed("history --json").splitlines()) > 100


def test_the_plan_says_where_the_lock_is(desk: Desk) -> None:
    assert "once Kafka's controllers have taken over and ZooKeeper is gone, the lock is on this host only" in (
        desk.printed("plan")
    )
    desk.lock.local = True
    assert "the lock is on this host only: neither ZooKeeper nor a quorum of this program has it" in desk.printed(
        "plan"
    )


def test_the_plan_in_json_says_what_the_plan_says(desk: Desk) -> None:
    desk.printed("apply --until MigrationIneligible")
    steps = {step["step"]: step for step in json.loads(desk.printed("plan --json"))["steps"]}
    assert steps["start/controller-3001"]["state"] == "done"
    step = steps["kraft/broker-1"]
    assert step["state"] == "open"
    assert step["acts"] == ["check-before", "edit", "restart", "check-after"]
    assert "+ process.roles=broker" in step["changes"]
    assert step["before"]
    assert step["after"]
    assert steps["format/controller-3001"]["command"] == []


def test_nobody_agrees_to_the_end_of_the_migration(desk: Desk) -> None:
    for _ in range(2):
        assert "the question has no answer" in desk.refused("apply")
        for answer in ("", "n\n"):
            if answer:
                assert "it was not confirmed" in desk.printed("resume", answer=answer, exit_code=1)
            said = desk.printed("status", exit_code=1)
            assert "forward: stopped" in said
            assert "do: 'migrator rollout resume' goes on" in said
            assert "failed" not in said
            assert "next: finish/controller-3002" in said
    assert desk.cluster.state == "DualWrite"
    assert "the rollout is complete" in desk.printed("resume --yes")


def test_there_and_back_and_there_again(desk: Desk) -> None:
    desk.printed("apply --until kraft")
    said = desk.printed("rollback", answer="y\n")
    assert "nothing is lost" in said
    assert "leave-kraft/broker-1 (node 1 on localhost): open" in said
    assert "without a controller: " in said.split("Go back?")[1]
    assert "the way back is complete: ZooKeeper and its brokers have the cluster" in said
    assert "the rollout is complete" not in said
    assert set(desk.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert "no rollout is under way" in desk.refused("resume")
    desk.printed("apply --yes --until Finished")
    assert "'migrator rollout apply' does the rest of the migration. 'migrator reopen'" in desk.refused("rollback")


def test_after_the_end_nothing_is_begun_again_and_nobody_is_sent_on(desk: Desk) -> None:
    archive = desk.printed("apply --yes").rsplit("archive: ", 1)[1]
    journal = desk.printed("history")
    said = desk.printed("apply --yes")
    assert "already complete: nothing is to be done" in said
    assert said.endswith(f"archive: {archive}")
    assert desk.printed("history") == journal
    for words in ("rollback", "plan --back"):
        assert "Nothing is to be done. 'migrator reopen' alone leads back" in (refused := desk.refused(words))
        assert "resume" not in refused


def test_each_line_of_a_run_has_its_time(desk: Desk) -> None:
    printed = desk.printed("apply --until MigrationIneligible")
    assert re.fullmatch(r"(\d\d:\d\d:\d\dZ .*\n)+the longest time without a line: \d+ s\n.*\n?", printed), printed


def test_a_rollback_that_is_not_wanted(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    files = dict(desk.cluster.files)
    assert desk.type("rollback", answer="n\n").exit_code == 1
    assert desk.cluster.files == files
    assert json.loads(desk.printed("status --json", exit_code=1))["direction"] == "forward"


def test_the_canary_goes_first_and_the_rollout_waits_behind_it(desk: Desk) -> None:
    assert "it waits after this step" in desk.printed("apply --canary 2")
    assert [name for name, mode in desk.cluster.modes().items() if mode is BrokerMode.MIGRATING] == ["broker-2"]
    assert "the rollout that is under way has the canary 2" in desk.refused("apply --canary 3")
    assert "it waits after this step" in desk.printed("resume")
    assert [name for name, mode in desk.cluster.modes().items() if mode is BrokerMode.KRAFT] == ["broker-2"]
    assert "the rollout is complete" in desk.printed("resume --yes")


@pytest.mark.parametrize("command", ["resume", "rollback --yes"])
@pytest.mark.parametrize("why", ["its name is another one", "it is not in the inventory", "it was left out"])
def test_a_canary_that_is_not_there_any_more_holds_no_command_up(desk: Desk, why: str, command: str) -> None:
    canary = model_inventory().brokers.nodes[1]
    desk.printed(f"apply --canary {canary.name}")
    desk.printed("apply --until DualWrite")
    text, more = inventory_text(), ""
    if why == "its name is another one":
        desk.inventory.write_text(text.replace("{id: 2,", "{id: 2, name: kafka-2,"))
        desk.cluster.rename(canary.name, "kafka-2")
    elif why == "it is not in the inventory":
        desk.inventory.write_text("".join(line for line in text.splitlines(True) if "id: 2," not in line))
    else:
        desk.cluster.crash(canary)
        more = f" --without-node {canary.name} --reason disk"
    told = f"the canary {canary.name} is not there any more: no broker goes first"
    assert told in desk.printed(f"{command}{more}" + (" --until soak" if command == "resume" else ""))
    desk.printed("status", exit_code=0 if "rollback" in command else 1)
    desk.printed("plan")
    assert f"--canary: there is no broker {canary.name}" in desk.refused(f"plan --canary {canary.name}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("apply --until DualRead", "there is no state DualRead"),
        ("apply --pause-after migrate/broker-9", "there is no step migrate/broker-9"),
        ("apply --canary broker-9", "there is no broker broker-9"),
        ("resume", "no rollout is under way"),
    ],
)
def test_what_is_not_there_is_refused(desk: Desk, words: str, message: str) -> None:
    assert message in desk.refused(words)
    assert desk.cluster.state == ""


def test_a_step_that_is_done_is_waited_for_no_more(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    files = dict(desk.cluster.files)
    assert "it waits after this step" in desk.printed("resume --pause-after migrate/broker-1")
    assert desk.cluster.files == files


def test_status_says_what_failed_and_who_holds_the_lock(desk: Desk) -> None:
    assert "no rollout was begun" in desk.printed("status", exit_code=1)
    desk.cluster.exit_codes["verify"] = 1
    desk.refused("apply")
    said = desk.printed("status", exit_code=1)
    for piece in (
        "forward: failed",
        "failed: soak (run): ZooKeeper and the metadata log differ, ",
        "lock: rollout ",
        "migration: DualWrite",
    ):
        assert piece in said
    found = json.loads(desk.printed("status --json", exit_code=1))
    assert (found["state"], found["step"], found["lock"]["host"]) == ("failed", "soak", "ops-1")


def test_status_says_what_is_seen_although_nobody_says_who_holds_the_lock(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.printed("apply --until DualWrite")

    async def away() -> None:
        raise OperatorError("ZooKeeper does not answer")

    monkeypatch.setattr(desk.lock, "holder", away)
    said = desk.printed("status", exit_code=1)
    assert "the lock could not be looked at: ZooKeeper does not answer" in said
    assert "migration: DualWrite" in said


def test_one_command_at_a_time_and_it_can_be_stopped(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    assert "there is nothing to stop" in desk.printed("abort", exit_code=1)
    asked = []

    def stops(where: str) -> None:
        if where == "before write broker-2":
            (desk.state / ABORT_FILE).touch()
            asked.append(where)

    desk.cluster.points.at = stops
    assert "it stopped after the step under way" in desk.printed("resume")
    assert asked
    assert desk.cluster.modes()["broker-2"] is BrokerMode.KRAFT
    assert desk.cluster.modes()["broker-3"] is BrokerMode.MIGRATING
    assert not (desk.state / ABORT_FILE).exists()


def test_a_lock_of_a_lost_host_is_broken_only_by_the_command_for_it(desk: Desk) -> None:
    desk.printed("apply --until MigrationIneligible")
    desk.lock.owner = LockHolder("0000aaaa", "somebody", "ops-2", 1_700_000_000_000)
    assert "another rollout holds the lock" in desk.refused("apply")
    assert desk.type("unlock", answer="n\n").exit_code == 1
    assert desk.lock.owner is not None
    said = desk.printed("unlock", answer="y\n")
    assert "lock: rollout 0000aaaa, somebody on ops-2, since 2023-11-14 22:13:20Z" in said
    assert "nobody holds the lock" in desk.printed("unlock")
    assert "lock-broken" in desk.printed("history")
    assert "the rollout is complete" in desk.printed("resume --yes")


def test_znodes_are_removed_only_when_nobody_needs_them(desk: Desk) -> None:
    assert "the state of the migration is unknown" in desk.refused("remove-znodes --cluster model")
    desk.printed("apply --until kraft")
    assert "is in state DualWrite, not finished" in desk.refused("remove-znodes --cluster model")
    desk.printed("apply --yes")
    assert "the znodes cannot be kept" in desk.refused("remove-znodes --cluster model")


def test_the_schema_is_printed() -> None:
    result = CliRunner().invoke(migrator, ["rollout", "schema"])
    assert json.loads(result.output)["title"].startswith("Inventory of a rollout")


def test_a_node_is_left_out_and_taken_in_again(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    broker = model_inventory().brokers.nodes[2]
    desk.cluster.crash(broker)
    assert "--without-node: the option needs a reason" in desk.refused(f"resume --without-node {broker.name}")
    desk.printed(f"resume --without-node {broker.name} --reason disk --until kraft")
    for words, said in (
        ("--with-node broker-9", "--with-node: there is no node broker-9"),
        ("--with-node broker-1", "--with-node: broker-1 is not left out"),
    ):
        assert said in desk.refused(f"resume {words}")
    printed = desk.printed(f"resume --with-node {broker.node_id} --yes")
    assert f"{broker.name} is not left out any more" in printed
    assert f"kraft/{broker.name}: starts {broker.name}" in printed or f"kraft/{broker.name}: restarts" in printed
    assert set(desk.cluster.modes().values()) == {BrokerMode.KRAFT}
    assert "back-in" in desk.printed("history")


@pytest.mark.parametrize("nohup", [False, True], ids=["ssh session", "nohup"])
def test_a_terminal_that_goes_away_lets_the_step_come_to_its_end(desk: Desk, *, nohup: bool) -> None:
    """The kernel tells a shell and its jobs, and the shell tells its jobs again."""

    async def goes_away() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
        while not (nohup or (desk.state / ABORT_FILE).exists()):
            await asyncio.sleep(0)

    desk.cluster.stopped = goes_away
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        printed = desk.printed("apply --until migrate")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ("it stopped after the step under way" in printed) is not nohup
    ends = BrokerMode.MIGRATING if nohup else BrokerMode.ZOOKEEPER
    assert list(desk.cluster.modes().values()) == [BrokerMode.MIGRATING, ends, ends]


@pytest.mark.parametrize(
    "option", ["--canary", "--until", "--pause-after", "--without-node", "--with-node", "--reason"]
)
def test_an_empty_option_is_refused(desk: Desk, option: str) -> None:
    """A variable of a script that is not set: the rollout would go to its end, or begin without its canary."""
    result = CliRunner().invoke(migrator, ["rollout", "apply", "-i", str(desk.inventory), option, ""])
    assert isinstance(result.exception, OperatorError), result.output
    assert f"{option}: the option is empty" in str(result.exception)
    assert not desk.state.exists()


def test_an_empty_name_of_the_cluster_is_refused(desk: Desk) -> None:
    result = CliRunner().invoke(migrator, ["rollout", "remove-znodes", "-i", str(desk.inventory), "--cluster", ""])
    assert "--cluster: the option is empty" in str(result.exception)


def test_a_reason_for_nothing_is_refused(desk: Desk) -> None:
    assert "--reason: a reason belongs to --without-node" in desk.refused("apply --reason disk")
    assert not desk.state.exists()


@pytest.mark.parametrize("state", ["dualwrite", "DUALWRITE", "DualWrite"])
def test_a_state_may_be_named_in_any_case(desk: Desk, state: str) -> None:
    assert "it is as far as was asked for" in desk.printed(f"apply --until {state}")
    assert desk.cluster.state == "DualWrite"


def test_the_plan_of_a_rollback_that_is_under_way_is_the_way_back(desk: Desk) -> None:
    desk.printed("apply --until kraft")
    desk.cluster.exit_codes["rollback"] = 2
    desk.refused("rollback --yes")
    plan = desk.printed("plan")
    assert "a rollback is under way" in plan
    assert "leave-kraft/broker-1 (node 1 on localhost): done" in plan
    assert "finish/" not in plan
    found = json.loads(desk.printed("plan --json"))
    assert found["direction"] == "back"
    assert "give-back" in [step["step"] for step in found["steps"]]
    desk.cluster.exit_codes.clear()
    desk.printed("resume")
    assert json.loads(desk.printed("plan --json"))["direction"] == "forward"


def test_the_way_out_of_a_damaged_journal_is_one(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    journal = desk.state / COMMAND_FILE
    journal.write_bytes(journal.read_bytes().replace(b"1", b"2", 1))
    for words in ("resume", "status", "history"):
        said = desk.refused(words)
        assert "'migrator rollout unlock'" in said
        assert "'migrator rollout history'" not in said
    journal.rename(journal.with_name("damaged"))
    desk.printed("unlock --yes")
    assert "the rollout is complete" in desk.printed("apply --yes")
