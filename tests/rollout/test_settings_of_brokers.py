"""A broker that is back in the right mode, but has read other settings than its property file has: model cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.keys import CONNECT
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.plan.steps import Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory, with_level
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
VOTERS = "controller.quorum.voters"
OTHER = "3001@elsewhere:9093"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


@pytest.mark.parametrize(
    ("until", "key", "said"),
    [
        (Phase.START, VOTERS, f"with another value of {VOTERS}"),
        (Phase.COPY, CONNECT, f"still with {CONNECT}"),
    ],
)
def test_one_setting_that_a_start_command_overrides_is_named(
    operator: Operator, until: Phase, key: str, said: str
) -> None:
    """Role and release look right; the operator corrects the command, and types resume."""
    operator.apply(StopAt(until))
    operator.cluster.overridden[BROKER] = {key: OTHER}
    with pytest.raises(
        GateTimeoutError, match=f"{BROKER}: does not run with its property file as it is: {said}"
    ) as raised:
        operator.resume()
    assert "correct that command" in raised.value.remedy
    assert OTHER not in (operator.state / COMMAND_FILE).read_text(), "the journal knows no contents"
    operator.cluster.overridden.clear()
    operator.cluster.start_as_configured(operator.node(BROKER))
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_file_that_is_mended_while_the_gate_waits_counts(operator: Operator) -> None:
    """The broker does not come back with what the rollout has written; somebody writes what it does come back with."""
    operator.apply(StopAt(Phase.START))
    operator.cluster.overridden[BROKER] = {VOTERS: OTHER}
    node = operator.node(BROKER)
    looks = 0
    observe = operator.cluster.observe

    async def looked(*, partitions: bool = True) -> object:
        nonlocal looks
        looks += f"migrate/{BROKER}: waits" in "".join(operator.said)
        if looks == 1:
            key = BROKER, node.properties
            operator.cluster.files[key] = operator.cluster.files[key].replace(b"3001@c:9093", OTHER.encode())
            operator.cluster.start_as_configured(node)
        return await observe(partitions=partitions)

    operator.cluster.observe = looked  # type: ignore[method-assign,assignment]
    operator.resume_until(Phase.MIGRATE)
    assert looks


def test_a_login_that_may_not_look_is_said_and_holds_nothing_up(operator: Operator) -> None:
    operator.cluster.hides_settings = True
    operator.inventory = with_level(operator.cluster.inventory)
    operator.cluster.overridden[BROKER] = {VOTERS: OTHER}
    assert operator.apply() is Ending.COMPLETE
    told = [line for line in operator.said if "could not be looked at (CLUSTER_AUTHORIZATION_FAILED)" in line]
    assert len({line for line in told if line.startswith(f"migrate/{BROKER}: {BROKER}: ")}) == 1


def test_secrets_are_compared_by_their_presence_and_that_is_said(operator: Operator) -> None:
    operator.apply(StopAt(Phase.MIGRATE))
    assert [line for line in operator.said if "does not show the values of zookeeper.ssl.keystore.password" in line]
