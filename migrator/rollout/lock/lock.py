"""One rollout a cluster: a lock that outlives whoever wrote it, in ZooKeeper, in the quorum, and on this host.

ZooKeeper keeps out operators on other hosts until the migration is over, then our quorum does, and both for as long as
both are there. Each is written on conditions only, so nobody overwrites what he has not seen. Kafka does not look at
either.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from secrets import token_hex

from migrator.errors import OperatorError
from migrator.rollout.lock.places import BREAK_REMEDY, FilePlace, LockEntry, LockPlace, ZooKeeperPlace, locked, told
from migrator.rollout.lock.quorum import QuorumAwayError, QuorumPlace
from migrator.rollout.ports import LockedError, LockHolder
from migrator.zookeeper.session import ZooKeeperUnavailableError

TRIES = 5


class LostLockError(OperatorError):
    """The lock is another rollout's, or another process goes on with this one."""


class RolloutLock:
    """All places (`migrator.rollout.ports.Lock`).

    :param zookeeper: None: the cluster has no ZooKeeper any more.
    :param quorum: None: Kafka's own controllers, which have no place for it.
    :param may_be_gone: whether the migration is over: ZooKeeper that does not answer is no reason to stop then, and
        the quorum takes the lock.
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
        """Take it, or take it up again.

        :raises LockedError: another rollout, or another process, holds it.
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
        """Before each action.

        :raises OperatorError: it is no longer this rollout's, or nobody can tell.
        """
        for place in await self._places():
            if place not in self._taken:  # ZooKeeper was away when the lock was taken
                await self._take(place, rollout)
            entry, _ = await place.read()
            if entry is None:
                raise LostLockError(
                    "somebody has taken the lock away from this rollout; nothing more was begun",
                    where=place.where,
                    remedy="Find out who ('migrator rollout history'); then 'migrator rollout resume' takes it again",
                )
            if entry.holder.rollout != rollout or entry.token != self._token:
                raise LostLockError(
                    f"the lock is not this process's any more: {told(entry)}; nothing more was begun",
                    where=place.where,
                    remedy="Leave the work to the holder, or end it there first",
                )

    async def release(self, rollout: str) -> None:
        """Give it back; nothing happens when it is another's."""
        for place in await self._places():
            await self._give_back(place, rollout)
        self._here.let_go()

    async def holder(self) -> LockHolder | None:
        """Who has it."""
        for place in await self._places():
            entry, _ = await place.read()
            if entry is not None:
                return entry.holder
        return None

    async def break_open(self, rollout: str) -> LockHolder | None:
        """Take it from this rollout, on purpose; gives who has it still. Another one may have taken it since a person
        was shown who has it, or have it in a place that could not be asked then.

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
        """Before Kafka's controllers take over: nobody could give it back there any more."""
        if self._quorum is not None and self._quorum in self._taken:
            await self._give_back(self._quorum, rollout)
        self._quorum = None

    async def is_local(self) -> bool:
        """Whether only this host knows of it.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer, and the migration is not over.
        """
        return await self._places() == [self._here]

    async def _places(self) -> list[LockPlace]:
        """Where it counts now. A quorum that this process could never ask is no place.

        :raises ZooKeeperUnavailableError: ZooKeeper does not answer, and the migration is not over.
        :raises QuorumAwayError: the quorum has the lock of this process, and cannot be asked any more.
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
            mine = LockEntry(LockHolder(rollout, _user(), socket.gethostname(), since), self._token)
            await place.move(version, mine)
        raise OperatorError("the lock could not be taken: somebody else writes it again and again", where=place.where)

    async def _give_back(self, place: LockPlace, rollout: str) -> None:
        for _ in range(TRIES):
            entry, version = await place.read()
            if entry is None or entry.holder.rollout != rollout or await place.move(version, None):
                return


async def _break(place: LockPlace, rollout: str) -> None:
    """Whoever takes it meanwhile keeps it: what is broken is what was read."""
    entry, version = await place.read()
    if entry is None or entry.holder.rollout != rollout or await place.move(version, None):
        return
    entry, _ = await place.read()
    if entry is not None:
        raise OperatorError("somebody else has taken the lock meanwhile", where=place.where, remedy=BREAK_REMEDY)


def held(holder: LockHolder) -> LockedError:
    """The error for whoever wants the lock meanwhile."""
    return locked("another rollout holds the lock", LockEntry(holder, ""), "the lock of the cluster's rollouts")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())
