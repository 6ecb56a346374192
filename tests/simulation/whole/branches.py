"""What the seeds reach of the code: the share of its statements and branches, and the functions that nobody calls.

It takes coverage.py, which is no part of the locked tools: ``.venv/bin/python -m pip install coverage``.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.whole import runner
from tests.simulation.whole.options import expand
from tests.simulation.whole.world import Outcome, simulate

ROOMS = ("migrator.node", "migrator.log")
OUTSIDE = "*/migrator/node/migration/*"
"""Nothing of the simulation can reach it: there is no ZooKeeper."""
T = TypeVar("T")


def reached(seeds: Iterable[int], changes: Mapping[str, str]) -> str:
    """A report. Each seed is a process of its own, as ever."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        runner.in_child(lambda: _traced(data, _import_all))
        for seed in seeds:
            runner.in_child(partial(_seed, data, seed, changes))
        measured = _coverage(data)
        measured.combine()
        measured.json_report(outfile=str(data) + ".json")
        return _report(json.loads(Path(f"{data}.json").read_text()))


def _coverage(data: Path, **options: Any) -> Any:
    library = importlib.import_module("coverage")
    return library.Coverage(str(data), branch=True, source=[*ROOMS], omit=[OUTSIDE], **options)


def _traced(data: Path, work: Callable[[], T]) -> T:
    measured = _coverage(data, data_suffix=str(os.getpid()))
    measured.start()
    done = work()
    measured.stop()
    measured.save()
    return done


def _seed(data: Path, seed: int, changes: Mapping[str, str]) -> Outcome:
    return _traced(data, lambda: simulate(expand(seed, changes)))


def _import_all() -> None:
    """Anew, so that what stands outside of functions counts: it ran before anybody measured."""
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            importlib.reload(importlib.import_module(module.name))


def _report(found: Mapping[str, Any]) -> str:
    lines, unreached = [], []
    for name, file in found["files"].items():
        lines.append(f"{file['summary']['percent_covered']:6.1f} %  {name}")
        unreached += [
            f"  {name}: {function}"
            for function, region in file["functions"].items()
            if function and not region["executed_lines"]
        ]
    share = found["totals"]["percent_covered"]
    return "\n".join((*lines, f"{share:.1f} % of statements and branches", "Reached by nobody:", *unreached))
