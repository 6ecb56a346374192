"""docs/side-by-side.md names commands, phases, properties and log lines that there are."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.cli.main import COMMANDS
from migrator.config.kafka_keys import BROKER_KEYS
from migrator.config.keys import KEYS
from migrator.rollout.plan.steps import Phase

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/side-by-side.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`]+)`", PAGE)


def part(heading: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_every_phase_that_goes_forward_stands_there_once_and_in_order() -> None:
    phases = re.findall(r"\| `([\w-]+)` \|$", part("Forward"), re.MULTILINE)
    forward = list(Phase)[: list(Phase).index(Phase.ARCHIVE) + 1]
    assert phases == [phase.value for phase in forward if phase is not Phase.READY], "ready is verify, left out"


def test_every_command_is_one_of_ours() -> None:
    named = {text.split()[1] for text in CODE if text.startswith("migrator ")}
    assert {"preflight", "rollback", "handover", "verify"} <= named <= COMMANDS.keys()


def test_every_property_is_one_that_is_known() -> None:
    named = {text.partition("=")[0] for text in CODE if re.fullmatch(r"[a-z]+(\.[a-z.]+)+(=\S+)?", text)}
    named -= {"org.apache.kafka.metadata.authorizer.", "kraft.version"}
    ours = {key for key in named if key.startswith("migrator.")}
    assert ours <= KEYS.keys()
    kafkas = {key for key in named - ours if not key.endswith(".kind")}  # controllers.kind is the inventory's
    assert kafkas <= KEYS.keys() | {row[0] for row in BROKER_KEYS}


def test_every_log_line_is_written_by_the_program() -> None:
    written = (ROOT / "migrator/node/migration/kafka_log.py").read_text(encoding="utf-8")
    lines = [text for text in CODE if text.startswith(("Completed", "Staying", "transitioning"))]
    assert len(lines) == 4
    for line in lines:
        words = line.replace("Zookeeper", "{}").replace("ZooKeeper", "{}")
        states = re.fullmatch(r"transitioning from (\w+) to (\w+) state", words)
        assert all(f'"{state}"' in written for state in states.groups()) if states else words in written
