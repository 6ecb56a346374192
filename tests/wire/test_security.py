"""Listeners' security from Kafka's keys: connections that work, connections that must not, and settings refused."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from kio.schema.errors import ErrorCode

from migrator.config.names import distinguished_name, map_name, parse_mapping_rules
from migrator.errors import InvariantViolation, OperatorError, PeerError
from migrator.parts.certificates import Authority, common_name
from migrator.raft.transport import TransportError
from migrator.wire.client import KafkaClient
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, build, request_type, response_type
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener, ListenerLimits
from migrator.wire.stores import PemStore
from tests.wire.support.accounts import Accounts

HEARTBEAT = 63
PREFIX = "listener.name.controller."
AUTHORITY = Authority("a CA")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class WhoAmI:
    """Remembers who asked."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    async def handle(self, context: RequestContext, body: Any) -> Any:
        self.principals.append(str(context.principal))
        return build(response_type(HEARTBEAT, context.api_version))


@contextlib.asynccontextmanager
async def serving(
    security: ListenerSecurity, host: str = "127.0.0.1", **limits: int
) -> AsyncIterator[tuple[WhoAmI, int]]:
    handler = WhoAmI()
    listener = KafkaListener("CONTROLLER", handler, security=security, limits=ListenerLimits(**limits))
    port = await listener.start(host, 0)
    try:
        yield handler, port
    finally:
        await listener.close(grace=0)


async def ask(port: int, security: ListenerSecurity, host: str = "localhost") -> None:
    client = KafkaClient(host, port, "tester", security=security)
    try:
        await client.request(build(request_type(HEARTBEAT, 1)), 5)
    finally:
        await client.close()


def tls_keys(subject: str | x509.Name, *, authority: Authority = AUTHORITY, **more: Any) -> dict[str, str]:
    """Keys with everything inline, on one line each, as property files fold them."""
    key, certificate = authority.issue(subject)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": " ".join(key.splitlines()),
        "ssl.keystore.certificate.chain": " ".join(certificate.splitlines()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": " ".join(AUTHORITY.pem.splitlines()),
        **more,
    }


def tls(subject: str | x509.Name, **more: Any) -> ListenerSecurity:
    return listener_security(tls_keys(subject, **more), "CONTROLLER", "SSL")


async def test_the_certificate_names_the_principal() -> None:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"), x509.NameAttribute(NameOID.COMMON_NAME, "broker, 1")]
    )
    async with serving(tls("controller", **{"ssl.client.auth": "required"})) as (handler, port):
        await ask(port, tls(subject))
        assert handler.principals == ["User:CN=broker\\, 1,C=DE"]


async def test_mapping_rules_shorten_it() -> None:
    rules = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": r"RULE:^CN=(.*?)\..*$/$1/U,DEFAULT"}
    async with serving(tls("controller", **rules)) as (handler, port):
        await ask(port, tls("broker1.example.org"))
        await ask(port, tls("broker2"))
        assert handler.principals == ["User:BROKER1", "User:CN=broker2"]


async def test_a_certificate_is_asked_for_only_if_wanted() -> None:
    without = listener_security(
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.pem}
        | {"listener.name.controller.ssl.keystore.type": "PEM"}
        | tls_keys("x", authority=Authority("unknown")),
        "other",
        "SSL",
    )
    for wanted, principal in (("none", "User:ANONYMOUS"), ("requested", "User:CN=broker")):
        async with serving(tls("controller", **{"ssl.client.auth": wanted})) as (handler, port):
            await ask(port, tls("broker"))
            assert handler.principals == [principal]
    async with serving(tls("controller", **{"ssl.client.auth": "required"})) as (handler, port):
        with pytest.raises(TransportError):
            await ask(port, without)
        assert handler.principals == []


async def test_plain_text_and_tls_do_not_mix() -> None:
    async with serving(tls("controller"), login_timeout_ms=500) as (handler, port):
        with pytest.raises(TransportError):
            await ask(port, PLAINTEXT)
        await ask(port, tls("broker"))
    async with serving(PLAINTEXT) as (handler, port):
        with pytest.raises(TransportError):
            await ask(port, tls("broker"))
        await ask(port, PLAINTEXT)
        assert handler.principals == ["User:ANONYMOUS"]


