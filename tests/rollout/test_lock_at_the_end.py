"""The command is killed as the migration ends: until somebody looks, the lock is in ZooKeeper and on its host only.

The lock is the real one. The places are a model's: a ZooKeeper that may go away, and a quorum that takes the lock only
once the migration is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.observe.status import LockAnswer
from migrator.rollout.engine.apply import Ending
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.lock.lock import RolloutLock
from migrator.rollout.lock.places import FilePlace, LockEntry, ZooKeeperPlace
from migrator.rollout.lock.quorum import Move, QuorumPlace
from migrator.rollout.parts import RolloutParts
from migrator.rollout.ports import LockedError, LockHolder, Observation, QuorumAwayError
from migrator.zookeeper.session import ZooKeeperUnavailableError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.model_pieces import FINISHED
from tests.rollout.support.runs import Operator


class Places(ZooKeeperPlace):
    """Of one cluster: the znode, and what the quorum holds."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self._znode: LockEntry | None = None
        self._version = -1
        self.in_quorum = ""

    async def read(self) -> tuple[LockEntry | None, int]:
        if not self._cluster.zookeeper_answers:
            raise ZooKeeperUnavailableError("z:2181", "ZooKeeper does not answer")
        return self._znode, self._version if self._znode else -1

    async def move(self, before: int, entry: LockEntry | None, /) -> bool:
        found, version = await self.read()
        if version != before:
            return False
        self._znode, self._version = entry, self._version + (found != entry)
        return True

    async def ask(self, move: Move) -> LockAnswer:
        """The leader of the quorum."""
        if self._cluster.state != FINISHED:
            raise QuorumAwayError("the lock is in ZooKeeper until the migration has ended", where="the quorum")
        if move is None or move[0] != self.in_quorum:
            return LockAnswer(self.in_quorum, moved=False)
        self.in_quorum = move[1]
        return LockAnswer(self.in_quorum, moved=True)


class Looks:
    """Notes whether the migration is seen to be over, as the observer of a process does."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self.is_finished = False

    async def observe(self, *, partitions: bool = True) -> Observation:
        seen = await self._cluster.observe(partitions=partitions)
        self.is_finished = self.is_finished or seen.is_finished
        return seen

    async def close(self) -> None:
        pass


class OnHost(Operator):
    """Each command is a process: it has seen nothing yet, and the lock's token is its own."""

    def __init__(self, cluster: ModelCluster, places: Places, state: Path) -> None:
        state.mkdir()
        super().__init__(cluster, state)
        self._places = places
        self._new_process()

    def parts(self) -> RolloutParts:
        return replace(super().parts(), lock=self._lock, observer=self._looks)

    def status(self) -> LockHolder | None:
        """The holder of the lock in the command's output."""
        self._new_process()

        async def look() -> LockHolder | None:
            await self._looks.observe()
            return await self._lock.holder()

        return asyncio.run(look())

    def _new_process(self) -> None:
        self._looks, self._here = Looks(self.cluster), FilePlace(self.state)
        quorum = QuorumPlace(self._places.ask)
        self._lock = RolloutLock(
            self._places, self._here, quorum, may_be_gone=lambda: self._looks.is_finished, wall_ms=lambda: 1
        )

    def _with_journal(self, work: Callable[[RolloutJournal], Coroutine[Any, Any, Ending]]) -> Ending:
        self._new_process()
        try:
            return super()._with_journal(work)
        finally:
            self._here.let_go()


class World:
    """Two operators and one cluster. The first one's command was killed just as the migration ended."""

    def __init__(self, directory: Path, *, handover: bool) -> None:
        self.cluster = ModelCluster(model_inventory(handover=handover))
        self.places = Places(self.cluster)
        self.first = OnHost(self.cluster, self.places, directory / "ops-1")
        self.second = OnHost(self.cluster, self.places, directory / "ops-2")
        self.killed(self.first.apply, lambda: self.cluster.state == FINISHED)

    def killed(self, command: Callable[[], object], when: Callable[[], bool]) -> None:
        def dies(_: str) -> None:
            if when():
                raise KeyboardInterrupt

        self.cluster.points.at = dies
        with pytest.raises(KeyboardInterrupt):
            command()
        self.cluster.points.at = nothing


@pytest.fixture(params=[True, False], ids=["Kafka takes over", "ours stay"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    found = World(tmp_path, handover=request.param)
    assert found.places.in_quorum == "", "nobody has seen the end"
    return found


def test_everybody_sees_the_same_holder_before_somebody_goes_on(world: World) -> None:
    holder = world.first.status()
    assert holder is not None
    assert world.second.status() == holder
    with pytest.raises(LockedError):
        world.second.apply()
    assert world.second.entries == []


@pytest.mark.parametrize("command", ["resume", "apply"])
def test_who_goes_on_takes_it_up_in_the_quorum_first_thing(world: World, command: str) -> None:
    """Also where ZooKeeper went away meanwhile."""
    rollout = world.first.entries[0].details["rollout"]
    world.cluster.zookeeper_answers = False
    world.killed(getattr(world.first, command), lambda: True)
    assert str(rollout) in world.places.in_quorum
    holder = world.second.status()
    assert holder is not None
    assert holder.rollout == rollout
    assert world.first.status() == holder
    with pytest.raises(LockedError, match=str(rollout)):
        world.second.apply()
    assert world.second.entries == []
    assert world.first.resume() is Ending.COMPLETE
    assert world.places.in_quorum == ""
    assert not world.cluster.violations


def test_with_zookeeper_it_is_in_both_and_goes_from_both(world: World) -> None:
    world.killed(world.first.resume, lambda: True)
    assert world.places.in_quorum != ""
    assert world.first.resume() is Ending.COMPLETE
    assert (world.places.in_quorum, world.second.status()) == ("", None)
