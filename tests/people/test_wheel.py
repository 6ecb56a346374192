"""Installed like other tools: a wheel, in an environment of its own, without what only verify and the drill need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cli.main import COMMANDS, EXTRAS
from migrator.errors import ExitCode
from migrator.parts.processes import free_port
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
QUIET = ("--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of what git tracks, so that nothing made by hand gets into it."""
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    copy = ["tar", "--create", "--ignore-failed-read", "--files-from", "-"]
    archive = subprocess.run(copy, cwd=ROOT, input=tracked.stdout, capture_output=True, check=True)
    subprocess.run(["tar", "--extract"], cwd=source, input=archive.stdout, check=True)
    run(sys.executable, "-m", "pip", "wheel", *QUIET, "--no-deps", "--no-build-isolation", "-w", wheels, source)
    (built,) = wheels.glob("*.whl")
    return built


def with_pip(wheel: Path, directory: Path) -> Path:
    run(sys.executable, "-m", "venv", directory / "venv")
    run(directory / "venv/bin/python", "-m", "pip", "install", *QUIET, wheel)
    return directory / "venv/bin/migrator"


def with_pipx(wheel: Path, directory: Path) -> Path:
    run(sys.executable, "-m", "venv", directory / "pipx")
    run(directory / "pipx/bin/python", "-m", "pip", "install", *QUIET, "pipx")
    places = {"PIPX_HOME": str(directory / "home"), "PIPX_BIN_DIR": str(directory / "bin")}
    run(directory / "pipx/bin/pipx", "install", "--python", sys.executable, wheel, environment=places)
    return directory / "bin/migrator"


ROADS = {"pip": with_pip, "pipx": with_pipx}


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd="/",
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("pip", marks=pytest.mark.lane("test-all")),
        pytest.param("pipx", marks=pytest.mark.lane("test-long")),
    ],
)
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ROADS[request.param](wheel, tmp_path_factory.mktemp(request.param))


def test_every_command_explains_itself(installed: Path) -> None:
    """Also those that do their work only with an extra."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(installed, "--version") == f"migrator, version {version}\n"
    for name in COMMANDS:
        answer = subprocess.run([installed, name, "--help"], cwd="/", capture_output=True, text=True, check=False)
        if name == "drill":
            assert answer.returncode == ExitCode.REFUSED
            assert "pip install 'kraft-migrator[drill]'" in answer.stderr
        else:
            assert answer.returncode == ExitCode.OK, answer.stderr
            assert f"Usage: migrator {name}" in answer.stdout


@pytest.mark.parametrize("arguments", [("verify", "--metadata", "nothing"), ("rehearse",)])
def test_a_command_names_the_extra_that_it_needs(installed: Path, arguments: tuple[str, ...]) -> None:
    """Before it does anything."""
    command: list[str | Path] = [installed, *arguments, "--zookeeper", "nowhere:1"]
    answer = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert answer.returncode == ExitCode.REFUSED
    assert "pip install 'kraft-migrator[verify]'" in answer.stderr
    assert "needs the packages of the extra [verify]" in answer.stderr
    assert "Install the wheel of migrator again with this extra: pip install 'WHEEL[verify]'" in answer.stderr
    assert set(EXTRAS.values()) == {"verify", "drill"}


@pytest.fixture
def controller(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """The property file of a controller that was formatted and runs."""
    port, file = free_port(), tmp_path / "controller.properties"
    file.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
        f"log.dirs={tmp_path / 'metadata'}\n"
    )
    run(installed, "format", "-c", file, "-t", "9egfFDzKSbaonHwNn88EuQ", "--standalone")
    with (tmp_path / "controller.log").open("w") as log:
        process = subprocess.Popen([installed, "controller", "-c", file], cwd="/", stdout=log, stderr=log)
    try:
        yield file
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_a_controller_starts_leads_and_is_asked(installed: Path, controller: Path) -> None:
    command: list[str | Path] = [installed, "quorum", "describe", "-c", controller, "--json"]
    deadline, said = time.monotonic() + PATIENCE_SECONDS, ""
    while '"leader_id": 1' not in said:
        assert time.monotonic() < deadline, said
        answer = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        said = answer.stdout + answer.stderr
    assert json.loads(run(installed, "status", "-c", controller, "--json"))
