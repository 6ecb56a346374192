"""A node that was left out, and is there again: what it has missed comes first, in the order of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER, CONTROLLER = "broker-4", "controller-3002"


def operator_at(state: Path) -> Operator:
    state.mkdir()
    return Operator(ModelCluster(model_inventory(brokers=4), min_isr=1), state)


def dies(operator: Operator, name: str) -> None:
    """Its host is gone: nothing reaches it."""
    operator.cluster.crash(operator.node(name))

    def fault(action: str, node: Node) -> None:
        if node.name == name:
            raise ExecutorError("the host does not answer", where=name)

    operator.cluster.fault = fault


def left_out(operator: Operator, name: str, since: Phase, until: Phase) -> Operator:
    """Behind the phase ``since`` its host dies; the rollout goes on without it, to the end of ``until``."""
    assert operator.apply(StopAt(since)) is Ending.REACHED
    dies(operator, name)
    operator.gone = (name,)
    assert operator.apply(StopAt(until)) in (Ending.REACHED, Ending.COMPLETE)
    operator.gone = ()
    return operator


def comes_back(operator: Operator, name: str) -> None:
    """Its host is there again, and nothing was started on it."""
    operator.cluster.fault = nothing
    operator.back = (name,)


def stopped_before_rollback(operator: Operator, go: Callable[[], Ending]) -> None:
    """The quorum is stopped, and nobody has the claim."""

    def stops(where: str) -> None:
        if where.startswith("before rollback"):
            raise OperatorError("stops here", where="test")

    operator.cluster.points.at = stops
    with pytest.raises(OperatorError, match="stops here"):
        go()
    operator.cluster.points.at = nothing


@pytest.mark.parametrize("name", [BROKER, CONTROLLER])
@pytest.mark.parametrize(
    ("since", "until"),
    [
        (Phase.COPY, Phase.COPY),
        (Phase.COPY, Phase.KRAFT),
        (Phase.COPY, Phase.VERIFY),
        (Phase.COPY, Phase.FINISH),
        (Phase.KRAFT, Phase.VERIFY),
        (Phase.KRAFT, Phase.FINISH),
        (Phase.KRAFT, Phase.HANDOVER),
    ],
)
def test_it_ends_as_if_it_had_always_been_there(tmp_path: Path, name: str, since: Phase, until: Phase) -> None:
    clean = operator_at(tmp_path / "clean")
    assert clean.apply() is Ending.COMPLETE
    operator = left_out(operator_at(tmp_path / "state"), name, since, until)
    comes_back(operator, name)
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.end_state() == clean.cluster.end_state()
    assert not operator.cluster.violations
    operator.back = ()
    assert operator.parts().inventory.gone == ()


def test_what_it_has_missed_comes_first_and_in_the_order_of_the_plan(tmp_path: Path) -> None:
    operator = operator_at(tmp_path / "state")
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    file = operator.node(BROKER).properties
    kept = next(text for key, text in operator.cluster.files.items() if key[0] == BROKER and ".before-" in key[1])
    dies(operator, BROKER)
    operator.gone = (BROKER,)
    operator.resume_until(Phase.KRAFT)
    operator.gone = ()
    comes_back(operator, BROKER)
    operator.cluster.files[BROKER, file] = kept  # from a copy of the time before the rollout
    begun = len(operator.entries)
    assert operator.resume() is Ending.COMPLETE
    done = [each.step for each in operator.entries[begun:] if each.event is Event.DONE and not each.act]
    assert done[:2] == [f"migrate/{BROKER}", f"kraft/{BROKER}"]
    assert not operator.cluster.violations


def test_the_way_back_takes_it_along(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), BROKER, Phase.KRAFT, Phase.VERIFY)
    comes_back(operator, BROKER)
    assert operator.rollback() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert not operator.cluster.violations


def test_it_comes_too_late_once_the_controllers_are_stopped(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), BROKER, Phase.KRAFT, Phase.VERIFY)
    operator.cluster.exit_codes["rollback"] = 2
    with pytest.raises(OperatorError, match="rollback ended with exit code 2"):
        operator.rollback()
    operator.cluster.exit_codes.clear()
    stopped_before_rollback(operator, operator.resume)
    comes_back(operator, BROKER)
    with pytest.raises(OperatorError, match=f"{BROKER} comes too late"):
        operator.resume()
    operator.back = ()
    assert operator.resume() is Ending.COMPLETE


def test_who_is_not_reached_is_not_there(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), BROKER, Phase.COPY, Phase.COPY)
    operator.back = (BROKER,)
    with pytest.raises(OperatorError, match="the host does not answer"):
        operator.resume()
    operator.back = ()
    operator.resume_until(Phase.KRAFT)
    assert not [entry for entry in operator.entries if entry.event is Event.BACK_IN]


def test_a_lost_directory_keeps_a_controller_out(tmp_path: Path) -> None:
    """A voter that forgets could vote away what is committed."""
    operator = left_out(operator_at(tmp_path / "state"), CONTROLLER, Phase.COPY, Phase.COPY)
    comes_back(operator, CONTROLLER)
    del operator.cluster.files[CONTROLLER, f"/data/{CONTROLLER}/meta.properties"]
    with pytest.raises(OperatorError, match="the directory has no identity"):
        operator.resume()
    assert CONTROLLER not in operator.cluster.processes


@pytest.mark.lane("test-all")
def test_killed_at_each_boundary_of_the_return(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), BROKER, Phase.COPY, Phase.KRAFT)
    comes_back(operator, BROKER)
    left: list[tuple[str, Operator]] = []

    def leave(where: str) -> None:
        if len(left) < 40:
            left.append((where, operator.copy(tmp_path / str(len(left)))))

    operator.cluster.points.at = leave
    assert operator.resume() is Ending.COMPLETE
    for where, killed in left:
        if not any(entry.event is Event.BACK_IN for entry in killed.entries):
            killed.back = (BROKER,)
        assert killed.resume() is Ending.COMPLETE, where
        assert killed.cluster.end_state() == operator.cluster.end_state(), where
        assert not killed.cluster.violations, where


def test_a_canary_that_was_left_out_holds_nothing_up(tmp_path: Path) -> None:
    operator = operator_at(tmp_path / "state")
    assert operator.apply(canary=BROKER) is Ending.PAUSED
    operator.apply(StopAt(Phase.COPY))
    dies(operator, BROKER)
    operator.gone = (BROKER,)
    assert operator.resume() is Ending.COMPLETE


def test_who_was_left_out_of_a_rollout_stays_out_of_the_next_one_for_the_same_reason(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), BROKER, Phase.COPY, Phase.KRAFT)
    assert operator.rollback() is Ending.COMPLETE
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    noted = [entry.details for entry in operator.entries if entry.event is Event.LEFT_OUT]
    assert noted == [{"node": BROKER, "reason": "its disk is broken"}]
    assert progress_of(operator.entries).left_out == {BROKER: "its disk is broken"}


@pytest.mark.parametrize("ended", [0, 1, 2], ids=["before the question", "between two controllers", "behind the last"])
def test_a_controller_that_answers_again_is_named_before_the_end(tmp_path: Path, ended: int) -> None:
    """An operator starts it with its old file: the migration would never end."""
    operator = left_out(operator_at(tmp_path / "state"), CONTROLLER, Phase.KRAFT, Phase.VERIFY)
    left = [node.name for node in operator.parts().inventory.controllers.nodes][::-1]  # the leader is the last one
    for name in left[:ended]:
        assert operator.apply(StopAt(step=f"finish/{name}")) is Ending.PAUSED
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(CONTROLLER))
    operator.asked.clear()
    with pytest.raises(OperatorError, match=f"{CONTROLLER} was left out and answers") as refused:
        operator.resume()
    assert f"resume --with-node {CONTROLLER}" in refused.value.remedy
    assert not operator.asked
    failed = operator.entries[-1]
    assert (failed.event, failed.details["remedy"]) == (Event.FAILED, refused.value.remedy)
    operator.back = (CONTROLLER,)
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.state == "Finished"
    assert not operator.cluster.violations


def test_the_way_back_takes_a_controller_along_that_runs_again(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), CONTROLLER, Phase.KRAFT, Phase.VERIFY)
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(CONTROLLER))
    operator.back = (CONTROLLER,)
    assert operator.rollback() is Ending.COMPLETE
    assert CONTROLLER not in operator.cluster.processes
    assert not operator.cluster.violations


def test_who_is_left_out_still_and_answers_is_named_by_each_command(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), CONTROLLER, Phase.COPY, Phase.COPY)
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(CONTROLLER))
    operator.resume_until(Phase.KRAFT)
    assert any(f"{CONTROLLER} was left out and is there again" in line for line in operator.said)


@pytest.mark.parametrize("handover", [True, False])
@pytest.mark.parametrize("until", [Phase.VERIFY, Phase.FINISH])
def test_a_controller_that_died_behind_its_last_change_is_started(
    tmp_path: Path, until: Phase, *, handover: bool
) -> None:
    """Its file is as the end of the migration wants it, and its process does not run."""

    def fresh(state: Path) -> Operator:
        state.mkdir()
        return Operator(ModelCluster(model_inventory(brokers=4, handover=handover), min_isr=1), state)

    clean, operator = fresh(tmp_path / "clean"), fresh(tmp_path / "state")
    assert clean.apply() is Ending.COMPLETE

    def at(where: str) -> None:
        if where == f"before stop {CONTROLLER}":
            dies(operator, CONTROLLER)
            raise ExecutorError("the host does not answer", where=CONTROLLER)

    operator.cluster.points.at = at
    with pytest.raises(OperatorError, match="the host does not answer"):
        operator.apply()
    operator.cluster.points.at = nothing
    operator.gone = (CONTROLLER,)
    if until is Phase.FINISH:
        assert operator.apply(StopAt(until)) is Ending.REACHED
    operator.gone = ()
    comes_back(operator, CONTROLLER)
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.end_state() == clean.cluster.end_state()


def rolled_back_without(operator: Operator, name: str) -> str:
    """Its host dies while both sides are written; the rollout goes back without it. Gives that rollout's id."""
    left_out(operator, name, Phase.COPY, Phase.COPY)
    assert operator.rollback() is Ending.COMPLETE
    assert name in operator.cluster.formatted, "nobody reached its directory"
    assert any(f"{name} is left out, and its directory stays" in line for line in operator.said)
    return progress_of(operator.entries).rollout


