"""The parts of requirements.lock that run: in the two images, and in a drill, which also builds the package.

``python -m tests.deploy.support.run_time_lock`` writes the files anew.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
WHOLE = ROOT / "requirements.lock"
CONTROLLER, TOOLS = ROOT / "deploy/docker/controller.lock", ROOT / "deploy/docker/tools.lock"
DRILL = ROOT / "deploy/drill.lock"
HEADER = "# Part of requirements.lock; `python -m tests.deploy.support.run_time_lock` makes it anew.\n"


def plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(*extras: str, is_built: bool = False) -> set[str]:
    """The packages that pyproject.toml demands at run time and for extras, with all that these demand.

    :param is_built: also those that build the package.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    of_extras = (project["project"]["optional-dependencies"][extra] for extra in extras)
    texts = [*project["project"]["dependencies"], *chain.from_iterable(of_extras)]
    waiting = [Requirement(text) for text in (*texts, *(project["build-system"]["requires"] if is_built else ()))]
    found: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = plain(wanted.name)
        if name == project["project"]["name"]:
            found |= needed(*wanted.extras)
        elif name not in found:
            found.add(name)
            requires = map(Requirement, distribution(name).requires or ())
            waiting += [one for one in requires if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def entries(lock: Path) -> list[str]:
    """Each pin with its hashes, as it stands there."""
    lines = [line for line in lock.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")]
    return re.split(r"^(?=\S)", "".join(lines), flags=re.MULTILINE)[1:]


def part(names: set[str]) -> str:
    """A file's content."""
    return HEADER + "".join(entry for entry in entries(WHOLE) if plain(entry.partition("==")[0]) in names)


def locks() -> dict[Path, str]:
    """The content of each file: of the controllers' image, of the tools' image, of `make drill`."""
    return {
        CONTROLLER: part(needed()),
        TOOLS: part(needed("drill")),
        DRILL: part(needed("drill", is_built=True)),
    }


if __name__ == "__main__":
    for file, content in locks().items():
        file.write_text(content, encoding="utf-8")
