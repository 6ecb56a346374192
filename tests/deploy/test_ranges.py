"""The wheel asks for ranges. Each range contains the version of the lock, and the program works at both ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.deploy.support.run_time_lock import ROOT, WHOLE, entries, plain

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OF_EXTRAS = PROJECT["project"]["optional-dependencies"]
RANGES = [
    requirement
    for text in (*PROJECT["project"]["dependencies"], *OF_EXTRAS["verify"], *OF_EXTRAS["drill"])
    if plain((requirement := Requirement(text)).name) != PROJECT["project"]["name"]
]
LOCKED = dict(entry.split()[0].split("==") for entry in entries(WHOLE))
OF_TESTS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-randomly", "pytest-timeout", "pytest-xdist")
UNITS = (
    "raft",
    "log",
    "records",
    "image",
    "config",
    "apis",
    "zookeeper",
    "wire",
    "observe",
    "rpc",
    "verify/test_page.py",
)


def bound(requirement: Requirement, operator: str) -> Version:
    (found,) = (one.version for one in requirement.specifier if one.operator == operator)
    return Version(found)


@pytest.mark.parametrize("requirement", RANGES, ids=lambda requirement: requirement.name)
def test_a_range_has_two_ends_and_contains_the_locked_version(requirement: Requirement) -> None:
    assert bound(requirement, ">=") < bound(requirement, "<")
    assert requirement.specifier.contains(LOCKED[plain(requirement.name)])


def test_the_libraries_of_generated_code_are_at_least_those_of_its_generator() -> None:
    """Generated code refuses an older grpcio and an older protobuf."""
    (tools,) = (Requirement(text) for text in PROJECT["build-system"]["requires"] if text.startswith("grpcio-tools"))
    ranges = {requirement.name: requirement for requirement in RANGES}
    assert bound(ranges["grpcio"], ">=") == bound(tools, "==")
    stub = (ROOT / "migrator/rpc/stubs/operator_pb2.py").read_text(encoding="utf-8")
    generated = re.search(r"PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", stub)
    assert generated is not None
    assert bound(ranges["protobuf"], ">=") == Version(".".join(generated.groups()))


@pytest.mark.lane("test-long")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_the_units_pass_at_both_ends_of_the_ranges(end: str, tmp_path: Path) -> None:
    python, constraints = tmp_path / "venv/bin/python", tmp_path / "constraints.txt"
    lowest = [f"{requirement.name}=={bound(requirement, '>=')}\n" for requirement in RANGES]
    constraints.write_text("".join(lowest if end == "lowest" else ()), encoding="utf-8")
    wanted = [str(requirement) for requirement in RANGES if requirement.name != "pyspark"]  # no unit imports it
    wanted += [f"{name}=={LOCKED[name]}" for name in OF_TESTS]
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    wheels = ("--only-binary", ":all:", "-c", str(constraints))  # pyspark, 400 MB, is the only package without one
    run(str(python), "-m", "pip", "install", "--quiet", "--upgrade", *wheels, *wanted)
    run(str(python), "-m", "pytest", "-q", "-n", "2", "--lane", "test", *(f"tests/{room}" for room in UNITS))


def run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
