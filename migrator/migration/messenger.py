"""Keeps the brokers in ZooKeeper mode told: plans what follows from each image, in slices, and hands it to channels.

One task plans, one plan after the other, each from the image of the one before; changes that come meanwhile are one
delta. So a slow plan never lets requests overtake each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace

from migrator.errors import MigratorError
from migrator.image.changes import merge_changes
from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.migration.broker_rpcs import (
    NOTHING_OPEN,
    Plan,
    Terms,
    Told,
    Work,
    plan_full,
    plan_released,
    plan_takeover,
    recipients,
)
from migrator.migration.broker_rpcs_delta import plan_again, plan_delta
from migrator.migration.rpc_channels import EVERYTHING, LEADERS, Answered, BrokerChannels, Connect
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import Controller, LegacyRequest

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


class BrokerMessenger:
    """Open while a claim is held.

    :param on_failure: told when planning breaks an invariant.
    """

    def __init__(self, listener: str, connect: Connect, on_failure: Callable[[BaseException], None]) -> None:
        self._listener = listener
        self._connect = connect
        self._on_failure = on_failure
        self._missed: set[int] = set()
        self._channels: BrokerChannels | None = None
        self._terms = Terms(listener)
        self._told: Told = NOTHING_OPEN
        self._image: MetadataImage | None = None
        self._pending: list[ImageDelta] = []
        self._reached = -1
        self._steps: deque[Step] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> dict[int, int]:
        """How many requests wait, by broker."""
        return {} if self._channels is None else self._channels.queued

    def open(
        self, controller: Controller, image: MetadataImage, has_config: Container[str], predecessor_offset: int
    ) -> None:
        """A claim is held: first words to every broker."""
        self.close()
        self._channels = BrokerChannels(
            RequestEncoder(controller),
            self._connect,
            self._listener,
            on_answer=_report,
            on_overflow=self._missed.add,
        )
        self._terms, self._told, self._image = Terms(self._listener), NOTHING_OPEN, image
        self._pending, self._reached = [], -1
        self._steps.append(lambda: self._send(plan_takeover(image, self._terms, has_config, predecessor_offset), image))
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._wake.set()

    def full(self, done: Callable[[], None]) -> None:
        """ZooKeeper equals the image: everybody gets everything; ``done`` is called when it is queued."""

        async def step() -> None:
            image = self._image
            if image is not None:
                await self._send(plan_full(image, self._terms, self._told, self._reached), image, replaces=LEADERS)
                self._terms = replace(self._terms, confirmed=True)
                done()

        self._add(step)

    def publish(self, delta: ImageDelta) -> None:
        """A committed change."""
        if self._channels is not None:
            self._pending.append(delta)
            self._add(self._tell_pending)

    def reached(self, offset: int) -> None:
        """ZooKeeper holds everything up to this offset."""
        self._reached = max(self._reached, offset)
        if self._channels is not None and self._told.waiting:
            self._add(self._release)

    def close(self) -> None:
        """The claim is gone: nobody is told anything any more."""
        self._steps.clear()
        self._pending = []
        self._image = None
        tasks, channels = self._task, self._channels
        self._task, self._channels = None, None
        if tasks is not None:
            tasks.cancel()
        if channels is not None:
            closing = asyncio.get_running_loop().create_task(channels.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                while self._steps:
                    await self._steps.popleft()()
                self._wake.clear()
        except MigratorError as error:
            self._on_failure(error)

    async def _tell_pending(self) -> None:
        deltas, self._pending = self._pending, []
        if not deltas or self._image is None or self._channels is None:
            return
        after = deltas[-1].after
        changes: Changes = merge_changes([delta.changes for delta in deltas])
        await self._send(plan_delta(ImageDelta(self._image, after, changes), self._terms, self._told), after)

    async def _tell_again(self) -> None:
        """Whoever is fenced waits until it is back."""
        if self._image is None:
            return
        missed = self._missed & recipients(self._image).keys()
        self._missed -= missed
        if missed:
            work = plan_again(self._image, self._terms, self._told, missed)
            await self._send(work, self._image, replaces=EVERYTHING)

    async def _release(self) -> None:
        if self._image is not None and self._told.waiting:
            await self._send(plan_released(self._image, self._terms, self._told, self._reached), self._image)

    async def _send(
        self, work: Work[Plan], image: MetadataImage, *, replaces: tuple[type[LegacyRequest], ...] = ()
    ) -> None:
        plan = await _finish(work)
        if self._channels is None:
            return
        self._image, self._told = image, plan.told
        self._channels.registered(image.cluster.brokers)
        self._channels.send(plan.sends, replaces=replaces)
        if self._missed:
            self._add(self._tell_again)
        if self._told.waiting and any(offset <= self._reached for offset in self._told.waiting.values()):
            self._add(self._release)


def _report(answered: Answered) -> None:
    refused = "".join(f", {error.name} for {count} partitions" for error, count in answered.partition_errors.items())
    log.warning("Broker %d answers a %s: %s%s", answered.broker_id, answered.request, answered.error.name, refused)


async def _finish(work: Work[Plan]) -> Plan:
    """Run a planner to its end, with a turn for others at each of its yields."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            plan: Plan = end.value
            return plan
        await asyncio.sleep(0)
