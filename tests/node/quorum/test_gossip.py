"""Which gRPC addresses of other nodes a controller keeps and tells (gossip of KIP-642)."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from migrator.clock import wall_ms
from migrator.config.load import settings_from
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.gossip import CLOCKS_DIFFER_MS, Gossip
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.voter_set import Membership
from migrator.rpc.quorum_service import NodeAddress
from migrator.rpc.raft_transport import PeerAddress
from tests.patience import PATIENCE_SECONDS

ROUNDS = 200
"""At the usual pace they would take longer than anybody waits."""

PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "one:9093,two:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://one:9093",
    "migrator.grpc.listener": "0.0.0.0:9094",
    "migrator.grpc.voters": "1@one:9094,2@two:9094",
    "migrator.grpc.voter.principals": "1@User:CN=1;2@User:CN=2;3@User:CN=3",
    "migrator.grpc.tls.certificate.file": "c",
    "migrator.grpc.tls.key.file": "k",
    "migrator.grpc.tls.ca.file": "a",
}

"""The allow-list has one node more than the addresses."""

NOTHING: Mapping[str, str] = MappingProxyType({})


CONFIGURED = {
    "controller.quorum.voters": "1@one:9093,2@two:9093",
    "migrator.grpc.voter.principals": "1@User:CN=1;2@User:CN=2",
}
"""Beside that, voters are configured at kraft.version 0."""


class Node:
    """One controller's gossip; ``epoch`` is the one that it knows."""

    def __init__(self, kraft_version: int = 1, epoch: int = 7, extra: Mapping[str, str] = NOTHING) -> None:
        settings = settings_from({**PROPERTIES, **extra}, "test")[0]
        self.addresses = Addresses(settings)
        self.addresses.membership_changed(Membership(kraft_version))
        self.epoch = epoch
        self.addresses.follow(lambda: (self.epoch, None))
        self.gossip = Gossip(settings, self.addresses)

    def heard(self) -> tuple[NodeAddress, ...]:
        return self.gossip.heard()

    def of(self, node_id: int) -> NodeAddress | None:
        return next((address for address in self.heard() if address.node_id == node_id), None)


def test_the_word_of_the_highest_epoch_wins_then_that_of_the_newest_boot() -> None:
    node = Node()
    node.gossip.hear([NodeAddress(2, "old", 1, 10, 5)])
    node.gossip.hear([NodeAddress(2, "new", 1, 11, 5), NodeAddress(2, "older", 1, 9, 5)])
    assert node.heard() == (NodeAddress(2, "new", 1, 11, 5),)
    node.gossip.hear([NodeAddress(2, "fast clock", 1, 12, 4)])
    assert node.heard() == (NodeAddress(2, "new", 1, 11, 5),)
    node.gossip.hear([NodeAddress(2, "clock set back", 1, 1, 6)])
    assert node.heard() == (NodeAddress(2, "clock set back", 1, 1, 6),)


def test_our_own_word_is_as_new_as_the_epoch_that_we_know() -> None:
    node = Node()
    for node.epoch in (7, 8):
        own = node.gossip.known()[0]
        assert (own.node_id, own.host, own.port, own.leader_epoch) == (1, "one", 9094, node.epoch)


def test_who_is_on_the_allow_list_is_found_though_no_configuration_says_where_it_is() -> None:
    node = Node()
    assert node.gossip.find(3) is None
    assert node.gossip.find(2) == PeerAddress("two:9094", frozenset({"User:CN=2"}))
    node.gossip.hear([NodeAddress(3, "three", 9094, 10, 5), NodeAddress(2, "moved", 9094, 10, 5)])
    assert node.gossip.find(3) == PeerAddress("three:9094", frozenset({"User:CN=3"}))
    assert node.gossip.find(2) == PeerAddress("moved:9094", frozenset({"User:CN=2"}))


def test_while_the_voters_are_configured_so_are_their_addresses() -> None:
    node = Node(extra=CONFIGURED)
    node.gossip.hear([NodeAddress(2, "moved", 9094, 10, 5)])
    assert node.gossip.find(2) == PeerAddress("moved:9094", frozenset({"User:CN=2"}))
    node.addresses.membership_changed(Membership(0))
    assert node.gossip.find(2) == PeerAddress("two:9094", frozenset({"User:CN=2"}))


