"""The soak counts the time that was watched, and in which both sides were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.soak import APART_MS, LOOK_MS, Soak
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Act, Phase
from migrator.rollout.ports import Observation
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

SOAK_SECONDS = 180
"""Of the model's inventory."""


@pytest.mark.parametrize(
    ("looks", "watched"),
    [
        ([], 0),
        ([(5_000, True)], 0),  # nobody watched before
        ([(0, True), (4_000, True), (9_000, True)], 9_000),
        ([(0, True), (APART_MS, True)], APART_MS),
        ([(0, True), (APART_MS + 1, True)], 0),
        ([(0, True), (1_000, False), (2_000, True)], 0),
        ([(0, True), (1_000, True), (2_000, False), (58_000, False), (59_000, True), (60_000, True)], 2_000),
        ([(0, False), (1_000, True), (2_000, True)], 1_000),
        ([(9_000, True), (3_000, True)], 0),  # no clock of ours does that
    ],
)
def test_time_between_two_good_looks_counts(looks: list[tuple[int, bool]], watched: int) -> None:
    soak = Soak()
    for now_ms, is_well in looks:
        soak = soak.saw_well(now_ms, now_ms) if is_well else soak.saw_trouble(now_ms)
    assert soak.watched_ms == watched


class Script(ModelClock):
    """Events as time passes.

    :param happens: hears how long it is since the beginning, in seconds.
    """

    def __init__(self, happens: Callable[[float], None]) -> None:
        super().__init__()
        self._happens = happens
        self._began_ms = self.now_ms

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._happens((self.now_ms - self._began_ms) / 1000)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """The next step is the soak."""
    operator = Operator(ModelCluster(model_inventory()), tmp_path)
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    operator.said.clear()
    return operator


def soaks(operator: Operator, happens: Callable[[float], None]) -> float:
    """Seconds that the soak has taken."""
    operator.clock = clock = Script(happens)
    began_ms = clock.now_ms
    operator.resume_until(Phase.SOAK)
    return (clock.now_ms - began_ms) / 1000


def test_an_outage_does_not_count_and_is_named(operator: Operator) -> None:
    def happens(seconds: float) -> None:
        operator.cluster.zookeeper_answers = not 30 <= seconds < 80

    assert SOAK_SECONDS + 50 <= soaks(operator, happens) <= SOAK_SECONDS + 50 + 2 * 20 + 1
    assert "soak: waits: ZooKeeper: does not answer" in operator.said
    (again,) = [line for line in operator.said if "all is well again; these " in line]
    assert 50 <= int(again.partition("these ")[2].partition(" s")[0]) <= 50 + 2 * 20
    waits, over = [entry.details for entry in operator.entries if entry.event is Event.SOAKED][:2]
    assert waits["waits"] == "ZooKeeper: does not answer"
    assert over["outage_ms"] == int(again.partition("these ")[2].partition(" s")[0]) * 1000
    assert waits["soaked_ms"] == over["soaked_ms"] == 25_000  # up to the look before


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda cluster: setattr(cluster, "leader_writes", False), "was not yet seen to write what is committed"),
        (lambda cluster: setattr(cluster, "problems", ("ZooKeeper: it is out of reach",)), "says: it is out of reach"),
        (lambda cluster: setattr(cluster, "behind_ms", 11_000), "the oldest has waited for 11 s"),
        (lambda cluster: setattr(cluster, "zookeeper_answers", False), "ZooKeeper: does not answer"),
    ],
)
def test_an_outage_that_lasts_ends_the_command(
    operator: Operator, breaks: Callable[[ModelCluster], None], said: str
) -> None:
    breaks(operator.cluster)
    with pytest.raises(GateTimeoutError, match=said):
        operator.resume()
    assert operator.entries[-1].act == Act.SOAK
    assert not [entry for entry in operator.entries if entry.details.get("soaked_ms")]


def test_a_machine_that_has_slept_has_watched_nothing(operator: Operator) -> None:
    def happens(seconds: float) -> None:
        if seconds == 30:
            operator.clock.asleep_ms = 3_600_000

    assert int(soaks(operator, happens)) == SOAK_SECONDS + 5
    assert [line for line in operator.said if "the last 3605 s do not count" in line]


@pytest.mark.parametrize("look_seconds", [11, 40])
def test_slow_looks_watch_too(operator: Operator, look_seconds: int) -> None:
    """Controllers that are asked through ssh, and time-outs before that, take as long."""
    observe = operator.cluster.observe

    async def slowly(*, partitions: bool = True) -> Observation:
        await operator.clock.sleep(look_seconds)
        assert operator.clock.now_ms < deadline_ms, "it soaks for ever"
        return await observe(partitions=partitions)

    operator.cluster.observe = slowly  # type: ignore[method-assign]
    deadline_ms = operator.clock.now_ms + 1000 * (SOAK_SECONDS + 20 * look_seconds)
    operator.resume_until(Phase.SOAK)
    assert not [line for line in operator.said if "do not count" in line]


def test_a_look_in_which_the_machine_slept_does_not_count() -> None:
    soak = Soak().saw_well(0, 1_000).saw_well(2_000, 2_000 + LOOK_MS)
    assert soak.watched_ms == 1_000 + LOOK_MS
    assert soak.saw_well(3_000 + LOOK_MS, 3_001 + 2 * LOOK_MS).watched_ms == soak.watched_ms
