"""Sessions that end, on real connections: our client and librdkafka log in again, and others are closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from migrator.config.key_uses import Use, judge
from migrator.errors import OperatorError
from migrator.raft.transport import TransportError
from migrator.wire.client import KafkaClient, KafkaConnection
from migrator.wire.sasl import NotReadyError, SaslServer, ScramAccount
from migrator.wire.sasl.unsecured import unsecured_token
from migrator.wire.schemas import API_VERSIONS, CONTROLLER_APIS, SASL_HANDSHAKE, VersionRange, build, request_type
from migrator.wire.security import ListenerSecurity, listener_security
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.accounts import Accounts
from tests.wire.test_librdkafka import METADATA, PLAIN_LINE, OneBroker

PREFIX = "listener.name.controller."
SCRAM = "SCRAM-SHA-512"
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required username=alice password=pencil;"
BEARER_LINE = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="{}";'
)


class Changing(Accounts):
    """Users that can be unknown for a while."""

    loading = False

    def user(self, mechanism: str, name: str) -> ScramAccount:
        if self.loading:
            raise NotReadyError("loading")
        return super().user(mechanism, name)


@contextlib.asynccontextmanager
async def serving(security: ListenerSecurity) -> AsyncIterator[tuple[KafkaListener, OneBroker]]:
    handler = OneBroker()
    apis = {**CONTROLLER_APIS, METADATA: VersionRange(0, 12)}
    listener = KafkaListener("CONTROLLER", handler, apis=apis, security=security)
    handler.port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, handler
    finally:
        await listener.close(grace=0)


def secured(accounts: Accounts, mechanism: str = SCRAM, line: str = SCRAM_LINE, **keys: str) -> ListenerSecurity:
    named = {name.replace("_", "."): text for name, text in keys.items()}
    known = {"sasl.enabled.mechanisms": mechanism, f"{PREFIX}{mechanism.lower()}.sasl.jaas.config": line}
    return listener_security(
        known | named, "CONTROLLER", "SASL_PLAINTEXT", client_mechanism=mechanism, accounts=accounts
    )


@pytest.fixture
def handshakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each SaslHandshake that a listener has answered."""
    seen: list[int] = []
    handle = SaslServer.handle

    def counting(self: SaslServer, api_key: int, version: int, request: Any) -> Any:
        if api_key == SASL_HANDSHAKE:
            seen.append(version)
        return handle(self, api_key, version, request)

    monkeypatch.setattr(SaslServer, "handle", counting)
    return seen


VERSIONS = build(request_type(API_VERSIONS, 3), client_software_name="x", client_software_version="1")


@pytest.mark.parametrize(
    ("mechanism", "line", "limit_ms"), [(SCRAM, SCRAM_LINE, "60000"), ("OAUTHBEARER", BEARER_LINE.format(60), "0")]
)
async def test_our_client_logs_in_again_on_the_same_connection(
    handshakes: list[int], mechanism: str, line: str, limit_ms: str
) -> None:
    security = secured(Accounts({"alice": "pencil"}), mechanism, line, connections_max_reauth_ms=limit_ms)
    async with serving(security) as (listener, handler):
        client = KafkaClient("localhost", handler.port, "tester", security=security)
        connection = await client.connect(PATIENCE_SECONDS)
        due = connection._log_in_again_at
        assert due is not None
        assert due > asyncio.get_running_loop().time()
        assert len(handshakes) == 1
        connection._log_in_again_at = 0.0
        answers = [client.request(VERSIONS, PATIENCE_SECONDS) for _ in range(4)]
        assert {answer.error_code for answer in await asyncio.gather(*answers)} == {ErrorCode.none}
        assert client.connection is connection
        assert len(handshakes) == 2
        # Too soon for another one: the request goes out on a new connection instead.
        connection._log_in_again_at = 0.0
        assert (await client.request(VERSIONS, PATIENCE_SECONDS)).error_code == ErrorCode.none
        assert client.connection is not connection
        assert listener.counters.expired == 0
        await client.close()


async def test_a_user_who_is_deleted_stays_until_it_has_to_log_in_again() -> None:
    accounts = Accounts({"alice": "pencil"})
    security = secured(accounts, connections_max_reauth_ms="60000")
    async with serving(security) as (listener, handler):
        client = KafkaClient("localhost", handler.port, "tester", security=security)
        connection = await client.connect(PATIENCE_SECONDS)
        accounts.users.clear()
        assert (await client.request(VERSIONS, PATIENCE_SECONDS)).error_code == ErrorCode.none
        connection._log_in_again_at = 0.0
        with pytest.raises(TransportError, match="authentication as 'alice' failed: Authentication failed during"):
            await client.request(VERSIONS, PATIENCE_SECONDS)
        assert listener.counters.failed_logins == 2
        accounts.users["alice"] = "pencil"
        assert (await client.request(VERSIONS, PATIENCE_SECONDS)).error_code == ErrorCode.none
        await client.close()


