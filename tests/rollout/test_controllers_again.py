"""Controllers that come up again with their hosts behind `give-back`: they are stopped, and find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.nodes import Node
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.ports import BrokerMode, HostUnreachableError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

CONTROLLERS = [f"controller-{number}" for number in (3001, 3002, 3003)]
GIVEN_BACK = "after done give-back "


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    return operator


def boots(operator: Operator, name: str) -> None:
    """The service starts with the host. Without an identity the process ends again."""
    if name in operator.cluster.formatted:
        operator.cluster.start_as_configured(operator.node(name))


def has_come_back(operator: Operator) -> bool:
    modes = set(operator.cluster.modes().values())
    return modes == {BrokerMode.ZOOKEEPER} and not operator.cluster.kraft_claims and not operator.cluster.violations


@pytest.mark.parametrize("count", [1, 2, 3])
def test_they_are_stopped_before_their_directories_are_moved_away(operator: Operator, count: int) -> None:
    def boot(where: str) -> None:
        if where == GIVEN_BACK:
            for name in CONTROLLERS[:count]:
                boots(operator, name)

    operator.cluster.points.at = boot
    assert operator.rollback() is Ending.COMPLETE
    assert not set(CONTROLLERS) & operator.cluster.processes.keys()
    assert not operator.cluster.formatted
    assert has_come_back(operator)
    operator.cluster.points.at = nothing
    assert operator.apply() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_they_find_no_directory_while_brokers_leave_the_migration(operator: Operator) -> None:
    """This takes hours, and a host may reboot meanwhile."""

    def boot(where: str) -> None:
        if where.startswith("after done leave-migration/broker-1 "):
            for name in CONTROLLERS:
                boots(operator, name)

    operator.cluster.points.at = boot
    assert operator.rollback() is Ending.COMPLETE
    assert has_come_back(operator)
    assert not set(CONTROLLERS) & operator.cluster.processes.keys()


def test_whoever_is_killed_before_a_directory_is_moved_away_stops_its_controller_then(operator: Operator) -> None:
    def dies(where: str) -> None:
        if where == "before mv controller-3002":
            raise OperatorError("stops here", where="test")

    operator.cluster.points.at = dies
    with pytest.raises(OperatorError, match="stops here"):
        operator.rollback()
    operator.cluster.points.at = nothing
    boots(operator, CONTROLLERS[2])
    assert operator.resume() is Ending.COMPLETE
    assert not set(CONTROLLERS) & operator.cluster.processes.keys()
    assert has_come_back(operator)


def test_nothing_is_moved_away_while_no_broker_is_the_controller(operator: Operator) -> None:
    """Its log may be needed to give ZooKeeper back once more."""

    def loses(where: str) -> None:
        if where == GIVEN_BACK:
            operator.cluster.controller_broker = None

    operator.cluster.points.at = loses
    with pytest.raises(GateTimeoutError, match="none is the ZooKeeper controller"):
        operator.rollback()
    assert operator.cluster.formatted == set(CONTROLLERS)
    operator.cluster.points.at = nothing
    operator.cluster.controller_broker = 1
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


def test_one_that_was_left_out_and_comes_up_is_to_be_stopped(operator: Operator) -> None:
    """Its directory is still there. With it, nobody says which brokers are registered, and each gate is shut."""
    name = CONTROLLERS[1]
    operator.cluster.crash(operator.node(name))

    def away(_: str, node: Node) -> None:
        if node.name == name:
            raise HostUnreachableError("the host does not answer", where=name)

    def boot(where: str) -> None:
        if where == "after done leave-migration/broker-1 ":
            boots(operator, name)

    operator.cluster.fault, operator.cluster.points.at = away, boot
    operator.gone = (name,)
    with pytest.raises(GateTimeoutError) as raised:
        operator.rollback()
    assert "behind 'give-back', stop controller 3002: ZooKeeper has the cluster again" in raised.value.remedy
    operator.cluster.points.at = nothing
    operator.cluster.crash(operator.node(name))
    assert operator.resume() is Ending.COMPLETE
    assert has_come_back(operator)


def test_directories_go_before_the_first_broker_leaves_the_migration() -> None:
    phases = [step.phase for step in plan(model_inventory(), Direction.BACK)]
    aside = [number for number, phase in enumerate(phases) if phase is Phase.SET_ASIDE]
    assert phases[min(aside) - 1] is Phase.GIVE_BACK
    assert phases.index(Phase.LEAVE_MIGRATION) == max(aside) + 1
