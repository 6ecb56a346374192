"""Answers to fetches, read from the log as many at a time as one turn of the event loop should."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.observe.loop_health import TurnGauge, Work
from migrator.raft.effects import ReadLog
from migrator.raft.messages import FetchResponse
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind

READS = TaskKind("fetch-reads", OnError.STOP)
READ_BYTES_MAX = 1024 * 1024
"""The largest answer, but for a larger batch; whoever wants more asks again. It bounds a turn of the event loop, and
the memory that all who ask at the same time can take, whatever they ask for."""
TURN_READS = 50
"""An append wakes everybody who waits for it."""


class FetchReads:
    """Fetches whose answer is still to be read, in the order in which consensus wants them answered.

    :param epoch: the leader epoch now. An answer that is late by an election says nothing: the log may be another one.
    :param answer: takes each response with its records.
    :param on_failure: told when the disk fails.
    """

    def __init__(
        self,
        log: MetadataLog,
        epoch: Callable[[], int],
        answer: Callable[[ReadLog, FetchResponse], None],
        on_failure: OnFailure,
        gauge: TurnGauge,
    ) -> None:
        self._log = log
        self._epoch = epoch
        self._answer = answer
        self._supervisor = Supervisor(on_failure)
        self._gauge = gauge
        self._waiting: deque[ReadLog] = deque()
        self._handle: asyncio.Handle | None = None

    def add(self, effect: ReadLog) -> None:
        """Answer this one behind all that wait."""
        self._waiting.append(effect)
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
                size += self._serve_one(self._waiting.popleft())
                if size >= READ_BYTES_MAX:
                    break
        except StorageError:
            self.close()
            raise
        if self._waiting:
            self._handle = self._supervisor.call_soon(READS, self._serve)

    def _serve_one(self, effect: ReadLog) -> int:
        is_there = self._epoch() == effect.response.leader_epoch and effect.offset >= self._log.start_offset()
        records = self._log.read(effect.offset, min(effect.max_bytes, READ_BYTES_MAX)) if is_there else b""
        self._gauge.count(Work.READ_BYTES, len(records))
        self._answer(effect, replace(effect.response, records=records))
        return len(records)
