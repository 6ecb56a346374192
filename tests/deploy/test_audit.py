"""The lock is looked up for known vulnerabilities, and a lock that was not is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.support.audit import LOCK, RECORD, exit_code, fault, main, record_of
from tests.deploy.test_files import ROOT

CLEAN = {"name": "kazoo", "version": "2.11.0", "vulns": []}
VULNERABLE = {"name": "jinja2", "version": "3.1.2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.6"]}]}
SKIPPED = {"name": "click", "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.5.1)"}


def test_the_record_is_of_this_lock_and_make_check_looks() -> None:
    assert fault(json.loads(RECORD.read_text(encoding="utf-8")), LOCK.read_bytes()) == ""
    assert "$(BIN)/python -m tests.deploy.support.audit\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert main([]) == 0


def test_a_lock_that_was_changed_after_its_audit_is_refused_with_what_to_do() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    said = fault(record, LOCK.read_bytes().replace(b"==", b"== ", 1))
    assert record["date"] in said
    assert "python tests/deploy/support/audit.py PATH_OF_PIP_AUDIT" in said


@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([CLEAN], 0),
        ([CLEAN, VULNERABLE], 1),
        ([SKIPPED, VULNERABLE], 1),
        ([CLEAN, SKIPPED], 2),
        ([SKIPPED], 2),
        ([], 2),
    ],
)
def test_what_was_not_looked_up_does_not_pass_for_clean(packages: list[dict[str, object]], code: int) -> None:
    """pip-audit itself ends with 0 for a source that knows no package."""
    record = record_of({"dependencies": packages}, "pip-audit 2", b"lock", "2026-01-02")
    assert exit_code(record) == code
    assert record["vulnerabilities"] == (["jinja2 PYSEC-1"] if VULNERABLE in packages else [])
    assert record["not_looked_up"] == (["click"] if SKIPPED in packages else [])


def test_the_command_writes_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in pip-audit's place: here its source need not be reached."""
    program = tmp_path / "pip-audit"
    answer = json.dumps({"dependencies": [CLEAN], "fixes": []})
    program.write_text(
        f"#!{sys.executable}\nimport sys\nprint('pip-audit 2' if '--version' in sys.argv else '{answer}')\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr("tests.deploy.support.audit.RECORD", tmp_path / "audit.json")
    assert main([str(program)]) == 0
    record = json.loads((tmp_path / "audit.json").read_text())
    assert (record["tool"], record["looked_up"]) == ("pip-audit 2", ["kazoo 2.11.0"])
    assert fault(record, LOCK.read_bytes()) == ""


def test_the_workflow_calls_it_without_this_projects_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "tests/deploy/support/audit.py"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert 'python tests/deploy/support/audit.py "$RUNNER_TEMP/sbom/bin/pip-audit"\n' in workflow
    assert "pip-audit==" in (ROOT / ".github/sbom-requirements.lock").read_text(encoding="utf-8")
