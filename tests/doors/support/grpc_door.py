"""gRPC and the operator's socket of a running controller: every call of every service, by everybody who may come.

The tables say what comes of each call. They are data: nothing of the program that decides is asked for them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from migrator.drill.cluster import CLUSTER_ID
from migrator.parts.certificates import THIS_MACHINE, Authority, common_name
from migrator.rpc.channel import CLIENT_OPTIONS, CLUSTER_KEY
from migrator.rpc.stubs import operator_pb2, quorum_pb2, voters_pb2
from migrator.values import value
from tests.doors.support.controllers import (
    BOTH,
    BOTH_SPEAKS_AS,
    OPERATOR,
    SUPER_USER,
    Controllers,
    name_of,
)
from tests.patience import PATIENCE_SECONDS

SERVICES = {
    descriptor.full_name: descriptor
    for module in (quorum_pb2, operator_pb2, voters_pb2)
    for descriptor in module.DESCRIPTOR.services_by_name.values()
}
SPEAKERS = {"candidate_id", "leader_id", "replica_id", "node_id"}
"""Fields that say which voter speaks."""


class Outcome(Enum):
    """The result of a call, as the tables below write it."""

    SHUT = "-"
    """No connection."""
    DENIED = "x"
    """Refused for who asks, before the request is read."""
    FALSE = "f"
    """Refused because the request says that it is of another voter."""
    ANSWERED = "A"
    """Whatever the answer is: an order that cannot be carried out is answered, too."""


CALLS = (
    "migrator.quorum.v1.Quorum/Vote",
    "migrator.quorum.v1.Quorum/BeginQuorumEpoch",
    "migrator.quorum.v1.Quorum/EndQuorumEpoch",
    "migrator.quorum.v1.Quorum/Fetch",
    "migrator.quorum.v1.Quorum/FetchSnapshot",
    "migrator.quorum.v1.Quorum/AdvertiseBroker",
    "migrator.quorum.v1.Quorum/DiscoverBrokers",
    "migrator.quorum.v1.Quorum/ImageDigest",
    "migrator.operator.v1.Operator/Watch",
    "migrator.operator.v1.Operator/Journal",
    "migrator.operator.v1.Operator/Gates",
    "migrator.voters.v1.Voters/Describe",
    "migrator.operator.v1.Operator/Pause",
    "migrator.operator.v1.Operator/Resume",
    "migrator.operator.v1.Operator/Force",
    "migrator.operator.v1.Operator/Reopen",
    "migrator.operator.v1.Operator/CloseWayBack",
    "migrator.operator.v1.Operator/ReportVerdict",
    "migrator.operator.v1.Operator/RolloutLock",
    "migrator.voters.v1.Voters/Reassign",
)
"""The columns of the tables, from left to right."""

#                                          as a voter, quorum, looking, orders
NETWORK: Mapping[str, str] = {
    "in clear":                                     "------ -- ---- --------",
    "without a certificate":                        "------ -- ---- --------",
    "a certificate of another authority":           "------ -- ---- --------",
    "a certificate that signs itself":              "------ -- ---- --------",
    "an expired certificate":                       "------ -- ---- --------",
    "a certificate that does not hold yet":         "------ -- ---- --------",
    "a certificate for servers only":               "------ -- ---- --------",
    "a name that is in no list":                    "xxxxxx xx xxxx xxxxxxxx",
    "a super user of Kafka":                        "xxxxxx xx xxxx xxxxxxxx",
    "no name at all":                               "xxxxxx xx xxxx xxxxxxxx",
    "a voter's name as that of a machine":          "xxxxxx xx xxxx xxxxxxxx",
    "a voter's name beside an operator's":          "xxxxxx xx xxxx xxxxxxxx",
    "a voter's name within an organization":        "xxxxxx xx xxxx xxxxxxxx",
    "a voter's name in other letters":              "xxxxxx xx xxxx xxxxxxxx",
    "a voter's name and a zero byte":               "xxxxxx xx xxxx xxxxxxxx",
    "an operator's name with a list within":        "xxxxxx xx xxxx xxxxxxxx",
    "a voter as itself":                            "AAAAAA AA AAAA xxxxxxxx",
    "a voter as the third one":                     "ffffff AA AAAA xxxxxxxx",
    "a voter as the one that it asks":              "ffffff AA AAAA xxxxxxxx",
    "an operator":                                  "xxxxxx xx AAAA AAAAAAAA",
    "a voter that is an operator, too":             "AAAAAA AA AAAA AAAAAAAA",
}  # fmt: skip
SOCKET: Mapping[str, str] = {
    "another user":                                 "------ -- ---- --------",
    "another user, the directory open by mistake":  "------ -- ---- --------",
    "the controller's own user":                    "xxxxxx xx AAAA AAAAAAAA",
}  # fmt: skip


def outcomes(row: str) -> dict[str, Outcome]:
    """By call."""
    return dict(zip(CALLS, map(Outcome, row.replace(" ", "")), strict=True))


@value
class Visitor:
    """How one connects; ``speaker``: the voter that its requests say they are of."""

    channel: Callable[[str], grpc.aio.Channel]
    speaker: int


def with_certificate(authority: Authority, key_and_certificate: tuple[str, str] | None) -> Callable[[str], Any]:
    key, certificate = (None, None) if key_and_certificate is None else map(str.encode, key_and_certificate)
    credentials = grpc.ssl_channel_credentials(authority.pem.encode(), key, certificate)
    return lambda address: grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS)


def in_clear(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)


def itself(name: str) -> tuple[str, str]:
    """A key, and a certificate that it has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    now, whole = dt.datetime.now(dt.UTC), common_name(name)
    certificate = (
        x509.CertificateBuilder(whole, whole, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.decode(), certificate.public_bytes(pem).decode()


def subject(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])


def visitors(cluster: Controllers, asked: int) -> dict[str, Visitor]:
    """Those of `NETWORK`; ``asked`` is the controller that they stand before."""
    mine, third = (node.node_id for node in cluster.nodes if node.node_id != asked)
    voter, inside, other = name_of(mine), cluster.authority, Authority("another authority")
    cn, later = NameOID.COMMON_NAME, dt.timedelta(days=1)

    def shows(key_and_certificate: tuple[str, str] | None, speaker: int = mine) -> Visitor:
        return Visitor(with_certificate(inside, key_and_certificate), speaker)

    def named(*parts: tuple[x509.ObjectIdentifier, str]) -> Visitor:
        return shows(inside.issue(subject(*parts)))

    return {
        "in clear": Visitor(in_clear, mine),
        "without a certificate": shows(None),
        "a certificate of another authority": shows(other.issue(voter)),
        "a certificate that signs itself": shows(itself(voter)),
        "an expired certificate": shows(inside.issue(voter, valid_for=dt.timedelta(seconds=-1))),
        "a certificate that does not hold yet": shows(inside.issue(voter, valid_after=later)),
        "a certificate for servers only": shows(inside.issue(voter, purposes=(ExtendedKeyUsageOID.SERVER_AUTH,))),
        "a name that is in no list": named((cn, "broker-7")),
        "a super user of Kafka": named((cn, SUPER_USER)),
        "no name at all": named(),
        "a voter's name as that of a machine": shows(
            inside.issue("broker-7", names=(*THIS_MACHINE, x509.DNSName(voter)))
        ),
        "a voter's name beside an operator's": named((cn, voter), (cn, OPERATOR)),
        "a voter's name within an organization": named((NameOID.ORGANIZATION_NAME, "bank"), (cn, voter)),
        "a voter's name in other letters": named((cn, voter.upper())),
        "a voter's name and a zero byte": named((cn, f"{voter}\0")),
        "an operator's name with a list within": named((cn, f"{OPERATOR};User:CN={BOTH}")),
        "a voter as itself": shows(inside.issue(voter)),
        "a voter as the third one": shows(inside.issue(voter), third),
        "a voter as the one that it asks": shows(inside.issue(voter), asked),
        "an operator": shows(inside.issue(OPERATOR)),
        "a voter that is an operator, too": shows(inside.issue(BOTH), BOTH_SPEAKS_AS),
    }


def request_of(call: str, speaker: int) -> Any:
    """A request that says it comes from that voter; otherwise empty."""
    service, _, name = call.partition("/")
    message = SERVICES[service].methods_by_name[name].input_type._concrete_class()
    for field in SPEAKERS & {field.name for field in message.DESCRIPTOR.fields}:
        setattr(message, field, speaker)
    if name == "FetchSnapshot":
        message.snapshot_id.SetInParent()
    return message


async def ended(channel: grpc.aio.Channel, call: str, message: bytes) -> tuple[grpc.StatusCode, str]:
    """How a call ends, or begins to be answered."""
    stream = channel.unary_stream("/" + call)(message, timeout=PATIENCE_SECONDS, metadata=((CLUSTER_KEY, CLUSTER_ID),))
    try:
        await stream.read()
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    finally:
        stream.cancel()
    return grpc.StatusCode.OK, ""


CODES = {
    grpc.StatusCode.UNAVAILABLE: frozenset({Outcome.SHUT}),
    grpc.StatusCode.PERMISSION_DENIED: frozenset({Outcome.DENIED, Outcome.FALSE}),
    grpc.StatusCode.OK: frozenset({Outcome.ANSWERED}),
    grpc.StatusCode.FAILED_PRECONDITION: frozenset({Outcome.ANSWERED}),
    grpc.StatusCode.INVALID_ARGUMENT: frozenset({Outcome.ANSWERED}),
}
"""Of which outcomes a code may be; no call ends with any other."""
READ = frozenset({Outcome.ANSWERED, Outcome.FALSE})
"""Outcomes of calls whose request was read: noise in its place is called noise."""


async def unexpected(channel: grpc.aio.Channel, who: str, speaker: int, row: str) -> list[str]:
    """Calls whose result differs from their row: each with a request of its type, and with noise."""
    found = []
    for call, wanted in outcomes(row).items():
        code, why = await ended(channel, call, request_of(call, speaker).SerializeToString())
        if wanted not in CODES.get(code, ()):
            found.append(f"{call} by {who}: {code.name} {why}")
        code, why = await ended(channel, call, b"\xff" * 30)
        refused = Outcome.ANSWERED if wanted in READ else wanted
        if refused not in CODES.get(code, ()) or (code is grpc.StatusCode.INVALID_ARGUMENT) is not (wanted in READ):
            found.append(f"noise for {call} by {who}: {code.name} {why}")
    return found
