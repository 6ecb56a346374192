"""The active controller: one writer that decides on the image at the log's end, for as long as this node leads.

A write waits for its turn, decides, appends, and answers when its records are committed and outside a transaction. When
the leadership is lost, all waiting writes end with NOT_CONTROLLER, and brokers and clients ask the next leader.
Source: ``org.apache.kafka.controller.QuorumController``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.controller import activation
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.index import ControllerIndex
from migrator.controller.migration_gate import Operation, check_gate
from migrator.controller.mutation_quotas import MutationBuckets
from migrator.controller.schedule import Schedule
from migrator.controller.sessions import Sessions
from migrator.image.model import Changes, MetadataImage
from migrator.image.topics import removed_partitions
from migrator.machine import machine
from migrator.migration.machine.voters import NOBODY_ASKED, VoterKinds, why_not_in_migration
from migrator.node.metadata import MetadataRuntime, NotLeadingError
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.states import Role
from migrator.raft.voter_changes import VoterChange, VotersNotChangedError
from migrator.raft.voter_set import VoterSet
from migrator.records.batch import BATCH_BYTES_MAX, build_batch
from migrator.records.codec import encode_all
from migrator.records.errors import TooLongError
from migrator.records.metadata import AbortTransactionRecord, FeatureLevelRecord, MetadataRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import FEATURE_NAME
from migrator.turns import TURN_RECORDS, give_back, parts
from migrator.wire.aside import lanes
from migrator.wire.requests import REQUEST

log = logging.getLogger(__name__)

R = TypeVar("R")
Admit = Callable[[], Awaitable[None]]
Check = Callable[[MetadataImage, ControllerIndex, Sequence[MetadataRecord]], None]
Decide = Callable[[MetadataImage, Context], Decision[R]]

UNCOMMITTED_RECORDS = 6 * TURN_RECORDS
"""Periodic tasks wait while this many records are uncommitted: a heartbeat is answered only after all earlier records
are committed, so it must not wait for a long errand. A smaller bound would make the leader wait for its followers,
whose rounds (check, write, fsync, apply) take as long as several decisions."""
NOT_ACTIVE = "This node is not the active controller."
NOTHING_APPENDED = "epoch {epoch} ended, or the disk is full, while records were appended"


class IndexKeeper:
    """Keeps the index of decisions, and the broker sessions, in step with the image at the log's end.

    Every node keeps the index, so that a new leader can decide at once. Only a leader has sessions.
    """

    def __init__(self, session_timeout_ms: int, token_secret: bytes | None = None) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._token_secret = token_secret
        self._follows = False
        self.index = ControllerIndex(token_secret)
        self.leads = False
        self.sessions = Sessions(session_timeout_ms)

    def begin(self, image: MetadataImage) -> None:
        """A new leader begins every session anew.

        :param image: the image at the log's end.
        """
        self.leads = True
        self.sessions = Sessions(self._session_timeout_ms)
        self.sessions.begin(image, monotonic_ms())

    def end(self) -> None:
        """The leadership is lost."""
        self.leads = False

    def replace(self, image: MetadataImage) -> Iterator[None]:
        """Replace all earlier images by another one, in effect when the generator ends; it yields where a turn is
        over."""
        index = ControllerIndex(self._token_secret)
        yield from index.fill(image)
        self.index, self._follows = index, True

    def follow(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[None] | None:
        """Follow one change of the image; returns the rest of the work (see `ControllerIndex.apply`). Before `replace`,
        the index does not follow."""
        if self.leads:
            self.sessions.follow(after, changes.brokers, monotonic_ms())
        return self.index.apply(before, after, changes) if self._follows else None

    def leap(self, before: MetadataImage, after: MetadataImage) -> None:
        """Note a change that is too long to be followed: a `replace` comes."""
        self._follows = False
        if self.leads:
            self.sessions.follow(after, {*before.cluster.brokers, *after.cluster.brokers}, monotonic_ms())


class ActiveController:
    """Decides and writes to the log while this node leads.

    :param admit: awaited before an administrative operation; raises `RefusedError` when that takes too long.
    :param check: gets the records of every decision before they are appended; raises `RefusedError` to refuse them.
    """

    def __init__(
        self,
        settings: Settings,
        cluster_id: str,
        quorum: QuorumRunner,
        metadata: MetadataRuntime,
        keeper: IndexKeeper,
        end_offset: Callable[[], int],
        admit: Admit,
        check: Check,
        addresses: Addresses,
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._addresses = addresses
        self._quorum = quorum
        self._metadata = metadata
        self._keeper = keeper
        self._end_offset = end_offset
        self._admit = admit
        self._check = check
        self._mutations = MutationBuckets()
        self._random = Random(machine().random().getrandbits(64))
        self._turn = asyncio.Lock()
        self.has_errands = asyncio.Event()
        """Set when errands are left for later decisions (`run_due`)."""
        self._epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The leader epoch in which this node is active; None when it is not."""
        return self._epoch

    def check_active(self) -> int:
        """The leader epoch.

        :raises RefusedError: NOT_CONTROLLER.
        """
        if self._epoch is None:
            raise RefusedError(ErrorCode.not_controller, NOT_ACTIVE)
        return self._epoch

    async def activate(self, epoch: int, bootstrap: Sequence[MetadataRecord]) -> None:
        """Become active in an epoch that was just won: apply everything, write the first records of a new leader, and
        wait until these are published.

        :raises NotLeadingError: the leadership is lost again.
        :raises OperatorError: the migration flag contradicts the state of the cluster.
        """
        start = self._quorum.epoch_start_offset
        if start is None:
            raise NotLeadingError("the leadership is gone")
        await self._metadata.committed_up_to(start)
        async with self._turn:
            await self._metadata.caught_up()
            image = self._metadata.published
            is_open = self._metadata.transaction_start is not None
            enabled = self._settings.zookeeper_metadata_migration_enable
            if image.provenance.offset < 0:
                records = activation.bootstrap_records(bootstrap, migration_enabled=enabled, transaction_open=is_open)
            else:
                records = activation.activation_records(image, migration_enabled=enabled, transaction_open=is_open)
            if records:
                self._append(epoch, records)
            self._keeper.begin(self._metadata.image)
            self._epoch = epoch
            last = self._metadata.end_offset - 1
        await self._metadata.stable(last)
        log.info("This node is now the active controller, epoch %d", epoch)

    def deactivate(self) -> None:
        """The leadership is lost."""
        if self._epoch is not None:
            log.info("This node is no longer the active controller")
        self._epoch = None
        self._keeper.end()
        self._metadata.abandon_waiters()

    async def write(
        self,
        operation: Operation,
        decide: Decide[R],
        *,
        epoch: int | None = None,
        administrative: bool = False,
        aside: bool = False,
    ) -> R:
        """Decide, append, and wait until it is committed.

        :param epoch: the leader epoch of the caller; None for any.
        :param administrative: first waits while ZooKeeper is too far behind the log.
        :param aside: the decision may take long, and is made on a thread. No other decision is made meanwhile.
        :raises RefusedError: NOT_CONTROLLER when this node is not, or no longer, the active controller; and
            whatever the decision raises.
        """
        self.check_active()
        request = REQUEST.get()
        with request.abandonable():
            if administrative:
                await self._admit()
            await self._turn.acquire()
        try:
            response, last_offset = await self._decide(operation, decide, epoch, aside=aside)
        finally:
            self._turn.release()
        request.appended()
        try:
            await self._metadata.stable(last_offset)
        except NotLeadingError as error:
            raise RefusedError(ErrorCode.not_controller, str(error)) from error
        return response

    async def append(
        self, epoch: int, records: Sequence[MetadataRecord], *, look: Callable[[], None] = lambda: None
    ) -> int:
        """Append records of the migration as one batch, and return the last offset; they are not yet committed.

        :param look: called when it is this caller's turn; its errors are raised, and then nothing is appended.
        :raises NotLeadingError: ``epoch`` is over.
        """
        async with self._turn:
            await self._metadata.caught_up()
            self._check_epoch(epoch)
            look()
            return self._append(epoch, records)

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        """Append batches that a worker has encoded, once everything before them is applied; returns the last offset.

        :raises NotLeadingError: ``epoch`` is over.
        """
        async with self._turn:
            await self._metadata.caught_up()
            self._check_epoch(epoch)
            return self._taken(epoch, self._quorum.append(epoch, batches))

    async def change_voters(
        self,
        change: VoterChange,
        look: Callable[[], object] = lambda: None,
        *,
        kinds: VoterKinds = NOBODY_ASKED,
        first: Sequence[MetadataRecord] = (),
    ) -> int:
        """Append a changed voter set when it is this caller's turn: between two decisions and never within one, since a
        decision depends on the voters of its moment. Returns the offset, which is not yet committed.

        :param kinds: the answers of the voters about themselves; needed only during a migration.
        :param look: as in `append`.
        :param first: records that are appended right before, with nothing between.
        :raises VotersNotChangedError: the leader refuses, or this node does not lead.
        :raises NotLeadingError: nothing was appended, because the leadership is lost or the disk is full.
        """
        async with self._turn:
            await self._metadata.caught_up()
            look()
            self._check_migration(change, kinds)
            if first:
                self._append(self._quorum.epoch, first)
            return self._quorum.change_voters(change)

    def _check_migration(self, change: VoterChange, kinds: VoterKinds) -> None:
        voters = self._quorum.membership.voters or VoterSet(())
        refusal = why_not_in_migration(self._metadata.published, self._metadata.image, voters, change, kinds)
        if refusal is not None:
            raise VotersNotChangedError(refusal)

    async def abort_open(self, epoch: int, reason: str) -> int | None:
        """Append AbortTransaction if the log ends within a transaction. Returns its offset, None when no transaction is
        open.

        :raises NotLeadingError: ``epoch`` is over.
        """
        async with self._turn:
            await self._metadata.caught_up()
            self._check_epoch(epoch)
            if self._metadata.transaction_start is None:
                return None
            return self._append(epoch, (AbortTransactionRecord(reason),))

    def context(self) -> Context:
        """The context of a decision that is made now.

        :raises RefusedError: NOT_CONTROLLER.
        """
        if not self._keeper.leads:
            raise RefusedError(ErrorCode.not_controller, NOT_ACTIVE)
        return Context(
            cluster_id=self._cluster_id,
            settings=self._settings,
            voters=self._addresses.voter_ids,
            leader_id=self._settings.node_id,
            kraft_version=self._addresses.kraft_version,
            index=self._keeper.index,
            sessions=self._keeper.sessions,
            mutations=self._mutations,
            random=self._random,
            now_ms=monotonic_ms(),
            wall_ms=wall_ms(),
            next_offset=self._end_offset(),
            transaction_open=self._metadata.transaction_start is not None,
        )

    def asked_to_register(self, broker_id: int, incarnation_id: Uuid, cluster_id: str, *, migrating: bool) -> None:
        """Note that a broker has asked to register. While a transaction is open, a broker in migration mode is told to
        wait, and noted as alive. A process other than the one registered with this id is noted, too."""
        now_ms = monotonic_ms()
        if migrating and self._metadata.transaction_start is not None:
            self._keeper.sessions.asked(broker_id, now_ms)
        registered = self._metadata.published.cluster.brokers.get(broker_id)
        if registered is not None and registered.incarnation_id != incarnation_id and cluster_id == self._cluster_id:
            self._keeper.sessions.rival_asked(broker_id, now_ms)

    def heard_of(self, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat has arrived. The broker's session is renewed now, however long the heartbeat waits for its
        turn."""
        if self._keeper.leads:
            self._keeper.sessions.heard(broker_id, broker_epoch, monotonic_ms())

    async def run_due(self, schedule: Schedule, epoch: int) -> tuple[Operation, Any] | None:
        """Carry out one periodic task that is due. Returns its operation and answer, None when nothing is due.

        :raises RefusedError: NOT_CONTROLLER when ``epoch`` is over.
        """
        try:
            await self._metadata.committed_up_to(self._metadata.end_offset - UNCOMMITTED_RECORDS)
        except NotLeadingError as error:
            raise RefusedError(ErrorCode.not_controller, str(error)) from error
        async with self._turn:
            await self._metadata.caught_up()
            self._check_still(epoch)
            due = schedule.due(self._metadata.image, self.context())
            if due is None:
                return None
            operation, decision = due
            await self._carry_out(epoch, decision)
            return operation, decision.response

    def next_due_ms(self, schedule: Schedule) -> int | None:
        """The time of the next periodic task; None when none is due in the present state.

        :raises RefusedError: NOT_CONTROLLER when this node is not active.
        """
        return schedule.next_due_ms(self._metadata.image, self.context())

    async def _decide(
        self, operation: Operation, decide: Decide[R], epoch: int | None, *, aside: bool
    ) -> tuple[R, int]:
        """Returns the response, and the offset that has to be stable before the response may be sent."""
        await self._metadata.caught_up()
        current = self.check_active()
        if epoch is not None:
            self._check_still(epoch)
        image, context = self._metadata.image, self.context()
        check_gate(image, operation, transaction_open=context.transaction_open)
        checked = partial(self._checked, decide, image, context)
        decision = await self._decide_aside(current, checked) if aside else checked()
        await self._carry_out(current, decision)
        start = self._metadata.transaction_start
        last = self._metadata.end_offset - 1
        return decision.response, last if start is None else min(last, start - 1)

    def _checked(self, decide: Decide[R], image: MetadataImage, context: Context) -> Decision[R]:
        decision = decide(image, context)
        if decision.atomic:  # a decision that is not atomic removes replicas or elects: no znode grows
            self._check(image, context.index, tuple(decision.records))
        return decision

    async def _decide_aside(self, epoch: int, decide: Callable[[], Decision[R]]) -> Decision[R]:
        """Decide on a thread. The image cannot change meanwhile. The index can, when the leadership is lost: then the
        decision is dropped.

        :raises RefusedError: NOT_CONTROLLER; and errors of the decision.
        """
        try:
            return await lanes().decisions.run(decide)
        finally:
            self._check_still(epoch)

    async def _carry_out(self, epoch: int, decision: Decision[Any]) -> None:
        """Append the records of a decision that was just made, and update the soft state.

        :raises RefusedError: NOT_CONTROLLER when the epoch is over, or the disk is full.
        """
        try:
            if decision.atomic:
                await self._append_whole(epoch, tuple(decision.records))
            else:
                for records in parts(decision.records):
                    self._append(epoch, records)
                    await give_back()
                    self._check_still(epoch)
        except NotLeadingError as error:
            raise RefusedError(ErrorCode.not_controller, str(error)) from error
        if decision.note is not None:
            decision.note(self._keeper.sessions, self._metadata.end_offset - 1, monotonic_ms())
        if self._keeper.sessions.next_errand is not None:
            self.has_errands.set()

    async def _append_whole(self, epoch: int, records: Sequence[MetadataRecord]) -> None:
        """Append one batch. A big one, or one that removes many partitions, is encoded on a thread and applied over
        several turns of the event loop."""
        if not records:
            return
        if len(records) + removed_partitions(self._metadata.image.topics, records) <= TURN_RECORDS:
            self._append(epoch, records)
            return
        batch = await lanes().decisions.run(partial(_batch, self._metadata.image, records))
        self._check_still(epoch)
        self._taken(epoch, self._quorum.append(epoch, batch))
        await self._metadata.caught_up()
        self._check_still(epoch)

    def _check_still(self, epoch: int) -> None:
        if self._epoch != epoch:
            raise RefusedError(ErrorCode.not_controller, NOT_ACTIVE)

    def _check_epoch(self, epoch: int) -> None:
        if self._epoch != epoch:
            raise NotLeadingError(f"epoch {epoch} is over")

    def _append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        """Append one batch, apply it at once, and return its last offset."""
        return self._taken(epoch, self._quorum.append(epoch, _batch(self._metadata.image, records), records))

    def _taken(self, epoch: int, last_offset: int | None) -> int:
        """Return the last offset, if the batch was appended and this node still leads. Raise otherwise: no other event
        would wake a waiting caller."""
        if last_offset is None or self._quorum.role is not Role.LEADER or self._quorum.epoch != epoch:
            raise NotLeadingError(NOTHING_APPENDED.format(epoch=epoch))
        return last_offset


SPLIT = f"At most {BATCH_BYTES_MAX} are allowed. Split the request, or make its values smaller."


def _batch(image: MetadataImage, records: Sequence[MetadataRecord]) -> bytes:
    """Encode one batch. It gets its offsets when it is appended.

    :raises RefusedError: INVALID_REQUEST for a text that no record can hold; RECORD_LIST_TOO_LARGE, as in Kafka, whose
        controllers read no larger batch into a snapshot.
    """
    try:
        encoded, now_ms = encode_all(records, _level(image, records)), wall_ms()
    except TooLongError as error:
        raise RefusedError(ErrorCode.invalid_request, f"The change cannot be stored in the log. {error}.") from error
    batch = build_batch(encoded, timestamp_ms=now_ms)
    if len(batch) > BATCH_BYTES_MAX:
        raise RefusedError(ErrorCode.record_list_too_large, f"The change takes {len(batch)} bytes in the log. {SPLIT}")
    return batch


def _level(image: MetadataImage, records: Iterable[MetadataRecord]) -> int:
    """The metadata.version to encode with; the first batch of a log names it itself."""
    named = (r.feature_level for r in records if isinstance(r, FeatureLevelRecord) and r.name == FEATURE_NAME)
    level = image.features.metadata_version
    return level if image.features.levels else next(named, level)
