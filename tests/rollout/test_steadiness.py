"""How many good looks a gate needs: one, unless somebody may have ended whose session has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.rollout.engine.apply import StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError, Steadiness
from migrator.rollout.plan.modes import SESSION_TIMEOUT, SESSION_TIMEOUT_MS
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, BrokerSeen, Observation
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator


def seen(*stamps: str | None, controller: int | None = 1, timeout: str = "", age_ms: int = 0) -> Observation:
    settings = {SESSION_TIMEOUT: timeout} if timeout else None
    mode = BrokerMode.ZOOKEEPER
    brokers = {
        number: BrokerSeen(number, mode if stamp else None, stamp or "", settings=settings, age_ms=age_ms)
        for number, stamp in enumerate(stamps, 1)
    }
    return Observation(brokers=brokers, controller_broker=controller)


def shut(steadiness: Steadiness, observed: Observation, now_ms: int) -> bool:
    return bool(list(steadiness.look(observed, now_ms)))


def test_the_first_looks_last_for_a_session() -> None:
    steadiness = Steadiness()
    assert shut(steadiness, seen("a", "b"), 0)
    assert shut(steadiness, seen("a", "b"), SESSION_TIMEOUT_MS - 1)
    assert not shut(steadiness, seen("a", "b"), SESSION_TIMEOUT_MS)
    assert not shut(steadiness, seen("a", "b"), SESSION_TIMEOUT_MS + 1)


def test_brokers_that_are_registered_for_long_need_one_look() -> None:
    assert not shut(Steadiness(), seen("a", "b", age_ms=SESSION_TIMEOUT_MS), 0)


def test_a_young_registration_is_waited_for_until_it_is_as_old_as_a_session() -> None:
    steadiness = Steadiness()
    assert shut(steadiness, seen("a", "b", age_ms=SESSION_TIMEOUT_MS - 500), 0)
    assert shut(steadiness, seen("a", "b", age_ms=SESSION_TIMEOUT_MS - 500), 499)
    assert not shut(steadiness, seen("a", "b", age_ms=SESSION_TIMEOUT_MS - 500), 500)


def test_a_new_registration_does_not_make_another_one_older() -> None:
    steadiness = Steadiness()
    assert shut(steadiness, seen("a", "b"), 0)
    assert shut(steadiness, seen("a", "c", age_ms=SESSION_TIMEOUT_MS), 1)
    assert not shut(steadiness, seen("a", "c"), SESSION_TIMEOUT_MS)


def test_who_vanishes_is_young_again() -> None:
    steadiness = Steadiness()
    assert not shut(steadiness, seen("a", "b", age_ms=SESSION_TIMEOUT_MS), 0)
    assert shut(steadiness, seen("a", None, age_ms=SESSION_TIMEOUT_MS), 1)


def test_the_longest_session_of_the_brokers_counts() -> None:
    steadiness = Steadiness()
    assert shut(steadiness, seen("a", timeout="30000"), 0)
    assert shut(steadiness, seen("a", timeout="30000"), 29_999)
    assert not shut(steadiness, seen("a", timeout="30000"), 30_000)


def test_a_broker_that_the_rollout_restarts_needs_one_look_and_another_one_a_session() -> None:
    steadiness = Steadiness()
    shut(steadiness, seen("a", "b"), 0)
    steadiness.renews(2)
    assert not shut(steadiness, seen("a", None), 20_000)
    assert not shut(steadiness, seen("a", "c"), 21_000)
    assert shut(steadiness, seen("a", "d"), 22_000), "somebody else has restarted it"
    assert shut(steadiness, seen("z", "d"), 30_000), "a broker that nobody here has touched"
    assert not shut(steadiness, seen("z", "d"), 48_000)


def test_the_quorum_hears_of_its_brokers() -> None:
    assert not shut(Steadiness(), seen("a", controller=None), 0)


def test_who_has_ended_without_a_word_opens_no_gate(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    operator.apply(StopAt(Phase.START))
    operator.cluster.unnoticed = {"broker-3"}
    operator.cluster.crash(operator.node("broker-3"))
    with pytest.raises(GateTimeoutError, match="broker-3: is registered, but does not serve"):
        operator.resume()
    assert not operator.cluster.violations
