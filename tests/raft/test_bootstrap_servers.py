"""Nodes that are told by bootstrap servers who leads (``controller.quorum.bootstrap.servers``, KIP-853)."""

from __future__ import annotations

from random import Random

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.config import RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.states import ElectionState, Role
from tests.raft.support.cluster import CLUSTER_ID, NONE
from tests.simulation.disk import SimulatedLog


def test_a_node_that_knows_no_voters_yet_believes_a_bootstrap_server_who_leads() -> None:
    """An empty log names no voters, nor does the configuration."""
    config = RaftConfig(4, CLUSTER_ID, frozenset(), bootstrap=(-2,))
    node = RaftNode(config, SimulatedLog(), ElectionState(0), Random(1), 0)
    (asked,) = fetches(node.step(ev.Tick(), 0))
    assert asked.peer == -2
    answer = m.FetchResponse(NONE, ErrorCode.fenced_leader_epoch, 1, 3, -1, 0)
    effects = node.step(ev.ResponseReceived(-2, asked.correlation, answer), 1)
    assert (node.role, node.epoch, node.leader_id) == (Role.FOLLOWER, 3, 1)
    assert [effect.peer for effect in fetches(effects)] == [1]


def test_a_bootstrap_server_that_knows_no_leader_is_asked_again_only_after_the_back_off() -> None:
    config = RaftConfig(4, CLUSTER_ID, frozenset(), bootstrap=(-2,), retry_backoff_ms=20)
    node = RaftNode(config, SimulatedLog(), ElectionState(0), Random(1), 0)
    (asked,) = fetches(node.step(ev.Tick(), 0))
    answer = m.FetchResponse(NONE, ErrorCode.not_leader_or_follower, -1, 0, -1, 0)
    assert fetches(node.step(ev.ResponseReceived(-2, asked.correlation, answer), 1)) == []
    assert node.deadline() == 21
    assert len(fetches(node.step(ev.Tick(), 21))) == 1


def fetches(effects: list[fx.Effect]) -> list[fx.Send]:
    """The Fetch requests that a step sends."""
    return [effect for effect in effects if isinstance(effect, fx.Send) and isinstance(effect.request, m.FetchRequest)]
