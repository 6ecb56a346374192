"""A node that a rollout has stopped or started does not stay down, whatever fails between."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError, ProcessEndedError
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import SESSION_TIMEOUT_MS
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError, HostUnreachableError, LockHolder, Observation
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
HANGS = ExecutorError("the command to stop it still ran after 120 s, and was ended", where=BROKER, remedy="See why")
REACHED = pytest.mark.parametrize("reached", [Phase.START, Phase.COPY], ids=["to migration", "to KRaft"])
STOPS = pytest.mark.parametrize("stops", [True, False], ids=["stop and start", "restart in one command"])


class Cluster(ModelCluster):
    """Nobody says who is registered while the broker is down, if it is so wanted."""

    blind = False

    async def observe(self, *, partitions: bool = True) -> Observation:
        seen = await super().observe(partitions=partitions)
        return replace(seen, brokers=None) if self.blind and BROKER not in self.processes else seen


class Clock(ModelClock):
    """Run an event while the rollout sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = nothing

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self.meanwhile()


class GoneTerminal(list[str]):
    """Of an ssh session that has ended."""

    def append(self, line: str) -> None:
        raise OSError(errno.EIO, line)


def operator_at(tmp_path: Path, phase: Phase, *, stops: bool = True, min_isr: int = 2) -> Operator:
    (tmp_path / "state").mkdir()
    operator = Operator(Cluster(model_inventory(), stops=stops, min_isr=min_isr), tmp_path / "state")
    assert operator.apply(StopAt(phase)) is Ending.REACHED
    return operator


def ends(operator: Operator, name: str, boundary: str) -> None:
    """Each time that it is started: its file is wrong."""

    def ends_at(where: str) -> None:
        if where == boundary:
            operator.cluster.crash(operator.node(name))

    operator.cluster.points.at = ends_at


def mend(operator: Operator, name: str) -> None:
    operator.cluster.points.at = nothing
    key = next(key for key in operator.cluster.files if key[0] == name and key[1].startswith("/etc/"))
    operator.cluster.files[key] += b"num.io.threads=16\n"


def both_ways_are_open(operator: Operator, tmp_path: Path) -> None:
    forth, back = operator.copy(tmp_path / "forth"), operator.copy(tmp_path / "back")
    assert forth.resume() is Ending.COMPLETE
    assert set(forth.cluster.modes().values()) == {BrokerMode.KRAFT}
    assert back.rollback() is Ending.COMPLETE
    assert set(back.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert not forth.cluster.violations + back.cluster.violations


def test_a_broker_that_nobody_can_see_is_started_after_the_time_out_of_its_session(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.START)
    assert isinstance(operator.cluster, Cluster)
    operator.cluster.blind = True
    before = operator.clock.now_ms
    assert operator.resume() is Ending.COMPLETE
    assert operator.clock.now_ms - before >= SESSION_TIMEOUT_MS
    assert any(f"starts {BROKER} nevertheless" in line and "is unknown" in line for line in operator.said)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("", 18),
        ("zookeeper.session.timeout.ms=6000", 9),
        ("zookeeper.session.timeout.ms=45000", 45),
        ("broker.session.timeout.ms=30000", 30),
        ("zookeeper.session.timeout.ms=86400000", 60),
        ("zookeeper.session.timeout.ms=soon", 18),
    ],
)
def test_after_a_kill_the_brokers_own_file_says_how_long_its_session_lasts(
    tmp_path: Path, line: str, seconds: int
) -> None:
    """The next command has seen no broker yet, and sees none now."""
    (tmp_path / "state").mkdir()
    operator = Operator(Cluster(model_inventory()), tmp_path / "state")
    key = next(key for key in operator.cluster.files if key[0] == BROKER)
    operator.cluster.files[key] += f"{line}\n".encode()
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    operator.interrupted_at(f"after stop {BROKER}", KeyboardInterrupt())
    assert isinstance(operator.cluster, Cluster)
    operator.cluster.blind = True
    stopped, started = operator.clock.now_ms, [0]

    def notes(where: str) -> None:
        if where == f"before start {BROKER}":
            started.append(operator.clock.now_ms)

    operator.cluster.points.at = notes
    operator.resume_until(Phase.MIGRATE)
    poll = operator.cluster.inventory.times.poll
    assert seconds * 1000 <= started[1] - stopped <= (seconds + poll) * 1000


