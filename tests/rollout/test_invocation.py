"""The output of the ready-made ``incarnation`` of systemd's presets, run by a shell.

A script stands in for ``systemctl``: it prints what systemd 219 or 255 does, and proves the words of the script, not
systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from migrator.rollout.executors.scripts import INVOCATION, NO_SUCH_UNIT, NOT_NAMED

ID = "5c2c7eb1f8e04a1b8a2f3a6b1f0c9d2e"
OLD = "LoadState=loaded\nActiveState={state}\nExecMainPID={pid}\nExecMainStartTimestampMonotonic={since}\n"
NEW = OLD + "InvocationID={id}\n"
"""As systemd prints it: what it does not know, it leaves out, and succeeds."""


@pytest.fixture(params=["sh", "bash", "busybox"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    found = shutil.which(request.param)
    if found is None and "CI" not in os.environ:
        pytest.skip(f"there is no {request.param} here")
    return [str(found), *(["sh"] if request.param == "busybox" else [])]


def asked(tmp_path: Path, shell: list[str], shown: str) -> tuple[int, str]:
    """Exit code and output of the script."""
    (tmp_path / "shown").write_text(shown)
    stand_in = tmp_path / "systemctl"
    stand_in.write_text(f"#!/bin/sh\ncat '{tmp_path}/shown'\n")
    stand_in.chmod(0o755)
    words = [*shell, "-c", INVOCATION, "migrator", "kafka.service"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout.strip()


@pytest.mark.parametrize("state", ["active", "activating", "deactivating", "reloading"])
def test_a_unit_of_an_old_systemd_runs_and_each_start_is_another_one(
    tmp_path: Path, shell: list[str], state: str
) -> None:
    """systemd 219 of RHEL 7 and Amazon Linux 2. A broker that "does not run" would never be restarted, and a controller
    would count as stopped."""
    first = asked(tmp_path, shell, OLD.format(state=state, pid=4711, since=99))
    again = asked(tmp_path, shell, OLD.format(state=state, pid=4711, since=99))
    other = asked(tmp_path, shell, OLD.format(state=state, pid=4711, since=100))
    assert first == again == (0, "4711-99")
    assert other == (0, "4711-100")


@pytest.mark.parametrize("shown", [OLD, NEW])
@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_unit_that_does_not_run_prints_nothing(tmp_path: Path, shell: list[str], state: str, shown: str) -> None:
    assert asked(tmp_path, shell, shown.format(state=state, pid=4711, since=99, id="")) == (0, "")


def test_a_new_systemd_has_its_own_id(tmp_path: Path, shell: list[str]) -> None:
    assert asked(tmp_path, shell, NEW.format(state="active", pid=4711, since=99, id=ID)) == (0, ID)


@pytest.mark.parametrize(
    "shown",
    [
        OLD.format(state="active", pid=0, since=0),
        OLD.format(state="activating", pid="", since=""),
        "LoadState=loaded\nActiveState=active\nInvocationID=\n",
        "LoadState=loaded\n",
        "",
    ],
)
def test_nobody_knows_is_not_nothing_runs(tmp_path: Path, shell: list[str], shown: str) -> None:
    assert asked(tmp_path, shell, shown)[0] == NOT_NAMED


def test_a_unit_that_systemd_does_not_know(tmp_path: Path, shell: list[str]) -> None:
    assert asked(tmp_path, shell, "LoadState=not-found\nActiveState=inactive\n") == (NO_SUCH_UNIT, "")
