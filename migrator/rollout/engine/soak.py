"""The soak: how long both sides were watched while both were written, as a fold over looks, and its act.

`acts` calls `SoakAct.run`. Only the time between two looks that follow each other soon and saw both sides written
counts. An outage is noted as it begins and as it ends; a crash loses at most `NOTE_MS`.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.rollout.engine.job_acts import JobActs
from migrator.rollout.engine.step import StepContext
from migrator.rollout.gates.gatekeeper import AbortedError
from migrator.rollout.gates.lifelines import SAY_MS
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Act
from migrator.values import value

APART_MS = 10_000
"""The longest time from the end of a look to the beginning of the next one that still counts as watched."""
LOOK_MS = 60_000
"""The longest look: controllers that do not answer over gRPC time out, then a command runs over ssh. When a look takes
longer, the machine may have slept."""


@value
class Soak:
    """``watched_ms``: the sum of times that were watched. ``well_ms``: when the last look ended, if it was good, else
    None. ``outage_ms``: since when every look is bad; None after a good one."""

    watched_ms: int = 0
    well_ms: int | None = None
    outage_ms: int | None = None

    def saw_well(self, began_ms: int, now_ms: int) -> Soak:
        """Take in a good look, from ``began_ms`` to ``now_ms``."""
        counts = (
            self.well_ms is not None and 0 <= began_ms - self.well_ms <= APART_MS and 0 <= now_ms - began_ms <= LOOK_MS
        )
        return Soak(self.watched_ms + (now_ms - (self.well_ms or 0) if counts else 0), now_ms)

    def saw_trouble(self, now_ms: int) -> Soak:
        """Take in a bad look. The time since the look before does not count, because it is unknown when the outage
        began."""
        return replace(self, well_ms=None, outage_ms=now_ms if self.outage_ms is None else self.outage_ms)


NOTE_MS = 60_000
"""Time between two notes in the journal; a crash loses at most that much of a soak."""


class SoakAct:
    def __init__(self, at: StepContext, jobs: JobActs) -> None:
        self._at = at
        self._run = at.run
        self._parts = at.run.parts
        self._jobs = jobs
        self._soak = Soak()

    async def run(self) -> None:
        """Watch until the time is full. The operator is told when an outage begins and ends.

        :raises GateTimeoutError: an outage lasts longer than a gate may stay shut.
        :raises AbortedError: the operator asks for an end.
        """
        step, times, clock = self._at.step, self._parts.inventory.times, self._parts.clock
        wanted, verify = int(times.soak * 1000), int(times.verify * 1000)
        noted = verified = self._run.progress.soaked_ms
        self._soak = Soak(noted)
        said_ms = clock.monotonic_ms()
        while (watched := self._soak.watched_ms) < wanted:
            if clock.monotonic_ms() - said_ms >= SAY_MS:
                said_ms = clock.monotonic_ms()
                self._at.tell(f"has watched {watched // 1000} of {wanted // 1000} s; all is well")
            began_ms = clock.since_boot_ms()
            await self._at.gates.wait(lambda _: step.before, step.name, is_shut=self._is_shut)
            self._is_well(began_ms)
            watched = self._soak.watched_ms
            if watched - noted >= NOTE_MS or watched >= wanted:
                self._at.note(Event.SOAKED, Act.SOAK, soaked_ms=watched)
                noted = watched
            if verify and watched - verified >= verify and watched < wanted:
                await self._jobs.verify(await self._parts.observer.observe(partitions=False))
                verified = watched
                self._soak = Soak(watched)  # the time of a comparison was not watched
            if self._run.is_aborted():
                self._at.note(Event.SOAKED, Act.SOAK, soaked_ms=watched)
                raise AbortedError("the soak was stopped")
            await clock.sleep(min(times.poll * 1000, wanted - watched, APART_MS / 2) / 1000)
        self._at.note(Event.DONE, Act.SOAK)

    def _is_shut(self, why: str) -> None:
        is_first = self._soak.outage_ms is None
        self._soak = self._soak.saw_trouble(self._parts.clock.since_boot_ms())
        if is_first:
            self._at.note(Event.SOAKED, Act.SOAK, soaked_ms=self._soak.watched_ms, waits=why)

    def _is_well(self, began_ms: int) -> None:
        now_ms, before, since_ms = self._parts.clock.since_boot_ms(), self._soak, self._soak.outage_ms
        self._soak = before.saw_well(began_ms, now_ms)
        if before.well_ms is not None and self._soak.watched_ms == before.watched_ms and now_ms > before.well_ms:
            apart = (now_ms - before.well_ms) / 1000
            self._at.tell(
                f"the last {apart:.0f} s do not count: looks may be {APART_MS // 1000} s apart, and take "
                f"{LOOK_MS // 1000} s"
            )
        if since_ms is None:
            return
        lost, watched = now_ms - since_ms, self._soak.watched_ms
        self._at.note(Event.SOAKED, Act.SOAK, soaked_ms=watched, outage_ms=lost)
        self._at.tell(f"all is well again; these {lost / 1000:.0f} s do not count as soak")
