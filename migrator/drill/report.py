"""What a drill did and whether it held: collected while it runs, written as ``report.json`` and ``summary.txt``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


class DrillFailedError(Exception):
    """The drill cannot go on: something that it waits for did not come."""


@dataclass(slots=True)
class Check:
    """One thing that must hold; ``detail`` says what was seen when it did not."""

    name: str
    held: bool
    detail: str = ""


@dataclass(slots=True)
class Step:
    """A stretch of the drill."""

    name: str
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, float | int | str] = field(default_factory=dict)
    done: bool = False

    @property
    def held(self) -> bool:
        return self.done and all(check.held for check in self.checks)


class Report:
    """The steps in order.

    :param changed: called after every change, for a live display.
    """

    def __init__(self, options: Mapping[str, Any], changed: Callable[[], None] = lambda: None) -> None:
        self.options = dict(options)
        self.steps: list[Step] = []
        self.failure = ""
        self.now = ""
        """What the drill waits for at the moment."""
        self._changed = changed
        self._begin = time.monotonic()

    @property
    def held(self) -> bool:
        """Whether everything did."""
        return not self.failure and bool(self.steps) and all(step.held for step in self.steps)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """A step under way; it has been done when its block ends without an exception."""
        step = Step(name)
        self.steps.append(step)
        self._changed()
        begin = time.monotonic()
        try:
            yield step
            step.done = True
        finally:
            step.seconds = round(time.monotonic() - begin, 2)
            self.now = ""
            self._changed()

    def check(self, name: str, held: bool, detail: object = "") -> None:  # noqa: FBT001 (reads as a sentence)
        """Note in the current step whether something holds."""
        self.steps[-1].checks.append(Check(name, held, "" if held else str(detail)))
        self._changed()

    def figure(self, name: str, number: float | str) -> None:
        """Note a figure of the current step."""
        self.steps[-1].figures[name] = round(number, 3) if isinstance(number, float) else number
        self._changed()

    def wait_for(self, what: str) -> None:
        """Say what the drill waits for now."""
        self.now = what
        self._changed()

    def to_json(self) -> dict[str, Any]:
        """The content of ``report.json``."""
        return {
            "held": self.held,
            "seconds": round(self.seconds, 2),
            "failure": self.failure,
            "options": self.options,
            "steps": [
                {
                    "name": step.name,
                    "held": step.held,
                    "seconds": step.seconds,
                    "figures": step.figures,
                    "checks": [{"name": each.name, "held": each.held, "detail": each.detail} for each in step.checks],
                }
                for step in self.steps
            ],
        }

    def summary(self) -> str:
        """For people."""
        lines = [f"{'HELD' if self.held else 'DID NOT HOLD'} in {self.seconds:.0f} s"]
        for step in self.steps:
            lines.append(f"{'ok  ' if step.held else 'FAIL'} {step.name} ({step.seconds:.1f} s)")
            lines += [f"       {name}: {number}" for name, number in step.figures.items()]
            lines += [f"     - NOT: {each.name}: {each.detail}" for each in step.checks if not each.held]
        if self.failure:
            lines.append(f"It ended early: {self.failure}")
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> None:
        """Write both files."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_bytes(orjson.dumps(self.to_json(), option=orjson.OPT_INDENT_2) + b"\n")
        (directory / "summary.txt").write_text(self.summary())
