"""The lock of the image: what of requirements.lock runs, and nothing else.

``python -m tests.deploy.support.run_time_lock`` writes deploy/docker/requirements.lock anew.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
WHOLE = ROOT / "requirements.lock"
RUN_TIME = ROOT / "deploy/docker/requirements.lock"
EXTRA = "verify"
HEADER = "# Part of requirements.lock; `python -m tests.deploy.support.run_time_lock` makes it anew.\n"


def plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> set[str]:
    """The packages that pyproject.toml demands at run time, `verify` included, with all that these demand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"][EXTRA])]
    found: set[str] = set()
    while waiting:
        name = plain(waiting.pop().name)
        if name not in found:
            found.add(name)
            requires = map(Requirement, distribution(name).requires or ())
            waiting += [one for one in requires if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def entries(lock: Path) -> list[str]:
    """Each pin with its hashes, as it stands there."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")]
    return re.split(r"^(?=\S)", "".join(lines), flags=re.MULTILINE)[1:]


def run_time_lock() -> str:
    """The file's content."""
    names = needed()
    return HEADER + "".join(entry for entry in entries(WHOLE) if plain(entry.partition("==")[0]) in names)


if __name__ == "__main__":
    RUN_TIME.write_text(run_time_lock(), encoding="utf-8")