@pytest.mark.parametrize(
    "address",
    [
        NodeAddress(1, "ourselves", 1, 10),
        NodeAddress(4, "not on the list", 1, 10),
        NodeAddress(-1, "nobody", 1, 10),
        NodeAddress(2, "", 1, 10),
        NodeAddress(2, "x" * 10_000, 1, 10),
        NodeAddress(2, "port", 65_536, 10),
        NodeAddress(2, "port", 0, 10),
        NodeAddress(2, "tomorrow", 1, wall_ms() + 2 * CLOCKS_DIFFER_MS),
        NodeAddress(2, "never", 1, 2**63 - 1),
        NodeAddress(2, "before", 1, -1),
        NodeAddress(2, "last epoch", 1, 10, EPOCH_LIMIT),
        NodeAddress(2, "no epoch", 1, 10, -1),
    ],
)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_an_address_that_cannot_be_is_passed_over(address: NodeAddress, kraft_version: int) -> None:
    """One from the end of time would win for ever, and strangers would fill the memory."""
    node = Node(kraft_version, extra=CONFIGURED)
    node.gossip.hear([address])
    assert node.heard() == ()


def test_while_the_voters_are_configured_no_other_node_is_heard_of() -> None:
    node = Node(kraft_version=0, extra=CONFIGURED)
    node.gossip.hear([NodeAddress(3, "three", 9094, 10, 5), NodeAddress(2, "two", 9094, 10, 5)])
    assert [address.node_id for address in node.heard()] == [2]


WORDS = (
    NodeAddress(2, "first", 9094, 10, 5),
    NodeAddress(2, "moved", 9094, 11, 5),
    NodeAddress(2, "fast clock", 9094, 99, 4),
    NodeAddress(2, "last", 9095, 9, 6),
    NodeAddress(3, "three", 9094, 10, 5),
    NodeAddress(3, "three", 9094, 10, 7),
)


def test_in_whatever_order_words_come_the_newest_is_kept_and_no_older_one_replaces_it() -> None:
    for order in itertools.permutations(WORDS):
        node = Node()
        ages: dict[int, tuple[int, int]] = {}
        for word in (*order, *order):
            node.gossip.hear([word])
            held = node.of(word.node_id)
            assert held is not None
            age = (held.leader_epoch, held.boot_ms)
            assert age >= ages.get(word.node_id, (0, 0))
            ages[word.node_id] = age
        assert set(node.heard()) == {WORDS[3], WORDS[5]}


class Moving:
    """Three controllers that move, hear of new epochs and tell each other all that they know, late and twice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = {node_id: Node(extra={"node.id": str(node_id), **listening(node_id)}) for node_id in (1, 2, 3)}
        self.clock = 100
        self.on_the_way: list[tuple[NodeAddress, ...]] = []
        self.newest = dict.fromkeys(self.nodes, (0, 0))
        self.held: dict[tuple[int, int], tuple[int, int]] = {}

    def move(self, node_id: int) -> None:
        """It starts anew elsewhere, and knows at least the epoch that it knew."""
        self.clock += 1
        node = self.nodes[node_id]
        node.epoch += self.random.randrange(2)
        heard = node.heard() if self.random.random() < 0.5 else ()  # it may have forgotten
        extra = {"node.id": str(node_id), **listening(node_id)}
        moved = self.nodes[node_id] = Node(epoch=node.epoch, extra=extra)
        moved.gossip.hear(heard)
        moved.gossip._own = NodeAddress(node_id, f"place-{self.clock}", 9094, self.clock)
        self.held = {pair: age for pair, age in self.held.items() if pair[0] != node_id}

    def deliver(self, to: int, words: tuple[NodeAddress, ...]) -> None:
        self.nodes[to].gossip.hear(words)
        for address in self.nodes[to].heard():
            pair, age = (to, address.node_id), (address.leader_epoch, address.boot_ms)
            assert age >= self.held.get(pair, (0, 0)), "an older word has replaced a newer one"
            self.held[pair] = age

    def something_happens(self) -> None:
        node_id = self.random.choice((1, 2, 3))
        draw = self.random.random()
        if draw < 0.15:
            self.move(node_id)
        elif draw < 0.3:
            self.nodes[node_id].epoch += 1
        elif draw < 0.6 or not self.on_the_way:
            self.on_the_way.append(self.nodes[node_id].gossip.known())
        else:
            self.deliver(node_id, self.random.choice(self.on_the_way))

    def settle(self) -> None:
        """Nobody moves any more, all know the last epoch, and everything that is on its way arrives."""
        last = max(node.epoch for node in self.nodes.values())
        for node in self.nodes.values():
            node.epoch = last
        for node_id in self.nodes:
            for words in self.random.sample(self.on_the_way, len(self.on_the_way)):
                self.deliver(node_id, words)
        for words in [node.gossip.known() for node in self.nodes.values()]:
            for node_id in self.nodes:
                self.deliver(node_id, words)


def listening(node_id: int) -> dict[str, str]:
    names = {1: "one", 2: "two", 3: "three"}
    voters = ",".join(f"{known}@{name}:9094" for known, name in names.items())
    return {"listeners": f"CONTROLLER://{names[node_id]}:9093", "migrator.grpc.voters": voters}


@pytest.mark.parametrize("seed", range(40))
def test_nodes_that_move_are_found_by_all_whatever_is_late(seed: int) -> None:
    moving = Moving(seed)
    for _ in range(60):
        moving.something_happens()
    moving.settle()
    for node_id, node in moving.nodes.items():
        for other in moving.nodes.keys() - {node_id}:
            assert node.of(other) == moving.nodes[other].gossip.own()


def test_nothing_that_peers_tell_grows_without_bound() -> None:
    node = Node()
    for epoch in range(50):
        node.gossip.hear([NodeAddress(node_id, "x" * 253, 1, epoch, epoch) for node_id in range(-100, 1_000)])
        node.gossip.hear([NodeAddress(2, "x" * 254, 1, 10, 60)])
    assert sorted(address.node_id for address in node.heard()) == [2, 3], "those of the allow-list, without itself"
    assert all(len(address.host) <= 253 for address in node.heard())


def test_whose_clock_was_set_back_speaks_louder_than_what_it_said_before() -> None:
    node = Node()
    before = node.gossip.own()
    assert before is not None
    earlier = NodeAddress(1, "earlier", 9094, before.boot_ms + 3_600_000, before.leader_epoch)
    node.gossip.hear([earlier])
    after = node.gossip.own()
    assert after is not None
    assert (after.host, after.boot_ms) == ("one", earlier.boot_ms + 1)
    node.gossip.hear([NodeAddress(1, "never", 9094, 2**62, before.leader_epoch)])
    assert node.gossip.own() == after


def test_who_waits_for_an_address_is_told_of_a_new_one_once() -> None:
    node = Node()
    news: list[int] = []
    node.gossip.news_listeners.append(lambda: news.append(1))
    assert not node.gossip.knows(3)
    word = NodeAddress(3, "three", 9094, 10, 5)
    for epoch in (5, 6):
        node.gossip.hear([replace(word, leader_epoch=epoch)])
    assert node.gossip.knows(3)
    node.gossip.hear([NodeAddress(4, "stranger", 9094, 10, 5)])
    assert len(news) == 1


class Net:
    """Peers that know node 3; those that were told our address know that, too."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.told: dict[int, NodeAddress] = {}
        self.advertised: list[int] = []

    async def advertise(self, peer: int, own: NodeAddress, timeout: float) -> None:
        assert timeout > 0
        self.advertised.append(peer)
        self.told[peer] = own

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> Sequence[NodeAddress]:
        self.asked.append(peer)
        assert timeout > 0
        assert 1 not in {address.node_id for address in known}
        held = self.told.get(peer)
        return (NodeAddress(3, "three", 9094, 10, 5), *(() if held is None else (held,)))