async def test_a_server_of_another_name_or_ca_is_refused() -> None:
    trusting = tls("broker", **{"ssl.endpoint.identification.algorithm": ""})
    async with serving(tls("controller"), host="127.0.0.2") as (_, port):
        with pytest.raises(TransportError, match="TLS"):
            await ask(port, tls("broker"), host="127.0.0.2")
        await ask(port, trusting, host="127.0.0.2")
    stranger = listener_security(tls_keys("controller", authority=Authority("unknown")), "CONTROLLER", "SSL")
    async with serving(stranger) as (_, port):
        with pytest.raises(TransportError, match="TLS"):
            await ask(port, trusting)


async def test_security_that_only_connects_serves_nobody_in_clear() -> None:
    keys = {f"{PREFIX}ssl.truststore.type": "PEM", f"{PREFIX}ssl.truststore.certificates": AUTHORITY.pem}
    outwards = listener_security(keys, "controller", "SSL", serves=False)
    listener = KafkaListener("CONTROLLER", WhoAmI(), security=outwards)
    with pytest.raises(InvariantViolation, match="without TLS"):
        await listener.start("127.0.0.1", 0)
    await listener.close(grace=0.0)


def test_keys_in_files_and_with_a_password(tmp_path: Path) -> None:
    key, certificate = AUTHORITY.issue("controller", password="opensesame")
    (tmp_path / "key.pem").write_text("Bag Attributes\n" + key + certificate)
    keys = {
        f"{PREFIX}ssl.keystore.type": "PEM",
        f"{PREFIX}ssl.keystore.location": str(tmp_path / "key.pem"),
        f"{PREFIX}ssl.key.password": "opensesame",
    }
    assert listener_security(keys, "controller", "SSL").server_context is not None
    for wrong in ("wrong", ""):
        with pytest.raises(OperatorError, match="password") as caught:
            listener_security({**keys, f"{PREFIX}ssl.key.password": wrong}, "CONTROLLER", "SSL")
        assert "BEGIN" not in str(caught.value)


def jaas(module: str, options: str) -> str:
    return f"{module} required {options};"


def sasl(mechanism: str, options: str, protocol: str = "SASL_PLAINTEXT", **more: Any) -> ListenerSecurity:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    keys = {
        "sasl.enabled.mechanisms": mechanism,
        f"{PREFIX}{mechanism.lower()}.sasl.jaas.config": jaas(module, options),
        **more,
    }
    accounts = Accounts({"broker": "pencil"})
    return listener_security(keys, "CONTROLLER", protocol, client_mechanism=mechanism, accounts=accounts)


PLAIN_USERS = 'username="broker" password="pen \\"cil\\"" user_broker="pen \\"cil\\"" user_admin=x'


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("PLAIN", PLAIN_USERS),
        ("SCRAM-SHA-256", "username=broker password=pencil"),
        ("SCRAM-SHA-512", 'username="broker" password="pencil"'),
    ],
)
async def test_sasl_names_the_principal(mechanism: str, options: str) -> None:
    security = sasl(mechanism, options)
    assert "pen" not in repr(security)
    async with serving(security) as (handler, port):
        await ask(port, security)
        assert handler.principals == ["User:broker"]


async def test_sasl_over_tls_takes_its_principal_from_sasl() -> None:
    security = sasl("PLAIN", PLAIN_USERS, "SASL_SSL", **(tls_keys("controller") | {"ssl.client.auth": "required"}))
    async with serving(security) as (handler, port):
        await ask(port, security)
        assert handler.principals == ["User:broker"]


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("PLAIN", 'username="broker" password="wrong" user_broker="pencil"'),
        ("SCRAM-SHA-256", "username=broker password=wrong"),
        ("SCRAM-SHA-512", "username=nobody password=pencil"),
    ],
)
async def test_a_wrong_password_is_refused(mechanism: str, options: str) -> None:
    security = sasl(mechanism, options)
    async with serving(security) as (handler, port):
        with pytest.raises(TransportError, match="authentication as"):
            await ask(port, security)
        assert handler.principals == []