def test_a_registration_that_stays_is_waited_for_only_as_long_as_a_gate(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.START)
    operator.cluster.unnoticed = {BROKER}
    assert operator.resume() is Ending.COMPLETE
    assert any(f"starts {BROKER} nevertheless" in line and "is still registered" in line for line in operator.said)


def test_nobody_waits_for_the_old_registration_of_a_broker_that_somebody_else_has_started(tmp_path: Path) -> None:
    """Such as a supervisor: then the registration is the new one."""
    operator = operator_at(tmp_path, Phase.START)

    def starts(where: str) -> None:
        if where == f"after stop {BROKER}":
            operator.cluster.start_as_configured(operator.node(BROKER))

    operator.cluster.points.at = starts
    operator.resume_until(Phase.MIGRATE)
    assert not any("nevertheless" in line for line in operator.said)
    assert not operator.cluster.violations


@pytest.mark.parametrize("tries", [1, 3])
@REACHED
def test_a_host_that_is_not_reached_between_stop_and_start_is_tried_again(
    tmp_path: Path, reached: Phase, tries: int
) -> None:
    operator = operator_at(tmp_path, reached)
    restarts = operator.cluster.restarts.copy()
    left = ["start"] * tries

    def breaks(action: str, node: Node) -> None:
        if (action, node.name) == ("start", BROKER) and left:
            left.pop()
            raise HostUnreachableError("the connection broke", where=BROKER)

    operator.cluster.fault = breaks
    operator.resume_until(Phase.MIGRATE if reached is Phase.START else Phase.KRAFT)
    assert (operator.cluster.restarts - restarts)[BROKER] == 1
    assert not operator.cluster.violations


def test_a_host_that_stays_unreached_ends_the_command_and_resume_starts_its_broker(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)

    def is_away(action: str, node: Node) -> None:
        if (action, node.name) == ("start", BROKER):
            raise HostUnreachableError("the connection broke", where=BROKER)

    operator.cluster.fault = is_away
    with pytest.raises(HostUnreachableError):
        operator.resume()
    operator.cluster.fault = nothing
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@STOPS
@REACHED
def test_a_terminal_that_is_gone_ends_nothing(tmp_path: Path, reached: Phase, *, stops: bool) -> None:
    operator = operator_at(tmp_path, reached, stops=stops)
    operator.said = GoneTerminal()
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@REACHED
def test_a_broker_that_ends_after_the_stop_command_has_failed_is_started(tmp_path: Path, reached: Phase) -> None:
    operator = operator_at(tmp_path, reached)
    operator.clock = clock = Clock()
    restarts = operator.cluster.restarts.copy()

    def hangs(action: str, node: Node) -> None:
        if (action, node.name) == ("stop", BROKER):
            clock.meanwhile = lambda: operator.cluster.crash(node)
            raise HANGS
        if (action, node.name) == ("start", BROKER):
            clock.meanwhile = nothing

    operator.cluster.fault = hangs
    operator.resume_until(Phase.MIGRATE if reached is Phase.START else Phase.KRAFT)
    assert (operator.cluster.restarts - restarts)[BROKER] == 1
    assert any(f"Waits whether {BROKER} ends nevertheless" in line for line in operator.said)
    assert not operator.cluster.violations


