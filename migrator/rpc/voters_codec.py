"""`migrator.observe.voters` <-> voters.proto.

The client and the service of the voters call it. Each pair of functions is the inverse of the other; a kind that this
version does not know is a `ValueError`.
"""

from __future__ import annotations

from typing import Any

from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.stubs import voters_pb2 as pb


def order_to_proto(order: VoterOrder) -> Any:
    """Encodes the order of a ReassignRequest."""
    return pb.ReassignRequest.Order.Value(order.name)


def order_from_proto(number: int) -> VoterOrder:
    """Decodes the order of a ReassignRequest.

    :raises ValueError: an order that this version does not know.
    """
    for order in VoterOrder:
        if order_to_proto(order) == number:
            return order
    raise ValueError(f"no order about the voters has the number {number}")


def answer_to_proto(answer: VotersAnswer) -> Any:
    """For the wire."""
    return pb.ReassignResponse(target=answer.target, replaced=answer.replaced, warnings=answer.warnings)


def answer_from_proto(proto: Any) -> VotersAnswer:
    """From the wire."""
    return VotersAnswer(proto.target, proto.replaced, tuple(proto.warnings))


def description_to_proto(description: VotersDescription) -> Any:
    """For the wire."""
    fields = {name: getattr(description, name) for name in _names(VotersDescription)}
    replicas = [
        pb.Replica(**{name: getattr(row, name) for name in _names(ReplicaDescription)}) for row in fields["replicas"]
    ]
    return pb.Description(**fields | {"state": description.state.name, "replicas": replicas})


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
