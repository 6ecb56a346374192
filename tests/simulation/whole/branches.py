"""What the seeds reach of the code: the share of its statements and branches, and the functions that are never called.

It takes coverage.py, which is no part of the locked tools: ``.venv/bin/python -m pip install coverage``.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import pkgutil
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.whole import runner
from tests.simulation.whole.options import expand
from tests.simulation.whole.world import Outcome, simulate

ROOMS = ("migrator.node", "migrator.log")
OUTSIDE = {
    "*/migrator/node/migration/*": "there is no ZooKeeper, so no migration",
    "*/migrator/node/access/accounts.py": "logins of SASL, which no connection has",
    "*/migrator/log/dump.py": "a command that reads the log of a controller from outside",
    "*/migrator/log/initial_voters.py": "an option of the command that formats a disk",
    "*/migrator/log/listing.py": "commands and the migration, which read a log from outside",
    "*/migrator/log/lookup.py": "`rollback`, which reads the log of a controller that is stopped",
}
"""What the simulation leaves out by design, and why."""
PAGE = Path(__file__).parents[3] / "docs/simulation.md"
BEGIN, END = "<!-- functions that no seed reaches -->", "<!-- end of the functions -->"
"""What `PAGE` has between these lines is written by a command."""
NO_CODE = [r"class .*\bProtocol\):"]
T = TypeVar("T")


def reached(seeds: Iterable[int], changes: Mapping[str, str], jobs: int = 0, *, notes: bool = False) -> str:
    """A report. Each seed is a process of its own, as ever, and ``jobs`` of them run at once.

    :param notes: write the names of the functions that no seed reaches into `PAGE`, too.
    """
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        runner.in_child(lambda: _traced(data, _import_all))
        with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count()) as pool:
            count = sum(1 for _ in pool.imap_unordered(partial(_measured, data, changes), seeds))
        measured = _coverage(data)
        measured.combine()
        everything, inside = _found(measured, []), _found(measured, [*OUTSIDE])
    unreached = _unreached(inside)
    if notes:
        _note(count, unreached)
    left_out = "\n".join(f"  {pattern.removeprefix('*/')}: {why}" for pattern, why in OUTSIDE.items())
    shares = (
        f"{count} seeds reach {_share(inside)} of statements and branches, {_share(everything)} with what is outside:"
    )
    files = "\n".join(f"{file['summary']['percent_covered']:6.1f} %  {name}" for name, file in inside["files"].items())
    return f"{files}\nReached by no seed:\n{named(unreached)}\n{shares}\n{left_out}"


def named(functions: Mapping[str, Sequence[str]]) -> str:
    """A list in Markdown, with one file to an entry."""
    entries = (f"* `{file}`: {', '.join(f'`{name}`' for name in names)}" for file, names in functions.items())
    return "\n".join(textwrap.fill(it, 150, subsequent_indent="  ", break_on_hyphens=False) for it in entries)


def noted(page: str) -> dict[str, list[str]]:
    """The functions that the text of `PAGE` names, by file."""
    part = page.partition(BEGIN)[2].partition(END)[0]
    return {
        file: re.findall(r"`([^`]+)`", names)
        for file, names in re.findall(r"^\* `([^`]+)`: (.*(?:\n  .*)*)", part, re.MULTILINE)
    }


def _note(count: int, functions: Mapping[str, Sequence[str]]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    total = sum(map(len, functions.values()))
    text = f"{total} functions are reached by none of {count} seeds:\n\n{named(functions)}"
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def _found(measured: Any, omit: list[str]) -> Mapping[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        measured.json_report(outfile=file.name, omit=omit)
        found: Mapping[str, Any] = json.loads(Path(file.name).read_text())
        return found


def _coverage(data: Path, **options: Any) -> Any:
    library = importlib.import_module("coverage")
    measured = library.Coverage(str(data), branch=True, source=[*ROOMS], **options)
    for pattern in NO_CODE:
        measured.exclude(pattern)
    return measured


def _traced(data: Path, work: Callable[[], T]) -> T:
    measured = _coverage(data, data_suffix=str(os.getpid()))
    measured.start()
    done = work()
    measured.stop()
    measured.save()
    return done


def _measured(data: Path, changes: Mapping[str, str], seed: int) -> Outcome:
    return runner.in_child(lambda: _traced(data, lambda: simulate(expand(seed, changes))))


def _import_all() -> None:
    """Anew, so that what stands outside of functions counts: it ran before anybody measured."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            importlib.reload(importlib.import_module(module.name))


def _share(found: Mapping[str, Any]) -> str:
    return f"{found['totals']['percent_covered']:.1f} %"


def _unreached(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """By file, the functions of which no statement ran."""
    functions = {
        name: [
            function
            for function, region in file["functions"].items()
            if function and region["summary"]["num_statements"] and not region["executed_lines"]
        ]
        for name, file in found["files"].items()
    }
    return {name: found for name, found in functions.items() if found}
