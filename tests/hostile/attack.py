"""One seed: a controller, some hundred hostile messages, and what has to hold after each of them.

Message ``i`` of a seed comes from its own random source, so that a replay without some messages sends the others
again: that is how `shrink` finds the few that matter.
"""

from __future__ import annotations

import asyncio
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Container
from pathlib import Path
from random import Random
from typing import Final

from migrator.errors import require
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import iter_snapshot
from migrator.machine import THIS_MACHINE, running_on
from migrator.raft.config import EPOCH_LIMIT
from migrator.records.batch import BATCH_BYTES_MAX, iter_batches
from migrator.records.metadata import MetadataRecord
from migrator.values import value
from tests.hostile.clock import VirtualLoop, VirtualMachine
from tests.hostile.migrating import MigrationSeat
from tests.hostile.node import directory_in_memory
from tests.hostile.outside import OutsideSeat
from tests.hostile.readable import faults_for_stock
from tests.hostile.seats import BrokerSeat, VoterSeat

MESSAGES_A_SEED: Final = 250
CHECK_EVERY: Final = 60
"""Messages between two looks at the directory, by another reader, and at what a correct peer gets."""
MEASURED_SEEDS: Final = 40
"""Of so many seeds one runs with its memory measured, which takes much longer."""
FRAMES: Final = 6
"""Of a failure's trace."""
Seat = BrokerSeat | VoterSeat | MigrationSeat | OutsideSeat
SEATS: Final[tuple[type[Seat], ...]] = (BrokerSeat, VoterSeat) * 3 + (OutsideSeat, MigrationSeat)
"""Which seat a seed takes, in turn."""
BYTES_MAX: Final = 96 * 2**20
"""The memory that one message may add: it has 200 KB, and lists of some hundred elements."""


@value
class Outcome:
    """The result of a seed. ``failure`` is "" when everything held.

    :ivar ends: integer fields, and at which end of their range they were sent.
    """

    seed: int
    messages: int
    coverage: Counter[str]
    ends: frozenset[tuple[str, int]]
    index: int = -1
    failure: str = ""


class Broken(Exception):  # noqa: N818 (it says what is)
    """Something did not hold."""


def attack(
    seed: int,
    *,
    count: int = MESSAGES_A_SEED,
    left_out: Container[int] = frozenset(),
    trace: Callable[[str], object] = lambda _: None,
) -> Outcome:
    """Run one seed. `SEATS` take turns."""
    kind, turn = SEATS[seed % len(SEATS)], seed // len(SEATS) * SEATS.count(SEATS[seed % len(SEATS)])
    turn = (turn + SEATS[: seed % len(SEATS)].count(kind)) * MESSAGES_A_SEED
    index, failure = -1, ""
    loop = None if kind is OutsideSeat else VirtualLoop()
    runs_on = THIS_MACHINE if loop is None else VirtualMachine(loop)
    with running_on(runs_on), directory_in_memory() as directory:
        attacked = _Attack(seed, kind(Path(directory), seed, turn), trace)
        try:
            with asyncio.Runner(loop_factory=None if loop is None else lambda: loop) as runner:
                runner.run(attacked.run(count, left_out))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the seed has found
            index, failure = attacked.index, "".join(traceback.format_exception(error)[-FRAMES:])
    seat = attacked.seat
    return Outcome(seed, attacked.messages, seat.coverage, frozenset(seat.ends), index, failure)


def shrink(seed: int, outcome: Outcome) -> list[int]:
    """The fewest messages of a failing seed that still fail, found by leaving out halves, quarters, and so on."""
    left_out: set[int] = set()
    size = max(1, outcome.index // 2)
    while True:
        for start in range(0, outcome.index, size):
            more = left_out | set(range(start, min(start + size, outcome.index)))
            if more != left_out and attack(seed, count=outcome.index + 1, left_out=more).failure:
                left_out = more
        if size == 1:
            return [index for index in range(outcome.index + 1) if index not in left_out]
        size //= 2


class _Attack:
    def __init__(self, seed: int, seat: Seat, trace: Callable[[str], object]) -> None:
        self.seat = seat
        self.index = -1
        self._seed = seed
        self._trace = trace
        self._measures = seed % MEASURED_SEEDS == MEASURED_SEEDS - 2 or seed % MEASURED_SEEDS == MEASURED_SEEDS - 1

    @property
    def messages(self) -> int:
        """Sent so far, answers to the node's own questions included."""
        return self.index + 1 + getattr(self.seat, "answers", 0)

    async def run(self, count: int, left_out: Container[int]) -> None:
        await self.seat.start()
        if self._measures:
            tracemalloc.start()
        try:
            for self.index in range(count):
                if self.index not in left_out:
                    await self._knock(Random(f"{self._seed}/{self.index}"))
                if self.index % CHECK_EVERY == CHECK_EVERY - 1:
                    await self._look(again=True)
            await self._look(again=False)
        finally:
            tracemalloc.stop()
            await self.seat.stop()

    async def _knock(self, random: Random) -> None:
        if self._measures:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
        name = await self.seat.knock(self.index, random)
        self._trace(f"{self.index}: {name}")
        if self._measures:
            _, peak = tracemalloc.get_traced_memory()
            _holds(peak - before <= BYTES_MAX, f"{name} costs {peak - before} bytes")
        self._check(name)

    def _check(self, name: str) -> None:
        node = self.seat.node
        if node is None:
            return
        for error in (*node.cluster.failures, *node.errors.found):
            raise Broken(f"after {name}") from error
        stored = QuorumStateFile(node.core.storage.directory, [1]).read()
        _holds(stored is None or stored.epoch < EPOCH_LIMIT, f"after {name} epoch {stored} is on disk")
        _holds(node.core.quorum.epoch < EPOCH_LIMIT, f"after {name} the epoch is {node.core.quorum.epoch}")

    async def _look(self, *, again: bool) -> None:
        """The files on disk are whole, load to the same image, and hold no record that stock could not read."""
        node = self.seat.node
        if node is None:
            return
        await self.seat.work()
        self._check("the work of a correct peer")
        await node.core.metadata.caught_up()
        image, end = node.core.metadata.image, node.core.storage.log.end_offset()
        await node.stop()
        loaded = _loaded(node.log_on_disk(), end)
        _holds(loaded.topics == image.topics and loaded.configs == image.configs, "the log loads to another image")
        _holds(loaded.cluster == image.cluster and loaded.acls == image.acls, "the log loads to another image")
        node.start()
        if again:
            await self.seat.ready()


def _loaded(log: MetadataLog, end: int) -> MetadataImage:
    loader = ImageLoader(on_step=lambda *_: None)
    try:
        require(log.end_offset() == end, f"the log ends at {log.end_offset()} on disk, and at {end} in memory")
        for snapshot in log.snapshots():
            for batch in iter_snapshot(log.store.path(snapshot)):
                _readable([] if batch.header.is_control else [record for record, _ in batch.records()])
        for chunk in log.chunks(log.start_offset(), end):
            for batch in iter_batches(chunk):
                batch.check_crc()
                _holds(batch.header.size <= BATCH_BYTES_MAX, f"a batch of {batch.header.size} bytes")
                if batch.header.is_control:
                    continue
                records = [record for record, _ in batch.records()]
                _readable(records)
                loader.append(batch.header.base_offset, batch.header.leader_epoch, batch.header.base_timestamp, records)
                loader.apply()
    finally:
        log.close()
    return loader.speculative


def _readable(records: list[MetadataRecord]) -> None:
    for record in records:
        for fault in faults_for_stock(record):
            raise Broken(f"stock can't read {record}: {fault}")


def _holds(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)
