"""The rule of sudo that the page gives has every command that a rollout runs with it, and no other one."""

from __future__ import annotations

import re

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.plan.steps import Phase
from tests.results import ROOT
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

PAGE = (ROOT / "docs" / "rollout-executors.md").read_text(encoding="utf-8").partition("\n## sudo\n")[2]
RULE = re.compile(r"^rollout ALL=\((\w+)\) NOPASSWD: (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (root|kafka) \| ([^|]+) \|", re.MULTILINE)
PREFIX = re.compile(r"\{\*(sudo|run_as)(?:!q)?\} (\S+)")
LOG = "broker-2", "/data/broker-2/__cluster_metadata-0/00000000000000000000.log"
Allowed = set[tuple[str, str]]


def ruled() -> Allowed:
    (block,) = re.findall(r"```sudoers\n(.*?)```", PAGE, re.DOTALL)
    return {(who, path.strip().rpartition("/")[2]) for who, paths in RULE.findall(block) for path in paths.split(",")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Programs that whole rollouts run on hosts: forward and back, with our controllers and with Kafka's."""
    found = {"migrator"}
    for kind, back in (("migrator", False), ("migrator", True), ("stock", False), ("stock", True)):
        cluster = ModelCluster(model_inventory(kind=kind, handover=kind == "migrator"))
        cluster.files[LOG] = b"old"
        operator = Operator(cluster, tmp_path_factory.mktemp("state"))
        if back:
            operator.apply(StopAt(Phase.KRAFT))
            cluster.files[LOG] = b"of the quorum"
        assert (operator.rollback() if back else operator.apply()) is Ending.COMPLETE
        found |= {words[0] for words in cluster.commands}
    return found


@pytest.mark.parametrize("preset", ["systemd", "ssh-systemd"])
def test_the_rule_has_what_runs_with_sudo_and_nothing_else(preset: str, run: set[str]) -> None:
    users = {"sudo": "root", "run_as": "kafka"}
    started: Allowed = set()
    for template in PRESETS[preset].commands.values():
        for variable, program in PREFIX.findall(template):
            programs = run if program.startswith("{*words") else {program}
            started |= {(users[variable], each) for each in programs}
    assert ruled() == started
    assert {PRESETS[preset].variables[name] for name in users} == {"sudo -n", "sudo -n -u kafka"}


def test_the_table_has_what_the_rule_has() -> None:
    assert {(who, name) for who, names in ROW.findall(PAGE) for name in re.findall("`([^`]+)`", names)} == ruled()
