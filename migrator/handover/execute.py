"""Carries out a hand-over on this machine: look, decide, take one step, until Kafka runs every voter of this machine.

A run depends only on what it can see, so a hand-over that was killed continues when the command is run again. The
journal has only the time of each step, and the voter with which the new run begins.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.files import StockFile, format_empty, look_into
from migrator.handover.plan import (
    Action,
    HandoverStep,
    LocalNode,
    MetadataDirectory,
    WantedHandover,
    choose,
    migration_seen,
    next_step,
    shows,
)
from migrator.log.files import make_directory
from migrator.log.lock import DirectoryLock
from migrator.observe.journal import COMMAND_FILE, Journal
from migrator.records.versions import FEATURE_NAME, version_at
from migrator.rollout.executors.bounded import CommandTimeoutError, run_bounded
from migrator.rollout.ports import Observation
from migrator.seeing.controllers import ControllerSeen, QuorumSeen
from migrator.seeing.quorum import QuorumEyes
from migrator.values import value

POLL_SECONDS = 0.3
PATIENCE_SECONDS = 600.0
ATTEMPTS_MAX = 3
"""The number of attempts at one step for one voter. So a Kafka that ends soon after its start is not started for
ever."""
JOURNAL_BYTES = 1 << 20
BEGUN, SEEN = "begun", "seen"


@value
class LocalVoter:
    """A voter whose files are on this machine."""

    settings: Settings
    file: StockFile

    @property
    def node_id(self) -> int:
        return self.settings.node_id


@value
class Picture:
    """The cluster at one time, and the voters of this machine, each with its next step."""

    seen: Observation
    nodes: tuple[LocalNode, ...]
    steps: tuple[HandoverStep, ...]

    @property
    def leader_id(self) -> int | None:
        """The voter that leads; None while none does."""
        return None if self.seen.quorum is None else self.seen.quorum.leader_id

    @property
    def only_waits(self) -> bool:
        """Whether a voter has to wait, or the metadata are not read yet, and no step is refused."""
        actions = {step.action for step in self.steps}
        return Action.REFUSE not in actions and (Action.WAIT in actions or self.seen.migration is None)


class HandoverRun:
    """One hand-over of the voters whose property files are given.

    :param property_files: our property files on this machine, one for each voter.
    :param control: stops our controllers and starts Kafka's.
    :param tell: shows a sentence to the operator.
    :param patience_seconds: the longest time without progress.
    :raises OperatorError: a file can't be used.
    """

    def __init__(
        self,
        property_files: Sequence[Path],
        wanted: WantedHandover,
        control: OperatorCommands,
        *,
        tell: Callable[[str], None],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._wanted = wanted
        self._control = control
        self._tell = tell
        self._patience_seconds = patience_seconds
        self.sites = {site.node_id: site for site in map(self._site, property_files)}
        if len(self.sites) != len(property_files):
            raise OperatorError(
                "two of the property files belong to the same voter",
                where="-c",
                remedy="Give the file of each voter on this machine once",
            )
        self._survey = Survey(next(iter(self.sites.values())).settings)
        self._taken: dict[int, Action] = {}
        self._attempts: Counter[HandoverStep] = Counter()
        self._said: dict[int, str] = {}
        self._known: dict[int, MetadataDirectory] = {}

    def _site(self, path: Path) -> LocalVoter:
        settings, _ = load_settings(path)
        if not settings.voters:
            raise OperatorError(
                "controller.quorum.voters is not set: the voters are in the log",
                where=str(path),
                remedy="Use --way members",
            )
        file = StockFile(path.resolve(), self._wanted.target)
        file.check()
        return LocalVoter(settings, file)

    async def look(self, *, ahead: bool = False) -> Picture:
        """Look at the quorum and the directories, and decide the next step of each voter.

        :param ahead: decide as if the property files were written, to show whether the step after that has to wait.
        :raises OperatorError: a directory belongs to another node, or is damaged.
        """
        seen = await self._survey.look()
        nodes = []
        for site in self.sites.values():
            found = await look_into(site.settings, self._known.get(site.node_id))
            if not found.in_use:
                self._known[site.node_id] = found
            nodes.append(LocalNode(site.node_id, found, ahead or site.file.is_written))
        return Picture(seen, tuple(nodes), tuple(next_step(node, seen, self._wanted) for node in nodes))

    async def look_ahead(self, seconds: float) -> Picture:
        """The picture as if the property files were written. Looks again while a step has to wait, for ``seconds`` at
        most: an election, or a record that a voter lacks for a moment, prevents nothing. Errors as in `look`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self.look()  # only a second look distinguishes a voter that is behind from a voter that lacks one record
        while (picture := await self.look(ahead=True)).only_waits and loop.time() < deadline:
            await asyncio.sleep(POLL_SECONDS)
        return picture

    async def run(self) -> None:
        """Hand over to the end. May be called again, also by another process, after any failure.

        :raises OperatorError: a step is refused or failed, another process hands over this controller, or there was no
            progress for ``patience_seconds``.
        """
        with journal_beside(next(iter(self.sites.values())).file.ours) as journal:
            await self._run(journal)

    async def _run(self, journal: Journal) -> None:
        loop = asyncio.get_running_loop()
        first, last_progress = self._interrupted(journal), loop.time()
        while True:
            picture = await self.look()
            self._note(journal, picture)
            if all(step.action is Action.DONE for step in picture.steps):
                self._tell(f"Kafka {self._wanted.target.version} runs {self._names()}")
                return
            step = choose(picture.steps, self._taken.keys(), picture.leader_id, self._wanted.way, first)
            if step is not None and step.action is Action.REFUSE:
                raise OperatorError(step.why, where=f"controller {step.node_id}", remedy=step.remedy)
            if step is not None and step.action not in (Action.WAIT, Action.DONE):
                await self._take(journal, step, picture.seen)
                last_progress = loop.time()
            elif loop.time() - last_progress > self._patience_seconds:
                raise self._impatience(picture)
            else:
                await asyncio.sleep(POLL_SECONDS)

    def _interrupted(self, journal: Journal) -> int | None:
        """The voter whose step was under way when an earlier run ended."""
        events = journal.after(0)
        if not events or events[-1].kind != BEGUN:
            return None
        self._tell(f"Continuing an earlier handover, which ended after: {events[-1].text}")
        return int(dict(events[-1].details)["node"])

    def _note(self, journal: Journal, picture: Picture) -> None:
        """Tell each reason to wait once, and write to the journal which steps have become visible as done."""
        for node, step in zip(picture.nodes, picture.steps, strict=True):
            taken = self._taken.get(step.node_id)
            if taken is not None and shows(taken, node, picture.seen):
                del self._taken[step.node_id]
                text = f"controller {step.node_id}: {taken.value}: done"
                journal.append(wall_ms(), SEEN, text, node=str(step.node_id))
            if step.action is Action.WAIT and self._said.get(step.node_id) != step.why:
                self._tell(str(step))
            self._said[step.node_id] = step.why

    async def _take(self, journal: Journal, step: HandoverStep, seen: Observation) -> None:
        self._attempts[step] += 1
        if self._attempts[step] > ATTEMPTS_MAX:
            raise OperatorError(
                f"the step {step.action.value!r} succeeded {ATTEMPTS_MAX} times, but did not last",
                where=f"controller {step.node_id}",
                remedy="Look at the log of this controller, mend the cause, and run the command again",
            )
        self._tell(str(step))
        journal.append(wall_ms(), BEGUN, str(step), node=str(step.node_id), to=self._wanted.target.version)
        site = self.sites[step.node_id]
        if step.action is Action.STOP:
            await self._control.stop(step.node_id)
        elif step.action is Action.START:
            await self._control.start(step.node_id, site.file.path)
        elif step.action is Action.WRITE_FILE:
            site.file.write()
        elif step.action is Action.FORMAT:
            cluster_id = await self._survey.cluster_id(self._patience_seconds)
            format_empty(site.settings, cluster_id, seen.metadata_version)
        self._taken[step.node_id] = step.action

    def _impatience(self, picture: Picture) -> OperatorError:
        step = min(
            (step for step in picture.steps if step.action is not Action.DONE),
            key=lambda step: (step.node_id not in self._taken, step.action is not Action.WAIT),
        )
        taken = self._taken.get(step.node_id)
        done = step.why if taken is None else f"{taken.value!r} was begun, but its effect does not show"
        return OperatorError(
            f"the hand-over made no progress for {self._patience_seconds:.0f} s: {done}",
            where=f"controller {step.node_id}",
            remedy=step.remedy
            or "Look at the log of this controller. Then run the command again: it continues from here",
        )

    def _names(self) -> str:
        return ", ".join(f"controller {node_id}" for node_id in sorted(self.sites))


