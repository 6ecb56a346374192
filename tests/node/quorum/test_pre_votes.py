"""Voters in the log (kraft.version 1) ask for pre-votes without gRPC; configured voters do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.raft.messages import RaftRequest, RaftResponse, VoteRequest
from tests.node.support.cluster import Cluster, LocalTransport, Wires
from tests.node.support.dynamic import DynamicCluster


class NotingWires(Wires):
    """Keeps the Vote requests that are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.votes: list[VoteRequest] = []

    def to(self, node_id: int) -> LocalTransport:
        return NotingTransport(self, node_id)


class NotingTransport(LocalTransport):
    def __init__(self, wires: NotingWires, node_id: int) -> None:
        super().__init__(wires, node_id)
        self._noting = wires

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        if isinstance(request, VoteRequest):
            self._noting.votes.append(request)
        return await super().send(peer, request, timeout)


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["configured voters", "voters in the log"])
async def test_before_an_election_voters_in_the_log_ask_whether_it_would_be_won(
    tmp_path: Path, *, is_dynamic: bool
) -> None:
    cluster = DynamicCluster(tmp_path, 3, 3) if is_dynamic else Cluster(tmp_path, 3)
    cluster.wires = wires = NotingWires()
    cluster.format()
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    try:
        assert not cluster.settings(1).grpc_voters
        first = await cluster.leader()
        leaders = [node_id for node_id, node in cluster.nodes.items() if node is first]
        await cluster.stop(leaders[0])
        await cluster.leader()
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
    assert not cluster.failures
    assert any(not vote.pre_vote for vote in wires.votes), "elections are won by votes"
    assert any(vote.pre_vote for vote in wires.votes) is is_dynamic
