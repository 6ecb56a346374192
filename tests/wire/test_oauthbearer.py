"""OAUTHBEARER: messages, tokens that count, and tokens that must not."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from migrator.wire.sasl import AuthenticationError
from migrator.wire.sasl.jwt_tokens import public_keys
from migrator.wire.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenError, initial_response
from migrator.wire.sasl.unsecured import MAX_SECONDS, UnsecuredRules, UnsecuredValidator, unsecured_token
from tests.wire.support.tokens import EC_KEY, RSA_KEY, document, jwk, signed, validator


def test_the_example_of_rfc_7628() -> None:
    message = (
        b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
        b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    )
    assert initial_response(message) == ("user@example.com", "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    assert OAuthBearerClient("x.y.z", {"cluster": "lkc"}).first() == b"n,,\x01auth=Bearer x.y.z\x01cluster=lkc\x01\x01"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,a=x=y,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ],
    ids=lambda _: "message",
)
def test_malformed_messages(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        initial_response(message)


def test_an_error_is_told_in_two_steps() -> None:
    server, client = OAuthBearerServer(validator()), OAuthBearerClient(signed(sub=None))
    said = server.step(client.first())
    assert json.loads(said) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationError) as caught:
        server.step(client.step(said))
    assert caught.value.public == said.decode()
    assert server.outcome is None


def test_an_authorization_id_has_to_be_the_tokens_own() -> None:
    token = signed()
    for name, ok in (("alice", True), ("root", False)):
        server = OAuthBearerServer(validator())
        message = f"n,a={name},\x01auth=Bearer {token}\x01\x01".encode()
        if ok:
            assert server.step(message) == b""
            assert server.outcome is not None
        else:
            with pytest.raises(AuthenticationError) as caught:
                server.step(message)
            assert str(caught.value.public).endswith("(root) that is different from the token's principal name (alice)")


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [(RSA_KEY, "RS256", "one"), (RSA_KEY, "PS512", "one"), (RSA_KEY, "RS256", None), (EC_KEY, "ES256", "two")],
)
def test_signed_tokens_that_count(key: Any, algorithm: str, key_id: str | None) -> None:
    found = validator().validate(signed(key, algorithm, key_id, exp=2e9, scope=["a", "b"]))
    assert str(found.principal) == "User:alice"
    assert found.expires_at_ms == 2_000_000_000_000


PUBLIC_PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
NOW = time.time()


def confused() -> str:
    """Signed with the public key as if it were a shared secret."""
    import hmac  # noqa: PLC0415 - PyJWT itself refuses to make such a token

    parts = [{"alg": "HS256", "typ": "JWT", "kid": "one"}, {"sub": "alice", "iat": NOW, "exp": NOW + 60}]
    said = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    signature = hmac.digest(PUBLIC_PEM, said.encode(), "sha256")
    return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        "a.b",
        "." * 10_000,
        unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, NOW)[0],
        confused(),
        jwt.encode({"sub": "alice", "iat": NOW, "exp": NOW + 60}, "s" * 32, "HS256", {"kid": "one"}),
        signed(EC_KEY, "ES256", "one"),
        signed(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        signed(key_id="three"),
        signed(key_id="k" * 1001),
        signed(exp=NOW - 31),
        signed(exp=None),
        signed(iat=None),
        signed(iat=NOW + 600),
        signed(nbf=NOW + 600),
        signed(sub=None),
        signed(sub=" "),
        signed(sub=["alice"]),
        signed(scope=["a", "a"]),
        signed(scope=["a", ""]),
        signed(aud="another"),
        signed(sub="\ud800"),
        signed()[:-6] + "AAAAAA",
    ],
    ids=lambda _: "token",
)
def test_signed_tokens_that_must_not_count(token: str) -> None:
    with pytest.raises(TokenError):
        validator().validate(token)


def test_audience_and_issuer_and_other_claims() -> None:
    strict = validator(audiences=("kafka", "other"), issuer="me", sub_claim="client", scope_claim="scp")
    assert str(strict.validate(signed(aud=["x", "kafka"], iss="me", client="bob")).principal) == "User:bob"
    faults: list[dict[str, Any]] = [{"aud": "x"}, {"aud": None}, {"iss": "you"}, {"iss": None}, {"client": None}]
    for wrong in faults:
        with pytest.raises(TokenError):
            strict.validate(signed(**{"aud": "kafka", "iss": "me", "client": "bob", **wrong}))


def test_keys_that_are_not_for_tokens_are_left_out() -> None:
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - to be refused
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}
    kept = public_keys(
        json.loads(
            document(
                jwk(RSA_KEY, use="enc"),
                jwk(RSA_KEY, key_ops=["sign"]),
                jwk(RSA_KEY, alg="HS256"),
                jwk(small, "small"),
                secret,
                {"kty": "RSA"},
                jwk(RSA_KEY, "kept", use="sig", alg="RS256"),
            )
        )
    )
    assert [key.key_id for key in kept] == ["kept"]
    with pytest.raises(TokenError):
        validator(jwk(RSA_KEY, alg="RS256")).validate(signed(algorithm="RS512"))
    useless: list[Any] = [{}, [], {"keys": []}, {"keys": [secret]}, {"keys": [jwk(RSA_KEY)] * 101}]
    for nothing in useless:
        with pytest.raises(ValueError, match="JSON Web Key Set"):
            public_keys(nothing)


def test_unsecured_tokens_are_kafkas() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": ",read,write",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token, expires = unsecured_token(options, 1000.0)
    assert expires == 1060.0
    scoped = UnsecuredRules(required_scope=("write",))
    found = UnsecuredValidator(scoped, lambda: 1059.0).validate(token)
    assert (str(found.principal), found.expires_at_ms) == ("User:alice", 1_060_000)
    with pytest.raises(TokenError) as caught:
        UnsecuredValidator(UnsecuredRules(required_scope=("admin",)), lambda: 1000.0).validate(token)
    assert caught.value.scope == "[admin]"
    for now in (999.0, 1060.0):
        with pytest.raises(TokenError):
            UnsecuredValidator(UnsecuredRules(), lambda now=now: now).validate(token)  # type: ignore[misc]
    assert UnsecuredValidator(UnsecuredRules(clock_skew_ms=1000), lambda: 1060.5).validate(token)


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({"alg": "RS256"}, {"sub": "a", "exp": 2e9}),
        ({}, {"sub": "a", "exp": 2e9}),
        ({"alg": "none"}, {"sub": "a"}),
        ({"alg": "none"}, {"sub": "a", "exp": True}),
        ({"alg": "none"}, {"sub": "a", "exp": "2e9"}),
        ({"alg": "none"}, {"sub": "a", "exp": float("nan")}),
        ({"alg": "none"}, {"sub": 1, "exp": 2e9}),
        ({"alg": "none"}, {"sub": " ", "exp": 2e9}),
        ({"alg": "none"}, {"sub": "half a character: \ud800", "exp": 2e9}),
        ({"alg": "none"}, {"sub": "a", "exp": 10**400, "iat": 10**400}),
        ({"alg": "none"}, {"sub": "a", "exp": float("inf")}),
        ({"alg": "none"}, {"sub": "a", "exp": -(10**400)}),
        ({"alg": "none"}, {"sub": "a", "exp": 2e9, "iat": 2e9}),
        ({"alg": "none"}, ["sub"]),
    ],
)
def test_unsecured_tokens_that_are_refused(header: Any, claims: Any) -> None:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, claims)]
    for token in (f"{parts[0]}.{parts[1]}.", f"{parts[0]}.{parts[1]}.c2ln", f"{parts[0]}.{parts[1]}"):
        with pytest.raises(TokenError):
            UnsecuredValidator(UnsecuredRules(), lambda: 1e9).validate(token)


@pytest.mark.parametrize("end", [10**400, 1e300], ids=["a whole number", "a float"])
def test_an_end_beyond_any_calendar_is_far_away(end: Any) -> None:
    for found in (
        UnsecuredValidator(UnsecuredRules()).validate(unsigned({"sub": "a", "exp": end})),
        validator().validate(signed(exp=end)),
    ):
        assert found.expires_at_ms == MAX_SECONDS * 1000


def unsigned(claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({"alg": "none"}, claims)]
    return ".".join((*(part.rstrip("=") for part in parts), ""))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(("sub", "exp", "iat", "scope")), ANYTHING))
def test_whatever_a_token_claims_it_counts_or_not(claims: dict[str, Any]) -> None:
    rules = UnsecuredRules(required_scope=("a",), clock_skew_ms=1)
    with contextlib.suppress(TokenError):
        found = UnsecuredValidator(rules).validate(unsigned(claims))
        assert found.principal.name.encode()
