"""Which gRPC addresses of other nodes a controller keeps and tells (gossip of KIP-642)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from migrator.clock import wall_ms
from migrator.config.load import settings_from
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.gossip import CLOCKS_DIFFER_MS, Gossip
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.voter_set import Membership
from migrator.rpc.quorum_service import NodeAddress
from migrator.rpc.raft_transport import PeerAddress

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


class Node:
    """One controller's gossip; ``epoch`` is the one that it knows."""

    def __init__(self, kraft_version: int = 1, epoch: int = 7) -> None:
        settings = settings_from(PROPERTIES, "test")[0]
        self.addresses = Addresses(settings)
        self.addresses.membership_changed(Membership(kraft_version))
        self.epoch = epoch
        self.addresses.follow(lambda: (self.epoch, None))
        self.gossip = Gossip(settings, self.addresses)

    def heard(self) -> tuple[NodeAddress, ...]:
        return self.gossip.known()[1:]


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
    node.addresses.membership_changed(Membership(0))
    assert node.gossip.find(2) == PeerAddress("two:9094", frozenset({"User:CN=2"})), "voters are configured"
    assert node.gossip.find(3) is None


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
    node = Node(kraft_version)
    node.gossip.hear([address])
    assert node.heard() == ()


def test_while_the_voters_are_configured_no_other_node_is_heard_of() -> None:
    node = Node(kraft_version=0)
    node.gossip.hear([NodeAddress(3, "three", 9094, 10, 5), NodeAddress(2, "two", 9094, 10, 5)])
    assert [address.node_id for address in node.heard()] == [2]


class Net:
    """Nodes that reach each other by gossip's own addresses."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> Sequence[NodeAddress]:
        self.asked.append(peer)
        assert timeout > 0
        assert known[0].node_id == 1
        return (NodeAddress(3, "three", 9094, 10, 5),)


async def test_a_round_asks_everybody_whom_it_can_reach_and_learns_of_the_others() -> None:
    node, net = Node(), Net()
    await node.gossip.ask_around(net)
    await node.gossip.ask_around(net)
    assert net.asked == [2, 2, 3]
    static, net = Node(kraft_version=0), Net()
    await static.gossip.ask_around(net)
    assert net.asked == []
