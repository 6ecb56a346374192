"""What all parts of one run share: its journal and its end among them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import Step
from migrator.values import value

ABORT_FILE = "abort"


@value
class RunContext:
    """``state``: the directory of the journal; verdicts and outputs are kept there, and `ABORT_FILE` in it asks for an
    end. ``confirm``: whether the operator wants what cannot be undone, told the names of the controllers still to be
    restarted without the migration. Asked once in a run, as long as the last one was not. ``steps``: of the whole way.
    ``stop``: name of the step behind which the run ends; "" for the end of the way."""

    parts: RolloutParts
    journal: RolloutJournal
    state: Path
    confirm: Callable[[Sequence[str]], Awaitable[bool]]
    steps: Sequence[Step]
    stop: str = ""

    @property
    def progress(self) -> Progress:
        """As the journal says."""
        return self.journal.progress

    def note(self, event: Event, step: str = "", act: str = "", **details: Detail) -> None:
        """Write a line of the journal."""
        self.journal.append(self.parts.clock.wall_ms(), event, step, act, **details)

    @property
    def abort_file(self) -> Path:
        """There while the operator asks for an end."""
        return self.state / ABORT_FILE

    def is_aborted(self) -> bool:
        """Whether the operator asks for an end."""
        return self.abort_file.exists()
