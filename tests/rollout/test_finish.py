"""The end of a migration: what must hold is asked just before it, and the proof is not an old one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.job_acts import VERDICT_MS, JobFailedError
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import ExecutorError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

LAST = "controller-3001"


class Killed(BaseException):
    """The process of the rollout ends, and notes nothing."""


HOURS_MS = 18 * 3_600_000


def operator_at(tmp_path: Path, kind: str = "migrator", *, stops: bool = True) -> Operator:
    """Behind the verdict."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(kind=kind, handover=False), stops=stops), tmp_path / "state")
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    return operator


def verified(operator: Operator) -> int:
    return len([words for words in operator.cluster.commands if "verify" in words])


def crashes(operator: Operator) -> None:
    operator.cluster.crash(operator.node("broker-2"))


def returns_to_zookeeper(operator: Operator) -> None:
    node = operator.node("broker-2")
    key = next(key for key in operator.cluster.files if key[0] == node.name and ".before-kraft" in key[1])
    operator.cluster.files[node.name, node.properties] = operator.cluster.files[key]
    operator.cluster.start_as_configured(node)


def falls_behind(operator: Operator) -> None:
    operator.cluster.lag = 7


def is_written_by_others(operator: Operator) -> None:
    operator.cluster.foreign_writes = ("/config/topics/orders",)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (crashes, "broker-2: is not registered"),
        (returns_to_zookeeper, "broker-2: runs in migration mode"),
        (falls_behind, "7 records behind"),
        (is_written_by_others, "/config/topics/orders"),
    ],
)
def test_what_happens_behind_the_verdict_stops_the_end(
    tmp_path: Path, happens: Callable[[Operator], None], said: str
) -> None:
    operator = operator_at(tmp_path)
    happens(operator)
    with pytest.raises(GateTimeoutError, match=said):
        operator.resume()
    assert operator.cluster.state == "DualWrite"
    for node in operator.cluster.inventory.controllers.nodes:
        assert operator.cluster.processes[node.name].properties.get("zookeeper.connect"), node


def test_what_happens_between_two_controllers_stops_the_end(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)

    def breaks(where: str) -> None:
        if where == "after start controller-3002":
            crashes(operator)

    operator.cluster.points.at = breaks
    with pytest.raises(GateTimeoutError, match="broker-2: is not registered"):
        operator.resume()
    assert operator.cluster.state == "DualWrite"
    operator.cluster.points.at = nothing
    operator.cluster.start_as_configured(operator.node("broker-2"))
    assert operator.resume() is Ending.COMPLETE


