"""Kafka's znodes after a migration: one command writes them to a file, another removes them.

Only znodes that are in the file are removed, so a znode that is created meanwhile is not lost. A new copy never
replaces an older one: after a removal that was interrupted, the older copy has more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from migrator.clock import monotonic_ms
from migrator.errors import ExitCode, MigratorError, OperatorError
from migrator.log.errors import StorageError, storage_errors
from migrator.log.files import NewFile
from migrator.rollout.ports import BrokerMode, Observation
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.kafka_tree import delete_of, lines_of
from migrator.zookeeper.ops import Delete
from migrator.zookeeper.removal import nobody, remove
from migrator.zookeeper.session import ZooKeeperSession

CONNECT_SECONDS = 10.0
BEFORE_REMOVAL = "zookeeper-before-removal"
COPIES_MAX = 99
PROGRESS_MS = 10_000
"""Time between two lines about progress."""
BLOCK_BYTES = 1 << 20
NO_ZOOKEEPER = "'access' of the inventory names no ZooKeeper"
NO_ZNODES = "ZooKeeper has no znodes of Kafka"


async def keep(session: ZooKeeperSession | None, file: Path) -> str:
    """Write all znodes of Kafka to a file. Returns why that was not possible, or "".

    :raises StorageError: the disk refuses.
    """
    if session is None:
        return NO_ZOOKEEPER
    try:
        return "" if await asyncio.to_thread(_keep, session, file, nobody) else NO_ZNODES
    except StorageError:
        raise
    except MigratorError as error:
        return str(error)


async def keep_and_remove(session: ZooKeeperSession | None, state: Path, tell: Callable[[str], None]) -> None:
    """Write all znodes of Kafka to a new file, and remove the znodes that are in it. May be repeated.

    :param state: the directory of the file.
    :raises OperatorError: nothing is removed, because the znodes cannot be kept; or some znodes are left, and ``tell``
        was called with how many.
    """
    file = _next_copy(state)
    try:
        if session is None:
            raise OperatorError(NO_ZOOKEEPER)
        progress = _Progress(tell, "kept so far: {} znodes")
        znodes = await asyncio.to_thread(_keep, session, file, progress.reach)
    except MigratorError as error:
        remedy = "Nothing was removed. Correct this problem, and run the command again"
        raise OperatorError(f"the znodes cannot be kept: {error}", where=str(file), remedy=remedy) from error
    if not znodes:
        tell(f"{NO_ZNODES}: there is nothing to remove")
        return
    tell(f"kept: {file}")
    progress = _Progress(tell, f"removed so far: {{}} of {znodes} znodes")
    try:
        tell(f"removed: {await asyncio.to_thread(remove, session, _deletes(file), progress.reach)} znodes")
    except MigratorError:
        tell(f"removed: {progress.reached} of {znodes} znodes. The others are still in ZooKeeper")
        raise


def _next_copy(state: Path) -> Path:
    """A file name that sorts after those of all copies that exist.

    :raises OperatorError: no such name is left.
    """
    numbers = ["", *(f"-{number}" for number in range(2, COPIES_MAX + 1))]
    files = [state / f"{BEFORE_REMOVAL}{number}.jsonl" for number in numbers]
    free = next((at for at in range(len(files), 0, -1) if os.path.lexists(files[at - 1])), 0)
    if free == len(files):
        what = f"{files[-1].name} is there already, and no later name is left for a copy of the znodes"
        remedy = "Nothing was removed. Move the copies to another directory, and run the command again"
        raise OperatorError(what, where=str(state), remedy=remedy)
    return files[free]


class _Progress:
    """Tells from time to time how far a long piece of work is."""

    def __init__(self, tell: Callable[[str], None], sentence: str) -> None:
        self._tell = tell
        self._sentence = sentence
        self._next_ms = monotonic_ms() + PROGRESS_MS
        self.reached = 0

    def reach(self, count: int) -> None:
        self.reached = count
        if monotonic_ms() >= self._next_ms:
            self._next_ms = monotonic_ms() + PROGRESS_MS
            self._tell(self._sentence.format(count))


def _keep(session: ZooKeeperSession, file: Path, told: Callable[[int], None]) -> int:
    """Write the znodes line by line, because there may be millions. Returns how many. The file is complete or does not
    exist; it is also written when there are no znodes."""
    count = 0
    with NewFile(file) as out:
        for count, line in enumerate(lines_of(_reader(session)), 1):
            out.write(line)
            told(count)
        if count:
            out.put()
    return count


def _deletes(file: Path) -> Iterator[Delete]:
    """A delete for each znode of the copy, from its end to its beginning: children come before their parents.

    :raises OperatorError: the copy cannot be read.
    """
    try:
        with storage_errors("cannot read the copy of the znodes", file), file.open("rb") as copy:
            yield from map(delete_of, _backwards(copy))
    except ValueError as error:
        what, remedy = "the copy of the znodes is damaged", "Look at this disk; then repeat the command"
        raise OperatorError(what, where=str(file), remedy=remedy) from error


def _backwards(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, the last one first."""
    position, first = file.seek(0, os.SEEK_END), b""
    while position:
        size = min(BLOCK_BYTES, position)
        position = file.seek(position - size)
        first, *lines = (file.read(size) + first).split(b"\n")
        yield from filter(None, reversed(lines))
    yield from filter(None, [first])


def refuse_removal(seen: Observation) -> None:
    """:raises OperatorError: a part of the cluster may still need the znodes."""
    for what, remedy in _needed_by(seen):
        raise OperatorError(what, where="ZooKeeper", remedy=remedy)


def refuse_name(typed: str, cluster: str, *, is_option: bool) -> None:
    """
    :param typed: the cluster name that the operator has typed to agree.
    :param is_option: whether it was an option of the command. Otherwise it was an answer, and another name means no.
    :raises OperatorError: it is not the name of the cluster.
    """
    if typed != cluster:
        raise OperatorError(
            f"{typed!r} is not the name of the cluster",
            where="--cluster" if is_option else "the question",
            remedy="Nothing was removed. The inventory has the name",
            exit_code=ExitCode.REFUSED if is_option else ExitCode.DIFFERENT,
        )


def _needed_by(seen: Observation) -> Iterator[tuple[str, str]]:
    state = "" if seen.migration is None else seen.migration.state
    if not seen.zookeeper_answers:
        yield "ZooKeeper does not answer", "See that it runs, and that 'access' of the inventory names it"
    if not state:
        yield "the state of the migration is unknown", "See that the controllers run, and can be reached"
    if not seen.is_finished:
        yield f"the migration is in state {state}, not finished", "Finish it first; see 'migrator status'"
    if seen.brokers is None:
        yield "the mode of the brokers is unknown", "See that the controllers and ZooKeeper can be reached"
    left = [str(broker.broker_id) for broker in (seen.brokers or {}).values() if broker.mode is not BrokerMode.KRAFT]
    if left:
        yield (
            f"not in KRaft mode: brokers {', '.join(left)}",
            "Start them in KRaft mode. Only what never comes back: 'migrator quorum unregister'",
        )
    if seen.controller_broker is not None:
        yield f"broker {seen.controller_broker} is a ZooKeeper controller", "See whose cluster this is"


def _reader(session: ZooKeeperSession) -> BulkReader:
    """A reader of ZooKeeper's present content.

    :raises OperatorError: ZooKeeper does not answer.
    """
    if not session.wait_connected(CONNECT_SECONDS):
        raise session.away(f"no ZooKeeper server answered within {CONNECT_SECONDS:g} s")
    reader = BulkReader(session)
    reader.catch_up()
    return reader