async def test_nothing_is_served_before_authentication() -> None:
    async with serving(sasl("PLAIN", PLAIN_USERS)) as (handler, port):
        with pytest.raises(TransportError):
            await ask(port, PLAINTEXT)
        assert handler.principals == []


async def test_who_does_not_authenticate_in_time_is_closed() -> None:
    async with serving(sasl("PLAIN", PLAIN_USERS), login_timeout_ms=50) as (_, port):
        client = KafkaClient("localhost", port, "tester")
        connection = await client.connect(5)
        await connection.closed()
        await client.close()


async def test_a_stranger_may_send_little_and_a_friend_much() -> None:
    security = sasl("PLAIN", PLAIN_USERS, **{"sasl.server.max.receive.size": "1000"})
    long = build(request_type(API_VERSIONS, 3), client_software_name="x" * 2000, client_software_version="1")
    async with serving(security) as (_, port):
        stranger = KafkaClient("localhost", port, "stranger")
        with pytest.raises(TransportError):
            await stranger.request(long, 5)
        friend = KafkaClient("localhost", port, "friend", security=security)
        assert (await friend.request(long, 5)).error_code == ErrorCode.none
        await stranger.close()
        await friend.close()


async def test_a_second_authentication_is_refused() -> None:
    security = sasl("PLAIN", PLAIN_USERS)
    async with serving(security) as (_, port):
        client = KafkaClient("localhost", port, "tester", security=security)
        response = await client.request(request_type(SASL_AUTHENTICATE, 2)(auth_bytes=b""), 5)
        assert response.error_code == ErrorCode.illegal_sasl_state
        assert response.error_message == "SaslAuthenticate request received after successful authentication"
        await client.close()


@pytest.mark.parametrize(
    ("keys", "protocol", "where", "remedy"),
    [
        ({"ssl.keystore.location": "/a.jks"}, "SSL", "ssl.keystore.location", "can read"),
        ({"ssl.keystore.key": "a"}, "SSL", "ssl.keystore.type", "PEM"),
        ({f"{PREFIX}ssl.keystore.key": "a", f"{PREFIX}ssl.keystore.type": "PKCS12"}, "SSL", PREFIX, "PEM"),
        ({"ssl.keystore.location": "/nowhere.pem", "ssl.keystore.type": "PEM"}, "SSL", "ssl.keystore.location", ""),
        ({"ssl.keystore.key": "no PEM", "ssl.keystore.type": "PEM"}, "SSL", "ssl.keystore.key", "both"),
        ({}, "SSL", "ssl.keystore.location", "PEM"),
        ({"ssl.enabled.protocols": "TLSv1.2,TLSv1"}, "SSL", "ssl.enabled.protocols", "Correct"),
        ({"ssl.cipher.suites": "TLS_AES"}, "SSL", "ssl.cipher.suites", "Correct"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "SSL", "ssl.cipher.suites", "Correct"),
        ({}, "SASL_PLAINTEXT", "sasl.enabled.mechanisms", "PLAIN"),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "SASL_PLAINTEXT",
            f"{PREFIX}plain.sasl.jaas.config",
            "Put the login module",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": jaas(SCRAM_MODULE, "password=pencil")},
            "SASL_PLAINTEXT",
            "plain.sasl.jaas.config",
            "PlainLoginModule",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_key_and_remedy(
    keys: dict[str, str], protocol: str, where: str, remedy: str
) -> None:
    with pytest.raises(OperatorError) as caught:
        listener_security(keys, "CONTROLLER", protocol)
    assert where in caught.value.where
    assert remedy in caught.value.remedy
    assert "pencil" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"ssl.client.auth": "perhaps"},
        {"ssl.truststore.certificates": "nothing"},
        {"ssl.principal.mapping.rules": "RULE:^CN=(.*"},
        {"ssl.principal.mapping.rules": "RULE:^CN=(/x/"},
    ],
)
def test_other_values_that_cannot_be_used(changes: dict[str, str]) -> None:
    with pytest.raises(OperatorError):
        tls("controller", **changes)


