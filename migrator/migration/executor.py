"""Performs the coordinator's effects on the node's event loop, and feeds it the results.

It decides nothing. Each effect is one small coroutine. Work that a state no longer wants is cancelled, and the
coordinator drops a late answer by its ticket. Blocking reads of ZooKeeper run in one thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never

from migrator.clock import monotonic_ms, wall_ms
from migrator.controller.way_back import reopened
from migrator.errors import MigratorError
from migrator.image.model import ImageDelta
from migrator.machine import machine
from migrator.migration.background import Background, Job
from migrator.migration.coordinator import AnyEffect, AnyEvent, Coordinator
from migrator.migration.copying.compare import ReconcileEnd, WriteChunk
from migrator.migration.copying.reading import CopyBatch, CopyEnd, Decoded
from migrator.migration.copying.transaction import BEGIN, append_copy, end_of_copy
from migrator.migration.copying.worker import CompareTask, CopyTask, DecodeTask, OnProgress
from migrator.migration.examination import read_brokers, read_present, read_standing
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.guards import Standing
from migrator.migration.machine.progress import Working
from migrator.migration.machine.readiness import ControllerSignals, Gap, Surroundings
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import Identity
from migrator.migration.ports import BrokersPort, ControllerPort, StartWorker, ZooKeeperPort
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.lag import at_of
from migrator.migration.write_behind.multis import Limits
from migrator.migration.write_executor import OnWritten, WriteExecutor
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.records.uuid import random_uuid, uuid_to_text
from migrator.records.versions import FEATURE_NAME
from migrator.zookeeper import leadership
from migrator.zookeeper.znodes.passwords import PasswordEncoder

log = logging.getLogger(__name__)

QUEUED_WRITES_MAX = 2_000
"""Entities of a reconcile that wait in the write-behind; the worker's pipe is not read while there are more."""