def test_the_connection_breaks_behind_a_stop_and_is_there_again(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)
    restarts = operator.cluster.restarts.copy()
    fails = ["stop", "incarnation", "incarnation"]

    def breaks(action: str, node: Node) -> None:
        if node.name != BROKER or not fails or action != fails[0]:
            return
        if action == "stop":
            operator.cluster.crash(node)
        fails.pop(0)
        raise ExecutorError("the connection broke", where=BROKER)

    operator.cluster.fault = breaks
    operator.resume_until(Phase.KRAFT)
    assert not fails
    assert (operator.cluster.restarts - restarts)[BROKER] == 1
    assert not operator.cluster.violations


@STOPS
@REACHED
def test_a_broker_that_ended_right_after_its_start_is_started_by_resume(
    tmp_path: Path, reached: Phase, *, stops: bool
) -> None:
    operator = operator_at(tmp_path, reached, stops=stops)
    ends(operator, BROKER, f"after {'start' if stops else 'restart'} {BROKER}")
    for _ in range(2):
        with pytest.raises(ProcessEndedError if stops else GateTimeoutError, match=f"{BROKER}( has ended|: is not)"):
            operator.resume()
    both_ways_are_open(operator, tmp_path)
    mend(operator, BROKER)
    assert operator.resume() is Ending.COMPLETE
    assert b"num.io.threads=16\n" in operator.cluster.files[BROKER, "/etc/b2.properties"]


@REACHED
def test_a_broker_that_its_command_could_not_start_is_started_with_the_file_that_was_mended(
    tmp_path: Path, reached: Phase
) -> None:
    operator = operator_at(tmp_path, reached)

    def fails(action: str, node: Node) -> None:
        if (action, node.name) == ("start", BROKER):
            raise ExecutorError("the command to start it ended with exit code 1", where=BROKER)

    operator.cluster.fault = fails
    with pytest.raises(ExecutorError):
        operator.resume()
    operator.cluster.fault = nothing
    mend(operator, BROKER)
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_broker_whose_file_is_for_another_mode_is_not_started(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)
    key = BROKER, "/etc/b2.properties"
    old = operator.cluster.files[key]
    ends(operator, BROKER, f"after start {BROKER}")
    with pytest.raises(ProcessEndedError):
        operator.resume()
    mend(operator, BROKER)
    operator.cluster.files[key] = old
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match="the file was changed since this rollout"):
        operator.resume()
    assert operator.cluster.restarts == restarts
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@pytest.mark.parametrize(
    ("boundary", "name", "file"),
    [
        ("after start controller-3001", "controller-3001", "/etc/c3001.properties"),
        ("after start controller-3003", "controller-3003", "/etc/c3003.properties"),
    ],
)
def test_a_controller_that_ended_right_after_its_start_is_started_by_resume(
    tmp_path: Path, boundary: str, name: str, file: str
) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    ends(operator, name, boundary)
    with pytest.raises(ProcessEndedError):
        operator.apply(StopAt(Phase.START))
    mend(operator, name)
    operator.resume_until(Phase.START)
    assert operator.cluster.files[name, file].endswith(b"num.io.threads=16\n")
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@pytest.mark.parametrize("stock", [False, True], ids=["finish", "handover"])
def test_a_controller_that_ended_right_after_its_restart_is_started_by_resume(tmp_path: Path, *, stock: bool) -> None:
    operator = operator_at(tmp_path, Phase.FINISH if stock else Phase.VERIFY)
    name = "controller-3002"

    def ends_at(where: str) -> None:
        if where in (f"after start {name}", f"after start {name}-stock"):
            node = operator.node(name)
            operator.cluster.crash(operator.cluster.inventory.controllers.stock[node.node_id] if stock else node)

    operator.cluster.points.at = ends_at
    with pytest.raises(ProcessEndedError, match="3002"):
        operator.resume()
    operator.cluster.points.at = nothing
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


HANDED, SUCCESSOR = "handover/controller-3002", "controller-3002-stock"


class Killed(BaseException):
    """The process of the rollout ends, and notes nothing."""


