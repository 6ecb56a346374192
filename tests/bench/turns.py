"""The long turns of controllers' event loops (`watch/sitecustomize.py`)."""

from __future__ import annotations

import os
import re
from pathlib import Path

WATCH = Path(__file__).with_name("watch")


def watch(directory: Path) -> None:
    """Have each controller that is started from now on note its long turns in a file there."""
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["MIGRATOR_BENCH_TURNS"] = str(directory.resolve())
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WATCH), *filter(None, [os.environ.get("PYTHONPATH")])])


def longest(directory: Path) -> list[str]:
    """Of each controller, the turn that took the most processor time, and the stacks that were seen in it."""
    noted = (re.split(r"^(?=\d)", file.read_text(), flags=re.MULTILINE)[1:] for file in sorted(directory.glob("*.txt")))
    return [max(some, key=lambda turn: int(turn.split()[0])).rstrip() for some in noted if some]
