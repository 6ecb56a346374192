"""`migrator handover check`: its exit code says whether a handover can begin."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.errors import ExitCode
from migrator.parts.processes import free_port
from tests.cli.test_main import process, run


@pytest.mark.parametrize(
    ("check", "options", "said"),
    [
        (process, (), "every other voter must have every committed record first"),
        (run, ("--to", "4.1.0"), "refuse: Kafka 4.1.0 cannot join a quorum of this program. Use --way directory"),
    ],
)
def test_what_prevents_a_handover_is_an_exit_code_of_its_own(
    check: Callable[..., subprocess.CompletedProcess[str]], options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """The controller is formatted and does not run."""
    port, file = free_port(), tmp_path / "controller.properties"
    file.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
        f"log.dirs={tmp_path / 'metadata'}\n"
    )
    assert run("format", "-c", str(file), "-t", "9egfFDzKSbaonHwNn88EuQ").returncode == ExitCode.OK
    done = check("handover", "check", "-c", str(file), *options)
    assert said in done.stdout, done.stdout + done.stderr
    assert done.returncode == ExitCode.DIFFERENT
    assert list(tmp_path.glob("*.stock.properties")) == []
