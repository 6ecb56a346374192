"""Every alert, judged by Prometheus itself over planted series: it fires when it must, and not a moment before."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_files import DEPLOY, rules

RULES = DEPLOY / "prometheus/alerts.yaml"
BY_NAME = {rule["alert"]: rule for rule in rules()}
Case = dict[str, Any]
CASES: list[Case] = yaml.safe_load((Path(__file__).parent / "testdata/alert_series.yaml").read_text(encoding="utf-8"))
STEP = "15s"
UP_IF_NOT_SAID = {'up{job="kraft-migrator", instance="c1"}': "1x6000"}
"""Of Prometheus itself, for each target that it scrapes."""
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None and "CI" not in os.environ, reason="no promtool here (Debian's prometheus has it)"
)


def promtool(*arguments: str, cwd: Path = DEPLOY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def expected(alert: str, labels: dict[str, str]) -> dict[str, Any]:
    rule = BY_NAME[alert]
    return {"exp_labels": labels | rule["labels"], "exp_annotations": rule["annotations"]}


def as_promtool(case: Case, judged: set[str]) -> dict[str, Any]:
    """One test of promtool's. Of the alerts that are judged, those that the case does not name must be silent."""
    fires = {case["alert"]: case.get("fires", [])}
    return {
        "name": f"{case['alert']}: {case['what']}",
        "interval": case.get("step", STEP),
        "input_series": [
            {"series": series, "values": str(values)} for series, values in (UP_IF_NOT_SAID | case["series"]).items()
        ],
        "alert_rule_test": [
            {
                "eval_time": case["at"],
                "alertname": alert,
                "exp_alerts": [expected(alert, labels) for labels in fires.get(alert, [])],
            }
            for alert in sorted(judged - set(case.get("also", [])))
        ],
    }


def judge(place: Path, judged: list[dict[str, Any]], cases: list[Case], step: str = STEP) -> str:
    """Promtool's complaints about these rules, evaluated as often as is scraped; "" without one."""
    names = {rule["alert"] for rule in judged}
    (place / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": judged}]}), encoding="utf-8")
    tests = [as_promtool(case, names) for case in cases]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": step, "tests": tests}
    (place / "test.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    done = promtool("test", "rules", "test.yaml", cwd=place)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert f"{len(BY_NAME)} rules found" in done.stdout, done.stderr


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {case["alert"] for case in CASES if case.get("fires")} == BY_NAME.keys()
    assert {case["alert"] for case in CASES if not case.get("fires")} == BY_NAME.keys()


@pytest.mark.lane("test-all")
@needs_promtool
def test_alerts_fire_on_what_was_scraped_and_no_others_do(tmp_path: Path) -> None:
    assert judge(tmp_path, rules(), [case for case in CASES if "step" not in case]) == ""


@pytest.mark.lane("test-all")
@needs_promtool
@pytest.mark.parametrize("case", [case for case in CASES if "step" in case], ids=lambda case: case["what"])
def test_an_alert_waits_for_days(case: Case, tmp_path: Path) -> None:
    assert judge(tmp_path, [BY_NAME[case["alert"]]], [case], case["step"]) == ""


@pytest.mark.lane("test-all")
@needs_promtool
@pytest.mark.parametrize("alert", ["NoActiveController", "ZooKeeperDoesNotFollow", "ControllerLags"])
def test_a_rule_that_never_fires_is_found(alert: str, tmp_path: Path) -> None:
    """That the cases judge, and not only agree."""
    broken = BY_NAME[alert] | {"expr": f"({BY_NAME[alert]['expr']}) and vector(0) > 1"}
    found = judge(tmp_path, [broken], [case for case in CASES if case["alert"] == alert])
    assert f"alertname: {alert}" in found
