"""One rollout for each cluster: a lock in ZooKeeper, in the quorum and on this host, which outlives its process.

ZooKeeper keeps out operators on other hosts until the migration is over; after that our quorum does; while both are
there, both do. Each write is conditional, so nothing is overwritten that the writer has not read. Kafka looks at
neither.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from secrets import token_hex

from migrator.errors import OperatorError
from migrator.rollout.journal.writer import user
from migrator.rollout.lock.places import (
    BREAK_REMEDY,
    FilePlace,
    LockEntry,
    LockPlace,
    ZooKeeperPlace,
    holder_text,
    locked,
)
from migrator.rollout.lock.quorum import QuorumPlace
from migrator.rollout.ports import LockedError, LockHolder, QuorumAwayError
from migrator.zookeeper.session import ZooKeeperUnavailableError

TRIES = 5


class LostLockError(OperatorError):
    """The lock now belongs to another rollout, or another process continues this one."""


class RolloutLock:
    """The lock in all its places (`migrator.rollout.ports.Lock`).

    :param zookeeper: None: the cluster has no ZooKeeper any more.
    :param quorum: None for Kafka's own controllers, which have no place for the lock.
    :param may_be_gone: whether the migration is over. Then ZooKeeper need not answer, and the quorum takes the lock.
    :param wall_ms: the time of day.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperPlace | None,
        here: FilePlace,
        quorum: QuorumPlace | None = None,
        *,
        may_be_gone: Callable[[], bool],
        wall_ms: Callable[[], int],
    ) -> None:
        self._zookeeper = zookeeper
        self._here = here
        self._quorum = quorum
        self._may_be_gone = may_be_gone
        self._wall_ms = wall_ms
        self._token = token_hex(8)
        self._taken: set[LockPlace] = set()

    async def acquire(self, rollout: str) -> None:
        """Take the lock, or take it again.

        :raises LockedError: another rollout or another process holds it.
        """
        was_held = self._here.is_held
        self._here.hold()
        try:
            for place in await self._places():
                await self._take(place, rollout)
        except BaseException:
            if not was_held:
                self._here.let_go()
            raise

    async def check(self, rollout: str) -> None:
        for place in await self._places():
            if place not in self._taken:  # ZooKeeper did not answer when the lock was taken
                await self._take(place, rollout)
            entry, _ = await place.read()
            if entry is None:
                raise LostLockError(
                    "the lock was taken away from this rollout; nothing more was begun",
                    where=place.where,
                    remedy="Find out who ('migrator rollout history'); then 'migrator rollout resume' takes it again",
                )
            if entry.holder.rollout != rollout or entry.token != self._token:
                raise LostLockError(
                    f"the lock is not this process's any more: {holder_text(entry)}; nothing more was begun",
                    where=place.where,
                    remedy="Leave the work to the holder, or end it there first",
                )

    async def release(self, rollout: str) -> None:
        """Give it back; does nothing when another rollout holds it."""
        for place in await self._places():
            await self._give_back(place, rollout)
        self._here.let_go()

    async def holder(self) -> LockHolder | None:
        for place in await self._places():
            entry, _ = await place.read()
            if entry is not None:
                return entry.holder
        return None

    async def break_open(self, rollout: str) -> LockHolder | None:
        """Take the lock from this rollout, because the operator wants it. Returns who still holds it: another rollout
        may have taken it since the operator was shown the holder, or hold it in a place that did not answer then.

        :raises LockedError: a process of this host works with it right now.
        """
        self._here.hold()
        try:
            for place in await self._places():
                await _break(place, rollout)
        finally:
            self._here.let_go()
        return await self.holder()

    async def leave_quorum(self, rollout: str) -> None:
        if self._quorum is not None and self._quorum in self._taken:
            await self._give_back(self._quorum, rollout)
        self._quorum = None

    async def is_local(self) -> bool:
        """Whether only this host knows of the lock.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer, and the migration is not over.
        """
        return await self._places() == [self._here]

    async def _places(self) -> list[LockPlace]:
        """The places that count now. A quorum that has never answered this process is no place.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer, and the migration is not over.
        :raises QuorumAwayError: this process holds the lock in the quorum, which does not answer any more.
        """
        found: list[LockPlace] = [self._here]
        if self._quorum is not None and self._may_be_gone():
            try:
                await self._quorum.read()
                found.insert(0, self._quorum)
            except QuorumAwayError:
                if self._quorum in self._taken:
                    raise
        if self._zookeeper is not None:
            try:
                await self._zookeeper.read()
                found.insert(0, self._zookeeper)
            except ZooKeeperUnavailableError:
                if not self._may_be_gone():
                    raise
        return found

    async def _take(self, place: LockPlace, rollout: str) -> None:
        for _ in range(TRIES):
            entry, version = await place.read()
            if entry is not None and entry.holder.rollout != rollout:
                raise locked("another rollout holds the lock", entry, place.where)
            if entry is not None and entry.token == self._token:
                self._taken.add(place)
                return
            since = self._wall_ms() if entry is None else entry.holder.since_ms
            process, directory = os.getpid(), str(self._here.directory)
            holder = LockHolder(rollout, user(), socket.gethostname(), since, process, directory)
            mine = LockEntry(holder, self._token)
            await place.move(version, mine)
        raise OperatorError("the lock could not be taken: another program writes it again and again", where=place.where)

    async def _give_back(self, place: LockPlace, rollout: str) -> None:
        for _ in range(TRIES):
            entry, version = await place.read()
            if entry is None or entry.holder.rollout != rollout or await place.move(version, None):
                return


async def _break(place: LockPlace, rollout: str) -> None:
    """Remove the entry that was read. An entry that was written meanwhile stays."""
    entry, version = await place.read()
    if entry is None or entry.holder.rollout != rollout or await place.move(version, None):
        return
    entry, _ = await place.read()
    if entry is not None:
        raise OperatorError("another rollout has taken the lock meanwhile", where=place.where, remedy=BREAK_REMEDY)


def held(holder: LockHolder) -> LockedError:
    """The error for another rollout that wants the lock."""
    return locked("another rollout holds the lock", LockEntry(holder, ""), "the lock of the cluster's rollouts")
