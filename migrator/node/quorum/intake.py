"""Checks a leader's records before consensus gets them, a part in each turn of the event loop.

A stock leader sends eight megabytes that end anywhere, also within a batch (``KafkaMetadataLog.read`` of Kafka 3.9, a
slice of the file). The whole batches are taken, and the next fetch begins at the one that was cut.

Records that do not decode are not appended: no node could load such a log, neither now nor at the next start. A
follower that keeps up applies the records that were decoded here, and need not read and decode them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from migrator.observe.loop_health import LoopWork, TurnGauge
from migrator.raft.messages import FetchResponse
from migrator.records.contents import Decoded, check_contents
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import BatchRun, RunChecker
from migrator.turns import TURN_BYTES, TURN_RECORDS, give_back
from migrator.values import value

DECODED_RECORDS = 4 * TURN_RECORDS
"""About so many decoded records are kept, plus those of one turn. A follower that keeps up fetches fewer."""


@value
class CheckedRecords:
    """The records of one response: the part that a log may append, or why it may append nothing. ``decoded``: the first
    batches; a follower that has fallen behind reads the rest from the log."""

    records: bytes
    run: BatchRun | None
    fault: CorruptRecordsError | None
    decoded: Sequence[Decoded] = ()

    def take(self) -> bytes | BatchRun:
        """The records for the log.

        :raises CorruptRecordsError: nothing may be appended.
        """
        if self.fault is not None:
            raise self.fault
        return self.records if self.run is None else self.run


async def check_records(
    response: FetchResponse, fetch_offset: int, deadline: float, gauge: TurnGauge
) -> CheckedRecords:
    """Check the records of a fetch response, in turns of the event loop.

    :param fetch_offset: the start of the fetch, which is the end of our log.
    :param deadline: on the loop's clock. A slow machine takes what it has checked by then, and fetches the rest again,
        so every fetch makes progress.
    :param gauge: gets what each turn has checked.
    """
    clock = asyncio.get_running_loop().time
    records = response.records
    checker = RunChecker(records, fetch_offset, partial_tail=True, max_epoch=response.leader_epoch)
    decoded: list[Decoded] = []
    try:
        while _check_part(checker, gauge, decoded) and not (checker.checked_batches and clock() >= deadline):
            await give_back()
    except CorruptRecordsError as error:
        return CheckedRecords(records, None, error)
    run, fault = checker.run(), None
    if run is None:
        what = f"the leader sent {len(records)} bytes for offset {fetch_offset}, which contain no complete batch"
        fault = CorruptRecordsError(what)
    return CheckedRecords(records, run, fault, decoded)


def _check_part(checker: RunChecker, gauge: TurnGauge, decoded: list[Decoded]) -> bool:
    batches, size = checker.checked_batches, checker.checked_bytes
    try:
        is_more = checker.advance(TURN_RECORDS, TURN_BYTES)
        part = check_contents(checker.checked_from(size))
        if sum(header.count for header, _ in decoded) < DECODED_RECORDS:
            decoded += part
        return is_more
    finally:
        gauge.count(LoopWork.CHECKED_BATCHES, checker.checked_batches - batches)
        gauge.count(LoopWork.CHECKED_BYTES, checker.checked_bytes - size)
