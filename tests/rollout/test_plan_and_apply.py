"""`apply` does the steps that `plan` shows, wherever a rollout begins or goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.config.properties import decoded, encoded
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.preview import gather, preview
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.plan.modes import FileMode, ModeSettings, rewritten
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Act, Direction, Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

Acts = Counter[tuple[str, str]]
STARTS = (Act.START, Act.RESTART)


def shown(operator: Operator, until: Phase, direction: Direction) -> Acts:
    """By node: how many times `plan` says that its file is written, and that its process is stopped or started."""
    parts, progress = operator.parts(), progress_of(operator.entries)
    steps, order = plan(parts.inventory, direction), list(Phase)
    found = preview(parts, steps, progress, asyncio.run(gather(parts, steps, progress)))
    acts: Acts = Counter()
    for one in found:
        if one.changes_a_node and order.index(one.step.phase) <= order.index(until) and one.step.node is not None:
            name, left = one.step.node.name, {*one.step.acts} - one.left
            acts[name, "written"] += Act.EDIT in left
            acts[name, "started"] += len(left & {*STARTS})
            acts[name, "stopped"] += Act.STOP in left
    return +acts


def assert_it_does_what_it_shows(
    operator: Operator, until: Phase, go: Callable[[], Ending], direction: Direction = Direction.FORWARD
) -> Acts:
    """
    :returns: what it does.
    """
    seen, said, restarts = shown(operator, until, direction), len(operator.said), operator.cluster.restarts.copy()
    assert go() in (Ending.REACHED, Ending.COMPLETE)
    files = {node.properties: node.name for node in operator.cluster.inventory.nodes}
    done: Acts = Counter()
    for words in (line.split() for line in operator.said[said:]):
        done[files.get(words[-1], ""), "written"] += words[-2:-1] == ["writes"] and words[-1] in files
        done[words[-1], "stopped"] += words[-2:-1] == ["stops"]
    for name, count in (operator.cluster.restarts - restarts).items():
        done[name, "started"] += count
    assert seen == +done
    return +done


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


def loses_journal(operator: Operator) -> None:
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None


@pytest.mark.parametrize("reached", [Phase.START, Phase.MIGRATE, Phase.SOAK, Phase.KRAFT, Phase.VERIFY])
@pytest.mark.parametrize("lost", [False, True], ids=["goes on", "journal is lost"])
def test_from_the_middle(operator: Operator, reached: Phase, *, lost: bool) -> None:
    """Brokers that run in the mode that is wanted are left as they run, and so it is shown."""
    assert operator.apply(StopAt(reached)) is Ending.REACHED
    if lost:
        loses_journal(operator)
        assert operator.apply(StopAt(Phase.PREFLIGHT)) is Ending.REACHED
    acts = assert_it_does_what_it_shows(operator, Phase.VERIFY, lambda: operator.apply(StopAt(Phase.VERIFY)))
    expected = {Phase.START: 2, Phase.MIGRATE: 1, Phase.SOAK: 1}.get(reached, 0)
    assert [acts[f"broker-{number}", "started"] for number in (1, 2, 3)] == [expected] * 3


@pytest.mark.parametrize("kept", [1, 3])
def test_what_was_begun_by_hand(operator: Operator, kept: int) -> None:
    """The operator has restarted brokers in migration mode by hand, before the first rollout."""
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    inventory = operator.cluster.inventory
    settings = ModeSettings(inventory.brokers.settings, "PLAINTEXT", "zk:2181", "")
    for node in inventory.brokers.nodes[:kept]:
        text = decoded(operator.cluster.files[node.name, node.properties])
        migrating = rewritten(node, text, FileMode.BROKER_MIGRATING, settings)
        operator.cluster.files[node.name, node.properties] = encoded(migrating)
        operator.cluster.start_as_configured(node)
    loses_journal(operator)
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    acts = assert_it_does_what_it_shows(operator, Phase.COPY, lambda: operator.apply(StopAt(Phase.COPY)))
    assert sum(acts.values()) == 2 * (3 - kept), "of each other one, the file and the process"


@pytest.mark.parametrize("where", ["begun", "after restart", "done"])
@pytest.mark.parametrize("name", ["migrate/broker-2", "kraft/broker-2"])
def test_a_command_that_was_killed_in_a_step(operator: Operator, name: str, where: str) -> None:
    """The begun act is looked at: if its effect is there, nothing is left to do."""
    node = name.partition("/")[2]
    point = {
        "begun": f"after begun {name} restart",
        "after restart": f"before done {name} restart",
        "done": f"after done {name} restart",
    }[where]
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    operator.interrupted_at(point, KeyboardInterrupt())
    assert_it_does_what_it_shows(operator, Phase.KRAFT, lambda: operator.apply(StopAt(Phase.KRAFT)))
    assert operator.cluster.restarts[node] == 1 + 2, "as it was there at first, and once for each mode"


def test_settings_that_were_corrected_in_the_middle_of_a_step(operator: Operator) -> None:
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    operator.interrupted_at("after done migrate/broker-2 restart", KeyboardInterrupt())
    brokers = operator.cluster.inventory.brokers
    settings = {**brokers.settings, "controller.quorum.voters": "3001@right:9093"}
    operator.inventory = replace(operator.cluster.inventory, brokers=replace(brokers, settings=settings))
    acts = assert_it_does_what_it_shows(operator, Phase.MIGRATE, lambda: operator.apply(StopAt(Phase.MIGRATE)))
    assert acts["broker-2", "written"] == acts["broker-2", "started"] == 1


@pytest.mark.parametrize("reached", [Phase.MIGRATE, Phase.KRAFT])
def test_the_way_back(operator: Operator, reached: Phase) -> None:
    assert operator.apply(StopAt(reached)) is Ending.REACHED
    assert_it_does_what_it_shows(operator, Phase.LEAVE_MIGRATION, operator.rollback, Direction.BACK)
