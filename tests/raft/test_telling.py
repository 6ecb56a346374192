"""Nobody who was given up learns the epoch or the leader: a row for each answer, and for each request that we send."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.core import REQUESTS
from migrator.raft.messages import EpochOffset, RaftRequest
from migrator.raft.recovery import EPOCH_STEP
from migrator.raft.refused import Recovered
from migrator.raft.responses import nothing
from migrator.raft.states import Role
from migrator.raft.telling import GIVEN_UP, Asker, asker_of, is_given_up
from migrator.raft.voter_changes import AddVoter
from migrator.raft.voter_set import ReplicaKey
from migrator.records.uuid import ZERO_UUID
from migrator.rpc.stubs import operator_pb2, quorum_pb2, voters_pb2
from migrator.wire.schemas import SERVED_APIS, response_type
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Member
from tests.raft.test_given_up import NEW_DISK, survivor
from tests.simulation.planning import entry

LOST = 1

BY: dict[type, Callable[[ReplicaKey, int], RaftRequest]] = {
    m.VoteRequest: lambda key, epoch: m.VoteRequest(CLUSTER_ID, -1, epoch, key.node_id, 0, 9, key.directory_id),
    m.BeginQuorumEpochRequest: lambda key, epoch: m.BeginQuorumEpochRequest(CLUSTER_ID, -1, key.node_id, epoch),
    m.EndQuorumEpochRequest: lambda key, epoch: m.EndQuorumEpochRequest(CLUSTER_ID, key.node_id, epoch, (3,)),
    m.FetchRequest: lambda key, epoch: m.FetchRequest(CLUSTER_ID, key.node_id, epoch, 0, 0, 0, 9, key.directory_id),
    m.FetchSnapshotRequest: lambda key, epoch: m.FetchSnapshotRequest(
        CLUSTER_ID, key.node_id, epoch, EpochOffset(1, 3), 0, 9, key.directory_id
    ),
}
"""Each request that a replica sends."""
NAMES_NO_DISK = {m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest}


def test_each_request_has_a_row() -> None:
    assert set(BY) == set(REQUESTS) == set(typing.get_args(m.RaftRequest))


def with_the_id_again(member: Member, cluster: Cluster) -> None:
    """The id of the lost one votes again, with another disk."""
    key = ReplicaKey(LOST, NEW_DISK)
    cluster.ask(3, m.FetchRequest(CLUSTER_ID, LOST, member.raft.epoch, member.log.end_offset(), 1, 0, 9, NEW_DISK))
    at_end = m.FetchRequest(
        CLUSTER_ID, LOST, member.raft.epoch, member.log.end_offset(), member.log.last_epoch(), 0, 9, NEW_DISK
    )
    cluster.ask(3, at_end)
    member.step(ev.ChangeVoters(AddVoter(entry(key))))
    assert member.voters == [LOST, 3]


@pytest.mark.parametrize("far", [-5, -1, 1, 5])
@pytest.mark.parametrize("is_there_again", [False, True])
@pytest.mark.parametrize("kind", BY, ids=lambda kind: kind.__name__)
def test_an_answer_to_one_that_was_given_up_tells_nothing(kind: type, is_there_again: bool, far: int) -> None:
    cluster, member = survivor()
    if is_there_again:
        with_the_id_again(member, cluster)
    epoch = member.raft.epoch
    request = BY[kind](cluster[LOST].key, epoch + far)
    answer = cluster.ask(3, request)
    assert answer == nothing(request, answer.error)
    assert (answer.leader_id, answer.leader_epoch) == (-1, 0)
    if kind not in NAMES_NO_DISK:
        assert answer.error is GIVEN_UP
    assert (member.raft.role, member.raft.epoch) == (Role.LEADER, epoch)


@pytest.mark.parametrize("kind", BY, ids=lambda kind: kind.__name__)
def test_the_same_id_on_another_disk_is_answered_as_anybody(kind: type) -> None:
    cluster, member = survivor()
    with_the_id_again(member, cluster)
    epoch = member.raft.epoch
    answer = cluster.ask(3, BY[kind](ReplicaKey(LOST, NEW_DISK), epoch - 1))
    told = (-1, 0) if kind in NAMES_NO_DISK else (3, epoch)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.fenced_leader_epoch, *told)


@pytest.mark.parametrize("kind", set(BY) - NAMES_NO_DISK, ids=lambda kind: kind.__name__)
def test_an_id_of_a_lost_one_without_a_disk_may_be_the_lost_one(kind: type) -> None:
    cluster, member = survivor()
    answer = cluster.ask(3, BY[kind](ReplicaKey(LOST, ZERO_UUID), member.raft.epoch - 1))
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (ErrorCode.fenced_leader_epoch, -1, 0)


def test_an_id_of_a_lost_one_in_an_epoch_before_the_recovery_is_the_lost_one() -> None:
    """A replica on a new disk under this id has heard of the recovery: nobody takes the next leader for a lost one."""
    recovered, own = Recovered(frozenset({ReplicaKey(LOST, NEW_DISK)})), EPOCH_STEP + 5
    assert is_given_up(recovered, own, Asker(LOST, ZERO_UUID, 5))
    assert not is_given_up(recovered, own, Asker(LOST, ZERO_UUID, own + 1))
    assert not is_given_up(recovered, own, Asker(LOST, ZERO_UUID, own - 1))
    assert not is_given_up(recovered, own, Asker(LOST + 1, ZERO_UUID, 5))
    assert is_given_up(recovered, own, Asker(LOST, NEW_DISK, own + 1))


def test_a_fetch_that_waits_while_its_replica_is_given_up_is_told_nothing() -> None:
    cluster = Cluster(1, 1, dynamic=True)
    cluster.elect(1)
    cluster.propose(1)
    member, key = cluster[1], ReplicaKey(7, NEW_DISK)
    end = member.log.end_offset()
    request = m.FetchRequest(CLUSTER_ID, 7, member.raft.epoch, end, member.log.last_epoch(), 500, 99, NEW_DISK)
    member.step(ev.RequestReceived("first", request))
    member.step(ev.RequestReceived("it", request))
    assert not [it for it in member.effects if isinstance(it, fx.ReadLog | fx.Reply) and it.context == "it"], "it waits"
    known = Recovered(frozenset({key}), 1, 1)
    object.__setattr__(member.config, "recovered", lambda: known)
    cluster.propose(1)
    answers = [it for it in member.effects if isinstance(it, fx.ReadLog | fx.Reply) and it.context == "it"]
    assert answers == [fx.Reply("it", nothing(request, GIVEN_UP))]


@pytest.mark.parametrize("read_epoch", [3, 900])
@pytest.mark.parametrize("kind", BY, ids=lambda kind: kind.__name__)
def test_who_has_not_read_of_the_recovery_yet_tells_its_epoch_to_nobody_new(kind: type, read_epoch: int) -> None:
    """A controller that joins hears the epoch long before it has the list of those who were given up. These may have
    led it before: then it has read records of theirs, in epochs that the survivor has never seen."""
    cluster = Cluster(3, 1, dynamic=True)
    member, epoch = cluster[4], EPOCH_STEP + 7
    known = Recovered(read_epoch=read_epoch)
    member.config = replace(member.config, recovered=lambda: known)
    member.boot()
    member.step(ev.RequestReceived("leader", m.BeginQuorumEpochRequest(CLUSTER_ID, 4, 3, epoch)))
    assert (member.raft.leader_id, member.raft.epoch) == (3, epoch)
    request = BY[kind](cluster[LOST].key, 5)
    answer = cluster.ask(4, request)
    assert answer == nothing(request, answer.error)
    known = Recovered(frozenset({cluster[2].key}), EPOCH_STEP + 1, 9, read_epoch=epoch)
    assert cluster.ask(4, request).leader_epoch == epoch, "it has read all, and that one was not given up"
    request = BY[kind](cluster[2].key, 5)
    assert cluster.ask(4, request).leader_epoch == 0


def test_a_leap_of_the_epoch_alone_keeps_nobody_from_being_elected() -> None:
    """Some voter has raised the epoch as far as a recovery does, and nobody has read a record of it."""
    cluster = Cluster(3, dynamic=True)
    for member in cluster.members.values():
        member.config = replace(member.config, recovered=lambda: Recovered(read_epoch=0))
        member.boot()
    cluster.ask(2, m.VoteRequest(CLUSTER_ID, 2, 2 * EPOCH_STEP, 3, 0, 0, cluster[3].config.directory_id))
    cluster.wait(10_000)
    assert [it.raft.role for it in cluster.members.values()].count(Role.LEADER) == 1
    assert len({it.raft.epoch for it in cluster.members.values()}) == 1


# What we send


def requests_to(member: Member, peer: int) -> Iterator[RaftRequest]:
    for effect in member.effects:
        if isinstance(effect, fx.Send) and effect.peer == peer and not isinstance(effect.request, m.FetchRequest):
            yield effect.request


def test_what_is_meant_for_the_id_on_another_disk_teaches_a_lost_replica_nothing() -> None:
    """An old directory is started where the id with the new one was: it gets our Vote, Begin- and EndQuorumEpoch."""
    cluster, member = survivor()
    with_the_id_again(member, cluster)
    member.effects.clear()
    member.step(ev.Resign(member.raft.epoch))
    for _ in range(6):
        cluster.tick(3)
    cluster.queue.clear()
    member.step(ev.RequestFailed(LOST, member.asked[LOST]))
    cluster.tick(3)
    member.boot()
    cluster.campaign(3)
    sent = {type(request): request for request in requests_to(member, LOST)}
    lost = cluster[LOST]
    before = (lost.raft.leader_id, lost.raft.epoch)
    sent[m.BeginQuorumEpochRequest] = m.BeginQuorumEpochRequest(CLUSTER_ID, LOST, 3, member.raft.epoch, NEW_DISK)
    assert set(sent) == {m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest}
    for request in sent.values():
        assert asker_of(request).epoch > before[1]
        assert cluster.ask(LOST, request).error is ErrorCode.invalid_voter_key
    assert (lost.raft.leader_id, lost.raft.epoch) == before


# Everything that leaves a controller

REPLICAS = "The request names its replica; see above, and `tests/node/test_recover.py` for UpdateRaftVoter."
CLIENTS = "Asked by clients and operators, who are no replicas; consensus reads no such answer."
OTHER = "Not the quorum's leader and epoch."

KAFKA_ANSWERS: dict[int, tuple[str, set[str]]] = {
    1: (REPLICAS, {"current_leader", "diverging_epoch", "epoch", "leader_epoch", "leader_id", "node_endpoints"}),
    18: (OTHER, {"finalized_features_epoch"}),
    52: (REPLICAS, {"epoch", "leader_epoch", "leader_id", "node_endpoints"}),
    53: (REPLICAS, {"leader_epoch", "leader_id", "node_endpoints"}),
    54: (REPLICAS, {"leader_epoch", "leader_id", "node_endpoints"}),
    55: (CLIENTS, {"leader_epoch", "leader_id", "leader_says"}),
    56: (OTHER, {"leader_epoch", "leader_id", "leader_recovery_state", "partition_epoch"}),
    59: (REPLICAS, {"current_leader", "epoch", "leader_epoch", "leader_id", "node_endpoints"}),
    60: (CLIENTS, {"controller_id"}),
    62: (OTHER, {"broker_epoch"}),
    82: (REPLICAS, {"current_leader", "leader_epoch", "leader_id"}),
}
"""By API: why it may name a leader or an epoch, and the fields that might."""

GOSSIP = "How old an address is. Nothing else reads it."
GRPC_ANSWERS: dict[str, tuple[str, set[str]]] = {
    "Quorum.Vote": (REPLICAS, {"epoch", "leader_endpoint", "leader_epoch", "leader_id"}),
    "Quorum.BeginQuorumEpoch": (REPLICAS, {"leader_endpoint", "leader_epoch", "leader_id"}),
    "Quorum.EndQuorumEpoch": (REPLICAS, {"leader_endpoint", "leader_epoch", "leader_id"}),
    "Quorum.Fetch": (REPLICAS, {"epoch", "leader_endpoint", "leader_epoch", "leader_id"}),
    "Quorum.FetchSnapshot": (REPLICAS, {"epoch", "leader_endpoint", "leader_epoch", "leader_id"}),
    "Quorum.DiscoverBrokers": (GOSSIP, {"leader_epoch"}),
    "Operator.Watch": (
        CLIENTS,
        {"controller_epoch", "controller_epoch_version", "epoch", "leader_epoch", "leader_id", "stock_leader"},
    ),
    "Voters.Describe": (CLIENTS, {"leader_epoch", "leader_id", "stock_leader"}),
}

TELLING = re.compile("leader|epoch|controller_id|node_endpoints")


def kafka_fields(message: Any) -> Iterator[str]:
    for name, kind in typing.get_type_hints(message).items():
        if name.startswith("__"):
            continue
        yield name
        for inner in (kind, *typing.get_args(kind)):
            if dataclasses.is_dataclass(inner):
                yield from kafka_fields(inner)


def grpc_fields(message: Descriptor) -> Iterator[str]:
    for each in message.fields:
        yield each.name
        if each.message_type is not None:
            yield from grpc_fields(each.message_type)


def test_each_answer_over_the_kafka_protocol_that_could_tell_has_a_row() -> None:
    found: dict[int, set[str]] = {}
    for key, versions in SERVED_APIS.items():
        messages = [response_type(key, version) for version in range(versions.min, versions.max + 1)]
        found[key] = {name for message in messages for name in kafka_fields(message) if TELLING.search(name)}
    assert {key: names for key, names in found.items() if names} == {key: row[1] for key, row in KAFKA_ANSWERS.items()}


def test_each_answer_over_grpc_that_could_tell_has_a_row() -> None:
    services = [
        service
        for file in (quorum_pb2, operator_pb2, voters_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
    ]
    methods: list[MethodDescriptor] = [method for service in services for method in service.methods]
    found = {
        f"{method.containing_service.name}.{method.name}": {
            name for name in grpc_fields(method.output_type) if TELLING.search(name)
        }
        for method in methods
    }
    assert {name: names for name, names in found.items() if names} == {
        name: row[1] for name, row in GRPC_ANSWERS.items()
    }
