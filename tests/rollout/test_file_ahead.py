"""A broker's file is in KRaft mode already as its step of `migrate` comes: right behind the copy, wrong before it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.config.properties import decoded, encoded
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.decisions import FileAheadError
from migrator.rollout.engine.preview import gather, preview
from migrator.rollout.journal.progress import Progress
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-3"
IN_ZOOKEEPER = ("broker.id=", "zookeeper.", "inter.broker.protocol.version", "authorizer.class.name")
IN_KRAFT = """node.id=3
process.roles=broker
controller.listener.names=CONTROLLER
controller.quorum.voters=3001@c:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""


@pytest.fixture(params=["stock", "migrator"])
def operator(tmp_path: Path, request: pytest.FixtureRequest) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory(kind=request.param, handover=False)), tmp_path / "state")


def set_ahead(operator: Operator) -> bytes:
    """By hand; gives what was there."""
    node = operator.node(BROKER)
    old = operator.cluster.files[node.name, node.properties]
    kept = [line for line in decoded(old).splitlines(keepends=True) if not line.startswith(IN_ZOOKEEPER)]
    operator.cluster.files[node.name, node.properties] = encoded("".join(kept) + IN_KRAFT)
    return old


@pytest.mark.parametrize("runs", [True, False])
def test_before_the_copy_nothing_is_begun(operator: Operator, *, runs: bool) -> None:
    old, node = set_ahead(operator), operator.node(BROKER)
    if not runs:
        operator.cluster.crash(node)
    before = operator.cluster.restarts.copy()
    with pytest.raises(FileAheadError, match="in KRaft mode, and nothing is copied yet") as raised:
        operator.apply()
    assert raised.value.where == f"{BROKER} on {node.host}: {node.properties}"
    assert operator.cluster.restarts == before
    operator.cluster.files[node.name, node.properties] = old
    assert operator.apply() is Ending.COMPLETE
    assert not operator.cluster.violations


@pytest.mark.parametrize("runs", [True, False])
def test_who_changes_it_later_is_named_as_its_step_comes(operator: Operator, *, runs: bool) -> None:
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    old, node = set_ahead(operator), operator.node(BROKER)
    if not runs:
        operator.cluster.crash(node)
    before = operator.cluster.restarts[BROKER]
    with pytest.raises(FileAheadError, match="in KRaft mode, and nothing is copied yet"):
        operator.apply()
    assert operator.cluster.restarts[BROKER] == before
    assert "in KRaft mode" in str(operator.entries[-1].details["what"])
    operator.cluster.files[node.name, node.properties] = old
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@pytest.mark.parametrize("restarted", [True, False])
def test_behind_the_copy_it_was_only_taken_further(operator: Operator, tmp_path: Path, *, restarted: bool) -> None:
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    set_ahead(operator)
    if restarted:
        operator.cluster.start_as_configured(operator.node(BROKER))
    (tmp_path / "another").mkdir()
    operator.state, operator.lock.owner = tmp_path / "another", None
    assert operator.apply() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.KRAFT}
    assert not operator.cluster.violations


def test_plan_asks_for_no_backup_of_a_mode_that_is_behind(operator: Operator) -> None:
    """The journal is lost behind the roll to KRaft, and nobody may list the directory."""
    operator.resume_until(Phase.KRAFT)
    (operator.state / COMMAND_FILE).unlink()
    operator.cluster.exit_codes["ls"] = 2
    parts = operator.parts()
    steps = [step for step in plan(parts.inventory, Direction.FORWARD, "") if step.phase is Phase.MIGRATE]
    facts = asyncio.run(gather(parts, steps, Progress()))
    shown = preview(parts, steps, Progress(), facts)
    assert [each.changes for each in shown] == [()] * len(parts.inventory.brokers.nodes)