async def test_a_round_asks_everybody_whom_it_can_reach_and_learns_of_the_others() -> None:
    node, net = Node(), Net()
    await node.gossip.ask_around(net)
    await node.gossip.ask_around(net)
    assert net.asked == [2, 2, 3]
    static, net = Node(kraft_version=0, extra=CONFIGURED), Net()
    await static.gossip.ask_around(net)
    assert (net.asked, net.advertised) == ([], [])


async def test_who_has_not_heard_of_its_voters_yet_asks_and_tells() -> None:
    joining, net = Node(kraft_version=0), Net()
    await joining.gossip.ask_around(net)
    assert (net.asked, net.advertised) == ([2], [2])


async def test_our_address_is_told_to_whoever_does_not_hold_the_newest_word_of_it() -> None:
    node, net = Node(), Net()
    for epoch, told in ((7, [2]), (7, [3]), (7, []), (8, [2, 3])):
        node.epoch = epoch
        net.advertised.clear()
        await node.gossip.ask_around(net)
        assert net.advertised == told
    net.told.clear()  # they start anew
    net.advertised.clear()
    await node.gossip.ask_around(net)
    assert net.advertised == [2, 3]


async def test_who_is_woken_asks_at_once() -> None:
    node, asked = Node(), asyncio.Event()

    class Counting(Net):
        async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> Sequence[NodeAddress]:
            found = await super().discover(peer, known, timeout)
            if self.asked.count(2) > ROUNDS:
                asked.set()
            node.gossip.wake()
            return found

    running = asyncio.create_task(node.gossip.run(Counting()))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asked.wait()
    running.cancel()


@pytest.mark.parametrize("turns", range(5))
async def test_who_is_told_to_stop_in_the_turn_of_a_call_stops(turns: int) -> None:
    """A controller is woken by news of an election, and stopped: it stopped never."""
    node = Node(kraft_version=0, extra=CONFIGURED)
    running = asyncio.create_task(node.gossip.run(Net()))
    await turns_of_the_loop(3)
    node.gossip.wake()
    await turns_of_the_loop(turns)
    running.cancel()
    await turns_of_the_loop(5)
    assert running.cancelled()


async def turns_of_the_loop(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
