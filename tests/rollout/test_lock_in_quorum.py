"""The lock once ZooKeeper is gone: in the metadata of a quorum of ours, over real sockets; and on this host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.controller.rollout_lock import lock_text
from migrator.drill.cluster import MIGRATOR
from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.executors.executors import NodeExecutor
from migrator.rollout.lock.lock import LostLockError, RolloutLock
from migrator.rollout.lock.places import FilePlace
from migrator.rollout.lock.quorum import LeaderLock, QuorumPlace, answer_of, our_leader
from migrator.rollout.nodes import ExecutorChoice, Node, NodeKind
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import LockedError, QuorumAwayError
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from tests.cli.test_quorum import file_of, leader_id, said, served
from tests.node.support.cluster import until
from tests.node.support.dynamic import DynamicCluster
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

HERE = {"default": ExecutorChoice("default", "local", {}, {"command": "false"}, 60.0)}


class Hosts:
    """Operators on hosts of their own. ``is_over``: the migration is."""

    def __init__(self, cluster: DynamicCluster, directory: Path) -> None:
        self.is_over = True
        self._cluster = cluster
        self._directory = directory

    def lock(self, host: str, *, files: Sequence[Path] | None = None, leader: int | None = None) -> RolloutLock:
        """Of a process there.

        :param files: through which it looks for a leader; by default those of all controllers.
        :param leader: on whose host it runs a command otherwise.
        """
        directory = self._directory / host
        directory.mkdir(exist_ok=True)
        node = None if leader is None else self._node(leader)
        ours = [file_of(self._cluster, node_id) for node_id in self._cluster.nodes] if files is None else files
        executor = NodeExecutor(HERE, () if node is None else (node,))
        place = QuorumPlace(LeaderLock(ours, executor, lambda: node, MIGRATOR).ask)
        return RolloutLock(
            None, FilePlace(directory), place, may_be_gone=lambda: self.is_over, wall_ms=lambda: 1_790_000_000_000
        )

    def _node(self, node_id: int) -> Node:
        path = str(file_of(self._cluster, node_id))
        return Node(f"controller-{node_id}", NodeKind.CONTROLLER, node_id, "localhost", path, "default", "", {})


async def test_a_second_operator_is_told_who_where_and_since_when(tmp_path: Path) -> None:
    async with served(tmp_path, 3, 3) as cluster:
        hosts = Hosts(cluster, tmp_path)
        first, second = hosts.lock("ops-1"), hosts.lock("ops-2")
        await first.acquire("aaaa")
        await first.check("aaaa")
        assert not await first.is_local()
        with pytest.raises(LockedError) as refused:
            await second.acquire("bbbb")
        holder = await second.holder()
        assert holder is not None
        for said in (holder.owner, holder.host, "since 2026-09-21", "aaaa", "the quorum", "unlock"):
            assert said in str(refused.value)
        await second.release("bbbb")
        await first.check("aaaa")
        assert await second.break_open("bbbb") == holder
        await first.check("aaaa")
        assert await second.break_open("aaaa") is None
        with pytest.raises(LostLockError, match="the lock was taken away"):
            await first.check("aaaa")
        await second.acquire("bbbb")
        with pytest.raises(LostLockError, match="bbbb"):
            await first.check("aaaa")
        await second.release("bbbb")
        assert await second.holder() is None
        noted = cluster.noted()
        assert "the lock of the rollout has been taken" in noted
        assert "the lock of the rollout has been given back" in noted


async def test_of_many_contenders_one_gets_it(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        await cluster.leader()
        hosts = Hosts(cluster, tmp_path)
        locks = [hosts.lock(f"ops-{number}") for number in range(5)]
        found = await asyncio.gather(
            *(lock.acquire(f"rollout-{number}") for number, lock in enumerate(locks)), return_exceptions=True
        )
        (winner,) = [number for number, each in enumerate(found) if each is None]
        assert all(isinstance(each, LockedError) for number, each in enumerate(found) if number != winner)
        await locks[winner].check(f"rollout-{winner}")


@pytest.mark.lane("test-all")
async def test_by_a_command_on_the_leaders_host(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        hosts = Hosts(cluster, tmp_path)
        leader = await leader_id(cluster)
        first, second = hosts.lock("ops-1", files=(), leader=leader), hosts.lock("ops-2")
        await first.acquire("aaaa")
        await first.check("aaaa")
        with pytest.raises(LockedError, match="aaaa"):
            await second.acquire("bbbb")
        await first.release("aaaa")
        await second.acquire("bbbb")


async def test_the_next_leader_has_it_and_the_same_rollout_takes_it_up(tmp_path: Path) -> None:
    async with served(tmp_path, 3, 3) as cluster:
        hosts = Hosts(cluster, tmp_path)
        dead = hosts.lock("ops-1")
        await dead.acquire("aaaa")
        leader = await leader_id(cluster)
        cluster.wires.cut.add(leader)
        others = [node for node_id, node in cluster.nodes.items() if node_id != leader]
        await until(lambda: any(node.controller.epoch is not None for node in others), "another one leads")
        files = [file_of(cluster, node_id) for node_id in cluster.nodes if node_id != leader]
        with pytest.raises(LockedError, match="aaaa"):
            await hosts.lock("ops-2", files=files).acquire("bbbb")
        again = hosts.lock("ops-3", files=files)
        await again.acquire("aaaa")
        await again.check("aaaa")
        assert any(lock_text(node.metadata.published) for node in others)


async def test_before_the_end_of_the_migration_and_where_nobody_can_be_asked_only_the_host_has_it(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        node = await cluster.leader()
        hosts = Hosts(cluster, tmp_path)
        hosts.is_over = False
        early = hosts.lock("ops-1")
        await early.acquire("aaaa")
        assert await early.is_local()
        assert lock_text(node.metadata.published) == ""
        hosts.is_over = True
        await early.check("aaaa")
        assert "aaaa" in lock_text(node.metadata.published)
        apart = hosts.lock("ops-2", files=())
        await apart.acquire("bbbb")
        assert await apart.is_local()


async def test_what_an_operator_has_written_there_is_named_with_the_way_to_remove_it(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        leader = await leader_id(cluster)
        assert json.loads(await said(cluster, leader, "rollout-lock", "--move", "", "-- mine"))["moved"]
        with pytest.raises(OperatorError, match="not a lock of this program") as refused:
            await Hosts(cluster, tmp_path).lock("ops-1").acquire("aaaa")
        assert "'migrator quorum rollout-lock'" in refused.value.remedy
        removed = json.loads(await said(cluster, leader, "rollout-lock", "--move", "-- mine", ""))
        assert removed == {"held": "", "moved": True}
        await Hosts(cluster, tmp_path).lock("ops-1").acquire("aaaa")


async def test_who_holds_it_in_the_quorum_does_not_go_on_without_asking(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        await cluster.leader()
        files = [file_of(cluster, 1)]
        lock = Hosts(cluster, tmp_path).lock("ops-1", files=files)
        await lock.acquire("aaaa")
        files.clear()
        with pytest.raises(QuorumAwayError):
            await lock.check("aaaa")
        with pytest.raises(QuorumAwayError):
            await lock.leave_quorum("aaaa")


async def test_it_does_not_come_back_into_a_quorum_that_is_being_handed_over(tmp_path: Path) -> None:
    """A controller of Kafka's own is a voter already, and may lead next: nobody could give the lock back."""
    async with served(tmp_path, 1, 1) as cluster:
        node = await cluster.leader()
        voters = {1: ControllerSeen(1, ControllerProgram.MIGRATOR), 2: ControllerSeen(2, ControllerProgram.STOCK)}
        ask = LeaderLock(
            [file_of(cluster, 1)], NodeExecutor(HERE, ()), lambda: our_leader(QuorumSeen(1, voters), ()), MIGRATOR
        ).ask
        lock = RolloutLock(
            None, FilePlace(tmp_path), QuorumPlace(ask), may_be_gone=lambda: True, wall_ms=lambda: 1_790_000_000_000
        )
        await lock.acquire("aaaa")
        await lock.check("aaaa")
        assert await lock.is_local()
        assert lock_text(node.metadata.published) == ""


async def test_it_leaves_the_quorum_before_others_take_over(tmp_path: Path) -> None:
    async with served(tmp_path, 1, 1) as cluster:
        node = await cluster.leader()
        lock = Hosts(cluster, tmp_path).lock("ops-1")
        await lock.acquire("aaaa")
        await lock.leave_quorum("aaaa")
        assert lock_text(node.metadata.published) == ""
        await lock.check("aaaa")
        assert await lock.is_local()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"held": ""}', "null"])
def test_another_answer_of_the_command_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="malformed"):
        answer_of(text, "controller-1 on h")


def test_a_rollout_gives_it_back_in_the_quorum_just_before_the_hand_over(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    operator.apply(StopAt(Phase.FINISH))
    assert not operator.lock.left_quorum
    assert operator.resume() is Ending.COMPLETE
    assert operator.lock.left_quorum


def test_without_a_hand_over_it_stays_there_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(handover=False)), tmp_path / "state")
    assert operator.apply() is Ending.COMPLETE
    assert not operator.lock.left_quorum
