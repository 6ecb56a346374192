"""The identity of a gRPC caller, as its connection proves it: a certificate on an allow-list, or the operator's socket.

The doorkeeper asks `Identities` for each call and sets `GrpcCaller` for it. A caller whose certificate is on no list,
is not yet valid or has expired has no role. Names of callers go into logs and the journal.

`DOORS` is the table of gRPC calls and the callers that may make them. `migrator.rpc.doorkeeper` enforces it for every
service.

A call that is not in the table is refused.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from migrator.clock import wall_time
from migrator.config.names import distinguished_name, reading_certificates
from migrator.config.principals import principal_of_name
from migrator.observe.printable import printable
from migrator.observe.status import Orderer
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


NOBODY = "nobody"
SOCKET = "the operator's socket"
_TIME = "%Y-%m-%d %H:%M:%S UTC"
RENEW = "Put a valid one into migrator.grpc.tls.certificate.file of the caller; a controller reads it without a restart"


@value
class Certificate:
    """``principal`` is None when the subject is empty, which names nobody."""

    principal: str | None
    not_before: datetime
    not_after: datetime

    def why_not(self, now: datetime) -> str:
        """Why it is not valid at that time; empty when it is."""
        if now < self.not_before:
            return f"the certificate holds from {self.not_before:{_TIME}} only"
        return f"the certificate holds until {self.not_after:{_TIME}}" if now > self.not_after else ""


@lru_cache(maxsize=256)
def read_certificate(pem: bytes) -> Certificate:
    """The first certificate of a chain.

    :raises ValueError: it cannot be read.
    """
    with reading_certificates():
        found = x509.load_pem_x509_certificate(pem)
        name = distinguished_name(found.public_bytes(Encoding.DER))
        principal = principal_of_name(name) if name else None
        return Certificate(principal, found.not_valid_before_utc, found.not_valid_after_utc)


@value
class GrpcCaller:
    """A caller. ``name``: for logs and the journal; ``node_id``: the voter to which the certificate belongs."""

    name: str
    address: str
    roles: frozenset[CallerRole] = frozenset()
    node_id: int | None = None
    why_not: str = ""
    """Why the caller has no role; empty when it has one."""

    @property
    def orderer(self) -> Orderer:
        """The caller's name for the journal."""
        return Orderer(self.name, self.address)


CALLER: ContextVar[GrpcCaller] = ContextVar("CALLER")
"""The caller of the call that this task serves. The doorkeeper sets it."""


class Identities:
    """Maps a connection to its caller, by the allow-lists of this node.

    :param voters: principal -> node id.
    """

    def __init__(self, voters: Mapping[str, int] | None = None, operators: frozenset[str] = frozenset()) -> None:
        self._voters = voters or {}
        self._operators = operators
        self._owner = local_user(os.geteuid())

    def caller(self, context: Any) -> GrpcCaller:
        proofs = context.auth_context().get("x509_pem_cert", ())
        return self.known(tuple(proofs), unquote(context.peer()), wall_time())

    def known(self, pems: Sequence[bytes], peer: str, now: datetime) -> GrpcCaller:
        """The caller at that time.

        :param pems: the certificate that the peer has proved to have the key of, if any.
        :param peer: the other end's address, in gRPC's words.
        """
        if peer.startswith("unix:"):
            return GrpcCaller(self._owner, SOCKET, frozenset({CallerRole.OWNER}))
        if len(pems) != 1:
            return GrpcCaller(NOBODY, peer, why_not="there is no certificate")
        try:
            certificate = read_certificate(pems[0])
        except ValueError:
            return GrpcCaller(NOBODY, peer, why_not="the certificate cannot be read")
        if certificate.principal is None:
            return GrpcCaller(NOBODY, peer, why_not="the certificate has no subject: give it a common name")
        name = printable(certificate.principal)
        if why_not := certificate.why_not(now):
            return GrpcCaller(name, peer, why_not=f"{why_not}. {RENEW}")
        node_id = self._voters.get(certificate.principal)
        roles = {CallerRole.VOTER} if node_id is not None else set()
        if certificate.principal in self._operators:
            roles.add(CallerRole.OPERATOR)
        return GrpcCaller(name, peer, frozenset(roles), node_id)


def local_user(uid: int) -> str:
    """A name for people. A socket does not tell more: root may come through it as well."""
    try:
        return f"local user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"local user {uid}"
