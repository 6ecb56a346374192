"""The periodic decisions of a leader, and when they are due. Source: Kafka's ``QuorumController``.

A `Schedule` lasts one leader's term. The node asks `next_due_ms` how long to sleep, then takes one decision after the
other from `due`, and appends each before it asks for the next. A task that the state of the migration forbids
(`migration_gate`) is delayed by its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from migrator.controller.context import Context, ControllerSettings, supports
from migrator.controller.decision import Decision
from migrator.controller.delegation_tokens import expired_tokens, secret_key
from migrator.controller.effective import UncleanElections
from migrator.controller.elections import elect
from migrator.controller.errands import go_on, leaving, next_records
from migrator.controller.index import ControllerIndex, TopicPartition
from migrator.controller.migration_gate import Operation, refusal
from migrator.controller.partition_change import (
    ChangeRules,
    Election,
    PartitionTarget,
    leader_and_isr_changes,
    present,
)
from migrator.image.model import MetadataImage
from migrator.records.metadata import NO_LEADER, MetadataRecord, NoOpRecord
from migrator.records.versions import MinLevel
from migrator.turns import parts
from migrator.values import value


def fence_silent_broker(image: MetadataImage, context: Context) -> Decision[int | None]:
    """Fence the broker that has been silent longest, if its session is over; the answer is its id. One broker at a
    time, so that each decision sees the one before. A broker with many partitions is fenced at the end of an errand."""
    broker_id = context.sessions.stalest(image, context.now_ms)
    if broker_id is None:
        return Decision(None)
    errand = leaving(context, image.cluster.brokers[broker_id], fences=True)
    if errand.is_last:
        return Decision(broker_id, tuple(next_records(image, context, errand)), atomic=False)
    return Decision(broker_id, note=lambda sessions, _end, _now: sessions.begin_errand(errand))


def balance_leaders(image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]) -> Decision[None]:
    """Move leadership of these partitions to preferred replicas that can take it."""
    rules = ChangeRules(image, context)
    records: list[MetadataRecord] = []
    for where, _, partition in present(image, partitions):
        preferred = partition.replicas[0] if partition.replicas else NO_LEADER
        if preferred not in partition.isr or not rules.can_lead(preferred, partition):
            continue
        record = rules.change(where, partition, PartitionTarget(election=Election.PREFERRED))
        if record is not None:
            records.append(record)
    return Decision(None, tuple(records))


def elect_unclean_leaders(
    image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]
) -> Decision[None]:
    """Elect any live replica for those of the partitions that have no leader and whose topics allow it."""
    rules, unclean = ChangeRules(image, context), UncleanElections(image, context)
    records: list[MetadataRecord] = []
    for where, topic, _ in present(image, partitions):
        if unclean.enabled(topic.name):
            _, record = elect(image, rules, topic.name, where[1], Election.UNCLEAN)
            if record is not None:
                records.append(record)
    return Decision(None, tuple(records))


def elect_missing_leaders(
    image: MetadataImage, context: Context, partitions: Iterable[TopicPartition]
) -> Decision[None]:
    """Elect a leader for those of the partitions that have none, although a replica that may lead is unfenced.

    Normally the unfencing of a broker does that. But brokers are unfenced before the copy, and the copy may bring
    partitions for which ZooKeeper's controller had no time to elect a leader. Kafka elects these at the next balancing
    of leaders, minutes later.
    """
    return Decision(None, tuple(leader_and_isr_changes(image, context, partitions)))


def no_op(image: MetadataImage, _: Context, _nothing: Iterable[object]) -> Decision[None]:
    """A NoOpRecord, whose commit shows that the quorum works."""
    return Decision(None, (NoOpRecord(),) if supports(image, MinLevel.NO_OP_RECORD) else ())


def sweep_tokens(image: MetadataImage, context: Context, token_ids: Iterable[str]) -> Decision[None]:
    """Remove those of these delegation tokens that are expired."""
    if secret_key(context.settings) is None or not supports(image, MinLevel.DELEGATION_TOKENS):
        return Decision(None)
    return Decision(None, tuple(expired_tokens(image, context, sorted(token_ids))))


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
        Task(Operation.ELECT_MISSING, MISSING_LEADERS_MS, elect_missing_leaders, _leaderless, once=True),
        Task(Operation.ELECT_UNCLEAN, UNCLEAN_ELECTION_INTERVAL_MS, elect_unclean_leaders, _leaderless),
        Task(Operation.SWEEP_TOKENS, settings.delegation_token_expiry_check_interval_ms, sweep_tokens, _tokens),
    ]
    if settings.metadata_max_idle_interval_ms > 0:
        tasks.append(Task(Operation.NO_OP, settings.metadata_max_idle_interval_ms, no_op))
    if settings.auto_leader_rebalance_enable:
        interval_ms = settings.leader_imbalance_check_interval_seconds * 1000
        tasks.append(Task(Operation.BALANCE_LEADERS, interval_ms, balance_leaders, _imbalanced))
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
                return Operation.FENCE_BROKER, fence_silent_broker(image, context)
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
