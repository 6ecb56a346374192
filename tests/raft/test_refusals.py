"""Which errors may be in an answer to consensus: some end a stock peer (`tests/hostile` sees to all messages)."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.config import EPOCH_LIMIT
from tests.raft.support.cluster import CLUSTER_ID, Envelope
from tests.raft.test_claims import led


@pytest.mark.parametrize(("leader", "epoch"), [(9, 1), (9, 2), (2, EPOCH_LIMIT)], ids=["stranger", "new", "limit"])
def test_a_leader_that_cannot_be_one_is_refused_by_an_error_that_it_survives(leader: int, epoch: int) -> None:
    """INVALID_REQUEST of the partition ends a stock controller (``KafkaRaftClient.maybeHandleCommonResponse``)."""
    member = led()[3]
    for message in (
        m.BeginQuorumEpochRequest(CLUSTER_ID, 3, leader, epoch),
        m.EndQuorumEpochRequest(CLUSTER_ID, leader, epoch, ()),
    ):
        effects = member.step(ev.RequestReceived(Envelope(leader, 3, 0, None), message))
        (reply,) = [effect for effect in effects if isinstance(effect, fx.Reply)]
        assert reply.response.top_error is ErrorCode.none
        assert reply.response.error is ErrorCode.invalid_voter_key
        assert member.raft.epoch == 1
