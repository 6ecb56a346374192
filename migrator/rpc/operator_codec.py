"""`migrator.observe.status` <-> operator.proto.

The operator's client and service call it, and so does the status over Kafka's protocol. Each pair of functions is the
inverse of the other. A message of an earlier release decodes with defaults; a kind that this release does not know is a
`ValueError`.

`migrator.observe.voters` <-> voters.proto.

The client and the service of the voters call it. Each pair of functions is the inverse of the other; a kind that this
version does not know is a `ValueError`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    ClaimStatus,
    Force,
    Gate,
    Goal,
    ImagesStatus,
    JournalEvent,
    MigrationStatus,
    NodeRole,
    Problem,
    QuorumStatus,
    Status,
    VerdictAnswer,
    VerdictReport,
    VoterStatus,
    WriteBehindStatus,
)
from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.stubs import operator_pb2 as pb
from migrator.rpc.stubs import voters_pb2

_GOALS = {goal: pb.GatesRequest.Goal.Value(goal.name) for goal in Goal}


def goal_to_proto(goal: Goal) -> Any:
    """Encodes the goal of a GatesRequest."""
    return _GOALS[goal]


def goal_from_proto(number: int) -> Goal:
    """Decodes the goal of a GatesRequest.

    :raises ValueError: a goal that we don't know.
    """
    for goal, known in _GOALS.items():
        if known == number:
            return goal
    raise ValueError(f"no goal has the number {number}")


def force_to_proto(force: Force) -> Any:
    """Encodes the kind of a ForceRequest."""
    return pb.ForceRequest.Kind.Value(force.name)


def force_from_proto(number: int) -> Force:
    """Decodes the kind of a ForceRequest.

    :raises ValueError: a kind that we don't know.
    """
    for force in Force:
        if force_to_proto(force) == number:
            return force
    raise ValueError(f"nothing to force has the number {number}")


def status_to_proto(status: Status) -> Any:
    """`Status` for the wire."""
    return pb.Status(
        cluster_id=status.cluster_id,
        node_id=status.node_id,
        version=status.version,
        time_ms=status.time_ms,
        quorum=_quorum_to_proto(status.quorum),
        migration=pb.Migration(**_fields(status.migration)),
        brokers=[pb.Broker(**_fields(broker)) for broker in status.brokers],
        problems=[pb.Problem(**_fields(problem)) for problem in status.problems],
        write_behind=pb.WriteBehind(**_fields(status.write_behind)) if status.write_behind else None,
        claim=pb.Claim(**_fields(status.claim)) if status.claim else None,
        metadata_version=status.metadata_version,
        recent_events=[event_to_proto(event) for event in status.recent_events],
        formatted_version=status.formatted_version,
        is_blank=status.is_blank,
        images=pb.Images(**_fields(status.images)) if status.images else None,
    )


def status_from_proto(proto: Any) -> Status:
    """`Status` from the wire.

    :raises ValueError: a role or broker state that this version does not know.
    """
    return Status(
        cluster_id=proto.cluster_id,
        node_id=proto.node_id,
        version=proto.version,
        time_ms=proto.time_ms,
        quorum=_quorum_from_proto(proto.quorum),
        migration=_migration_from_proto(proto.migration),
        brokers=tuple(_broker_from_proto(broker) for broker in proto.brokers),
        problems=tuple(_from_proto(Problem, problem) for problem in proto.problems),
        write_behind=_from_proto(WriteBehindStatus, proto.write_behind) if proto.HasField("write_behind") else None,
        claim=_from_proto(ClaimStatus, proto.claim) if proto.HasField("claim") else None,
        metadata_version=proto.metadata_version,
        recent_events=tuple(event_from_proto(event) for event in proto.recent_events),
        formatted_version=proto.formatted_version,
        is_blank=proto.is_blank,
        images=_images_from_proto(proto.images) if proto.HasField("images") else None,
    )


def event_to_proto(event: JournalEvent) -> Any:
    """`JournalEvent` for the wire."""
    fields = _fields(event)
    fields["details"] = dict(event.details)
    return pb.JournalEvent(**fields)


def event_from_proto(proto: Any) -> JournalEvent:
    """`JournalEvent` from the wire; details in order of their names."""
    return JournalEvent(proto.sequence, proto.time_ms, proto.kind, proto.text, tuple(sorted(proto.details.items())))


def gate_to_proto(gate: Gate) -> Any:
    """`Gate` for the wire."""
    return pb.Gate(**_fields(gate))


def gate_from_proto(proto: Any) -> Gate:
    """`Gate` from the wire."""
    gate: Gate = _from_proto(Gate, proto)
    return gate


def _migration_from_proto(proto: Any) -> MigrationStatus:
    status: MigrationStatus = _from_proto(MigrationStatus, proto)
    return replace(status, overridable=tuple(proto.overridable))


def _quorum_to_proto(quorum: QuorumStatus) -> Any:
    fields = _fields(quorum)
    fields["voters"] = [pb.Voter(**_fields(voter)) for voter in quorum.voters]
    return pb.Quorum(**fields)


def verdict_to_proto(report: VerdictReport) -> Any:
    """For the wire."""
    return pb.VerdictReport(**_fields(report))


def verdict_from_proto(proto: Any) -> VerdictReport:
    """From the wire."""
    report: VerdictReport = _from_proto(VerdictReport, proto)
    return report


def answer_to_proto(answer: VerdictAnswer) -> Any:
    """For the wire."""
    return pb.VerdictAnswer(**_fields(answer))


def answer_from_proto(proto: Any) -> VerdictAnswer:
    """From the wire."""
    answer: VerdictAnswer = _from_proto(VerdictAnswer, proto)
    return answer


def _images_from_proto(proto: Any) -> ImagesStatus:
    groups = (tuple(proto.equal), tuple(proto.different), tuple(proto.unknown))
    return ImagesStatus(proto.offset, proto.time_ms, *groups)


def _quorum_from_proto(proto: Any) -> QuorumStatus:
    voters = tuple(
        VoterStatus(
            voter.node_id,
            voter.host,
            voter.port,
            voter.log_end_offset,
            voter.zk_migration_ready if voter.HasField("zk_migration_ready") else None,
            voter.heard_ms_ago,
            voter.answers if voter.HasField("answers") else None,
            _silent_ms(voter, voter.heard_ms_ago),
        )
        for voter in proto.voters
    )
    numbers = proto.leader_id, proto.leader_epoch, proto.log_start_offset, proto.log_end_offset, proto.high_watermark
    return QuorumStatus(NodeRole(proto.role), *numbers, voters, proto.stock_leader)


def _broker_from_proto(proto: Any) -> BrokerStatus:
    age_ms = proto.heartbeat_age_ms
    flags = proto.epoch, proto.in_zookeeper_mode, age_ms, _silent_ms(proto, age_ms), proto.graced
    return BrokerStatus(proto.broker_id, BrokerState(proto.state), *flags)


def _silent_ms(proto: Any, heard_ms_ago: int) -> int:
    """A controller of a release before knows no silence but that of whom it has heard."""
    return int(proto.silent_ms if proto.HasField("silent_ms") else heard_ms_ago)


def _fields(status: Any) -> dict[str, Any]:
    """Fields of a value, whose names are the message's."""
    return {name: getattr(status, name) for name in type(status).__slots__}


