"""Where nobody sees in which mode a broker runs, that it is registered in ZooKeeper proves nothing: model cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.standing import seen_lines
from migrator.rollout.files.old_metadata_log import OldLogError
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, BrokerSeen, FileChangedError, Observation
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory, with_level
from tests.rollout.support.runs import Operator

BROKER = "broker-2"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(with_level(model_inventory())), tmp_path / "state")


def modes(operator: Operator) -> set[BrokerMode | None]:
    return set(operator.cluster.modes().values())


@pytest.mark.parametrize("until", [Phase.MIGRATE, Phase.COPY, Phase.KRAFT])
def test_every_broker_leaves_migration_mode_although_its_settings_are_hidden(operator: Operator, until: Phase) -> None:
    operator.cluster.hides_settings = True
    operator.resume_until(until)
    assert modes(operator) == {BrokerMode.KRAFT if until is Phase.KRAFT else BrokerMode.MIGRATING}
    assert operator.rollback() is Ending.COMPLETE
    assert modes(operator) == {BrokerMode.ZOOKEEPER}
    assert not operator.cluster.violations
    said = f"leave-migration/{BROKER}: {BROKER}: the mode and the settings that it runs with could not be looked at"
    assert any(said in line for line in operator.said)


def test_a_file_that_was_put_back_by_hand_proves_nothing_either(operator: Operator) -> None:
    """An operator copied the backups back, and did not restart the brokers."""
    operator.cluster.hides_settings = True
    operator.resume_until(Phase.COPY)

    def puts_back(where: str) -> None:
        if where == "after done give-back ":
            for node in operator.cluster.inventory.brokers.nodes:
                key = next(key for key in operator.cluster.files if key[0] == node.name and ".before-" in key[1])
                operator.cluster.files[node.name, node.properties] = operator.cluster.files[key]

    operator.cluster.points.at = puts_back
    with pytest.raises(FileChangedError):
        operator.rollback()
    for _ in range(2):  # each broker's file, when its turn comes
        with pytest.raises(FileChangedError):
            operator.resume()
    assert operator.resume() is Ending.COMPLETE
    assert modes(operator) == {BrokerMode.ZOOKEEPER}


def test_a_broker_that_does_not_answer_as_it_is_to_be_restarted_is_restarted(operator: Operator) -> None:
    """Its file is restored, and at this one look it says nothing."""
    operator.resume_until(Phase.COPY)

    def looks(where: str) -> None:
        if where == f"after done leave-migration/{BROKER} edit":
            operator.cluster.silent.add(BROKER)
        elif where == f"after start {BROKER}":
            operator.cluster.silent.clear()

    operator.cluster.points.at = looks
    with pytest.raises(GateTimeoutError, match=f"{BROKER}: is registered, but does not serve yet"):
        operator.rollback()
    operator.cluster.points.at = nothing
    operator.cluster.silent.clear()
    assert operator.resume() is Ending.COMPLETE
    assert modes(operator) == {BrokerMode.ZOOKEEPER}


@pytest.mark.parametrize("until", [Phase.START, Phase.COPY])
def test_a_look_at_which_nobody_answers_does_not_decide_that_a_restart_is_not_needed(
    operator: Operator, until: Phase
) -> None:
    """An operator has written the file of the next mode, and has not restarted the broker. ZooKeeper does not answer
    one look of the rollout: the broker is not seen."""
    operator.resume_until(until)
    phase = Phase.MIGRATE if until is Phase.START else Phase.KRAFT
    other = operator.copy(operator.state.parent / "other")
    other.resume_until(phase)
    node = operator.node(BROKER)
    operator.cluster.files[BROKER, node.properties] = other.cluster.files[BROKER, node.properties]
    observe, hidden = operator.cluster.observe, False

    def looks(where: str) -> None:
        nonlocal hidden
        hidden = hidden or where == f"after found {phase.value}/{BROKER} edit"

    async def observed(*, partitions: bool = True) -> Observation:
        nonlocal hidden
        found, hidden = (Observation() if hidden else await observe(partitions=partitions)), False
        return found

    operator.cluster.observe = observed  # type: ignore[method-assign]
    with pytest.raises(FileChangedError):
        operator.resume_until(phase)
    operator.cluster.points.at = looks
    operator.resume_until(phase)
    assert modes(operator) == modes(other)


SEGMENT = BROKER, f"/data/{BROKER}/__cluster_metadata-0/00000000000000000000.log"


def with_old_log(operator: Operator, release: str) -> None:
    operator.cluster.files[SEGMENT] = b"old"
    operator.cluster.hides_settings = True
    operator.cluster.release = release


def test_a_log_that_may_be_open_is_not_removed(operator: Operator) -> None:
    with_old_log(operator, "3.6")
    with pytest.raises(OldLogError, match=r"may have the log open") as raised:
        operator.apply(StopAt(Phase.MIGRATE))
    assert "DescribeConfigs" in raised.value.remedy
    assert SEGMENT in operator.cluster.files
    assert operator.cluster.restarts[BROKER] == 1
    operator.cluster.crash(operator.node(BROKER))
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT not in operator.cluster.files
    assert modes(operator) == {BrokerMode.MIGRATING}


def test_a_log_that_may_be_open_is_left_to_a_release_that_deletes_it(operator: Operator) -> None:
    with_old_log(operator, "3.8")
    operator.resume_until(Phase.MIGRATE)
    assert SEGMENT in operator.cluster.files


def test_status_does_not_say_a_mode_that_nobody_sees() -> None:
    seen = Observation(brokers={1: BrokerSeen(1, BrokerMode.ZOOKEEPER), 2: BrokerSeen(2, BrokerMode.MIGRATING)})
    (line,) = [line for line in seen_lines(seen, {}) if line.startswith("brokers")]
    assert "1 in ZooKeeper or migration mode (their settings are not seen): broker 1" in line