def test_a_verdict_that_grew_old_while_the_operator_thought_is_asked_again(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    before = verified(operator)
    operator.thinks_ms = VERDICT_MS + 1
    assert operator.resume() is Ending.COMPLETE
    assert verified(operator) == before + 1
    assert [entry.step for entry in operator.entries if entry.event is Event.VERIFIED][-1].startswith("finish/")


def test_a_verdict_is_old_if_the_machine_was_suspended_since(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(handover=False)), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    awake = operator.copy(tmp_path / "awake")

    def sleeps(where: str) -> None:
        if where.startswith("before confirmed"):
            operator.clock.asleep_ms = VERDICT_MS + 1

    operator.cluster.points.at = sleeps
    assert operator.resume() is Ending.COMPLETE
    assert awake.resume() is Ending.COMPLETE
    assert verified(operator) == verified(awake) + 1


def test_a_fresh_verdict_is_not_asked_again(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    before = verified(operator)
    assert operator.resume() is Ending.COMPLETE
    assert verified(operator) == before


def compares_again(operator: Operator) -> None:
    """While both sides differ the migration does not end, with any command; afterwards it does."""
    operator.cluster.exit_codes["verify"] = 1
    with pytest.raises(JobFailedError, match="ZooKeeper and the metadata log differ"):
        operator.resume()
    assert operator.cluster.state == "DualWrite"
    operator.cluster.exit_codes.clear()
    assert operator.resume() is Ending.COMPLETE


@pytest.mark.parametrize("later_ms", [VERDICT_MS + 1, -3_600_000], ids=["old", "the clock was set back"])
def test_a_verdict_of_another_run_counts_by_the_time_of_day(tmp_path: Path, later_ms: int) -> None:
    operator = operator_at(tmp_path)
    operator.clock.now_ms += later_ms
    compares_again(operator)


def test_who_asks_again_forgets_no_change_of_a_file(tmp_path: Path) -> None:
    """The file of the last controller has no ZooKeeper any more: what it was before names it."""
    operator = operator_at(tmp_path)
    operator.interrupted_at(f"after write {LAST}", Killed())
    operator.clock.now_ms += VERDICT_MS + 1
    operator.cluster.exit_codes["verify"] = 1
    for name in ("controller-3002", "controller-3003"):  # the first one leads
        assert f"finish/{name}" in {entry.step for entry in operator.entries if entry.event is Event.DONE}
    with pytest.raises(JobFailedError, match="differ"):
        operator.resume()
    operator.cluster.exit_codes.clear()
    operator.clock.now_ms += VERDICT_MS + 1
    assert operator.resume() is Ending.COMPLETE
    words = [words for words in operator.cluster.commands if "verify" in words][-1]
    assert ".before-finish." in words[words.index("-c") + 1]
    assert not operator.cluster.violations


def test_after_the_end_nobody_compares(tmp_path: Path) -> None:
    """With Kafka's controllers the migration ends before the last restart: both sides differ from then on."""
    operator = operator_at(tmp_path, kind="stock")
    before = verified(operator)

    def ends(where: str) -> None:
        if operator.cluster.state == "Finished":
            operator.cluster.exit_codes["verify"] = 1
            operator.clock.now_ms += VERDICT_MS + 1

    operator.cluster.points.at = ends
    assert operator.resume() is Ending.COMPLETE
    assert verified(operator) == before


def refused(action: str, node: Node) -> None:
    """By sudo: the command that would stop the last controller does nothing."""
    if (action, node.name) in (("stop", LAST), ("restart", LAST)):
        raise ExecutorError("sudo asks for a password", where=LAST)


def killed(action: str, node: Node) -> None:
    """The command of the rollout ends just before the stop."""
    if (action, node.name) in (("stop", LAST), ("restart", LAST)):
        raise Killed


def begins_the_end(operator: Operator, fault: Callable[[str, Node], None]) -> None:
    """The operator has agreed, and the restart of the last controller was begun: its process runs as before."""
    before = operator.cluster.processes[LAST]
    operator.cluster.fault = fault
    with pytest.raises((ExecutorError, Killed)):
        operator.resume()
    operator.cluster.fault = nothing
    assert any(entry.event is Event.BEGUN and entry.step == f"finish/{LAST}" for entry in operator.entries)
    assert operator.cluster.processes[LAST] is before
    operator.asked.clear()
    operator.clock.now_ms += HOURS_MS


FAULTS = pytest.mark.parametrize("fault", [refused, killed])
STOPS = pytest.mark.parametrize("stops", [True, False], ids=["stop and start", "restart in one command"])


@FAULTS
@STOPS
def test_who_goes_on_before_the_last_controller_was_stopped_is_asked(
    tmp_path: Path, fault: Callable[[str, Node], None], *, stops: bool
) -> None:
    operator = operator_at(tmp_path, stops=stops)
    begins_the_end(operator, fault)
    operator.confirms = False
    assert operator.resume() is Ending.NOT_CONFIRMED
    assert operator.asked == [(LAST,)]
    assert operator.cluster.state == "DualWrite"
    back = operator.copy(tmp_path / "back")
    assert back.rollback() is Ending.COMPLETE
    operator.confirms = True
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations + back.cluster.violations


@FAULTS
@STOPS
def test_who_goes_on_before_the_last_controller_was_stopped_compares_again(
    tmp_path: Path, fault: Callable[[str, Node], None], *, stops: bool
) -> None:
    operator = operator_at(tmp_path, stops=stops)
    begins_the_end(operator, fault)
    compares_again(operator)


def test_a_last_controller_that_was_stopped_is_started_whatever_anybody_says(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.interrupted_at(f"after stop {LAST}", Killed())
    operator.asked.clear()
    operator.clock.now_ms += HOURS_MS
    operator.confirms, operator.cluster.exit_codes["verify"] = False, 1
    assert operator.resume() is Ending.COMPLETE
    assert not operator.asked
