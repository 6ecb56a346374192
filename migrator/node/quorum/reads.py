"""Answers to fetches, read from the log as many at a time as one turn of the event loop should."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace

from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.observe.loop_health import TurnGauge, Work
from migrator.raft.effects import ReadLog
from migrator.raft.messages import FetchResponse
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind

READS = TaskKind("fetch-reads", OnError.STOP)
READ_BYTES_MAX = 1024 * 1024
"""The largest answer, but for a larger batch; whoever wants more asks again. It bounds a turn of the event loop."""
CONTESTED_BYTES_MAX = 128 * 1024
"""The same while others wait for room for their answers: of those who read nothing more find room at once, and most of
such an answer is in the socket's own buffer."""
TURN_READS = 50
"""An append wakes everybody who waits for it."""


class FetchReads:
    """Fetches whose answer is still to be read, in the order in which consensus wants them answered.

    :param epoch: the leader epoch now. An answer that is late by an election says nothing: the log may be another one.
    :param answer: takes the context of each request, and its response with the records.
    :param on_failure: told when the disk fails.
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
        """How many bytes there are to be read for it now, within ``most``.

        :raises StorageError: when the disk refuses.
        """
        if not self._is_there(effect):
            return 0
        return self._log.size_of_read(effect.offset, min(effect.max_bytes, most))

    def add(self, effect: ReadLog, size: int) -> None:
        """Answer this one behind all that wait.

        :param size: as `size_of` gave; no more is read, whatever the log has got meanwhile.
        """
        self._waiting.append((effect, size))
        if self._handle is None:
            self._handle = self._supervisor.call_soon(READS, self._serve)

    def close(self) -> None:
        """Answer nobody any more."""
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
        self._gauge.count(Work.READ_BYTES, len(records))
        self._answer(effect.context, replace(effect.response, records=records))
        return len(records)
