"""The house rules that no linter knows. Each yields what breaks it, with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lanes import TEST, place_of
from tests.rules.sources import ROOT, Source, below

THIS = "tests/rules/tidy.py"
LINES_MAX = 500
PROGRAMS = {"bench", "costs", "simulation", "hostile", "golden", "model", "scenarios", "rules", "kit"}
"""Folders of tests/ that are programs, models or tables rather than tests."""
CLUSTERS = re.compile(r"\b(?:KafkaCluster|\w*LightCluster|StockQuorumCluster|cluster_in|rehearse_and_migrate)\(")
GENERATED = {"migrator/config/kafka_keys.py"}
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
NAMES_FILES = (".ci/run", "Makefile", ".github/workflows/ci.yml")
"""Files with commands of continuous integration: only there would a moved file be missed, at the cost of a run."""

DECISIONS = Path("docs/adr")


def forbidden(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        for pattern, why in FORBIDDEN.items():
            if source.name not in (THIS, "LICENSE") and pattern.search(source.text):
                lines = enumerate(source.text.splitlines(), 1)
                yield from (f"{source.name}:{number}: {why}" for number, line in lines if pattern.search(line))


def long_files(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        count = source.text.count("\n")
        if source.name.endswith(".py") and source.name not in GENERATED and count > LINES_MAX:
            yield f"{source.name}: {count} lines, and {LINES_MAX} are read in one sitting"


def silent_modules(sources: Sequence[Source]) -> Iterator[str]:
    for source in below("migrator", sources):
        if not source.name.endswith("__init__.py") and not source.text.lstrip().startswith('"""'):
            yield f"{source.name}: does not say what it is for"


def rooms_without_words(_: Sequence[Source]) -> Iterator[str]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in (ROOT / "migrator").glob("*/__init__.py"):
        if f"`{room.parent.name}`" not in page:
            yield f"migrator/{room.parent.name}: docs/architecture.md does not know this room"


def decisions_without_a_row(sources: Sequence[Source]) -> Iterator[str]:
    pages = {Path(source.name): source.text for source in sources}
    index = pages.get(DECISIONS / "README.md", "")
    for path, text in pages.items():
        if path.parent != DECISIONS or path.name == "README.md":
            continue
        row = f"[{text.splitlines()[0].partition('. ')[2]}]({path.name})"
        if row not in index:
            yield f"{path}: docs/adr/README.md has no row {row}"


def clusters_in_the_short_lane(sources: Sequence[Source]) -> Iterator[str]:
    """Outside of the places of clusters the lane would be the shortest one."""
    for source in below("tests", sources):
        is_short = Path(source.name).name.startswith("test_") and place_of(source.name).lane == TEST
        if is_short and CLUSTERS.search(source.text) and "pytest.mark.lane(" not in source.text:
            yield f"{source.name}: starts a cluster, and has no mark of a lane; see docs/lanes.md"


def named_and_gone(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        if source.name in NAMES_FILES:
            for path in re.findall(r"\b(?:tests|migrator|deploy|docs)/[\w./-]*\w", source.text):
                if not (ROOT / path).exists():
                    yield f"{source.name}: {path} does not exist"


def stray_helpers(sources: Sequence[Source]) -> Iterator[str]:
    for source in below("tests", sources):
        path = Path(source.name)
        is_helper = not path.name.startswith(("test_", "conftest.", "__")) and len(path.parts) > 2
        if is_helper and not {"support", *PROGRAMS} & {*path.parts}:
            yield f"{source.name}: the helpers of a room's tests are in its support folder"
