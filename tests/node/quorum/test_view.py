"""Which addresses of other nodes a voter keeps (gossip of KIP-642)."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.clock import wall_ms
from migrator.node.quorum.view import CLOCKS_DIFFER_MS, NodeQuorumView
from migrator.rpc.quorum_service import NodeAddress

OWN = NodeAddress(1, "a", 9093, 5)


def view() -> NodeQuorumView:
    quorum: Any = None
    return NodeQuorumView(quorum, OWN, frozenset({1, 2, 3}))


def test_the_newest_address_of_a_voter_wins() -> None:
    known = view()
    known.discover([NodeAddress(2, "old", 1, 10)])
    known.discover([NodeAddress(2, "new", 1, 11), NodeAddress(2, "older", 1, 9)])
    assert known.discover([]) == (OWN, NodeAddress(2, "new", 1, 11))


@pytest.mark.parametrize(
    "address",
    [
        NodeAddress(1, "other", 1, 10),
        NodeAddress(4, "no voter", 1, 10),
        NodeAddress(-1, "nobody", 1, 10),
        NodeAddress(2, "", 1, 10),
        NodeAddress(2, "x" * 10_000, 1, 10),
        NodeAddress(2, "port", 65_536, 10),
        NodeAddress(2, "port", 0, 10),
        NodeAddress(2, "tomorrow", 1, wall_ms() + 2 * CLOCKS_DIFFER_MS),
        NodeAddress(2, "never", 1, 2**63 - 1),
        NodeAddress(2, "before", 1, -1),
    ],
)
def test_an_address_that_cannot_be_is_passed_over(address: NodeAddress) -> None:
    """One from the end of time would win for ever, and strangers would fill the memory."""
    assert view().discover([address]) == (OWN,)
