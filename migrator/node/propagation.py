"""Measures how long a change takes to reach brokers in KRaft mode, by the offsets in their heartbeats.

It works on the active controller and fills a histogram of `migrator.observe`. The measurement is bounded: at most
`PENDING_MAX` changes wait, and further ones are not measured. A failure here never disturbs the controller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from migrator.image.model import ImageDelta, MetadataImage
from migrator.node.core import NodeCore
from migrator.observe.propagation import PropagationMode, PropagationTimes
from migrator.supervision import OnError, Supervisor, TaskKind

FOLLOWING = TaskKind("propagation", OnError.DROP)
LOOK_SECONDS = 0.1
PENDING_MAX = 1_000
"""The most changes that are measured at a time; further ones are not measured."""


class Pending:
    """Changes that not every broker has reported yet, oldest first. Times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._changes: deque[tuple[int, float]] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def committed(self, offset: int, now: float) -> None:
        """Begin to measure a change."""
        if len(self._changes) < PENDING_MAX:
            self._changes.append((offset, now))

    def known_up_to(self, offset: int, now: float) -> list[float]:
        """Every broker knows everything up to that offset (inclusive). Returns how long each change took, in
        seconds."""
        took = []
        while self._changes and self._changes[0][0] <= offset:
            took.append(now - self._changes.popleft()[1])
        return took

    def clear(self) -> None:
        """Forget all changes, because heartbeats no longer arrive at this node."""
        self._changes.clear()


class KRaftPropagation:
    """The measurement on the active controller. A `LeaderListener`, and a subscriber of the published image."""

    def __init__(self, core: NodeCore, times: PropagationTimes, on_failure: Callable[[BaseException], None]) -> None:
        self._core = core
        self._times = times
        self._supervisor = Supervisor(on_failure)
        self._pending = Pending()
        self._next_look: asyncio.TimerHandle | None = None
        """Set as long as changes are pending."""
        self._clock = asyncio.get_running_loop().time
        core.leadership.listeners.append(self)
        core.metadata.subscribers.append(self._published)

    def close(self) -> None:
        """Stop measuring."""
        self._core.metadata.subscribers.remove(self._published)
        if self._next_look is not None:
            self._next_look.cancel()

    def became_active(self, epoch: int, image: MetadataImage) -> None:
        """This node is the active controller of ``epoch``; ``image`` is the committed one (see `LeaderListener`)."""

    def lost_leadership(self, epoch: int) -> None:  # noqa: ARG002 - the listener's signature
        """This node is no longer the active controller of ``epoch`` (see `LeaderListener`)."""
        self._pending.clear()

    def _published(self, delta: ImageDelta) -> None:
        changes = delta.changes
        if self._core.controller.epoch is not None and (changes.topics or changes.partitions or changes.configs):
            self._pending.committed(delta.after.provenance.offset, self._clock())
            if self._next_look is None:
                self._look_later()

    def _look_later(self) -> None:
        self._next_look = self._supervisor.call_later(FOLLOWING, LOOK_SECONDS, self._follow)

    def _follow(self) -> None:
        self._next_look = None
        if self._pending:
            self._look_later()
            self._look()

    def _look(self) -> None:
        sessions = self._core.keeper.sessions
        reported = [
            -1 if (session := sessions.get(broker_id)) is None else session.metadata_offset
            for broker_id, broker in self._core.metadata.published.cluster.brokers.items()
            if not broker.fenced and not broker.is_migrating_zk_broker
        ]
        if not reported:
            self._pending.clear()
            return
        for seconds in self._pending.known_up_to(min(reported), self._clock()):
            self._times.observe(PropagationMode.KRAFT, seconds)
