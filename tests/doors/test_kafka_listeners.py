"""The Kafka listeners of a controller with an authorizer: every call, by everybody who may stand there."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.node.node import _listeners
from migrator.node.stop_reason import StopReason
from migrator.parts.certificates import Authority
from migrator.values import value
from migrator.wire.schemas import CONTROLLER_APIS
from tests.doors.support.caller import Caller, Login, Outcome
from tests.doors.support.grpc_door import itself
from tests.doors.support.questions import questions
from tests.node.support.cluster import CLUSTER_ID, running

SSL, SASL = "CONTROLLER", "LOGIN"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OPERATOR, STRANGER = "operator", "stranger"

FREE = {
    7: "not served",
    17: "before a login it chooses the mechanism; later it is refused as out of order",
    18: "says which APIs there are",
    36: "before a login it carries the proof; later it is refused as out of order",
    38: "a token for oneself; without delegation.token.secret.key there are none",
    39: "one's own token",
    40: "one's own token",
    41: "not served",
    50: "not served",
}
"""Calls that need no right on the cluster, and why."""
BEFORE_LOGIN = (17, 18, 36)
"""APIs for a connection that has not logged in; 36 out of order is refused, and ends it."""


@value
class Visitor:
    """One row of the table: who calls, where, and what comes of each call but those of ``apart``."""

    listener: str
    caller: Caller
    outcome: Outcome
    apart: Mapping[int, Outcome]


def _properties(authority: Authority) -> dict[str, str]:
    key, certificate = authority.issue("controller")
    users = " ".join(f'user_{name}="{name}-secret"' for name in (OPERATOR, STRANGER))
    return {
        "controller.listener.names": f"{SSL},{SASL}",
        "listeners": f"{SSL}://localhost:0,{SASL}://localhost:1",
        "listener.security.protocol.map": f"{SSL}:SSL,{SASL}:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": certificate,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{SASL.lower()}.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} username="{OPERATOR}" password="{OPERATOR}-secret" {users};'
        ),
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{OPERATOR};User:CN={OPERATOR};User:CN=controller",
    }


def _visitors(authority: Authority) -> dict[str, Visitor]:
    other = Authority("another authority")
    inside = authority.pem
    expired = authority.issue(OPERATOR, valid_for=dt.timedelta(seconds=-1))
    early = authority.issue(OPERATOR, valid_after=dt.timedelta(days=1))
    only_serves = authority.issue(OPERATOR, purposes=(ExtendedKeyUsageOID.SERVER_AUTH,))
    shut, answered = Outcome.SHUT, Outcome.ANSWERED
    free = dict.fromkeys(FREE, answered)
    greeting = dict.fromkeys(BEFORE_LOGIN, answered)
    return {
        "nobody, in clear": Visitor(SSL, Caller(), shut, {}),
        "nobody, without a certificate": Visitor(SSL, Caller(authority=inside), shut, {}),
        "a certificate of another authority": Visitor(SSL, Caller(inside, other.issue(OPERATOR)), shut, {}),
        "a certificate that signs itself": Visitor(SSL, Caller(inside, itself(OPERATOR)), shut, {}),
        "an expired certificate": Visitor(SSL, Caller(inside, expired), shut, {}),
        "a certificate that does not hold yet": Visitor(SSL, Caller(inside, early), shut, {}),
        "a certificate for servers only": Visitor(SSL, Caller(inside, only_serves), shut, {}),
        "a certificate with a name that has no right": Visitor(
            SSL, Caller(inside, authority.issue(STRANGER)), Outcome.DENIED, free
        ),
        "a name that two parts of the subject make": Visitor(
            SSL, Caller(inside, authority.issue(beside(OPERATOR))), Outcome.DENIED, free
        ),
        "a controller's certificate": Visitor(SSL, Caller(inside, authority.issue("controller")), answered, {}),
        "an operator's certificate": Visitor(SSL, Caller(inside, authority.issue(OPERATOR)), answered, {}),
        "in clear, where a login is due": Visitor(SASL, Caller(), shut, {}),
        "without a login": Visitor(SASL, Caller(inside), shut, greeting),
        "a wrong password": Visitor(SASL, Caller(inside, login=Login(OPERATOR, "guessed")), shut, {}),
        "an unknown user": Visitor(SASL, Caller(inside, login=Login("nobody", "guessed")), shut, {}),
        "a user without a right": Visitor(
            SASL, Caller(inside, login=Login(STRANGER, f"{STRANGER}-secret")), Outcome.DENIED, free
        ),
        "an operator": Visitor(SASL, Caller(inside, login=Login(OPERATOR, f"{OPERATOR}-secret")), answered, {}),
    }


def beside(name: str) -> x509.Name:
    """A subject with that common name, and one more."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in (name, STRANGER)])


def _calls(visitor: Visitor, port: int, bodies: Mapping[int, dict[str, Any]]) -> dict[int, Outcome]:
    return {key: visitor.caller.call(port, key, CONTROLLER_APIS[key].max, body) for key, body in bodies.items()}


async def test_every_call_by_everybody(tmp_path: Path) -> None:
    authority = Authority("inside")
    bodies, visitors = questions(), _visitors(authority)
    async with running(tmp_path, 1, **_properties(authority)) as cluster:
        node = await cluster.leader()
        listeners = _listeners(cluster.settings(1), CLUSTER_ID, node, StopReason())
        ports = {listener.name: await listener.start("127.0.0.1", 0) for listener in listeners}
        try:
            found = await asyncio.gather(
                *(asyncio.to_thread(_calls, visitor, ports[visitor.listener], bodies) for visitor in visitors.values())
            )
        finally:
            for listener in listeners:
                await listener.close()
    unexpected = {
        f"API {key} by {who}": outcome.name
        for (who, visitor), outcomes in zip(visitors.items(), found, strict=True)
        for key, outcome in outcomes.items()
        if outcome is not visitor.apart.get(key, visitor.outcome)
    }
    assert unexpected == {}