def der(subject: x509.Name) -> bytes:
    _, pem = AUTHORITY.issue(subject)
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)


def test_names_are_javas() -> None:
    """As ``X500Principal.getName()`` prints them; seen with Java 17."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Hessen"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'A+B "GmbH"'),
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
            x509.NameAttribute(NameOID.COMMON_NAME, " #1 "),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
            x509.NameAttribute(ObjectIdentifier("1.2.3.4"), "x"),
        ]
    )
    assert distinguished_name(der(subject)) == (
        r"1.2.3.4=#0c0178,1.2.840.113549.1.9.1=#16056140622e63,CN=\ \#1\ ,DC=example,"
        r"O=A\+B \"GmbH\",ST=Hessen,C=DE"
    )
    awkward = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "a,b;c<d>e\\f=g#h  i"),
            x509.NameAttribute(NameOID.USER_ID, "u1"),
            x509.NameAttribute(NameOID.STREET_ADDRESS, "Zoë 1"),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, "123"),
        ]
    )
    assert distinguished_name(der(awkward)) == (r"2.5.4.5=#1303313233,STREET=Zoë 1,UID=u1,CN=a\,b\;c\<d\>e\\f\=g\#h  i")
    several = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [
                    x509.NameAttribute(NameOID.COMMON_NAME, "x"),
                    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "y"),
                ]
            ),
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, "  a  ")]),
        ]
    )
    assert distinguished_name(der(several)) == r"CN=\ \ a\ \ ,CN=x+OU=y"
    assert distinguished_name(der(common_name("n" * 60))) == "CN=" + "n" * 60


@pytest.mark.parametrize(
    ("text", "encoding", "printed"),
    [
        ("admin\0", _ASN1Type.UTF8String, r"CN=admin\00"),
        ("\r a \r", _ASN1Type.UTF8String, "CN=\\\r\\ a\\ \\\r"),
        ("a\n", _ASN1Type.UTF8String, "CN=a\n"),
        ("admin,O=x", _ASN1Type.UTF8String, r"CN=admin\,O\=x"),
        ("\u0430dmin\u202e", _ASN1Type.UTF8String, "CN=\u0430dmin\u202e"),
        ("ad\u00e9", _ASN1Type.BMPString, "CN=\\00a\\00d\\00\ufffd"),
        ("admin", _ASN1Type.T61String, "CN=admin"),
        ("1", _ASN1Type.NumericString, "CN=#120131"),
    ],
)
def test_no_spelling_passes_for_another(text: str, encoding: _ASN1Type, printed: str) -> None:
    """Where Java prints what one would not expect; seen with Java 17."""
    assert distinguished_name(der(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text, encoding)]))) == printed


def test_rules() -> None:
    rules = parse_mapping_rules(r"RULE:^CN=([^,]*),OU=([^,]*).*$/$1@$2/L, RULE:CN=(\w+)/user-$1/, DEFAULT")
    assert map_name("CN=Bob,OU=Ops,C=DE", rules) == "bob@ops"
    assert map_name("CN=Bob", rules) == "user-Bob"
    assert map_name("CN=Bob Smith", rules) == "CN=Bob Smith"
    with pytest.raises(ValueError, match="no rule"):
        map_name("CN=x", parse_mapping_rules("RULE:CN=y/$0/"))


def test_a_peer_whom_no_rule_names_is_a_peer_error() -> None:
    class Tls:
        def getpeercert(self, *, binary_form: bool) -> bytes:
            return der(common_name("x"))

    security = ListenerSecurity(rules=parse_mapping_rules("RULE:CN=y/$0/"))
    with pytest.raises(PeerError):
        security.principal_of(Tls())  # type: ignore[arg-type]


def test_stores_show_nothing() -> None:
    key, certificate = AUTHORITY.issue("x")
    store = PemStore(key + certificate)
    assert store.private_key == key
    assert store.certificates == certificate
    assert key.splitlines()[1] not in repr(store)