def _from_proto(status_type: Any, proto: Any) -> Any:
    return status_type(**{name: getattr(proto, name) for name in status_type.__slots__})


def order_to_proto(order: VoterOrder) -> Any:
    """Encodes the order of a ReassignRequest."""
    return voters_pb2.ReassignRequest.Order.Value(order.name)


def order_from_proto(number: int) -> VoterOrder:
    """Decodes the order of a ReassignRequest.

    :raises ValueError: an order that this version does not know.
    """
    for order in VoterOrder:
        if order_to_proto(order) == number:
            return order
    raise ValueError(f"no order about the voters has the number {number}")


def voters_answer_to_proto(answer: VotersAnswer) -> Any:
    """For the wire."""
    return voters_pb2.ReassignResponse(target=answer.target, replaced=answer.replaced, warnings=answer.warnings)


def voters_answer_from_proto(proto: Any) -> VotersAnswer:
    """From the wire."""
    return VotersAnswer(proto.target, proto.replaced, tuple(proto.warnings))


def description_to_proto(description: VotersDescription) -> Any:
    """For the wire."""
    fields = {name: getattr(description, name) for name in _names(VotersDescription)}
    replicas = [
        voters_pb2.Replica(**{name: getattr(row, name) for name in _names(ReplicaDescription)})
        for row in fields["replicas"]
    ]
    return voters_pb2.Description(**fields | {"state": description.state.name, "replicas": replicas})


def description_from_proto(proto: Any) -> VotersDescription:
    """From the wire.

    :raises ValueError: a state that this version does not know.
    """
    fields = {name: getattr(proto, name) for name in _names(VotersDescription)}
    if proto.state not in PlanState.__members__:
        raise ValueError(f"the state {proto.state!r} of a plan")
    rows = (
        ReplicaDescription(**{name: getattr(row, name) for name in _names(ReplicaDescription)})
        for row in proto.replicas
    )
    return VotersDescription(
        **fields | {"state": PlanState[proto.state], "replicas": tuple(rows), "next_steps": tuple(proto.next_steps)}
    )


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(kind.__slots__)
