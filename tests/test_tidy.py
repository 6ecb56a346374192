"""The house rules that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.lanes import TEST, place_of

ROOT = Path(__file__).parents[1]
LINES_MAX = 500
PROGRAMS = {"bench", "costs", "simulation", "hostile", "golden", "model", "scenarios"}
"""Folders of tests/ that are programs, models or tables rather than tests."""
CLUSTERS = re.compile(r"\b(?:KafkaCluster|\w*LightCluster|StockQuorumCluster|cluster_in|rehearse_and_migrate)\(")
GENERATED = {"migrator/config/kafka_keys.py", "requirements.lock", "docs/configuration.md"}
TEXT = {".py", ".md", ".toml", ".yml", ".proto", ".lock", ""}
FORBIDDEN = {
    re.compile(r"/work/|/root/|/tmp/(?!kafka-logs)"): "a path of one machine",
    re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"): "unfinished work belongs into docs/status.md",
    re.compile(
        r"except Exception(?! as error:  # noqa: BLE001 - |:  # the top of )"
    ): "only a top level catches all, and says why",
    re.compile(r"https?://(?!www\.apache\.org/licenses|localhost|127\.0\.0\.1|\{|%s|github\.com/)"): (
        "an address on the network"
    ),
    re.compile(r"max_examples=(?!examples\()"): "tests.lanes.examples(count) tries more of them in the long lane",
}


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def source_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in TEXT and "golden" not in path.parts]


@pytest.mark.parametrize("pattern", FORBIDDEN, ids=lambda pattern: FORBIDDEN[pattern])
def test_nothing_forbidden_stands_anywhere(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in source_files()
        if path != Path(__file__) and path.name != "LICENSE"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"{FORBIDDEN[pattern]}: {found}"


def test_files_stay_readable_in_one_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in source_files()
        if path.suffix == ".py"
        and str(path.relative_to(ROOT)) not in GENERATED
        and (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert not long


def test_every_module_and_package_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in source_files()
        if path.suffix == ".py" and path.parts[len(ROOT.parts)] == "migrator" and path.name != "__init__.py"
        if not path.read_text(encoding="utf-8").lstrip().startswith('"""')
    ]
    assert not silent


def test_every_room_is_in_the_architecture_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "migrator").glob("*/__init__.py")]
    assert [room for room in rooms if f"`{room}`" not in page] == []


def test_who_starts_a_cluster_says_in_which_lane() -> None:
    """Outside of the places of clusters the lane would be the shortest one."""
    silent = [
        name
        for path in source_files()
        if (name := str(path.relative_to(ROOT))).startswith("tests/") and path.name.startswith("test_")
        if place_of(name).lane == TEST and path != Path(__file__)
        if CLUSTERS.search(text := path.read_text(encoding="utf-8")) and "pytest.mark.lane(" not in text
    ]
    assert not silent, "add a mark, see docs/lanes.md"


@pytest.mark.parametrize("name", [".ci/run", "Makefile", ".github/workflows/ci.yml"])
def test_what_continuous_integration_runs_exists(name: str) -> None:
    """A file that was moved would be missed only there, where it costs a run."""
    named = re.findall(r"\b(?:tests|migrator|deploy|docs)/[\w./-]*\w", (ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_helpers_of_a_rooms_tests_are_in_its_support_folder() -> None:
    stray = [
        name
        for path in source_files()
        if (name := str(path.relative_to(ROOT))).startswith("tests/") and path.suffix == ".py" and name.count("/") > 1
        if not path.name.startswith(("test_", "conftest.", "__"))
        if not {"support", *PROGRAMS} & set(path.parts)
    ]
    assert not stray
