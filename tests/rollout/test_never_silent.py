"""The rollout says every 30 seconds why it waits; and it does not wait for a process that has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError, ProcessEndedError
from migrator.rollout.gates.lifelines import SAY_MS, SHOWS_MS, Lifelines, WaitTeller
from migrator.rollout.journal.looks import LooksFile, read_looks
from migrator.rollout.journal.summary import failure_of
from migrator.rollout.meanwhile import Silences
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import LOOP, Output, PlaceSeen
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import SECRET, model_inventory
from tests.rollout.support.runs import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(ModelCluster(model_inventory()), tmp_path)


@pytest.mark.parametrize(
    ("looks", "has_ended"),
    [
        ([(0, True), (1, False)], False),  # a supervisor may start it again just now
        ([(0, True), (1, False), (1_001, False)], True),
        ([(0, True), (1, False), (1_001, True), (2_001, False)], False),
        ([(0, False), (SHOWS_MS - 1, False)], False),  # a starting script thinks first
        ([(0, False), (SHOWS_MS, False)], True),
    ],
)
def test_a_process_has_ended(looks: Sequence[tuple[int, bool]], has_ended: bool) -> None:
    lifelines, found = Lifelines(), False
    for now_ms, runs in looks:
        if runs:
            lifelines.shows("broker-1", "first")
        else:
            found = lifelines.is_missing("broker-1", now_ms)
    assert found is has_ended


def test_a_line_says_since_when_and_how_long() -> None:
    said: list[str] = []
    patience = WaitTeller("roll", said.append, lambda _: False, 1_000, 600_000)
    patience.waits("broker-1: is down", 2_000)
    patience.waits("broker-1: is down", 2_000 + SAY_MS - 1)
    assert said == ["roll: waits: broker-1: is down"]
    patience.waits("broker-1: is down", 61_000)
    assert said[1:] == ["roll: still waits, for 60 s, at most 540 s more: broker-1: is down"]
    patience.waits("broker-1: does not serve yet", 62_000)
    assert said[2:] == ["roll: waits: broker-1: does not serve yet"]


def test_a_gate_that_is_shut_is_never_silent(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.cluster.lagging.add("broker-2")
    heard_ms = [operator.clock.now_ms]
    operator.hears = lambda _: heard_ms.append(operator.clock.now_ms)
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.resume()
    gaps = [after - before for before, after in zip(heard_ms, [*heard_ms[1:], operator.clock.now_ms], strict=True)]
    assert len(gaps) > 2
    assert max(gaps) <= SAY_MS


def test_a_process_that_has_ended_is_seen_at_once(operator: Operator) -> None:
    """`test_stays_up` has the `resume` afterwards."""
    node, name = operator.node("controller-3002"), "controller-3002"
    operator.cluster.logs[name] = Output(0, f"INFO starting\nERROR port in use {SECRET}\n")

    def ends(where: str) -> None:
        if where == f"after start {name}":
            operator.cluster.crash(node)

    operator.cluster.points.at = ends
    with pytest.raises(ProcessEndedError, match=f"{name} has ended") as raised:
        operator.apply()
    assert f"'migrator rollout resume': it starts {name}, and goes on" in raised.value.remedy
    assert f"  ERROR port in use {SECRET}" in operator.said
    failure = failure_of(operator.entries)
    assert failure is not None
    assert (failure.error, failure.remedy) == ("ProcessEndedError", raised.value.remedy)
    assert "port in use" in Path(failure.output).read_text()
    assert SECRET not in str([entry.details for entry in operator.entries])


def lags_once_started(operator: Operator) -> None:
    """Its replicas stay behind, once the rollout has restarted it."""

    def lags(where: str) -> None:
        if where in ("after start broker-2", "after restart broker-2"):
            operator.cluster.lagging.add("broker-2")

    operator.cluster.points.at = lags


@pytest.mark.parametrize("times", [LOOP - 1, LOOP])
def test_a_process_that_restarts_in_a_loop_is_named(operator: Operator, times: int) -> None:
    """A supervisor starts it again each time that it ends; it may come up at last."""
    name, left = "broker-2", [times]
    operator.cluster.logs[name] = Output(0, "FATAL no space\n")
    inventory = operator.cluster.inventory
    operator.inventory = replace(inventory, times=replace(inventory.times, poll=5.0))
    operator.apply(StopAt(Phase.START))
    lags_once_started(operator)

    class Clock(ModelClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if operator.cluster.restarts[name] > 1 and left[0]:
                left[0] -= 1
                operator.cluster.start_as_configured(operator.node(name))
            elif operator.cluster.restarts[name] > 1:
                operator.cluster.lagging.discard(name)

    operator.clock = Clock()
    if times < LOOP:
        operator.resume_until(Phase.MIGRATE)
        assert any(f"{name} has ended and was started again {times} times" in line for line in operator.said)
        return
    with pytest.raises(ProcessEndedError, match=f"started again {LOOP} times .* restarts in a loop") as raised:
        operator.resume_until(Phase.MIGRATE)
    assert "resume': it looks again" in raised.value.remedy
    assert "  FATAL no space" in operator.said
    operator.resume_until(Phase.MIGRATE)


@pytest.mark.parametrize(("stops", "loops"), [(False, False), (False, True), (True, True)])
def test_a_pod_that_is_not_well_is_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, *, stops: bool, loops: bool
) -> None:
    """Also if the inventory says how to stop and to start it: Kubernetes restarts the container in the same pod."""
    operator.apply(StopAt(Phase.START))
    monkeypatch.setattr(operator.cluster, "stops_and_starts", lambda _: stops)
    lags_once_started(operator)
    operator.cluster.places["broker-2"] = PlaceSeen("the pod kafka-2 of the namespace data is Failed (Evicted)", loops)
    with pytest.raises(ProcessEndedError if loops else GateTimeoutError):
        operator.resume()
    told = [line for line in operator.said if "the pod kafka-2 of the namespace data is Failed (Evicted)" in line]
    assert len(told) == 1


def test_a_process_that_comes_late_has_not_ended(operator: Operator) -> None:
    """Its start command returns before the process shows, at each start of one run."""
    broker, comes_ms = operator.node("broker-2"), list[int]()

    def starts(where: str) -> None:
        if where == "after start broker-2":
            operator.cluster.crash(broker)
            comes_ms.append(operator.clock.now_ms + SHOWS_MS - 10_000)

    class Clock(ModelClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if comes_ms and self.now_ms >= comes_ms[-1] and broker.name not in operator.cluster.processes:
                operator.cluster.start_as_configured(broker)

    operator.clock = Clock()
    operator.cluster.points.at = starts
    assert operator.apply() is Ending.COMPLETE
    assert len(comes_ms) == 2


def test_the_longest_time_without_a_line_is_measured(tmp_path: Path) -> None:
    """A question is none. The report has what came before the first step, too."""
    clock, said = ModelClock(), list[str]()
    silences = Silences(said.append, clock.monotonic_ms)
    for passed_ms, line in ((2_000, "one"), (12_000, "two"), (5_000, "three")):
        clock.now_ms += passed_ms
        silences.tell(line)
    looks = LooksFile(tmp_path, "r", clock)
    looks.was_silent(silences.longest_ms)
    silences.notes = looks.was_silent
    clock.now_ms += 900_000
    silences.begins()  # a person has answered
    clock.now_ms += 12_500
    silences.ends()
    assert (said, silences.longest_ms) == (["one", "two", "three"], 12_500)
    assert read_looks(tmp_path, "r").silent_ms == 12_000, "half a second more is no news"