@contextmanager
def journal_beside(property_file: Path) -> Iterator[Journal]:
    """The journal of a hand-over, in a directory next to the property file. The directory is locked meanwhile, so that
    one process at a time hands over this controller.

    :raises OperatorError: another process holds the lock, or the journal can't be written.
    """
    folder = property_file.with_suffix(".handover")
    make_directory(folder)
    with DirectoryLock(folder), closing(Journal(folder, JOURNAL_BYTES, file_name=COMMAND_FILE)) as journal:
        yield journal


class Survey:
    """Looks at the quorum for one hand-over.

    :param settings: of any voter; they name the other voters, and how to log in.
    """

    def __init__(self, settings: Settings) -> None:
        self._eyes = QuorumEyes(settings)
        self._voters = tuple(voter.voter_id for voter in settings.voters)
        self._seen = Observation()
        """The migration's state and metadata.version in the last image. They stay true while no image can be read:
        without a leader nothing changes, and a finished migration stays finished."""

    async def look(self) -> Observation:
        look = await self._eyes.look_and_close()
        if look.image is not None:
            is_over = self._seen.is_finished or not look.image.features.zk_migration_state.is_under_way
            level = look.image.features.levels.get(FEATURE_NAME, 0)
            self._seen = Observation(
                migration=migration_seen(is_over=is_over), metadata_version=version_at(level).name if level else ""
            )
        nobody = {voter: ControllerSeen(voter, None) for voter in self._voters}
        seen = look.seen or QuorumSeen(None, {})
        return replace(self._seen, quorum=replace(seen, voters=nobody | dict(seen.voters)), unknown=look.unknown)

    async def cluster_id(self, patience_seconds: float) -> str:
        """:raises OperatorError: no controller answers within ``patience_seconds``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_seconds
        while (found := await self._eyes.cluster_id()) is None and loop.time() < deadline:
            await asyncio.sleep(POLL_SECONDS)
        if found is None:
            raise OperatorError(
                "no controller answers with the cluster id",
                where="controller.quorum.voters",
                remedy="See 'migrator status'",
            )
        return found


COMMAND_SECONDS = 120.0
TAIL_BYTES = 2000


class OperatorCommands:
    """Runs the operator's command lines, without a shell. ``{node}`` and ``{file}`` stand for the node's id and the
    stock property file. Without a command, a message asks the operator to do it. Both methods may be called again for a
    node that is already stopped or started, and may return before the node is: a success proves nothing.

    :param tell: shows a sentence to the operator.
    :raises OperatorError: the quotes of a command line are not closed.
    """

    def __init__(self, stop: str | None, start: str | None, tell: Callable[[str], None]) -> None:
        self._stop = _words(stop, "--stop-command")
        self._start = _words(start, "--start-command")
        self._tell = tell

    async def stop(self, node_id: int) -> None:
        """Stop our controller, by a clean shutdown.

        :raises OperatorError: the stop can't be begun.
        """
        if not self._stop:
            self._tell(f"Now stop this program's service of controller {node_id}")
            return
        await _run(self._stop, node_id, None)

    async def start(self, node_id: int, property_file: Path) -> None:
        """Start Kafka's controller with this property file.

        :raises OperatorError: the start can't be begun.
        """
        if not self._start:
            self._tell(f"Now start Kafka's controller {node_id} with {property_file}")
            return
        await _run(self._start, node_id, property_file)


def _words(command: str | None, option: str) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise OperatorError(
            str(error), where=f"{option} {command}", remedy="Quote the command as for a shell"
        ) from error


async def _run(words: list[str], node_id: int, file: Path | None) -> None:
    """
    :raises OperatorError: the command can't be run, fails, or is too slow. When it fails, the message has the end of
        its output.
    """
    command = [word.replace("{node}", str(node_id)).replace("{file}", str(file or "")) for word in words]
    where = shlex.join(command)
    try:
        ended = await run_bounded(command, stdin=None, seconds=COMMAND_SECONDS, output_max=TAIL_BYTES)
    except OSError as error:
        raise OperatorError(
            f"the command cannot be run: {error}", where=where, remedy="Give its whole path; it runs without a shell"
        ) from error
    except CommandTimeoutError:
        raise OperatorError(
            f"the command still ran after {COMMAND_SECONDS:.0f} s",
            where=where,
            remedy="The command has to return as soon as the service was started or stopped",
        ) from None
    if ended.exit_code:
        tail = (ended.output + ended.errors)[-TAIL_BYTES:].decode("utf-8", "replace").strip()
        raise OperatorError(
            f"the command ended with exit code {ended.exit_code}: {tail}",
            where=where,
            remedy="Correct this, and repeat 'migrator handover run': it goes on from here",
        )
