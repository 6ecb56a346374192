"""Nodes that are gone for good are left out, by name and with a reason; old trouble of partitions holds nothing up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.gates.excuses import BASELINE_MAX, as_judged, baseline_of, excused, healed, refuse_gone
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.gates.gates import judge
from migrator.rollout.gates.placements import NAMES_MAX, Placements
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, BrokerSeen, ExecutorError, Gate, GateKind, Observation, Some
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER, CONTROLLER = "broker-4", "controller-3002"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory(brokers=4), min_isr=1), tmp_path / "state")


def dies(operator: Operator, name: str) -> None:
    """Its host is gone: nothing reaches it."""
    operator.cluster.crash(operator.node(name))

    def fault(action: str, node: Node) -> None:
        if node.name == name:
            raise ExecutorError("the host does not answer", where=name)

    operator.cluster.fault = fault


def test_a_broker_that_is_gone_holds_the_rollout_until_it_is_left_out(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    dies(operator, BROKER)
    with pytest.raises(OperatorError, match="does not answer"):
        operator.resume()
    operator.gone = (BROKER,)
    assert operator.resume() is Ending.COMPLETE
    operator.gone = ()
    modes = operator.cluster.modes()
    assert {name for name, mode in modes.items() if mode is BrokerMode.KRAFT} == {"broker-1", "broker-2", "broker-3"}
    assert operator.cluster.unregistered == {4}
    (noted,) = (entry for entry in operator.entries if entry.event is Event.LEFT_OUT)
    assert noted.details == {"node": BROKER, "reason": "its disk is broken"}
    assert not operator.cluster.violations


def test_it_stays_left_out_in_every_later_command_and_on_the_way_back(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    dies(operator, BROKER)
    operator.gone = ("4",)
    operator.resume_until(Phase.KRAFT)
    operator.gone = ()
    assert operator.rollback() is Ending.COMPLETE
    assert {mode for name, mode in operator.cluster.modes().items() if name != BROKER} == {BrokerMode.ZOOKEEPER}
    assert operator.cluster.unregistered == {4}
    assert not operator.cluster.violations


def test_the_way_back_goes_on_without_a_controller(operator: Operator) -> None:
    operator.apply(StopAt(Phase.KRAFT))
    dies(operator, CONTROLLER)
    with pytest.raises(OperatorError, match="does not answer"):
        operator.rollback()
    operator.gone = (CONTROLLER,)
    assert operator.rollback() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    assert not operator.cluster.violations


def test_who_serves_is_not_gone(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    for name in (BROKER, CONTROLLER):
        operator.gone = (name,)
        with pytest.raises(OperatorError, match=f"{name} is not gone"):
            operator.resume()
    assert not [entry for entry in operator.entries if entry.event is Event.LEFT_OUT]


def test_who_comes_back_counts_as_anybody(operator: Operator) -> None:
    """Otherwise the migration ends while it is in ZooKeeper mode."""
    operator.apply(StopAt(Phase.COPY))
    dies(operator, BROKER)
    operator.gone = (BROKER,)
    operator.resume_until(Phase.KRAFT)
    operator.cluster.start_as_configured(operator.node(BROKER))
    with pytest.raises(OperatorError, match=f"{BROKER} is not gone"):
        operator.resume()
    back = Gate(GateKind.BROKERS_IN_MODE, mode=BrokerMode.KRAFT)
    observed = asyncio.run(operator.cluster.observe())
    (waiting,) = judge(back, excused(observed, (operator.node(BROKER),), {}))
    assert (waiting.who, waiting.what) == ("broker 4", "runs in migration mode, not in KRaft mode")
    assert operator.cluster.state == "DualWrite"
    assert operator.cluster.unregistered == set()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("broker-9",), "there is no node broker-9"),
        (("3001", "3002", "3003"), "no controller would be left"),
        (("broker-1", "broker-2", "broker-3", "4"), "no broker would be left"),
    ],
)
def test_what_cannot_be_left_out_is_named(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        model_inventory(brokers=4).without(names)


HEALTHY = Gate(GateKind.PARTITIONS_HEALTHY)


def seen(replicas: tuple[int, ...], in_sync: tuple[int, ...], *, count: int = 1, away: int = 0) -> Observation:
    found = Placements(placed=False)
    for number in range(count):
        found.add("orders", number, in_sync[0] if in_sync else -1, replicas, in_sync, 2)
    brokers = {each: BrokerSeen(each, BrokerMode.KRAFT, serving=True) for each in (1, 2, 3)}
    if away:
        brokers[away] = BrokerSeen(away, None)
    return Observation(brokers=brokers, partitions=found.seen(Some()))


def test_a_partition_that_was_not_well_before_is_not_waited_for() -> None:
    old = seen((1, 2, 3), (1, 2))
    baseline = baseline_of(old)
    assert baseline == {"orders-0": frozenset((3,))}
    assert judge(HEALTHY, old)
    assert not judge(HEALTHY, excused(old, (), baseline))
    assert judge(HEALTHY, excused(seen((1, 2, 3), (1,)), (), baseline)), "another replica"
    assert judge(HEALTHY, excused(seen((1, 2, 3), (1, 2), count=2), (), baseline)), "another partition"
    assert judge(HEALTHY, excused(seen((1, 2, 3), (1, 2), away=3), (), baseline)), "its broker is down now"


def test_the_last_replica_in_sync_does_not_stop_for_a_partition_that_was_not_well_before() -> None:
    old = seen((1, 2), (1,))
    may_stop = Gate(GateKind.MAY_STOP, nodes=(model_inventory().brokers.nodes[0],))
    baseline = baseline_of(old)
    assert not judge(HEALTHY, as_judged(GateKind.PARTITIONS_HEALTHY, old, (), baseline))
    (waiting,) = judge(may_stop, as_judged(GateKind.MAY_STOP, old, (), baseline))
    assert "orders-0" in waiting.what


def test_no_broker_is_left_out_that_nobody_can_see() -> None:
    inventory = model_inventory()
    blind = Observation(unknown=("ZooKeeper: away",))
    with pytest.raises(OperatorError, match="it is unknown whether broker-1 is gone: ZooKeeper: away"):
        refuse_gone((inventory.brokers.nodes[0],), blind)
    refuse_gone((inventory.controllers.nodes[0],), blind)  # it was asked itself: before the start none answers


def test_a_broker_that_is_down_or_catches_up_is_no_old_trouble() -> None:
    assert baseline_of(seen((1, 2, 3), (1, 2), away=3)) == {}
    assert baseline_of(seen((1, 2, 3), (1, 2), count=BASELINE_MAX + 1)) == {}
    assert baseline_of(Observation()) == {}


def test_a_partition_with_no_replica_elsewhere_is_lost_with_its_broker() -> None:
    gone = model_inventory().brokers.nodes[2]
    offline = seen((3,), (), away=3)
    assert judge(HEALTHY, offline)
    assert not judge(HEALTHY, excused(offline, (gone,), {}))
    may_stop = Gate(GateKind.MAY_STOP, nodes=(model_inventory().brokers.nodes[0],))
    assert not judge(may_stop, as_judged(GateKind.MAY_STOP, offline, (gone,), {})), "nobody's stop makes it worse"


@pytest.mark.parametrize(
    ("replicas", "min_isr", "said"),
    [(2, 1, "without this broker, 1 partition would go offline: orders-3"), (3, 2, "would fall below min.insync")],
)
def test_no_broker_stops_for_which_one_that_is_gone_cannot_take_over(
    tmp_path: Path, replicas: int, min_isr: int, said: str
) -> None:
    (tmp_path / "state").mkdir()
    cluster = ModelCluster(model_inventory(brokers=4), replicas=replicas, min_isr=min_isr)
    operator = Operator(cluster, tmp_path / "state")
    operator.apply(StopAt(Phase.COPY))
    dies(operator, BROKER)
    operator.gone = (BROKER,)
    restarts = cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match=said) as raised:
        operator.resume()
    assert raised.value.remedy.startswith("Start broker 4. If it is gone for good, first move its replicas to other")
    assert cluster.restarts == restarts
    assert not cluster.violations
    cluster.partitions = [_without_4(each) for each in cluster.partitions]
    assert operator.resume() is Ending.COMPLETE
    assert not cluster.violations


def _without_4(replicas: frozenset[int]) -> frozenset[int]:
    """As `kafka-reassign-partitions` has moved them."""
    free = sorted({1, 2, 3} - replicas)
    return replicas - {4} | set(free[:1]) if 4 in replicas else replicas


def test_the_journal_names_what_was_not_well_before(operator: Operator) -> None:
    operator.cluster.lagging = {BROKER}
    assert operator.apply() is Ending.COMPLETE
    noted = [entry.details for entry in operator.entries if entry.event is Event.BASELINE]
    assert noted[0]["brokers"] == "4"
    assert "orders-1" in str(noted[0]["partitions"])
    assert any("not waited for: orders-1" in line for line in operator.said)


def given(operator: Operator) -> list[tuple[str, ...]]:
    """Orders to the leader."""
    return [words for words in operator.cluster.commands if "force" in words]


@pytest.fixture
def without_controller(operator: Operator) -> Operator:
    """A controller was left out, before the end of the migration."""
    operator.apply(StopAt(Phase.KRAFT))
    dies(operator, CONTROLLER)
    operator.gone = (CONTROLLER,)
    operator.resume_until(Phase.VERIFY)
    operator.gone = ()
    return operator


def test_the_leader_is_ordered_to_end_without_a_controller(without_controller: Operator) -> None:
    assert without_controller.resume() is Ending.COMPLETE
    ((program, *words),) = given(without_controller)
    file = without_controller.node("controller-3001").properties
    assert words[:-2] == ["force", "finish", "-c", file, "--without", "3002"]
    assert words[-2].endswith(": its disk is broken")
    assert words[-2].startswith("--reason=rollout ")
    assert (program, words[-1]) == ("migrator", "--yes")
    assert without_controller.cluster.state == "Finished"


def test_no_order_is_given_where_nobody_was_left_out_or_kafkas_controllers_end(tmp_path: Path) -> None:
    for kind in ("migrator", "stock"):
        (tmp_path / kind).mkdir()
        operator = Operator(ModelCluster(model_inventory(kind=kind, handover=False)), tmp_path / kind)
        if kind == "stock":
            operator.apply(StopAt(Phase.KRAFT))
            dies(operator, CONTROLLER)
            operator.gone = (CONTROLLER,)
        assert operator.apply() is Ending.COMPLETE
        assert not given(operator)


def test_a_refused_order_is_named_and_given_again(without_controller: Operator) -> None:
    without_controller.cluster.exit_codes["force"] = 2
    with pytest.raises(JobFailedError, match="force finish ended with exit code 2") as raised:
        without_controller.resume()
    assert "gives the order again" in raised.value.remedy
    without_controller.cluster.exit_codes.clear()
    assert without_controller.resume() is Ending.COMPLETE
    assert len(given(without_controller)) == 2


def test_another_leader_gets_the_order_again(without_controller: Operator) -> None:
    """Each order is for one leader, and the next leader does not know it."""
    without_controller.cluster.new_leader = True
    with pytest.raises(GateTimeoutError, match="is in DualWrite, not yet in Finished"):
        without_controller.resume()
    without_controller.cluster.new_leader = False
    assert without_controller.resume() is Ending.COMPLETE
    assert len(given(without_controller)) == 2


def test_killed_while_the_order_is_given(without_controller: Operator, tmp_path: Path) -> None:
    left: list[tuple[str, Operator]] = []

    def leave(where: str) -> None:
        if "finished" in where or "force" in where:
            left.append((where, without_controller.copy(tmp_path / str(len(left)))))

    without_controller.cluster.points.at = leave
    assert without_controller.resume() is Ending.COMPLETE
    assert len(left) >= 10
    for where, operator in left:
        assert operator.resume() is Ending.COMPLETE, where
        assert operator.cluster.end_state() == without_controller.cluster.end_state(), where
        assert len(given(operator)) <= 2, where


def test_who_was_in_sync_again_is_old_trouble_no_more() -> None:
    baseline = {"orders-0": frozenset((2, 3)), "orders-9": frozenset((3,))}
    assert healed(baseline, seen((1, 2, 3), (1,))) == {"orders-9": frozenset((3,))}
    assert healed(baseline, seen((1, 2, 3), (1, 2)))["orders-0"] == frozenset((2,))
    assert healed(baseline, seen((1, 2, 3), (1, 2, 3))) == baseline
    assert healed(baseline, Observation()) == {}
    assert healed(baseline, seen((1, 2, 3), (1,), count=NAMES_MAX + 1)) == {}, "nobody knows all names"


def test_the_baseline_shrinks_for_good_as_partitions_heal(operator: Operator) -> None:
    operator.cluster.lagging = {BROKER}
    assert operator.apply(StopAt(Phase.PREFLIGHT)) is Ending.REACHED
    assert progress_of(operator.entries).baseline
    operator.cluster.lagging = set()
    assert operator.apply(StopAt(Phase.MIGRATE)) is Ending.REACHED
    assert progress_of(operator.entries).baseline == {}
    assert [entry.details["brokers"] for entry in operator.entries if entry.event is Event.HEALED] == ["4"]
    operator.cluster.lagging = {BROKER}
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.apply()


def test_the_baseline_is_taken_anew_where_the_rollout_turns_back(operator: Operator) -> None:
    operator.apply(StopAt(Phase.KRAFT))
    operator.cluster.lagging = {BROKER}
    assert operator.rollback() is Ending.COMPLETE
    turned = next(number for number, entry in enumerate(operator.entries) if entry.event is Event.TURNED)
    assert operator.entries[turned + 1].event is Event.BASELINE
    assert progress_of(operator.entries[: turned + 1]).baseline == {}
