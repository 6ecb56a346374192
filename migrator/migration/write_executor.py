"""Performs the effects of the write-behind: sends multis, reads the mark, reads entities again; audits foreign writes.

`executor.MigrationExecutor` owns one for the life of the process. The answer to each effect is fed to the write-behind
as an event. Multis are submitted without waiting; readings run on a thread. It retries only the reading of the mark,
and no multi: after a lost connection the write-behind itself reads the mark, which tells whether the multi was applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from immutables import Map
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_fixed

from migrator.clock import monotonic_ms
from migrator.controller.acl_index import AclIndex
from migrator.errors import MigratorError
from migrator.image.model import Acl, Changes, MetadataImage
from migrator.migration.background import Background
from migrator.migration.coordinator import AnyEvent
from migrator.migration.examination import read_running
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.strays import Strays
from migrator.migration.ports import ZooKeeperPort
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.translate.reconcile import repair
from migrator.migration.translate.target import Spellings, Target
from migrator.migration.translate.to_ops import Steps, delta_steps
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.audit import FAMILIES, ForeignWrites, slices
from migrator.migration.write_behind.core import WriteBehind
from migrator.records.uuid import Uuid
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.ops import Applied, Stat, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder

log = logging.getLogger(__name__)

READ_RETRY_SECONDS = 0.2

OnWritten = Callable[[int], None]
"""Called after each write that ZooKeeper has applied, with its duration in milliseconds."""


class WriteExecutor:
    """Performs the effects of the write-behind for the executor; one object per process."""

    def __init__(
        self,
        zookeeper: ZooKeeperPort,
        passwords: PasswordEncoder,
        background: Background,
        voters: frozenset[int],
        on_written: OnWritten,
    ) -> None:
        self._on_written = on_written
        self._voters = voters
        self._strays = Strays(voters)
        self._zookeeper = zookeeper
        self._passwords = passwords
        self._background = background
        self._room = asyncio.Event()
        self._audit: ForeignWrites | None = None
        self._slices: Iterator[list[str]] = iter(())
        self.spellings: Spellings = {}
        """The spellings that comparisons and repairs have seen under this leadership."""
        self._acls: tuple[Map[Uuid, Acl], AclIndex] = Map(), AclIndex()
        """The access control entries of an image, and their index."""
        self._mark_zxid = -1
        """The transaction of our last write with a mark, under any claim."""

    def attach(self, write_behind: Callable[[], WriteBehind]) -> None:
        """Set how to find the current write-behind; each leadership has a new one."""
        self._write_behind = write_behind

    def perform(self, effect: messages.SendMulti | messages.ReadMark | messages.ReadAgain) -> None:
        """Start an effect; its answer is fed as an event."""
        match effect:
            case messages.SendMulti():
                self._send(effect)
            case messages.ReadMark():
                self._read_mark(effect)
            case messages.ReadAgain():
                self._read_again(effect)
            case never:
                assert_never(never)

    @property
    def audits(self) -> bool:
        """Whether foreign writes are audited."""
        return self._audit is not None

    def audit_from(self, claim: Claim | None) -> None:
        """Count every later write that is not ours as foreign; None to stop the audit. A takeover that finds both sides
        equal writes nothing but the claim."""
        self._audit = None if claim is None else ForeignWrites(max(claim.zxid, self._mark_zxid))
        self._strays = Strays(self._voters)

    async def until_room(self, queued_max: int) -> None:
        """Wait until no more than so many entities of a reconcile wait."""
        while self._write_behind().queued > queued_max:
            self._room.clear()
            await self._room.wait()

    def look(self, effect: ef.AuditZooKeeper, image: MetadataImage) -> None:
        """Look at the next slice of znodes, and at the brokers: `AuditResult`."""

        def read() -> list[Znode | None]:
            return list(self._zookeeper.reader.read([*FAMILIES, *self._next_slice(image)]))

        async def work() -> AnyEvent:
            try:
                found = await self._background.blocking(read)
                running = await self._background.blocking(lambda: read_running(self._zookeeper.reader))
            except MigratorError as error:
                return ev.AuditResult(effect.ticket, (), str(error))
            strays = self._strays.look(running, image.cluster)
            if self._audit is None or self._write_behind().sending:
                return ev.AuditResult(effect.ticket, (), strays=strays, running=frozenset(running.znodes))
            foreign = self._audit.foreign(found)
            return ev.AuditResult(effect.ticket, foreign, strays=strays, running=frozenset(running.znodes))

        self._background.spawn(work())

    def _next_slice(self, image: MetadataImage) -> list[str]:
        """The next slice of paths. Called on the reading thread, because it may pass over all topics to find the next
        path."""
        some = next(self._slices, None)
        if some is None:
            self._slices = slices(image, spellings=self.spellings)
            some = next(self._slices, [])
        return some

    def derive(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> Steps:
        """Derive the writes of a change (see `Derive` of the write-behind)."""
        known, acls = self._acls
        if changes.acls and known is not before.acls:
            acls = yield from AclIndex().follow(Map(), before.acls, before.acls)
        yield from delta_steps(before, self._target(after), changes, acls)
        if changes.acls:
            acls = yield from acls.follow(before.acls, after.acls, changes.acls)
            self._acls = after.acls, acls

    def _target(self, image: MetadataImage) -> Target:
        claim = self._write_behind().claim
        epoch = -1 if claim is None else claim.zk_epoch
        return Target(image, passwords=self._passwords, controller_epoch=epoch, spellings=self.spellings)

    def _send(self, effect: messages.SendMulti) -> None:
        async def work() -> AnyEvent:
            begun_ms = monotonic_ms()
            try:
                outcome = await asyncio.wrap_future(self._zookeeper.submit(effect.ops))
            except MigratorError as error:
                return messages.MultiRefused(effect.number, str(error))
            if isinstance(outcome, Applied) and isinstance(outcome.results[1], Stat):
                self._on_written(monotonic_ms() - begun_ms)
                self._mark_zxid = outcome.results[1].mzxid
                if self._audit is not None:
                    self._audit.wrote(self._mark_zxid)
            self._room.set()
            return messages.MultiEnded(effect.number, outcome)

        self._background.spawn(work())

    def _read_mark(self, effect: messages.ReadMark) -> None:
        async def read() -> AnyEvent:
            view = await self._background.blocking(self._zookeeper.view)
            (node,) = await self._background.blocking(lambda: list(self._zookeeper.reader.read([paths.MIGRATION])))
            if node is not None:  # under the claim only we write the mark, so the answer to our own write was lost
                self._mark_zxid = max(self._mark_zxid, node.stat.mzxid)
                if self._audit is not None:
                    self._audit.wrote(node.stat.mzxid)
            epoch = view.epoch_version if view.epoch is not None else None
            return messages.MarkRead(effect.number, epoch, view.migration, view.migration_version)

        async def work() -> AnyEvent:
            until_read = AsyncRetrying(
                retry=retry_if_exception_type(MigratorError),
                wait=wait_fixed(READ_RETRY_SECONDS),
                before_sleep=_note_unread,
            )
            return await until_read(read)

        self._background.spawn(work())

    def _read_again(self, effect: messages.ReadAgain) -> None:
        async def work() -> AnyEvent:
            target = self._target(effect.image)
            target.room, target.behind = effect.sets, (behind := dict[str, int]())
            try:
                writes = await self._background.blocking(lambda: self._compared(target, effect.entities))
            except MigratorError as error:
                return messages.MultiRefused(effect.number, str(error))
            return messages.Repaired(effect.number, effect.entities, writes, behind)

        self._background.spawn(work())

    def _compared(self, target: Target, entities: Iterable[str]) -> tuple[EntityWrite, ...]:
        """The writes that make these entities equal to the image, by a comparison. The call blocks."""
        return tuple(repair(self._zookeeper.reader, target, *entities))


def _note_unread(attempt: RetryCallState) -> None:
    error = attempt.outcome and attempt.outcome.exception()
    log.debug("/migration cannot be read yet: %s", error)
