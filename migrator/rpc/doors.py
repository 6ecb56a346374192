"""The table of gRPC calls and the callers that may make them. `migrator.rpc.doorkeeper` enforces it for every service.

A call that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from migrator.values import value


class CallerRole(StrEnum):
    VOTER = "voter"
    """A certificate of ``migrator.grpc.voter.principals``."""
    OPERATOR = "operator"
    """A certificate of ``migrator.grpc.operator.principals``."""
    OWNER = "owner of the socket"
    """The local user that this controller runs as, or root, through the socket in the metadata directory."""


@value
class Door:
    """``speaks_as``: the field of the request that names its sender. It must be the voter of the certificate."""

    roles: frozenset[CallerRole]
    speaks_as: str = ""


VOTERS = frozenset({CallerRole.VOTER})
ORDERS = frozenset({CallerRole.OPERATOR, CallerRole.OWNER})
READS = ORDERS | VOTERS
"""Voters may read: a command on a controller's machine finds the leader with that controller's certificate."""

QUORUM = "/migrator.quorum.v1.Quorum/"
OPERATOR = "/migrator.operator.v1.Operator/"
VOTERS_SERVICE = "/migrator.voters.v1.Voters/"

DOORS: Mapping[str, Door] = {
    QUORUM + "Vote": Door(VOTERS, "candidate_id"),
    QUORUM + "BeginQuorumEpoch": Door(VOTERS, "leader_id"),
    QUORUM + "EndQuorumEpoch": Door(VOTERS, "leader_id"),
    QUORUM + "Fetch": Door(VOTERS, "replica_id"),
    QUORUM + "FetchSnapshot": Door(VOTERS, "replica_id"),
    QUORUM + "DescribeQuorum": Door(VOTERS),
    QUORUM + "AdvertiseBroker": Door(VOTERS, "node_id"),
    QUORUM + "DiscoverBrokers": Door(VOTERS),
    QUORUM + "ImageDigest": Door(VOTERS),
    OPERATOR + "Watch": Door(READS),
    OPERATOR + "Journal": Door(READS),
    OPERATOR + "Gates": Door(READS),
    OPERATOR + "Pause": Door(ORDERS),
    OPERATOR + "Resume": Door(ORDERS),
    OPERATOR + "Force": Door(ORDERS),
    OPERATOR + "Reopen": Door(ORDERS),
    OPERATOR + "CloseWayBack": Door(ORDERS),
    OPERATOR + "ReportVerdict": Door(ORDERS),
    OPERATOR + "RolloutLock": Door(ORDERS),
    VOTERS_SERVICE + "Reassign": Door(ORDERS),
    VOTERS_SERVICE + "Describe": Door(READS),
}

REMEDIES: Mapping[frozenset[CallerRole], str] = {
    VOTERS: "Only voters may; migrator.grpc.voter.principals of that controller names them",
    READS: "migrator.grpc.operator.principals of that controller names who may, beside its voters",
    ORDERS: "migrator.grpc.operator.principals of that controller names who may; on its machine its user may too, "
    "through the socket (-c without --server)",
}
"""The remedy for a refused caller."""
