"""The times at which a leader's periodic tasks are due.

A `Schedule` lasts one leader's term. The node asks `next_due_ms` how long to sleep, then takes one decision after the
other from `due`, and appends each before it asks for the next. A task that the state of the migration forbids
(`migration_gate`) is delayed by its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from migrator.controller import periodic
from migrator.controller.context import Context, ControllerSettings
from migrator.controller.decision import Decision
from migrator.controller.errands import go_on
from migrator.controller.index import ControllerIndex, TopicPartition
from migrator.controller.migration_gate import Operation, refusal
from migrator.image.model import MetadataImage
from migrator.turns import parts
from migrator.values import value

UNCLEAN_ELECTION_INTERVAL_MS: Final = 300_000
SOON_MS: Final = 10
"""The pause between two turns of a task that needs several."""
FENCING_PUT_OFF_MS: Final = 1_000
MISSING_LEADERS_MS: Final = 200
"""The time from a leader's election, or from the end of the copy, to the election of missing partition leaders."""


def _nothing(_image: MetadataImage, _index: ControllerIndex) -> Iterable[Any]:
    return ()


@value
class Task:
    """A task that is done every ``interval_ms``, or only once.

    Its ``keys`` are listed when it begins and decided over several turns. Each decision uses the image of its moment.
    """

    operation: Operation
    interval_ms: int
    decide: Callable[[MetadataImage, Context, Sequence[Any]], Decision[Any]]
    keys: Callable[[MetadataImage, ControllerIndex], Iterable[Any]] = _nothing
    once: bool = False


def _leaderless(_image: MetadataImage, index: ControllerIndex) -> Iterable[TopicPartition]:
    return index.leaderless


def _imbalanced(_image: MetadataImage, index: ControllerIndex) -> Iterable[TopicPartition]:
    return index.imbalanced


def _tokens(image: MetadataImage, _index: ControllerIndex) -> Iterable[str]:
    return image.tokens


def tasks_of(settings: ControllerSettings) -> tuple[Task, ...]:
    """The periodic tasks that the settings ask for; fencing, whose time follows from sessions, is not among them."""
    tasks = [
        Task(Operation.ELECT_MISSING, MISSING_LEADERS_MS, periodic.elect_missing_leaders, _leaderless, once=True),
        Task(Operation.ELECT_UNCLEAN, UNCLEAN_ELECTION_INTERVAL_MS, periodic.elect_unclean_leaders, _leaderless),
        Task(
            Operation.SWEEP_TOKENS, settings.delegation_token_expiry_check_interval_ms, periodic.sweep_tokens, _tokens
        ),
    ]
    if settings.metadata_max_idle_interval_ms > 0:
        tasks.append(Task(Operation.NO_OP, settings.metadata_max_idle_interval_ms, periodic.no_op))
    if settings.auto_leader_rebalance_enable:
        interval_ms = settings.leader_imbalance_check_interval_seconds * 1000
        tasks.append(Task(Operation.BALANCE_LEADERS, interval_ms, periodic.balance_leaders, _imbalanced))
    return tuple(tasks)


class Schedule:
    """The due times of a leader's periodic tasks, in monotonic milliseconds."""

    __slots__ = ("_due_ms", "_errands_put_off_ms", "_fencing_put_off_ms", "_tasks", "_walks")

    def __init__(self, settings: ControllerSettings, now_ms: int) -> None:
        self._tasks = tasks_of(settings)
        self._due_ms = {task.operation: now_ms + task.interval_ms for task in self._tasks}
        self._fencing_put_off_ms = self._errands_put_off_ms = now_ms
        self._walks: dict[Operation, Iterator[tuple[Any, ...]]] = {}
        """The remaining keys of the tasks that have begun."""

    def next_due_ms(self, image: MetadataImage, context: Context) -> int | None:
        """The time of the next due task; None when there is none in the present state."""
        fencing = self._fencing_due_ms(image, context)
        times = [*self._due_ms.values(), *(() if fencing is None else (fencing,))]
        if context.sessions.next_errand is not None:
            times.append(max(context.now_ms, self._errands_put_off_ms))
        return min(times, default=None)

    def due(self, image: MetadataImage, context: Context) -> tuple[Operation, Decision[Any]] | None:
        """The first decision that is due, the fencing of silent brokers before all others; None when none is due."""
        fencing = self._fencing_due_ms(image, context)
        if fencing is not None and fencing <= context.now_ms:
            if refusal(image, Operation.FENCE_BROKER, transaction_open=context.transaction_open) is None:
                return Operation.FENCE_BROKER, periodic.fence_silent_broker(image, context)
            self._fencing_put_off_ms = context.now_ms + FENCING_PUT_OFF_MS
        errand = context.sessions.next_errand
        if errand is not None and context.now_ms >= self._errands_put_off_ms:
            if refusal(image, Operation.FENCE_BROKER, transaction_open=context.transaction_open) is None:
                return Operation.FENCE_BROKER, go_on(image, context, errand)
            self._errands_put_off_ms = context.now_ms + FENCING_PUT_OFF_MS
        for task in self._tasks:
            due_ms = self._due_ms.get(task.operation)
            if due_ms is None or due_ms > context.now_ms:
                continue
            self._due_ms[task.operation] = context.now_ms + task.interval_ms
            if refusal(image, task.operation, transaction_open=context.transaction_open) is None:
                decision = self._decide_on(task, image, context)
                if task.operation in self._walks:
                    self._due_ms[task.operation] = context.now_ms + SOON_MS
                elif task.once:
                    del self._due_ms[task.operation]
                return task.operation, decision
        return None

    def _decide_on(self, task: Task, image: MetadataImage, context: Context) -> Decision[Any]:
        walk = self._walks.pop(task.operation, None) or parts(task.keys(image, context.index))
        decision = task.decide(image, context, next(walk, ()))
        following = next(walk, None)
        if following is not None:
            self._walks[task.operation] = chain((following,), walk)
        return decision

    def _fencing_due_ms(self, image: MetadataImage, context: Context) -> int | None:
        silent_from = context.sessions.next_check_ms(image, context.now_ms)
        return None if silent_from is None else max(silent_from, self._fencing_put_off_ms)
