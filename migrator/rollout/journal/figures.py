"""Figures of a rollout for Prometheus: the file ``rollout.prom`` in the state directory. A timer copies it for the
textfile collector of a node_exporter. It decides nothing, so a disk that refuses it stops nothing.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from migrator.log.errors import StorageError
from migrator.log.files import write_durably
from migrator.rollout.ports import Clock

FILE: Final = "rollout.prom"
SHUT_SINCE: Final = "migrator_rollout_gate_shut_since_seconds"
LAST_LOOK: Final = "migrator_rollout_last_look_seconds"
ROLLOUT_METRICS: Final = {
    SHUT_SINCE: "Since when a gate of this step has been shut, in seconds since 1970",
    LAST_LOOK: "When the rollout looked at its gates last, in seconds since 1970",
}
"""Names, and what they say."""
EVERY_MS: Final = 15_000


class FiguresFile:
    """Writes the file while one command runs. What the last look saw stays in it: a gate that a command gave up
    waiting for is still shut."""

    def __init__(self, state: Path, rollout: str, clock: Clock) -> None:
        self._path = state / FILE
        self._rollout = rollout
        self._clock = clock
        self._written_ms: int | None = None
        self._step = ""
        self._since_ms: int | None = None

    def saw(self, step: str, *, is_shut: bool) -> None:
        """Take in a look at the gates of a step."""
        now_ms, before = self._clock.wall_ms(), (self._step, self._since_ms)
        if not is_shut:
            self._since_ms = None
        elif self._since_ms is None or step != self._step:
            self._since_ms = now_ms
        self._step = step
        is_due = self._written_ms is None or not 0 <= now_ms - self._written_ms < EVERY_MS
        if is_due or before != (self._step, self._since_ms):
            self._written_ms = now_ms
            with suppress(OSError, StorageError):
                write_durably(self._path, self._text(now_ms).encode())

    def _text(self, now_ms: int) -> str:
        found = {SHUT_SINCE: self._since_ms, LAST_LOOK: now_ms}
        labels = f'{{rollout="{self._rollout}",step="{self._step}"}}'
        return "".join(
            f"# HELP {name} {ROLLOUT_METRICS[name]}\n# TYPE {name} gauge\n{name}{labels} {time_ms / 1000}\n"
            for name, time_ms in found.items()
            if time_ms is not None
        )