News = ef.JournalTransition | ef.ReportSituation | messages.Unanswered | messages.SetAside | messages.TakenIn
"""The effects that status, journal or the log of the process show to the operator."""


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of the executor. ``directory`` holds the segments of the log."""

    identity: Identity
    directory: Path
    passwords: PasswordEncoder
    batch_records: int
    max_deletes: int
    limits: Limits = field(default_factory=Limits)


class MigrationExecutor:
    """Performs the effects of the driver and feeds their results; one object per process.

    :param on_transition: called with news for the operator.
    :param on_failure: called with an error that must stop the process.
    :param on_written: called after each write that ZooKeeper has applied.
    """

    def __init__(
        self,
        options: Options,
        controller: ControllerPort,
        brokers: BrokersPort,
        zookeeper: ZooKeeperPort,
        start_worker: StartWorker,
        on_transition: Callable[[News], None],
        on_failure: Callable[[BaseException], None],
        on_written: OnWritten = lambda _: None,
    ) -> None:
        self._options = options
        self._controller = controller
        self._brokers = brokers
        self._zookeeper = zookeeper
        self._start_worker = start_worker
        self._on_transition = on_transition
        self._background = Background(self.feed, on_failure)
        self._writes = WriteExecutor(
            zookeeper, options.passwords, self._background, options.identity.voters, on_written
        )
        self.coordinator = Coordinator(options.identity, self._writes.derive, controller.crc_at, options.limits)
        self._writes.attach(lambda: self.coordinator.write_behind)
        self._work: Job | None = None
        self._working = asyncio.Lock()
        """Held while a worker's process lives."""
        self._full: object | None = None
        """Set while the full state is being planned for the brokers, which takes long at the largest clusters."""
        self._full_ticket = ev.Ticket(-1, -1)
        self._epoch = -1

    # From the node

    def lead(self, event: ev.BecameLeader, last_effect: int | None = None) -> None:
        """This node is the active controller; ``last_effect`` as in `Coordinator.lead`."""
        self._epoch = event.epoch
        self._perform(self.coordinator.lead(event, self._controller.image, monotonic_ms(), last_effect))

    def feed(self, event: AnyEvent) -> None:
        """Take any other event."""
        self._perform(self.coordinator.step(event, monotonic_ms()))

    def published(self, delta: ImageDelta) -> None:
        self.feed(messages.Published(delta))

    def followed(self, delta: ImageDelta) -> None:
        """Take a committed image while this node does not lead."""
        self.coordinator.follow(delta)

    async def close(self) -> None:
        """End all work. The executor writes nothing afterwards."""
        self.feed(ev.LostLeadership(self._epoch))
        await self._background.close()

    # Effects

    def _perform(self, effects: list[AnyEffect]) -> None:
        for effect in effects:
            self._perform_one(effect)

    def _perform_one(self, effect: AnyEffect) -> None:  # noqa: C901, PLR0912, PLR0915 - one line for each kind of effect
        match effect:
            case ef.ScheduleTimer(ticket, delay_ms):
                self._background.feed_later(delay_ms / 1000, ev.Timer(ticket))
            case messages.WakeAt(time_ms):
                self._background.feed_later(max(0, time_ms - monotonic_ms()) / 1000, messages.TimerExpired())
            case (
                ef.JournalTransition()
                | ef.ReportSituation()
                | messages.Unanswered()
                | messages.SetAside()
                | messages.TakenIn()
            ):
                self._on_transition(effect)
            case ef.Examine():
                self._examine(effect)
            case ef.ReadReadiness():
                self._readiness(effect)
            case ef.DecodeAll():
                self._decode(effect)
            case ef.TakeClaim():
                self._take_claim(effect)
            case ef.ReleaseClaim():
                self._release(effect)
            case ef.NudgeElection():
                self._nudge()
            case ef.StartCopy():
                self._copy(effect)
            case ef.LookAgain():
                self._look_again(effect)
            case ef.CompleteTransaction():
                self._complete(effect)
            case ef.AbortTransaction():
                self._abort(effect)
            case ef.AppendFinished() | ef.AppendReopened() | ef.AppendAdmitted():
                self._say(effect)
            case ef.CancelWork():
                self._cancel()
            case ef.CompareAll():
                self._compare(effect)
            case ef.SendTakeoverRpcs():
                self._take_over(effect)
            case ef.SendFullRpcs():
                self._send_full(effect)
            case ef.StopDualWrite():
                self._stop()
            case ef.AuditZooKeeper():
                self._writes.look(effect, self._controller.image)
            case ef.AskVoters():
                self._voters(effect)
            case ef.TransferLeadership(successor):
                self._controller.hand_over(successor)
            case messages.SendMulti() | messages.ReadMark() | messages.ReadAgain():
                self._writes.perform(effect)
            case messages.Advanced(at):
                self._brokers.written(at)
            case never:
                assert_never(never)

    async def standing(self) -> Standing:
        """Read who controls the cluster, as ZooKeeper shows it, and what the log knows of the mark in /migration.

        :raises MigratorError: when ZooKeeper cannot be read.
        """
        found: Standing = await self._background.blocking(lambda: read_standing(self._zookeeper))
        if not found.mark.copied:
            return found
        evidence = await self._controller.evidence(found.mark)
        name = self._controller.image.features.migration_copied_as
        return replace(found, evidence=replace(evidence, same_copy=name is not None and found.mark.copied_as == name))

    def _examine(self, effect: ef.Examine) -> None:
        async def work() -> AnyEvent:
            signals = await self._controller.signals() if effect.brokers else None
            try:
                found = await self.standing()
                around = None if signals is None else await self._surroundings(signals)
            except MigratorError as error:
                return ev.Examined(effect.ticket, None, str(error))
            return ev.Examined(effect.ticket, found, surroundings=around)

        self._background.spawn(work())

    async def _surroundings(self, signals: ControllerSignals) -> Surroundings:
        """Read who runs now, from ZooKeeper and the log."""
        brokers = await self._background.blocking(lambda: read_present(self._zookeeper))
        image = self._controller.image
        return Surroundings(brokers, signals, image.cluster, image.features.levels.get(FEATURE_NAME, 0))

    def _readiness(self, effect: ef.ReadReadiness) -> None:
        feed, loop = self._progress(effect.ticket), asyncio.get_running_loop()

        def alive(working: Working) -> None:
            self._background.call_from_thread(loop, feed, working)

        async def work() -> AnyEvent:
            image = self._controller.image
            level = image.features.levels.get(FEATURE_NAME, 0)
            signals = await self._controller.signals()
            try:
                brokers, holder = await self._background.blocking(
                    lambda: read_brokers(self._zookeeper, image, alive, effect.replicas)
                )
            except MigratorError as error:
                return ev.ReadinessInputs(effect.ticket, None, signals, image.cluster, level, str(error))
            return ev.ReadinessInputs(effect.ticket, brokers, signals, image.cluster, level, holder=holder)

        self._background.spawn(work())

    def _decode(self, effect: ef.DecodeAll) -> None:
        async def work() -> AnyEvent:
            faults: list[Gap] = []
            records = 0
            try:
                async with self._start_worker(DecodeTask()) as worker:
                    async for message in worker.messages(self._progress(effect.ticket)):
                        if isinstance(message, Decoded):
                            faults += message.faults
                            records = message.records
                holder = (await self._background.blocking(self._zookeeper.view)).controller
            except MigratorError as error:
                return ev.DecodeResult(effect.ticket, tuple(faults), records, str(error))
            return ev.DecodeResult(effect.ticket, tuple(faults), records, holder=holder)

        self._start_work(work)

    def _take_claim(self, effect: ef.TakeClaim) -> None:
        async def work() -> AnyEvent:
            identity = self._options.identity
            try:
                plan = leadership.plan_claim(
                    effect.view,
                    controller_id=identity.node_id,
                    kraft_epoch=effect.ticket.epoch,
                    now_ms=wall_ms(),
                    heal_to=effect.heal_to,
                    crc_at=self._controller.crc_at,
                    copied_as=self._name_of_copy(),
                )
                if isinstance(plan, leadership.ClaimPlan):
                    outcome = await asyncio.wrap_future(self._zookeeper.submit(plan.ops))
                    result: object = leadership.conclude_claim(plan, outcome)
                else:
                    result = plan
            except MigratorError as error:
                return ev.ClaimResult(effect.ticket, None, str(error))
            claim = result if isinstance(result, leadership.Claim) else None
            return ev.ClaimResult(effect.ticket, claim, str(result))

        self._background.spawn(work())

    def _release(self, effect: ef.ReleaseClaim) -> None:
        async def work() -> AnyEvent:
            ops = leadership.release_ops(effect.epoch_version, effect.controller_version)
            try:
                outcome = await asyncio.wrap_future(self._zookeeper.submit(ops))
                result = leadership.conclude_release(ops, outcome)
            except MigratorError as error:
                return ev.ReleaseResult(effect.ticket, released=False, reason=str(error))
            return ev.ReleaseResult(effect.ticket, isinstance(result, leadership.Released), str(result))

        self._background.spawn(work())

    def _nudge(self) -> None:
        async def work() -> None:
            try:
                await self._background.blocking(self._zookeeper.wake_brokers)
            except MigratorError as error:
                log.warning("The brokers could not be woken up for an election: %s", error)

        self._background.spawn(work())

    def _copy(self, effect: ef.StartCopy) -> None:
        epoch = effect.ticket.epoch

        async def work() -> AnyEvent:
            level = self._controller.image.features.levels.get(FEATURE_NAME, 0)
            try:
                await self._controller.append(epoch, BEGIN)
                async with self._start_worker(CopyTask(level, self._options.batch_records)) as worker:
                    end = await append_copy(self._controller, epoch, worker.messages(self._progress(effect.ticket)))
                around = await self._surroundings(await self._controller.signals())
            except MigratorError as error:
                return ev.CopyFailed(effect.ticket, str(error))
            return ev.CopyDone(effect.ticket, end.records, end.epoch_version, end.controller_version, around)

        self._start_work(work)

    def _look_again(self, effect: ef.LookAgain) -> None:
        async def work() -> AnyEvent:
            try:
                view = await self._background.blocking(self._zookeeper.view)
                around = await self._surroundings(await self._controller.signals())
            except MigratorError as error:
                return ev.CopyFailed(effect.ticket, str(error))
            return ev.CopyDone(effect.ticket, effect.records, view.epoch_version, view.controller_version, around)

        self._background.spawn(work())

    def _name_of_copy(self) -> str | None:
        """The name of the copy in the log. A copy that has not begun gets a new name; a copy that an older release made
        has none."""
        features = self._controller.image.features
        if features.zk_migration_state is ZkMigrationState.MIGRATION:
            return features.migration_copied_as
        return uuid_to_text(random_uuid(machine().random()))

    def _complete(self, effect: ef.CompleteTransaction) -> None:
        appended = self._controller.append(effect.ticket.epoch, end_of_copy(effect.copied_as))
        self._background.spawn(self._commit(effect.ticket, appended))

    def _abort(self, effect: ef.AbortTransaction) -> None:
        aborting = self._controller.abort_open(effect.ticket.epoch, effect.reason)
        self._background.spawn(self._commit(effect.ticket, aborting))

    def _say(self, effect: ef.AppendFinished | ef.AppendReopened | ef.AppendAdmitted) -> None:
        """Append the state of the migration to the log. The name of the copy stays, and the order to reopen does until
        the next end. A reopening takes back that the way back was closed."""
        state = ZkMigrationState.POST_MIGRATION if isinstance(effect, ef.AppendFinished) else ZkMigrationState.MIGRATION
        features = self._controller.image.features
        order = effect.order if isinstance(effect, ef.AppendReopened) else None
        done = features.order_to_reopen if isinstance(effect, ef.AppendAdmitted) else None
        record = ZkMigrationStateRecord(state, reopening=order, copied_as=features.migration_copied_as, reopened=done)
        records = [record, *(() if order is None else reopened(self._controller.image))]
        self._background.spawn(self._commit(effect.ticket, self._controller.append(effect.ticket.epoch, records)))

    async def _commit(self, ticket: ev.Ticket, append: Coroutine[Any, Any, int | None]) -> AnyEvent | None:
        """Append, and wait for the commit. None when the leadership is lost: another event reports that."""
        try:
            offset = await append
            if offset is None:
                return ev.Committed(ticket, at_of(self._controller.image))
            await self._controller.committed(offset)
        except MigratorError as error:
            log.info("The migration could not append to the log: %s", error)
            return None
        return ev.Committed(ticket, EpochOffset(epoch=ticket.epoch, offset=offset))

    def _start_work(self, work: Callable[[], Coroutine[Any, Any, AnyEvent | None]]) -> None:
        """Start a worker's work. One worker runs at a time: an earlier one is cancelled, and its process ends before
        the next begins."""

        async def alone() -> AnyEvent | None:
            async with self._working:
                return await work()

        if self._work is not None:
            self._work.cancel()
        self._work = self._background.spawn(alone())

    def _progress(self, ticket: ev.Ticket) -> OnProgress:
        return lambda working: self.feed(ev.WorkProgressed(ticket, working))

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()
            self._work = None

    def _compare(self, effect: ef.CompareAll) -> None:
        claim = self.coordinator.write_behind.claim
        self._writes.audit_from(claim if self.coordinator.state is State.COMPARING else None)
        self._writes.spellings.clear()
        zk_epoch = -1 if claim is None else claim.zk_epoch
        bound, allowed = self._options.max_deletes, effect.deletes_allowed
        task = CompareTask(self._options.directory, at_of(effect.image), zk_epoch, bound, allowed)

        async def work() -> AnyEvent | None:
            try:
                async with self._start_worker(task) as worker:
                    async for message in worker.messages(self._progress(effect.ticket)):
                        if isinstance(message, WriteChunk | ReconcileEnd):
                            self._writes.spellings.update(message.spellings)
                        if isinstance(message, WriteChunk):
                            self.feed(messages.ReconcileWrites(message.writes, number=effect.ticket.number))
                            await self._writes.until_room(QUEUED_WRITES_MAX)
                        elif not isinstance(message, Decoded | CopyBatch | CopyEnd):
                            number, held, behind = effect.ticket.number, message.held, message.behind
                            return messages.ReconcileWrites((), last=True, held=held, number=number, behind=behind)
            except MigratorError as error:
                return ev.ReconcileFailed(effect.ticket, str(error))
            return ev.ReconcileFailed(effect.ticket, "the worker ended without a result")

        self._start_work(work)

    def _take_over(self, effect: ef.SendTakeoverRpcs) -> None:
        async def work() -> None:
            await self._brokers.take_over(effect.zk_epoch)

        self._background.spawn(work())

    def _send_full(self, effect: ef.SendFullRpcs) -> None:
        self._full_ticket = effect.ticket
        if effect.again and self._full is not None:
            return
        full = self._full = object()

        async def work() -> AnyEvent | None:
            queued = await self._brokers.send_full(effect.zk_epoch)
            if self._full is not full:
                return None
            self._full = None
            return ev.RpcsQueued(self._full_ticket) if queued else None

        if not self._writes.audits:
            self._writes.audit_from(self.coordinator.write_behind.claim)
        self._background.spawn(work())

    def _stop(self) -> None:
        async def work() -> None:
            await self._brokers.stop()

        self._writes.audit_from(None)
        self._background.spawn(work())

    def _voters(self, effect: ef.AskVoters) -> None:
        async def work() -> AnyEvent:
            return ev.VotersAsked(effect.ticket, await self._controller.finish_inputs())

        self._background.spawn(work())
