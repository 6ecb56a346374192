"""Which started processes have ended, and since when a gate is shut: folds over looks. Pure.

`gatekeeper` tells it what each look has seen, with the time, and asks whether a process has ended. One look without the
process proves nothing: it needs two, or `SHOWS_MS` without any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from migrator.rollout.meanwhile import Waiting
from migrator.values import value

SHOWS_MS = 30_000
"""How long it may take from a start command until the process shows; start scripts take their time."""
SAY_MS = 30_000
"""The longest time that the operator waits without a line."""


@value
class _Lifeline:
    """``missing_ms``: since when the process is missing at every look. ``restarts``: how many times another
    incarnation than before was seen."""

    shown: bool = False
    missing_ms: int | None = None
    incarnation: str = ""
    restarts: int = 0


class Lifelines:
    """The processes that a run has started."""

    def __init__(self) -> None:
        self._known: dict[str, _Lifeline] = {}

    def starts(self, name: str) -> None:
        """The process is started now; what was seen before was another process."""
        self._known.pop(name, None)

    def shows(self, name: str, incarnation: str) -> int:
        """The process was seen to run.

        :returns: how many times something else has restarted it since this run started it.
        """
        known = self._known.get(name, _Lifeline())
        restarts = known.restarts + (known.incarnation not in ("", incarnation))
        self._known[name] = _Lifeline(shown=True, incarnation=incarnation, restarts=restarts)
        return restarts

    def restarts_of(self, name: str) -> int:
        """How many times something else has restarted it."""
        return self._known.get(name, _Lifeline()).restarts

    def is_missing(self, name: str, now_ms: int) -> bool:
        """The process was not seen to run.

        :returns: whether it has ended: it had been seen, and is missing at two looks; or it has not come within
            `SHOWS_MS`.
        """
        known = self._known.get(name, _Lifeline())
        since_ms = now_ms if known.missing_ms is None else known.missing_ms
        self._known[name] = replace(known, missing_ms=since_ms)
        return now_ms - since_ms >= (1 if known.shown else SHOWS_MS)


class WaitTeller:
    """Tells for whom a gate waits: when that changes, and otherwise every `SAY_MS`; on a terminal, at each look.

    :param step: the name of the step that waits.
    :param tell: shows a sentence.
    :param draws: shows what is waited for in one place of a terminal; returns False where there is none.
    :param limit_ms: how long the gate may stay shut.
    """

    def __init__(
        self, step: str, tell: Callable[[str], None], draws: Callable[[Waiting], bool], began_ms: int, limit_ms: int
    ) -> None:
        self._step = step
        self._tell = tell
        self._draws = draws
        self._began_ms = began_ms
        self._bound_ms = began_ms + limit_ms
        self._limit_ms = limit_ms
        self._said, self._said_ms = "", began_ms
        self._looked, self._looked_ms = "", began_ms

    def waits(self, what: str, now_ms: int, looked: str = "") -> None:
        """A look has found the gate shut.

        :param looked: what it saw.
        """
        self._looked, self._looked_ms = looked, now_ms
        if what != self._said:
            self._said, self._said_ms = what, now_ms
            self._tell(f"{self._step}: waits: {what}")
        self.goes_on(now_ms)

    def begins_anew(self, now_ms: int) -> None:
        """From now on, the gate may stay shut as long as at first."""
        self._bound_ms = now_ms + self._limit_ms

    def silence_ms(self, now_ms: int) -> int:
        """The time until the next line is due."""
        return max(0, self._said_ms + SAY_MS - now_ms)

    def goes_on(self, now_ms: int) -> None:
        """Called at each look, and between two looks."""
        passed = now_ms - self._began_ms
        left = max(0, self._bound_ms - now_ms)
        ago = now_ms - self._looked_ms
        if self._draws(Waiting(self._step, self._said, passed, left, self._looked, ago)):
            self._said_ms = now_ms
        elif now_ms - self._said_ms >= SAY_MS:
            self._said_ms = now_ms
            still = f"still waits, for {passed // 1000} s, at most {left // 1000} s more"
            self._tell(f"{self._step}: {still}: {self._said}")
