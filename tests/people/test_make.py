"""`make` on a machine where something is missing: one sentence that names it, what to do, and nothing half done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from migrator.parts.processes import free_port

ROOT = Path(__file__).parents[2]


def project(directory: Path) -> Path:
    """What `make` needs of the project, where it may be installed."""
    for name in ("deploy/make-environment", "requirements.lock", "deploy/drill.lock", "pyproject.toml", "Makefile"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, directory / name)
    return directory


def program(directory: Path, name: str, says: str, code: int = 0) -> Path:
    """A program that says something, to be found before the real one."""
    file = directory / "bin" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    file.chmod(0o755)
    return file


def make(directory: Path, *words: str, **environment: str) -> str:
    """What `make setup` says on standard error; it has to fail."""
    path = {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "setup", *words],
        cwd=directory,
        env=os.environ | path | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert not (directory / ".venv/.ready").exists()
    return done.stderr


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = make(project(tmp_path), "PYTHON=/no/such/python")
    assert "PYTHON=/no/such/python: this program cannot be run. Name a Python 3.11 or newer" in said


def test_a_python_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    old = program(project(tmp_path), "old-python", "Python 3.9.2", code=1)
    old.write_text(old.read_text().replace("exit 1", '[ "$1" = --version ]'))
    said = make(tmp_path, f"PYTHON={old}")
    assert f"PYTHON={old} is Python 3.9.2, and Python 3.11 or newer is needed, up to 3.13" in said


@pytest.mark.parametrize(
    ("version", "is_taken"), [((3, 10), False), ((3, 11), True), ((3, 13), True), ((3, 14), False)]
)
def test_make_and_the_package_take_the_same_releases_of_python(version: tuple[int, int], is_taken: bool) -> None:
    """`make` asks with a line of Python, the package with `requires-python`."""
    question = re.search(r"-c 'import sys; (.*)' 2>", (ROOT / "deploy/make-environment").read_text(encoding="utf-8"))
    assert question is not None
    program = f"import sys; sys.version_info = {(*version, 0, 'final', 0)}; {question[1]}"
    asked = subprocess.run([sys.executable, "-c", program], check=False)
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert (asked.returncode == 0) is is_taken
    assert SpecifierSet(required).contains(".".join(map(str, version))) is is_taken


def test_the_workflow_tests_every_release_of_python_that_the_package_takes() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["check-and-test"]["strategy"]["matrix"]["python"]
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert [f"3.{minor}" for minor in range(30) if SpecifierSet(required).contains(f"3.{minor}")] == tested


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("", "no Java was found on the PATH"),
        ('openjdk version "11.0.2" 2019-01-15', 'Java on the PATH is too old (openjdk version "11.0.2" 2019-01-15)'),
    ],
)
def test_java_that_is_missing_or_too_old_is_named(tmp_path: Path, says: str, expected: str) -> None:
    program(project(tmp_path), "java", says, code=0 if says else 127)
    said = make(tmp_path)
    assert expected in said
    assert "Java 17 or newer" in said


@pytest.mark.lane("test-all")
def test_a_package_index_that_is_not_reachable_is_said_and_a_broken_environment_is_made_anew(tmp_path: Path) -> None:
    (project(tmp_path) / ".venv/bin").mkdir(parents=True)
    broken = tmp_path / ".venv/bin/python"
    broken.symlink_to("/no/such/python")
    nowhere = {"PIP_INDEX_URL": f"http://127.0.0.1:{free_port()}/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    said = make(tmp_path, f"PYTHON={sys.executable}", PIP_CONFIG_FILE=os.devnull, **nowhere)
    assert "the package index is not reachable" in said
    assert "run the same command again" in said
    version = subprocess.run([broken, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("Python 3.")