def test_a_directory_of_the_quorum_that_was_rolled_back_does_not_meet_the_next_one(tmp_path: Path) -> None:
    """The others lead already: it is a person who says that this directory is the old one."""
    clean = operator_at(tmp_path / "clean")
    assert clean.apply() is Ending.COMPLETE
    operator = operator_at(tmp_path / "state")
    old = rolled_back_without(operator, CONTROLLER)
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    comes_back(operator, CONTROLLER)
    with pytest.raises(OperatorError, match="has the log of another quorum") as refused:
        operator.apply()
    assert f"/data/{CONTROLLER}" in refused.value.where
    words = ["mv", "-n", "-T", "--", f"/data/{CONTROLLER}", f"/data/{CONTROLLER}.rolled-back-{old}"]
    assert " ".join(words) in refused.value.remedy
    assert CONTROLLER not in operator.cluster.processes
    operator.back = ()
    with pytest.raises(OperatorError, match="has the log of another quorum"):
        operator.resume()
    asyncio.run(operator.cluster.run(operator.node(CONTROLLER), words, seconds=1))
    assert operator.resume() is Ending.COMPLETE
    assert len(operator.cluster.directories.quorums_of(operator.cluster.formatted)) == 1
    assert operator.cluster.end_state() == clean.cluster.end_state()
    assert not operator.cluster.violations