async def test_who_does_not_log_in_again_is_closed() -> None:
    security = secured(Accounts({"alice": "pencil"}), connections_max_reauth_ms="1")
    async with serving(security) as (listener, handler):
        with pytest.raises(TransportError):
            await idle(handler.port, security)
        assert listener.counters.expired == 1
        assert handler.principals == set()


async def idle(port: int, security: ListenerSecurity) -> None:
    """A connection that never logs in again, until it is closed."""
    connection = await KafkaConnection.open("localhost", port, "tester", security, 1 << 20)
    try:
        while True:
            connection._log_in_again_at = None
            await connection.request(VERSIONS)
    finally:
        await connection.close()


async def test_a_node_that_cannot_tell_yet_closes_without_a_refusal() -> None:
    accounts = Changing({"alice": "pencil"})
    accounts.loading = True
    security = secured(accounts)
    async with serving(security) as (listener, handler):
        client = KafkaClient("localhost", handler.port, "tester", security=security)
        with pytest.raises(TransportError) as caught:
            await client.request(VERSIONS, PATIENCE_SECONDS)
        assert "authentication as" not in str(caught.value)
        assert (listener.counters.failed_logins, listener.counters.malformed) == (0, 0)
        accounts.loading = False
        assert (await client.request(VERSIONS, PATIENCE_SECONDS)).error_code == ErrorCode.none
        await client.close()


@pytest.mark.parametrize("mechanism", [SCRAM, "OAUTHBEARER"])
async def test_librdkafka_logs_in_again(handshakes: list[int], mechanism: str) -> None:
    security = secured(
        Accounts({"alice": "pencil"}),
        mechanism,
        SCRAM_LINE if mechanism == SCRAM else BEARER_LINE.format(60),
        connections_max_reauth_ms="1500",
    )
    async with serving(security) as (listener, handler):
        options: dict[str, Any] = {
            "bootstrap.servers": f"localhost:{handler.port}",
            "broker.address.family": "v4",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
        }
        if mechanism == SCRAM:
            options |= {"sasl.username": "alice", "sasl.password": "pencil"}
        else:
            claims = {"unsecuredLoginStringClaim_sub": "alice"}
            options["oauth_cb"] = lambda _: unsecured_token(claims, time.time())
        again = threading.Event()

        def ask() -> None:
            admin = AdminClient(options)
            admin.poll(0)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not again.is_set() and time.monotonic() < deadline:
                assert str(admin.list_topics(timeout=PATIENCE_SECONDS).cluster_id) == "ours"
                if len(handshakes) > listener.counters.accepted:
                    again.set()
                again.wait(0.05)

        await asyncio.to_thread(ask)
        assert again.is_set()
        assert handler.principals == {"User:alice"}


def test_gssapi_is_refused_with_a_remedy() -> None:
    for named in ("", "GSSAPI,SCRAM-SHA-512"):
        with pytest.raises(OperatorError, match="GSSAPI") as caught:
            listener_security({"sasl.enabled.mechanisms": named}, "CONTROLLER", "SASL_PLAINTEXT")
        assert "SCRAM-SHA-512" in caught.value.remedy
        assert f"{PREFIX}sasl.enabled.mechanisms" in caught.value.remedy


def test_the_end_of_sessions_is_set_for_all_for_a_listener_or_for_a_mechanism() -> None:
    def limits(**keys: str) -> Mapping[str, int]:
        named = {name.replace("__", "-").replace("_", "."): text for name, text in keys.items()}
        plain = {f"{PREFIX}plain.sasl.jaas.config": PLAIN_LINE}
        enabled = {"sasl.enabled.mechanisms": f"PLAIN,{SCRAM}"}
        security = listener_security(enabled | plain | named, "CONTROLLER", "SASL_PLAINTEXT")
        assert security.sasl is not None
        return security.sasl.max_reauth_ms

    assert limits() == {"PLAIN": 0, SCRAM: 0}
    assert limits(connections_max_reauth_ms="5") == {"PLAIN": 5, SCRAM: 5}
    listener = {"connections_max_reauth_ms": "5", "listener_name_controller_connections_max_reauth_ms": "6"}
    assert limits(**listener) == {"PLAIN": 6, SCRAM: 6}
    mechanism = {"listener_name_controller_scram__sha__512_connections_max_reauth_ms": "7"}
    assert limits(**listener, **mechanism) == {"PLAIN": 6, SCRAM: 7}
    with pytest.raises(OperatorError, match="whole number"):
        limits(connections_max_reauth_ms="soon")
    known = {
        "listener.name.controller.scram-sha-512.connections.max.reauth.ms": "7",
        "sasl.server.max.receive.size": "9",
    }
    for name, text in known.items():
        assert judge(name, text, ["controller"]).use is Use.ACTED_UPON
