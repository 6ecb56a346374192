"""Keeps brokers in ZooKeeper mode up to date: plans the requests for each image, in slices, and hands them to channels.

One task makes one plan after the other. Each begins at the image of the plan before; changes that come meanwhile become
one delta. So requests never overtake each other, however slow a plan is. A step that fails unexpectedly is tried again
after a back-off, with what was published meanwhile: the next leader would have to plan from the same image.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Container
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeVar

from kio.schema.errors import ErrorCode

from migrator.image.changes import join_changes, merge_steps
from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.migration.broker_rpcs.channels import EVERYTHING, LEADERS, Answered, BrokerChannels, Connect
from migrator.migration.broker_rpcs.deltas import plan_again, plan_delta
from migrator.migration.broker_rpcs.receipts import Receipt
from migrator.migration.broker_rpcs.requests import (
    NOTHING_OPEN,
    RequestPlan,
    Terms,
    Told,
    Work,
    first_updates,
    plan_full,
    plan_released,
    plan_takeover,
    recipients,
)
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.turns import give_back
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import LeaderAndIsr, LegacyRequest, SendingController

log = logging.getLogger(__name__)

T = TypeVar("T")
PLANNER = TaskKind("broker-planner", OnError.RESTART)
CLOSING = TaskKind("broker-channels-closing", OnError.DROP)

WITHOUT_TOPIC_IDS = (
    "it refused a whole LeaderAndIsr, as brokers with logs without a topic id do; from now on its requests name "
    "changes only, so it moves no stray logs aside"
)
Step = Callable[[], Awaitable[None]]


class BrokerMessenger:
    """Open while a claim is held.

    :param on_failure: is called when planning breaks an invariant.
    :param on_told: is called with the seconds from the commit of a change until every broker had answered.
    """

    def __init__(
        self,
        listener: str,
        connect: Connect,
        on_failure: OnFailure,
        on_told: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._on_told = on_told
        self._pending_since = 0.0
        """The time at which the oldest unplanned change was committed."""
        self._listener = listener
        self._connect = connect
        self._on_failure = on_failure
        self._supervisor = Supervisor(on_failure)
        self._fault = ""
        """Why planning fails, so that no broker gets requests; empty when planning works."""
        self._missed: set[int] = set()
        self._channels: BrokerChannels | None = None
        self._terms = Terms(listener)
        self._told: Told = NOTHING_OPEN
        self._image: MetadataImage | None = None
        self._pending: list[Changes] = []
        self._telling: list[Changes] = []
        """The changes that are being planned; they are planned again if that fails."""
        self._telling_since = 0.0
        self._newest: MetadataImage | None = None
        """The image after the pending changes."""
        self._reached = -1
        self._steps: deque[Step] = deque()
        self._full: list[asyncio.Future[bool]] = []
        """The callers that wait for the full state to be queued, or have waited."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> dict[int, int]:
        """How many requests wait, by broker."""
        return {} if self._channels is None else self._channels.queued

    @property
    def troubles(self) -> dict[int, str]:
        """The faults of brokers in ZooKeeper mode that run and cannot be reached, or refuse requests, by id."""
        if self._channels is None or self._image is None:
            return {}
        told = recipients(self._image)
        without_ids = dict.fromkeys(self._terms.without_topic_ids, WITHOUT_TOPIC_IDS)
        planning = dict.fromkeys(told, self._fault) if self._fault else {}
        found = without_ids | self._channels.troubles | planning
        return {broker_id: found[broker_id] for broker_id in sorted(found.keys() & told.keys())}

    def open(
        self, controller: SendingController, image: MetadataImage, has_config: Container[str], predecessor_offset: int
    ) -> None:
        """Send the first, partial state to every broker, because a claim is held now. ZooKeeper may have `reached`
        something under this claim already."""
        reached = self._reached
        self.close()
        self._reached = reached
        self._channels = BrokerChannels(
            RequestEncoder(controller),
            self._connect,
            self._listener,
            on_answer=self._answered,
            on_overflow=self._tell_anew,
            on_failure=self._on_failure,
        )
        self._terms, self._told, self._image = Terms(self._listener), NOTHING_OPEN, image
        self._missed = set()

        async def step() -> None:
            await self._inform(image)
            await self._send(plan_takeover(image, self._terms, has_config, predecessor_offset), image)

        self._steps.append(step)
        self._task = self._supervisor.keep(PLANNER, self._run, on_error=self._failed)
        self._wake.set()

    async def full(self) -> bool:
        """ZooKeeper equals the image: send the full state to every broker. Returns whether it is queued; it is not when
        the claim is gone."""
        if self._channels is None:
            return False
        queued: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._full.append(queued)

        async def step() -> None:
            image = self._image
            if image is not None:
                await self._send(plan_full(image, self._terms, self._told, self._reached), image, replaces=LEADERS)
                self._terms = replace(self._terms, confirmed=True)
                _conclude(queued, result=True)

        self._add(step)
        return await queued

    def publish(self, delta: ImageDelta) -> None:
        """Take a committed change."""
        if self._channels is not None:
            if not self._pending:
                self._pending_since = asyncio.get_running_loop().time()
            join_changes(self._pending, (delta.changes,))
            self._newest = delta.after
            self._add(self._tell_pending)

    def reached(self, offset: int) -> None:
        """Note that ZooKeeper holds everything up to this offset."""
        self._reached = max(self._reached, offset)
        if self._channels is not None and self._told.is_open:
            self._add(self._release)

    def close(self) -> None:
        """Stop sending, because the claim is gone."""
        self._steps = deque()
        self._pending, self._telling = [], []
        self._image, self._reached = None, -1
        self._fault = ""
        for queued in self._full:
            _conclude(queued, result=False)
        self._full = []
        tasks, channels = self._task, self._channels
        self._task, self._channels = None, None
        if tasks is not None:
            tasks.cancel()
        if channels is not None:
            closing = self._supervisor.spawn(CLOSING, channels.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def closed(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _add(self, step: Step) -> None:
        """Queue a step behind the others. A step of the same kind may be under way: it began with an older image."""
        if step not in itertools.islice(self._steps, 1, None):
            self._steps.append(step)
        self._wake.set()

    async def _run(self) -> None:
        steps = self._steps
        while True:
            await self._wake.wait()
            while steps:
                await steps[0]()
                self._fault = ""
                steps.popleft()
            self._wake.clear()

    def _failed(self, error: Exception) -> None:
        self._fault = f"requests for it cannot be planned: {type(error).__name__}: {error}"

    async def _inform(self, image: MetadataImage) -> None:
        """Hand the first UpdateMetadata to the channels, each part as soon as it is planned."""
        for part in first_updates(image, self._terms):
            if self._channels is None:
                return
            if part:
                self._channels.registered(image.cluster.brokers)
                self._channels.send(part)
            await give_back()

    async def _tell_pending(self) -> None:
        before, after = self._image, self._newest
        if before is None or after is None or not (self._telling or self._pending):
            return
        if not self._telling:
            self._telling_since = self._pending_since
        self._telling += self._pending
        self._pending = []
        clock, since = asyncio.get_running_loop().time, self._telling_since
        receipt = Receipt(lambda: self._on_told(clock() - since))
        changes = await _finish(merge_steps(self._telling))
        work = plan_delta(ImageDelta(before, after, changes), self._terms, self._told)
        await self._send(work, after, receipt=receipt)
        self._telling = []

    def _tell_anew(self, broker_id: int) -> None:
        """The broker's queue was discarded: send it the full state."""
        self._missed.add(broker_id)
        self._add(self._tell_again)

    def _answered(self, answered: Answered) -> None:
        log.warning("Broker %d: %s", answered.broker_id, answered.refusal)
        failed_whole = answered.request == LeaderAndIsr.__name__ and answered.error is ErrorCode.unknown_server_error
        if failed_whole and answered.broker_id not in self._terms.without_topic_ids:
            # `LogManager.findStrayReplicas` throws on a log without a topic id, but only for requests of type 2.
            without = self._terms.without_topic_ids | {answered.broker_id}
            self._terms = replace(self._terms, without_topic_ids=without)
            self._tell_anew(answered.broker_id)

    async def _tell_again(self) -> None:
        """Plan the full state for brokers that missed something. A fenced broker waits until it is back."""
        if self._image is None:
            return
        missed = self._missed & recipients(self._image).keys()
        if missed:
            work = plan_again(self._image, self._terms, self._told, missed)
            await self._send(work, self._image, replaces=EVERYTHING, anew=missed)

    async def _release(self) -> None:
        if self._image is not None and self._told.is_open:
            await self._send(plan_released(self._image, self._terms, self._told, self._reached), self._image)

    async def _send(
        self,
        work: Work[RequestPlan],
        image: MetadataImage,
        *,
        replaces: tuple[type[LegacyRequest], ...] = (),
        anew: AbstractSet[int] = frozenset(),
        receipt: Receipt | None = None,
    ) -> None:
        """Hand a plan to the channels.

        :param anew: the brokers that get the full state in it.
        """
        plan = await _finish(work)
        if self._channels is None:
            return
        self._missed -= anew
        self._channels.registered(image.cluster.brokers)
        self._channels.send(plan.sends, replaces=replaces, receipt=receipt)
        self._image, self._told = image, plan.told
        if self._missed & recipients(image).keys():
            self._add(self._tell_again)
        if self._told.is_due(self._reached):
            self._add(self._release)


def _conclude(waiting: asyncio.Future[bool], *, result: bool) -> None:
    if not waiting.done():
        waiting.set_result(result)


async def _finish(work: Work[T]) -> T:
    """Run a planner to its end, and give the event loop a turn at each of its yields."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            plan: T = end.value
            return plan
        await give_back()