def test_with_the_first_command_of_the_next_rollout_it_is_formatted_as_the_others_are(tmp_path: Path) -> None:
    clean = operator_at(tmp_path / "clean")
    assert clean.apply() is Ending.COMPLETE
    operator = operator_at(tmp_path / "state")
    old = rolled_back_without(operator, CONTROLLER)
    comes_back(operator, CONTROLLER)
    assert operator.apply() is Ending.COMPLETE
    assert (CONTROLLER, f"/data/{CONTROLLER}.rolled-back-{old}/meta.properties") in operator.cluster.files
    assert not progress_of(operator.entries).rolled_back
    assert operator.cluster.end_state() == clean.cluster.end_state()
    assert not operator.cluster.violations


@pytest.mark.lane("test-all")
def test_killed_at_each_boundary_of_such_a_return(tmp_path: Path) -> None:
    operator = operator_at(tmp_path / "state")
    rolled_back_without(operator, CONTROLLER)
    comes_back(operator, CONTROLLER)
    left: list[tuple[str, Operator]] = []

    def leave(where: str) -> None:
        if f"format/{CONTROLLER}" in where or where.split()[1:] in (["mv", CONTROLLER], ["format", CONTROLLER]):
            left.append((where, operator.copy(tmp_path / str(len(left)))))

    operator.cluster.points.at = leave
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    assert len(left) > 10
    for where, killed in left:
        assert killed.apply(StopAt(Phase.START)) is Ending.REACHED, where
        assert killed.cluster.end_state() == operator.cluster.end_state(), where
        assert not killed.cluster.violations, where


