"""DIGEST-MD5 by the example of RFC 2831, section 4, and against servers that are not what they should be."""

from __future__ import annotations

import pytest

from migrator.zookeeper.login_errors import LoginRefusedError
from migrator.zookeeper.logins import DigestMd5, parse

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def example(user: str = "chris", password: str = "secret") -> DigestMd5:  # noqa: S107 - of the RFC
    return DigestMd5(user, password, "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")


def test_the_example_of_the_rfc() -> None:
    client = example()
    assert client.first() == b""
    answer = parse(client.respond(CHALLENGE) or b"")
    assert answer["response"] == b"d388dad90d4bbd760a152321f2143af7"
    assert {name: answer[name] for name in ("charset", "username", "realm", "nc", "digest-uri", "qop")} == {
        "charset": b"utf-8",
        "username": b"chris",
        "realm": b"elwood.innosoft.com",
        "nc": b"00000001",
        "digest-uri": b"imap/elwood.innosoft.com",
        "qop": b"auth",
    }
    assert client.respond(PROOF) is None


@pytest.mark.parametrize("proof", [b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"", None, CHALLENGE])
def test_a_server_that_does_not_know_the_password_is_refused(proof: bytes | None) -> None:
    client = example()
    client.respond(CHALLENGE)
    with pytest.raises(LoginRefusedError, match="did not prove"):
        client.respond(proof)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (None, "does not offer DIGEST-MD5"),
        (b"", "does not offer DIGEST-MD5"),
        (b'realm="r",algorithm=md5-sess', "does not offer"),
        (b'realm="r",nonce="n",algorithm=md5', "does not offer"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-conf"', "demands integrity or encryption"),
        (b"\x00\x01", "not a challenge"),
        (b'nonce="n', "not a challenge"),
        (b'nonce="' + b"n" * 4000 + b'",algorithm=md5-sess', "not a challenge"),
    ],
)
def test_tokens_that_are_no_challenge_are_refused(challenge: bytes | None, message: str) -> None:
    with pytest.raises(LoginRefusedError, match=message):
        example().respond(challenge)


def test_names_with_quotes_and_other_letters_are_kept() -> None:
    answer = example('k "a" \\ é').respond(CHALLENGE) or b""
    assert parse(answer)["username"] == 'k "a" \\ é'.encode()
    assert b"secret" not in answer
