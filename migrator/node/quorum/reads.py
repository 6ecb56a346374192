"""Reads answers to fetches from the log, in each turn of the event loop a bounded number.

`QuorumRunner` queues each `ReadLog` effect here. Answers are read and sent in the order of the effects. An append wakes
all fetches that wait, so one turn reads for `TURN_READS` of them only. An answer whose leader epoch is over has no
records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace

from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.observe.loop_health import LoopWork, TurnGauge
from migrator.raft.effects import ReadLog
from migrator.raft.messages import FetchResponse
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind

READS = TaskKind("fetch-reads", OnError.STOP)
READ_BYTES_MAX = 1024 * 1024
"""The largest answer, unless one batch is larger; the follower fetches again for more. It bounds a turn of the event
loop."""
CONTESTED_BYTES_MAX = 128 * 1024
"""The largest answer while other fetches wait for room. Then more clients that do not read find room at once, and most
of such an answer is in the socket's buffer."""
TURN_READS = 50
"""The most reads of one turn: an append wakes all fetches that wait for it."""


class FetchReads:
    """Fetches whose answers are still to be read, in the order that consensus requires.

    :param epoch: the leader epoch now. After an election an answer has no records, because the log may have changed.
    :param answer: called with the context of each request, and its response with the records.
    :param on_failure: called when the disk fails.
    """

    def __init__(
        self,
        log: MetadataLog,
        epoch: Callable[[], int],
        answer: Callable[[Hashable, FetchResponse], None],
        on_failure: OnFailure,
        gauge: TurnGauge,
    ) -> None:
        self._log = log
        self._epoch = epoch
        self._answer = answer
        self._supervisor = Supervisor(on_failure)
        self._gauge = gauge
        self._waiting: deque[tuple[ReadLog, int]] = deque()
        self._handle: asyncio.Handle | None = None

    def size_of(self, effect: ReadLog, most: int = READ_BYTES_MAX) -> int:
        """How many bytes can be read for this fetch now, at most ``most``.

        :raises StorageError: the disk fails.
        """
        if not self._is_there(effect):
            return 0
        return self._log.size_of_read(effect.offset, min(effect.max_bytes, most))

    def add(self, effect: ReadLog, size: int) -> None:
        """Queue this fetch behind all waiting ones.

        :param size: the result of `size_of`; no more is read, even if the log has grown meanwhile.
        """
        self._waiting.append((effect, size))
        if self._handle is None:
            self._handle = self._supervisor.call_soon(READS, self._serve)

    def close(self) -> None:
        """Stop answering."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _serve(self) -> None:
        self._handle = None
        size = 0
        try:
            for _ in range(min(TURN_READS, len(self._waiting))):
                size += self._serve_one(*self._waiting.popleft())
                if size >= READ_BYTES_MAX:
                    break
        except StorageError:
            self.close()
            raise
        if self._waiting:
            self._handle = self._supervisor.call_soon(READS, self._serve)

    def _is_there(self, effect: ReadLog) -> bool:
        return self._epoch() == effect.response.leader_epoch and effect.offset >= self._log.start_offset()

    def _serve_one(self, effect: ReadLog, size: int) -> int:
        records = self._log.read(effect.offset, size) if size and self._is_there(effect) else b""
        self._gauge.count(LoopWork.READ_BYTES, len(records))
        self._answer(effect.context, replace(effect.response, records=records))
        return len(records)
