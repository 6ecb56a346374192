"""The steps of the Dockerfile, executed where there is no registry: below a folder of their own, on this Python.

The base image, its system packages and its user are not there; the steps that make those are only looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from migrator.cli.main import COMMANDS, EXTRAS
from tests.deploy.test_files import ROOT, entry_point, ignore_lines, stages

DIGEST = "python:3.11-slim-bookworm@sha256:" + "0" * 64


class Builder:
    """Executes instructions of one stage below ``root``."""

    def __init__(self, root: Path, base: str = DIGEST) -> None:
        self.root = root
        self._where = root
        python = root / "bin"
        python.mkdir(parents=True)
        (python / "python").symlink_to(sys.executable)
        self._env = {"PATH": f"{python}:{os.environ['PATH']}", "HOME": str(root), "PYTHON_IMAGE": base}

    def inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def run(self, name: str, rest: str) -> None:
        if name == "WORKDIR":
            self._where = self.inside(rest)
            self._where.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                self._copy(source, target)
        elif name == "RUN":
            self.shell(rest)

    def shell(self, command: str) -> None:
        for place in ("/build", "/opt/kraft-migrator"):
            command = command.replace(f" {place}", f" {self.root}{place}")
        command = command.replace(" --no-cache-dir", "")  # what was fetched once is enough here
        subprocess.run(["sh", "-ec", command], cwd=self._where, env=self._env, check=True, capture_output=True)

    def _copy(self, source: str, target: str) -> None:
        """As Docker: into a folder if the target ends with a slash, and without what is ignored."""
        found, place = ROOT / source, self.inside(target)
        place = place / found.name if target.endswith("/") else place
        place.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            shutil.copytree(found, place, ignore=_ignored)
        else:
            shutil.copy(found, place)


def _ignored(directory: str, names: list[str]) -> set[str]:
    """Of these, what the lines of .dockerignore leave out."""
    below = Path(directory).relative_to(ROOT)
    patterns = [line for line in ignore_lines() if line[0] not in "#!" and line != "*"]
    return {
        name
        for name in names
        for pattern in patterns
        if fnmatch(str(below / name), pattern) or fnmatch(name, pattern.removeprefix("**/"))
    }


@pytest.mark.parametrize("base", ["python:3.11-slim-bookworm", "python@sha256:abc", ""])
def test_an_image_on_a_tag_is_not_built(base: str, tmp_path: Path) -> None:
    check = next(rest for name, rest in stages()["build"] if name == "RUN")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        Builder(tmp_path / "image", base).shell(check)
    assert b"names no digest" in refused.value.stderr
    Builder(tmp_path / "good").shell(check)


@pytest.mark.lane("test-all")
def test_the_wheel_of_the_image_holds_every_module_that_runs(tmp_path: Path) -> None:
    """Also those that are generated from protos/."""
    builder = Builder(tmp_path)
    for name, rest in stages()["build"]:
        if name == "COPY":
            builder.run(name, rest)
    build = next(
        part for name, rest in stages()["build"] if name == "RUN" for part in rest.split("&&") if "pip wheel" in part
    ).replace("/build/venv/bin/pip", f"{sys.executable} -m pip")
    builder.shell(f"cd {tmp_path}/build/source && {build}")
    (wheel,) = (tmp_path / "build/wheels").glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("migrator/")}
    listed = subprocess.run(["git", "ls-files", "migrator"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name for name in listed.stdout.split() if re.search(r"\.(py|html|json|sha256)$", name)} <= held
    made = {f"migrator/rpc/stubs/{proto.stem}_pb2.py" for proto in (ROOT / "protos").glob("*.proto")}
    assert made
    assert made <= held


@pytest.mark.lane("test-long")
def test_the_steps_make_two_programs_that_run_and_nothing_more(tmp_path: Path) -> None:
    """The controllers' image has nothing of what only `verify`, `rehearse` and `drill` need."""
    builder = Builder(tmp_path)
    for name, rest in stages()["build"]:
        builder.run(name, rest)
    program = builder.inside(entry_point())
    for image, lacking in (("controller", set(EXTRAS)), ("tools", set[str]())):
        for name, rest in stages()[f"build-{image}"]:
            builder.run(name, rest)
        packages = {path.name.lower() for path in program.parents[1].glob("lib/python3*/site-packages/*")}
        assert not {"pip", "setuptools", "pytest", "grpc_tools"} & packages
        assert {"grpc", "kazoo", "migrator"} <= packages
        assert set(EXTRAS) - packages == lacking
        assert bool(list(program.parents[1].rglob("*.jar"))) is (image == "tools")
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, env={"PATH": ""})
        assert "migrator, version" in said.stdout
        for command in COMMANDS.keys() - ({"drill"} if lacking else set()):
            subprocess.run([program, command, "--help"], capture_output=True, check=True, env={"PATH": ""})
        shutil.rmtree(program.parents[1])


@pytest.mark.lane("test-all")
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get here")
def test_the_system_packages_of_the_image_are_names_that_debian_has() -> None:
    install = next(rest for name, rest in stages()["tools"] if name == "RUN")
    part = next(each.split() for each in install.split("&&") if "apt-get install" in each)
    packages = [word for word in part[2:] if not word.startswith("-")]
    assert packages
    known = subprocess.run(["apt-cache", "show", *packages], capture_output=True, text=True, check=False)
    if "Package:" not in known.stdout:
        pytest.skip("no list of packages was fetched here")
    assert known.returncode == 0, known.stderr
