"""The order to finish without a node, on the node that takes it: what is checked, noted and done, in this order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.controller.decision import RefusedError
from migrator.controller.sessions import Sessions
from migrator.errors import OperatorError
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State
from migrator.node.migration.left_out import LeavingOut
from migrator.observe.status import Force, Orderer
from tests.migration.support.builders import broker, cluster

ALICE = Orderer("User:CN=alice", "ipv4:10.0.0.1:4711")
VOTERS = frozenset({3001, 3002, 3003})
MODE = {"what": "finish", **ALICE.details}


class Node:
    """Controller 3001 leads; 3002 is dead, and so is broker 7, which is the last in ZooKeeper mode."""

    def __init__(self, state: State) -> None:
        self.state, self.epoch = state, 5
        self.alive = {3003}
        self.fetching: list[Any] = []
        self.in_zk: frozenset[int] = frozenset()
        self.zookeeper_error: Exception | None = None
        self.write_error: RefusedError | None = None
        self.elected_while_asked = False
        self.seen: list[Any] = []
        self.controller = SimpleNamespace(epoch=self.epoch, write=self.write)
        image = SimpleNamespace(cluster=cluster([replace(broker(7), fenced=True), broker(8, migrating=False)], []))
        self.core: Any = SimpleNamespace(
            controller=self.controller,
            metadata=SimpleNamespace(published=image),
            addresses=SimpleNamespace(voter_ids=VOTERS),
            keeper=SimpleNamespace(sessions=Sessions(9_000)),
            quorum=SimpleNamespace(status=lambda: SimpleNamespace(voters=self.fetching)),
        )
        coordinator = SimpleNamespace(status=lambda _: SimpleNamespace(state=self.state))
        self.runtime: Any = SimpleNamespace(
            executor=SimpleNamespace(coordinator=coordinator, feed=self.seen.append),
            note=lambda kind, text, **details: self.seen.append((kind, text, details)),
            note_news=lambda kind, text, **details: self.seen.append((kind, text, details)),
            in_zookeeper=self.in_zookeeper,
            node_id=3001,
        )

    async def in_zookeeper(self) -> frozenset[int]:
        if self.zookeeper_error is not None:
            raise self.zookeeper_error
        return self.in_zk

    async def ask_one(self, voter: int) -> object:
        if self.elected_while_asked:
            self.controller.epoch = 6
        return object() if voter in self.alive else None

    async def write(self, operation: object, decide: object, *, epoch: int) -> None:
        self.seen.append(("unregistered", epoch))
        if self.write_error is not None:
            raise self.write_error

    async def order(self, *node_ids: int) -> None:
        signals: Any = SimpleNamespace(ask_one=self.ask_one)
        await LeavingOut(self.core, self.runtime, signals).order(node_ids, "lost", ALICE)


async def test_a_dead_voter_is_noted_and_left_out() -> None:
    node = Node(State.FINISHING)
    await node.order(3002, 3002)
    assert node.seen == [
        ("force", "lost", {**MODE, "without": "3002"}),
        ev.OperatorForce(Force.FINISH, frozenset({3002})),
    ]


async def test_a_vanished_broker_is_noted_and_unregistered_in_the_epoch_that_looked() -> None:
    node = Node(State.DUAL_WRITING)
    await node.order(7)
    assert node.seen == [("force", "lost", {**MODE, "without": "7"}), ("unregistered", 5)]


@pytest.mark.parametrize(
    ("state", "node_ids", "why"),
    [
        (State.FINISHING, (), "names no node"),
        (State.FINISHING, (3001,), "controller 3001 answers"),
        (State.FINISHING, (3002, 3003), "controller 3003 answers"),
        (State.FINISHING, (4711, 3002), "4711 is neither"),
        (State.FINISHING, (7,), "cannot see in ZooKeeper"),
        (State.DUAL_WRITING, (7, 8), "broker 8 is in KRaft mode"),
        (State.DUAL_WRITING, (3002,), "does not wait for controller 3002"),
    ],
)
async def test_all_nodes_of_an_order_are_gone_or_nothing_happens(
    state: State, node_ids: tuple[int, ...], why: str
) -> None:
    node = Node(state)
    with pytest.raises(OperatorError, match=why):
        await node.order(*node_ids)
    assert node.seen == []


async def test_a_voter_that_fetches_is_not_gone_though_its_port_is_closed() -> None:
    node = Node(State.FINISHING)
    node.fetching = [SimpleNamespace(replica_id=3002, heard_ms=monotonic_ms())]
    with pytest.raises(OperatorError, match="controller 3002 fetches"):
        await node.order(3002)
    node.fetching = [SimpleNamespace(replica_id=3002, heard_ms=monotonic_ms() - 60_000)]
    await node.order(3002)


async def test_a_broker_in_zookeeper_or_a_zookeeper_out_of_reach_refuses() -> None:
    node = Node(State.DUAL_WRITING)
    node.in_zk = frozenset({7})
    with pytest.raises(OperatorError, match="/brokers/ids/7 exists"):
        await node.order(7)
    node.zookeeper_error = OperatorError("no server answers")
    with pytest.raises(OperatorError, match="ZooKeeper cannot be asked"):
        await node.order(7)
    assert node.seen == []


async def test_a_leadership_that_ends_while_nodes_are_asked_ends_the_order() -> None:
    node = Node(State.FINISHING)
    node.elected_while_asked = True
    with pytest.raises(OperatorError, match="changed while the order was checked"):
        await node.order(3002)
    assert node.seen == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.stale_broker_epoch, "nothing was forced: broker 7 was not unregistered"),
        (ErrorCode.not_controller, "lost the leadership before a majority knew"),
    ],
)
async def test_a_broker_that_came_back_and_a_lost_leadership_are_told_and_noted(code: ErrorCode, said: str) -> None:
    node = Node(State.DUAL_WRITING)
    node.write_error = RefusedError(code, "Broker 7 has registered again.")
    with pytest.raises(OperatorError, match=said):
        await node.order(7)
    kind, text, details = node.seen[-1]
    assert kind == "force"
    assert said in text
    assert details == {"what": "finish", "without": "7"}