def test_one_that_somebody_starts_with_the_old_directory_is_named_and_not_gone_on_with(tmp_path: Path) -> None:
    operator = operator_at(tmp_path / "state")
    rolled_back_without(operator, CONTROLLER)
    assert operator.apply(StopAt(Phase.FORMAT)) is Ending.REACHED
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(CONTROLLER))
    assert operator.apply(StopAt(Phase.FORMAT)) is Ending.REACHED
    assert any(f"{CONTROLLER} was left out of a rollback and answers" in line for line in operator.said)
    operator.back = (CONTROLLER,)
    with pytest.raises(OperatorError, match="it may have the log of another quorum") as refused:
        operator.apply()
    assert f"--without-node {CONTROLLER}" in refused.value.remedy


@pytest.mark.parametrize("until", [Phase.KRAFT, Phase.FINISH])
def test_nothing_starts_it_where_no_step_formats_it(tmp_path: Path, until: Phase) -> None:
    """On the way back, or behind the end."""
    operator = operator_at(tmp_path / "state")
    rolled_back_without(operator, CONTROLLER)
    with pytest.raises(OperatorError, match="is in MigrationIneligible"):  # the model's copy waits for all three
        operator.apply(StopAt(until))
    operator.cluster.state, operator.cluster.kraft_claims = "DualWrite", True
    operator.cluster.controller_broker = None
    assert operator.apply(StopAt(until)) is Ending.REACHED
    comes_back(operator, CONTROLLER)
    with pytest.raises(OperatorError, match="another quorum"):
        (operator.rollback if until is Phase.KRAFT else operator.resume)()
    assert CONTROLLER not in operator.cluster.processes


def test_what_comes_too_late_on_the_way_back_is_worded_for_a_controller(tmp_path: Path) -> None:
    operator = left_out(operator_at(tmp_path / "state"), CONTROLLER, Phase.COPY, Phase.COPY)
    stopped_before_rollback(operator, operator.rollback)
    comes_back(operator, CONTROLLER)
    with pytest.raises(OperatorError, match=f"{CONTROLLER} comes too late") as refused:
        operator.resume()
    assert "ZooKeeper mode" not in refused.value.remedy
    assert f"apply --with-node {CONTROLLER}" in refused.value.remedy
    operator.back = ()
    assert operator.resume() is Ending.COMPLETE
    operator.back = (CONTROLLER,)
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    assert not operator.cluster.violations
