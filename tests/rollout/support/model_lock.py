"""The lock of a model cluster. It outlives the command that took it, as a lock in ZooKeeper or in the quorum does."""

from __future__ import annotations

from migrator.rollout.ports import LockedError, LockHolder


class ModelLock:
    """In the model's ZooKeeper or quorum: it outlives who took it."""

    def __init__(self) -> None:
        self.owner: LockHolder | None = None
        self.local = False
        self.left_quorum = False
        """Whether it was given back there: only before Kafka's controllers take over."""

    async def acquire(self, rollout: str) -> None:
        if self.owner is not None and self.owner.rollout != rollout:
            raise LockedError("another rollout holds the lock", where=self.owner.host)
        self.owner = LockHolder(rollout, "operator", "ops-1", 1)

    async def check(self, rollout: str) -> None:
        if self.owner is None or self.owner.rollout != rollout:
            raise LockedError("this rollout has lost its lock", where="lock")

    async def release(self, rollout: str) -> None:
        if self.owner is not None and self.owner.rollout == rollout:
            self.owner = None

    async def leave_quorum(self, rollout: str) -> None:
        self.left_quorum = True

    async def is_local(self) -> bool:
        return self.local

    async def holder(self) -> LockHolder | None:
        return self.owner

    async def break_open(self, rollout: str) -> LockHolder | None:
        await self.release(rollout)
        return self.owner
