"""Carries out a hand-over by membership: look, take one step, look again, until the voters are the wanted ones.

A run depends only on what it can see, so a hand-over that was killed continues when the command is run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.handover.execute import BEGUN, PATIENCE_SECONDS, POLL_SECONDS, SEEN, journal_beside
from migrator.handover.members import ObservedMembers, refusals
from migrator.handover.members_survey import MembersSurvey
from migrator.observe.journal import Journal
from migrator.raft.planner import Add, ClearTarget, Remove, RemoveSelf, Step, Wait, described, plan
from migrator.raft.voter_set import ReplicaKey

NOBODY_LEADS = Wait("No controller leads, or none of them answers.", "See 'migrator status'.")


class Voters(Protocol):
    """Shows the quorum and changes its voters: `MembersSurvey`."""

    async def look(self) -> ObservedMembers | None:
        """The quorum now; None while no controller leads."""

    async def add(self, key: ReplicaKey) -> str:
        """Add a voter. Returns why this does not work now, or "".

        :raises OperatorError: the leader refuses, and would refuse again.
        """

    async def remove(self, key: ReplicaKey) -> str:
        """Remove a voter; answers and errors as `add`."""


class MembersRun:
    """One hand-over to the controllers ``wanted``.

    :param property_file: of any controller of the cluster, old or new, on this machine.
    :param wanted: the ids of the controllers that shall be the voters.
    :param tell: shows a sentence to the operator.
    :param patience_seconds: the longest time without progress.
    :raises OperatorError: the file can't be used.
    """

    def __init__(
        self,
        property_file: Path,
        wanted: Iterable[int],
        *,
        tell: Callable[[str], None],
        patience_seconds: float = PATIENCE_SECONDS,
        voters: Voters | None = None,
    ) -> None:
        self._file = property_file.resolve()
        self._tell = tell
        self._patience_seconds = patience_seconds
        self._voters = voters or MembersSurvey(load_settings(property_file)[0], wanted)
        self._begun: Step | None = None
        self._said = ""

    async def look(self) -> ObservedMembers:
        """The quorum and its brokers now; waits for a leader.

        :raises OperatorError: no controller led for ``patience_seconds``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_seconds
        while (seen := await self._voters.look()) is None:
            self._say(NOBODY_LEADS)
            if loop.time() > deadline:
                raise self._impatience(NOBODY_LEADS)
            await asyncio.sleep(POLL_SECONDS)
        return seen

    async def run(self) -> None:
        """Hand over to the end. May be called again, also by another process, after any failure.

        :raises OperatorError: the hand-over is refused, another process does it, or there was no progress for
            ``patience_seconds``.
        """
        with journal_beside(self._file) as journal:
            await self._run(journal)

    async def _run(self, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        # Lag is measured against the look before, so only the second look tells which voters are really behind.
        await self.look()
        last_progress = loop.time()
        while True:
            seen = await self.look()
            for refusal in refusals(seen):
                raise OperatorError(refusal.reason.rstrip("."), where="--voters", remedy=refusal.remedy)
            step = plan(seen.planner)
            if isinstance(step, ClearTarget):  # the voters are the wanted ones
                self._tell(f"The voters are {', '.join(map(str, seen.wanted))}. Stop the other controllers now")
                return
            waited = step if isinstance(step, Wait) else await self._take(journal, step, seen)
            if waited is None:
                last_progress = loop.time()
                continue
            self._say(waited)
            if loop.time() - last_progress > self._patience_seconds:
                raise self._impatience(waited)
            await asyncio.sleep(POLL_SECONDS)

    async def _take(self, journal: Journal, step: Step, seen: ObservedMembers) -> Wait | None:
        """Take the step. Returns what it waits for, or None when it is done."""
        text = described(step)
        if step != self._begun:
            self._begun = step
            self._tell(text)
            journal.append(wall_ms(), BEGUN, text)
        match step:
            case Add(key):
                answer = await self._voters.add(key)
            case Remove(key):
                answer = await self._voters.remove(key)
            case RemoveSelf():
                answer = await self._voters.remove(seen.planner.own)
            case _:
                answer = "this step is not known here"
        if not answer:
            self._begun = None
            journal.append(wall_ms(), SEEN, f"{text}: done")
            return None
        return Wait(f"The leader did not {text}: {answer}.", "See the log of the leader.")

    def _say(self, wait: Wait) -> None:
        if wait.reason != self._said:
            self._said = wait.reason
            self._tell(f"waits: {wait.reason} {wait.remedy}")

    def _impatience(self, wait: Wait) -> OperatorError:
        return OperatorError(
            f"the step did not complete within {self._patience_seconds:.0f} s: {wait.reason.rstrip('.')}",
            where="--voters",
            remedy=wait.remedy,
        )
