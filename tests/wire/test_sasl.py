"""SASL: the standards' own examples, both sides against each other, and wrong proofs."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.wire.sasl import (
    MECHANISMS,
    PLAIN,
    SCRAM_HASHES,
    AuthenticationError,
    PlainClient,
    PlainServer,
    SaslServer,
    ScramClient,
    ScramServer,
    no_credentials,
    scram_credential,
)
from migrator.wire.schemas import SASL_AUTHENTICATE, SASL_HANDSHAKE, request_type

SALT = b"0123456789abcdef"


def lookup(mechanism: str, user: str) -> Any:
    return scram_credential(mechanism, "pencil", SALT) if user == "us=er,1" else None


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.wire.sasl.secrets.token_urlsafe", lambda _: "rOprNGfwEbeRWgbNEkqO")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
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
        if server.done and client.done:
            return
    raise AssertionError("no end")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
def test_scram_convinces_both_sides(mechanism: str) -> None:
    server = ScramServer(mechanism, lookup)
    converse(ScramClient(mechanism, "us=er,1", "pencil"), server)
    assert server.user == "us=er,1"


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize(("user", "password"), [("us=er,1", "pen"), ("nobody", "pencil"), ("", "")])
def test_scram_refuses_who_does_not_know(mechanism: str, user: str, password: str) -> None:
    server = ScramServer(mechanism, lookup)
    with pytest.raises(AuthenticationError):
        converse(ScramClient(mechanism, user, password), server)
    assert not server.done


def test_scram_refuses_a_server_that_does_not_know() -> None:
    client = ScramClient("SCRAM-SHA-256", "us=er,1", "pencil")
    server = ScramServer("SCRAM-SHA-256", lookup)
    server.step(client.step(server.step(client.first())))
    with pytest.raises(AuthenticationError, match="server"):
        client.step(b"v=" + base64.b64encode(bytes(32)))


def test_a_server_may_not_make_us_hash_for_ever() -> None:
    client = ScramClient("SCRAM-SHA-256", "u", "p")
    nonce = client.first().rpartition(b"r=")[2]
    for iterations in (b"1", b"999999999", b"x"):
        with pytest.raises(AuthenticationError):
            client.step(b"r=" + nonce + b"1,s=QUJD,i=" + iterations)


def test_plain() -> None:
    server = PlainServer({"alice": "secret=1"})
    converse(PlainClient("alice", "secret=1"), server)
    assert server.user == "alice"


@pytest.mark.parametrize(
    "token", [b"", b"\0alice\0wrong", b"\0bob\0secret", b"root\0alice\0secret", b"a\0b", b"\0\xff\0\xff", b"\0\0\0\0"]
)
def test_plain_refuses(token: bytes) -> None:
    server = PlainServer({"alice": "secret"})
    with pytest.raises(AuthenticationError):
        server.step(token)
    assert not server.done


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(MECHANISMS))
def test_no_bytes_authenticate_by_chance(tokens: list[bytes], mechanism: str) -> None:
    server = SaslServer(MECHANISMS, {"alice": "secret"}, lookup)
    server.handle(SASL_HANDSHAKE, 1, request_type(SASL_HANDSHAKE, 1)(mechanism=mechanism))
    for token in tokens:
        server.handle(SASL_AUTHENTICATE, 2, request_type(SASL_AUTHENTICATE, 2)(auth_bytes=token))
    assert server.principal is None


@given(st.binary(max_size=80))
def test_whatever_a_server_says_the_client_survives(data: bytes) -> None:
    client = ScramClient("SCRAM-SHA-512", "u", "p")
    with pytest.raises(PeerError):
        client.step(data)


def handshake(server: SaslServer, mechanism: str, version: int = 1) -> ErrorCode:
    request = request_type(SASL_HANDSHAKE, version)(mechanism=mechanism)
    error: ErrorCode = server.handle(SASL_HANDSHAKE, version, request).error_code
    return error


def test_the_order_of_messages_matters() -> None:
    server = SaslServer((PLAIN,), {}, no_credentials)
    early = server.handle(SASL_AUTHENTICATE, 2, request_type(SASL_AUTHENTICATE, 2)(auth_bytes=b""))
    assert early.error_code == ErrorCode.illegal_sasl_state
    assert server.failure is not None
    assert handshake(SaslServer((PLAIN,), {}, no_credentials), "GSSAPI") == ErrorCode.unsupported_sasl_mechanism
    assert handshake(SaslServer((PLAIN,), {}, no_credentials), PLAIN, 0) == ErrorCode.unsupported_version
    twice = SaslServer((PLAIN,), {}, no_credentials)
    assert handshake(twice, PLAIN) == ErrorCode.none
    assert handshake(twice, PLAIN) == ErrorCode.illegal_sasl_state


def test_secrets_are_in_no_repr() -> None:
    credential = scram_credential("SCRAM-SHA-256", "pencil", SALT)
    for holder in (credential, PlainClient("u", "pencil"), ScramClient("SCRAM-SHA-256", "u", "pencil")):
        assert "pencil" not in f"{holder!r} {vars(holder) if hasattr(holder, '__dict__') else ''}"
    assert "0123456789abcdef" not in repr(credential)