@pytest.mark.parametrize("action", ["start", "incarnation"])
def test_a_host_that_is_not_reached_just_as_kafkas_controller_takes_over_is_tried_again(
    tmp_path: Path, action: str
) -> None:
    operator = operator_at(tmp_path, Phase.FINISH)
    left = ["once"]

    def breaks(found: str, node: Node) -> None:
        if (found, node.name) == (action, SUCCESSOR) and left:
            left.pop()
            raise HostUnreachableError("the connection broke", where=SUCCESSOR)

    operator.cluster.fault = breaks
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.restarts[SUCCESSOR] == 1
    assert not operator.cluster.violations


def loses_the_lock(operator: Operator, where: str) -> None:
    if where == "after stop controller-3002":
        operator.lock.owner = LockHolder("another", "somebody", "ops-2", 5)


def has_no_room_for_the_journal(_: Operator, where: str) -> None:
    if where in (f"before done {HANDED} stop", f"before begun {HANDED} start"):
        raise OperatorError("the journal cannot be written")


@pytest.mark.parametrize("fails", [loses_the_lock, has_no_room_for_the_journal])
def test_kafkas_controller_runs_whatever_fails_behind_the_stop_of_ours(
    tmp_path: Path, fails: Callable[[Operator, str], None]
) -> None:
    operator = operator_at(tmp_path, Phase.FINISH)
    operator.cluster.points.at = partial(fails, operator)
    with pytest.raises(OperatorError):
        operator.resume()
    operator.cluster.points.at = nothing
    assert SUCCESSOR in operator.cluster.processes
    operator.lock.owner = None
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.restarts[SUCCESSOR] == 1
    assert not operator.cluster.violations


def test_killed_behind_the_start_of_kafkas_controller_and_that_one_ends_later(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.FINISH)
    operator.interrupted_at(f"after start {SUCCESSOR}", Killed())

    def ends_at(where: str) -> None:
        if where in (f"after done {HANDED} start", f"after found {HANDED} start"):
            operator.cluster.crash(operator.cluster.inventory.controllers.stock[3002])

    operator.cluster.points.at = ends_at
    with pytest.raises(ProcessEndedError, match="3002"):
        operator.resume()
    operator.cluster.points.at = nothing
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@REACHED
def test_two_brokers_that_are_down_at_once_are_both_started(tmp_path: Path, reached: Phase) -> None:
    operator = operator_at(tmp_path, reached, min_isr=1)
    for name in ("broker-3", BROKER):
        operator.cluster.crash(operator.node(name))
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_resume_starts_nothing_that_the_step_under_way_has_not_started(tmp_path: Path) -> None:
    """An operator has stopped the node on purpose."""
    operator = operator_at(tmp_path, Phase.START)
    operator.cluster.lies.add(BROKER)
    with pytest.raises(OperatorError):
        operator.resume()
    operator.cluster.lies.clear()
    operator.cluster.crash(operator.node("broker-1"))
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError):
        operator.resume()
    assert not operator.cluster.restarts - restarts


def test_killed_while_resume_starts_what_has_ended(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)
    ends(operator, BROKER, f"after start {BROKER}")
    with pytest.raises(ProcessEndedError):
        operator.resume()
    left: list[tuple[str, Operator]] = []

    def leave(where: str) -> None:
        if BROKER in where:
            left.append((where, operator.copy(tmp_path / str(len(left)))))

    operator.cluster.points.at = leave
    operator.resume_until(Phase.KRAFT)
    assert [where for where, _ in left][:2] == [
        f"before begun kraft/{BROKER} start",
        f"after begun kraft/{BROKER} start",
    ]
    for where, other in left:
        other.resume_until(Phase.KRAFT)
        assert other.cluster.end_state() == operator.cluster.end_state(), where
        assert other.cluster.restarts == operator.cluster.restarts, where
        assert not other.cluster.violations, where
    assert [entry.event for entry in operator.entries if entry.act == "start" and BROKER in entry.step] == [
        Event.BEGUN,
        Event.DONE,
    ]
