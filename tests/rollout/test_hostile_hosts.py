"""A host that is broken, or whose owner is hostile, may answer anything: the rollout says which host it is, and notes
that it has stopped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from migrator.config.properties import decoded
from migrator.errors import OperatorError
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.files.archive import keep_output
from migrator.rollout.files.property_files import earlier_of
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.jobs import figures
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.steps import Job, Phase
from migrator.rollout.ports import ExecutorError, Output
from migrator.rollout.seeing.leader_says import of_json
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER, CONTROLLER = "broker-2", "controller-3001"
FILE = BROKER, "/etc/b2.properties"
OTHERS = BROKER, "/etc/b2.properties.before-migrate.other"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


@pytest.fixture
def migrating(operator: Operator) -> Operator:
    """The file of a broker is for the migration mode, and another rollout has kept it as it was."""
    files = operator.cluster.files
    files[OTHERS] = files[FILE]
    files[FILE] += b"zookeeper.metadata.migration.enable=true\n"
    return operator


def earlier(operator: Operator, rollout: str = "own") -> bytes | None:
    node, text = operator.node(BROKER), decoded(operator.cluster.files[FILE])
    return asyncio.run(earlier_of(operator.cluster, node, FileMode.BROKER_ZOOKEEPER, rollout, text))


def test_a_directory_that_may_not_be_listed_is_not_one_without_a_backup(migrating: Operator) -> None:
    cluster = migrating.cluster
    cluster.exit_codes["ls"] = 1
    with pytest.raises(ExecutorError, match="it is unknown whether another rollout has kept") as raised:
        earlier(migrating)
    assert BROKER in raised.value.where
    assert "/etc/b2.properties.before-migrate.own" in raised.value.remedy
    with pytest.raises(ExecutorError) as raised:
        earlier(migrating, rollout="")
    assert ".before-" not in raised.value.remedy
    cluster.exit_codes.clear()
    assert earlier(migrating) == cluster.files[OTHERS]


@pytest.mark.parametrize("name", ["/x", "/../../../etc/shadow", "a\x1b[2J", "/", "\u202e"])
def test_a_listed_name_that_is_none_is_not_taken(migrating: Operator, name: str) -> None:
    migrating.cluster.prints["ls"] = f"b2.properties.before-{name}\nb2.properties.before-migrate.other\n"
    assert earlier(migrating) == migrating.cluster.files[OTHERS]
    migrating.cluster.prints["ls"] = f"b2.properties.before-{name}\n"
    assert earlier(migrating) is None


REPORTS = [
    {"forecast": {"dual_write": {"seconds": 1e300}}},
    {"forecast": {"dual_write": {"seconds": 1 << 53}}},
    {"forecast": {"dual_write": {"seconds": -1}}},
    {"forecast": {"dual_write": {"seconds": 1, "error": "x"}}},
    {"forecast": {"dual_write": {"seconds": True}}},
    {"forecast": {"dual_write": [1]}},
    {"forecast": "x"},
]


def is_noted(operator: Operator, error: OperatorError, host: str) -> None:
    assert host in error.where
    last = operator.entries[-1]
    assert last.event is Event.FAILED
    assert last.details["where"] == error.where


@pytest.mark.parametrize("report", REPORTS, ids=str)
def test_a_report_with_impossible_figures_is_a_failure(operator: Operator, report: dict[str, object]) -> None:
    operator.cluster.prints["rehearse"] = json.dumps(report)
    with pytest.raises(JobFailedError, match=r"is no report of this program: (forec|dual|sec|err)") as raised:
        operator.apply()
    is_noted(operator, raised.value, CONTROLLER)
    assert Path(raised.value.output).exists()
    operator.cluster.prints.clear()
    operator.resume_until(Phase.START)


@pytest.mark.parametrize("differences", ["0", 1e300, [0], False])
def test_a_comparison_with_an_impossible_figure_is_a_failure(operator: Operator, differences: object) -> None:
    operator.cluster.prints["verify"] = json.dumps({"differences": differences})
    with pytest.raises(JobFailedError, match="verify printed is no report of this program: differences ") as raised:
        operator.apply()
    is_noted(operator, raised.value, CONTROLLER)


@pytest.mark.parametrize("depth", [300, 1000, 100_000])
def test_a_report_that_nests_deep_ends_nothing(operator: Operator, depth: int) -> None:
    operator.cluster.prints["rehearse"] = '{"a":' * depth + "1" + "}" * depth
    operator.resume_until(Phase.START)


def test_what_a_command_printed_is_kept_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    kept = keep_output(tmp_path, "verify/a", Output(1, "one\x1b]0;owned\x07\r\n\tat two\u202e\n", "\x9b2J\x00three\n"))
    assert kept.read_text() == "one\\x1b]0;owned\\x07\n        at two\\u202e\n\n\\x9b2J\\x00three\n"


def test_what_the_leader_says_is_bounded() -> None:
    content = {
        "node_id": 1,
        "cluster_id": "c" * 9999,
        "quorum": {"leader_id": 1, "leader_epoch": 1},
        "migration": {"public_state": "s" * 9999, "internal_state": "s" * 9999},
        "write_behind": {"lag_records": 1},
        "problems": [{"who": "w" * 9999, "what": "x" * 99_999, "warning": False}] * 999,
    }
    says = of_json(content)
    assert says is not None
    assert len(repr(says)) < 250_000


@pytest.mark.parametrize("report", ["x", {}, [], {"dual_write": "y"}, None])
def test_figures_of_any_report_are_numbers_or_an_error(report: object) -> None:
    for job in Job:
        try:
            found = figures(job, {"forecast": report, "differences": report})
        except ValueError:
            continue
        assert all(isinstance(number, int) for number in found.values())
