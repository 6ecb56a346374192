"""PLAIN and SCRAM: the standards' own examples, both sides against each other, wrong proofs, and sessions."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.wire.principal import Principal
from migrator.wire.sasl import (
    MECHANISMS,
    PLAIN,
    SCRAM_HASHES,
    AuthenticationError,
    NoAccounts,
    NotReadyError,
    SaslServer,
    ScramAccount,
    ScramClient,
    scram_credential,
)
from migrator.wire.sasl.exchange import Passwords
from migrator.wire.sasl.oauthbearer import OAuthBearerServer
from migrator.wire.sasl.plain import PlainClient, PlainServer
from migrator.wire.sasl.scram import ScramServer
from migrator.wire.sasl.server import MAX_STEPS
from migrator.wire.sasl.unsecured import UnsecuredRules, UnsecuredValidator
from migrator.wire.schemas import SASL_AUTHENTICATE, SASL_HANDSHAKE, request_type
from tests.wire.support.accounts import SALT, Accounts

SCRAM = "SCRAM-SHA-256"
USERS = Accounts({"us=er,1": "pencil"}, {"token-1": ("c2VjcmV0", "alice", 5_000)})
PASSWORDS = Passwords({"alice": "secret=1", "nothing": ""})


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.wire.sasl.scram.secrets.token_urlsafe", lambda _: "rOprNGfwEbeRWgbNEkqO")
    client = ScramClient(SCRAM, "user", "pencil")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.step(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert client.done


def converse(client: Any, server: Any) -> None:
    token = client.first()
    for _ in range(3):
        reply = server.step(token)
        token = client.step(reply)
        if server.outcome is not None and client.done:
            return
    raise AssertionError("no end")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_scram_convinces_both_sides(mechanism: str) -> None:
    server = ScramServer(mechanism, USERS)
    converse(ScramClient(mechanism, "us=er,1", "pencil"), server)
    assert server.outcome is not None
    assert server.outcome.principal == Principal("User", "us=er,1")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_a_delegation_token_logs_in_as_its_owner(mechanism: str) -> None:
    server = ScramServer(mechanism, USERS)
    converse(ScramClient(mechanism, "token-1", "c2VjcmV0", is_token=True), server)
    assert server.outcome is not None
    assert server.outcome.principal == Principal("User", "alice", token_authenticated=True)
    assert server.outcome.expires_at_ms == 5_000
    for name, is_token in (("token-1", False), ("us=er,1", True), ("token-2", True)):
        with pytest.raises(AuthenticationError):
            converse(ScramClient(mechanism, name, "c2VjcmV0", is_token=is_token), ScramServer(mechanism, USERS))


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize(("user", "password"), [("us=er,1", "pen"), ("nobody", "pencil")])
def test_scram_refuses_who_does_not_know(mechanism: str, user: str, password: str) -> None:
    server = ScramServer(mechanism, USERS)
    with pytest.raises(AuthenticationError) as caught:
        converse(ScramClient(mechanism, user, password), server)
    assert server.outcome is None
    assert server.tried == user
    assert caught.value.public is None


def test_scram_refuses_a_server_that_does_not_know() -> None:
    client = ScramClient(SCRAM, "us=er,1", "pencil")
    server = ScramServer(SCRAM, USERS)
    server.step(client.step(server.step(client.first())))
    with pytest.raises(AuthenticationError, match="server"):
        client.step(b"v=" + base64.b64encode(bytes(32)))


def test_a_server_may_not_make_us_hash_for_ever() -> None:
    for tail in (b"1,s=QUJD,i=1", b"1,s=QUJD,i=9999999", b"1,s=QUJD,i=x", b"1,s=,i=4096", b",s=QUJD,i=4096"):
        client = ScramClient(SCRAM, "u", "p")
        nonce = client.first().rpartition(b"r=")[2]
        with pytest.raises(AuthenticationError):
            client.step(b"r=" + nonce + tail)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",  # a bare equals sign
        b"n,,n=user=2c,r=x",
        b"n,,n=us\xc3\xa9r,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"x" * 1025,
        b"n,,n=user,r=x," + b"y=" + b"x" * 9000,
        b"n,,m=1,n=user,r=x",  # a mandatory extension
        b"n,,n=user,r=x,m=1",
        b"n,,n=user,r=x,r=y",
        b"n,,n=user,r=x,a=1,a=2",
        b"n,a=other,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",  # channel binding
        b"x,,n=user,r=x",
        b"n,,n=user,r=x\0",
    ],
    ids=lambda _: "message",
)
def test_first_messages_that_scram_refuses(first: bytes) -> None:
    with pytest.raises(AuthenticationError):
        ScramServer(SCRAM, Accounts({"user": "pencil", "us=er": "pencil"})).step(first)


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,"])
def test_the_final_message_repeats_the_header_of_the_first(header: bytes) -> None:
    def final(binding: bytes) -> bytes:
        server = ScramServer(SCRAM, Accounts({"user": "pencil"}))
        client = ScramClient(SCRAM, "user", "pencil")
        said = server.step(header + client.first().removeprefix(b"n,,"))
        unproved = b"c=" + base64.b64encode(binding) + b",r=" + said.split(b",")[0].removeprefix(b"r=")
        credential = scram_credential(SCRAM, "pencil", SALT)
        return answer(server, client, said, unproved, credential)

    assert final(header).startswith(b"v=")
    for other in {b"n,,", b"y,,", b"n,a=user,", b""} - {header}:
        with pytest.raises(AuthenticationError):
            final(other)


def answer(server: Any, client: Any, said: bytes, unproved: bytes, credential: Any) -> bytes:
    """The proof of one who knows the password, over a final message of our making."""
    import hashlib  # noqa: PLC0415 - only here the client's own steps do not do
    import hmac  # noqa: PLC0415

    bare = client.first().removeprefix(b"n,,")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(credential.stored_key, b",".join((bare, said, unproved)), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    reply: bytes = server.step(unproved + b",p=" + base64.b64encode(proof))
    return reply


def test_unknown_users_look_like_known_ones_until_the_end() -> None:
    def replies(user: str) -> tuple[bytes, bytes]:
        server = ScramServer(SCRAM, USERS)
        client = ScramClient(SCRAM, user, "wrong")
        said = server.step(client.first())
        with pytest.raises(AuthenticationError) as caught:
            server.step(client.step(said))
        assert caught.value.public is None
        salt = said.partition(b",")[2]
        return salt, str(len(said)).encode()

    assert replies("nobody") == replies("nobody")
    assert replies("nobody")[0] != replies("somebody")[0]


def test_plain() -> None:
    server = PlainServer(PASSWORDS)
    converse(PlainClient("alice", "secret=1"), server)
    assert server.outcome is not None
    assert server.outcome.principal == Principal("User", "alice")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0alice\0wrong",
        b"\0bob\0secret=1",
        b"root\0alice\0secret=1",
        b"a\0b",
        b"\0\xff\0\xff",
        b"\0\0\0\0",
        b"\0nothing\0",
        b"\0\0secret=1",
    ],
)
def test_plain_refuses(token: bytes) -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(AuthenticationError):
        server.step(token)
    assert server.outcome is None


def everything(accounts: Any = USERS, **more: Any) -> SaslServer:
    validator = UnsecuredValidator(UnsecuredRules())
    return SaslServer(
        {
            PLAIN: lambda: PlainServer(PASSWORDS),
            **{name: lambda name=name: ScramServer(name, accounts) for name in SCRAM_HASHES},  # type: ignore[misc]
            "OAUTHBEARER": lambda: OAuthBearerServer(validator),
        },
        **more,
    )


def handshake(server: SaslServer, mechanism: str, version: int = 1) -> ErrorCode:
    request = request_type(SASL_HANDSHAKE, version)(mechanism=mechanism)
    error: ErrorCode = server.handle(SASL_HANDSHAKE, version, request).error_code
    return error


def authenticate(server: SaslServer, token: bytes, version: int = 2) -> Any:
    return server.handle(SASL_AUTHENTICATE, version, request_type(SASL_AUTHENTICATE, version)(auth_bytes=token))


def log_in(server: SaslServer, mechanism: str, client: Any) -> Any:
    assert handshake(server, mechanism) == ErrorCode.none
    token = client.first()
    while True:
        response = authenticate(server, token)
        if response.error_code != ErrorCode.none or server.is_complete:
            return response
        token = client.step(response.auth_bytes)


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(MECHANISMS))
def test_no_bytes_authenticate_by_chance(tokens: list[bytes], mechanism: str) -> None:
    server = everything()
    handshake(server, mechanism)
    for token in tokens:
        authenticate(server, token)
    assert server.principal is None


@given(st.binary(max_size=80))
def test_whatever_a_server_says_the_client_survives(data: bytes) -> None:
    client = ScramClient("SCRAM-SHA-512", "u", "p")
    with pytest.raises(PeerError):
        client.step(data)


def test_the_order_of_messages_matters() -> None:
    server = everything()
    assert authenticate(server, b"").error_code == ErrorCode.illegal_sasl_state
    assert server.failure is not None
    assert handshake(everything(), "GSSAPI") == ErrorCode.unsupported_sasl_mechanism
    assert handshake(everything(), PLAIN, 0) == ErrorCode.unsupported_version
    twice = everything()
    assert handshake(twice, PLAIN) == ErrorCode.none
    assert handshake(twice, PLAIN) == ErrorCode.illegal_sasl_state


@pytest.mark.parametrize(
    ("mechanism", "client", "public"),
    [
        (SCRAM, ScramClient(SCRAM, "us=er,1", "pen"), "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
        (SCRAM, ScramClient(SCRAM, "nobody", "pen"), "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
        (PLAIN, PlainClient("alice", "pen"), "Authentication failed: Invalid username or password"),
        (PLAIN, PlainClient("nobody", "pen"), "Authentication failed: Invalid username or password"),
    ],
)
def test_a_refusal_does_not_tell_what_was_wrong_but_our_log_does(mechanism: str, client: Any, public: str) -> None:
    server = everything()
    refusal = log_in(server, mechanism, client)
    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert refusal.error_message.endswith(public)
    assert server.failure is not None
    assert (server.failure.tried, server.failure.mechanism) == (client.user, mechanism)
    assert server.failure.reason


def test_an_exchange_has_few_steps() -> None:
    class Endless(PlainServer):
        def step(self, token: bytes) -> bytes:
            return b"more"

    server = SaslServer({PLAIN: lambda: Endless(PASSWORDS)})
    handshake(server, PLAIN)
    for _ in range(MAX_STEPS):
        assert authenticate(server, b"").error_code == ErrorCode.none
    assert authenticate(server, b"").error_code == ErrorCode.sasl_authentication_failed


def test_who_cannot_tell_yet_does_not_refuse() -> None:
    class Loading(NoAccounts):
        def user(self, mechanism: str, name: str) -> ScramAccount:
            raise NotReadyError("loading")

    server = everything(Loading())
    handshake(server, SCRAM)
    with pytest.raises(NotReadyError):
        authenticate(server, b"n,,n=user,r=x")
    assert server.failure is None


class Clock:
    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


def session(**max_reauth_ms: int) -> tuple[SaslServer, Clock]:
    clock = Clock()
    limits = {name.replace("_", "-"): limit for name, limit in max_reauth_ms.items()}
    return everything(max_reauth_ms=limits, monotonic=clock, wall=clock), clock


def test_a_session_ends_and_is_renewed() -> None:
    server, clock = session(PLAIN=10_000)
    assert log_in(server, PLAIN, PlainClient("alice", "secret=1")).session_lifetime.total_seconds() == 10
    assert (server.has_expired, server.begins_again(SASL_AUTHENTICATE)) == (False, False)
    clock.now += 10
    assert (server.has_expired, server.begins_again(SASL_HANDSHAKE)) == (True, True)
    assert log_in(server, PLAIN, PlainClient("alice", "secret=1")).error_code == ErrorCode.none
    assert (server.has_expired, server.is_complete) == (False, True)
    # Not more often than once a second.
    clock.now += 0.5
    assert not server.begins_again(SASL_HANDSHAKE)
    clock.now += 0.6
    assert server.begins_again(SASL_HANDSHAKE)


def test_a_session_without_end_is_not_begun_again() -> None:
    server, clock = session()
    assert log_in(server, PLAIN, PlainClient("alice", "secret=1")).session_lifetime.total_seconds() == 0
    clock.now += 1e6
    assert not server.has_expired
    assert not server.begins_again(SASL_HANDSHAKE)


@pytest.mark.parametrize(("limit_ms", "seconds"), [(0, 4.0), (1_000, 1.0), (10_000, 4.0)])
def test_a_delegation_tokens_session_ends_with_it(limit_ms: int, seconds: float) -> None:
    server, _ = session(SCRAM_SHA_256=limit_ms)
    response = log_in(server, SCRAM, ScramClient(SCRAM, "token-1", "c2VjcmV0", is_token=True))
    assert response.session_lifetime.total_seconds() == seconds


def test_another_mechanism_or_principal_does_not_take_a_session_over() -> None:
    server, clock = session(PLAIN=10_000, SCRAM_SHA_256=10_000)
    log_in(server, SCRAM, ScramClient(SCRAM, "us=er,1", "pencil"))
    assert server.begins_again(SASL_HANDSHAKE)
    assert handshake(server, PLAIN) == ErrorCode.unsupported_sasl_mechanism
    server, clock = session(SCRAM_SHA_256=10_000)
    log_in(server, SCRAM, ScramClient(SCRAM, "us=er,1", "pencil"))
    clock.now += 5
    assert server.begins_again(SASL_HANDSHAKE)
    refusal = log_in(server, SCRAM, ScramClient(SCRAM, "token-1", "c2VjcmV0", is_token=True))
    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert "Cannot change principals" in refusal.error_message
    assert server.failure is not None
    assert server.failure.again


def test_secrets_are_in_no_repr() -> None:
    credential = scram_credential(SCRAM, "pencil", SALT)
    for holder in (
        credential,
        PlainClient("u", "pencil"),
        ScramClient(SCRAM, "u", "pencil"),
        Passwords({"u": "pencil"}),
    ):
        assert "pencil" not in f"{holder!r} {vars(holder) if hasattr(holder, '__dict__') else ''}"
    assert "0123456789abcdef" not in repr(credential)
