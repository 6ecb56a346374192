"""Signed tokens (JSON Web Tokens) of an identity provider, checked with its published keys (KIP-768).

Source: Kafka's ``ValidatorAccessTokenValidator``. Unlike Kafka, signatures by a shared secret (``HS...``) are never
accepted: an attacker could sign with a public key as the secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import jwt

from migrator.values import value
from migrator.wire.sasl.exchange import Authenticated
from migrator.wire.sasl.oauthbearer import TokenError, bearer_principal
from migrator.wire.sasl.unsecured import seconds

KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    **{f"{kind}{size}": ("RSA", None) for kind in ("RS", "PS") for size in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The accepted algorithms, and the type and curve of their keys."""
PUBLIC_FIELDS = ("kty", "crv", "n", "e", "x", "y")
MIN_RSA_BITS = 2048
MAX_KEYS = 100
MAX_KEY_ID = 1000
MAX_CANDIDATES = 4
"""The most keys with which a token without a key id is checked."""


@value
class TokenRules:
    """The values of ``sasl.oauthbearer...`` keys. Without an audience or an issuer, any is accepted."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


@value
class PublicKey:
    """A key of the provider. ``algorithm``: the only one that the key is for, None when the provider does not say."""

    key_id: str | None
    kind: tuple[str, str | None]
    algorithm: str | None
    fields: Mapping[str, Any]

    def fits(self, algorithm: str, key_id: str | None) -> bool:
        """Whether a token with that header may be signed with this key."""
        wanted = KEY_TYPES[algorithm]
        return (
            self.kind[0] == wanted[0]
            and wanted[1] in (None, self.kind[1])
            and self.algorithm in (None, algorithm)
            and key_id in (None, self.key_id)
        )


class PublishedKeys(Protocol):
    """The provider's keys, as far as they are known now."""

    def refresh(self) -> None:
        """Begin to fetch the keys, if it is time."""

    def fitting(self, algorithm: str, key_id: str | None) -> Iterable[PublicKey]:
        """Keys for a token with that header.

        :raises NotReadyError: no keys are known yet.
        """


class SignedTokenValidator:
    """A `TokenValidator` of signed tokens."""

    def __init__(self, rules: TokenRules, keys: PublishedKeys) -> None:
        self._rules = rules
        self._keys = keys

    def prepare(self) -> None:
        """See `TokenValidator`."""
        self._keys.refresh()

    def validate(self, token: str) -> Authenticated:
        """See `TokenValidator`."""
        try:
            claims = self._verified(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenError(f"{type(error).__name__}: {error}") from error
        _check_scope(claims.get(self._rules.scope_claim))
        name, expires = claims.get(self._rules.sub_claim), seconds(claims, "exp")
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"the token has no claim {self._rules.sub_claim}")
        if expires is None:
            raise TokenError("the token has no claim exp")
        return Authenticated(bearer_principal(name.strip()), round(expires * 1000))

    def _verified(self, token: str) -> Mapping[str, Any]:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
            raise TokenError(f"the token's algorithm {str(algorithm)[:20]!r} is not accepted")
        if key_id is not None and len(key_id) > MAX_KEY_ID:
            raise TokenError("the token's key id is too long")
        candidates = list(self._keys.fitting(algorithm, key_id))[:MAX_CANDIDATES]
        for key in candidates:
            try:
                return self._decoded(token, jwt.PyJWK(dict(key.fields), algorithm), algorithm)
            except jwt.InvalidSignatureError:
                continue
        raise TokenError(
            "no published key made the token's signature" if candidates else "no published key has the token's key id"
        )

    def _decoded(self, token: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
        rules = self._rules
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=list(rules.audiences) or None,
            issuer=rules.issuer,
            leeway=rules.clock_skew_s,
            options={"require": ["exp", "iat"], "verify_sub": False, "verify_jti": False},
        )
        return claims


def public_keys(document: Any) -> tuple[PublicKey, ...]:
    """The keys of a JWKS document that can sign tokens; others are left out.

    :raises ValueError: the document is malformed, or has no usable key.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"the document is not a JSON Web Key Set of at most {MAX_KEYS} keys")
    found = tuple(key for entry in listed if (key := _public_key(entry)) is not None)
    if not found:
        raise ValueError("the JSON Web Key Set has no key that can be used for tokens")
    return found


def _public_key(entry: Any) -> PublicKey | None:
    """The public part of a key; other parts of the entry are ignored."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or not _may_verify(entry.get("key_ops")):
        return None
    fields = {name: entry[name] for name in PUBLIC_FIELDS if name in entry}
    kind, algorithm, key_id = (str(entry.get("kty")), entry.get("crv")), entry.get("alg"), entry.get("kid")
    usable = [name for name, (kty, curve) in KEY_TYPES.items() if kty == kind[0] and curve in (None, kind[1])]
    if not usable or algorithm not in (None, *usable) or not isinstance(key_id, str | None):
        return None
    try:
        key = jwt.PyJWK(fields, algorithm or usable[0])
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if getattr(key.key, "key_size", MIN_RSA_BITS) < MIN_RSA_BITS and kind[0] == "RSA":
        return None
    return PublicKey(key_id, kind, algorithm, fields)


def _may_verify(operations: Any) -> bool:
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _check_scope(found: Any) -> None:
    """Check a scope by Kafka's rule: texts that are not empty, and no text twice."""
    scopes = found if isinstance(found, list) else [found] if isinstance(found, str) else []
    cleaned = [scope.strip() if isinstance(scope, str) else "" for scope in scopes]
    if not all(cleaned) or len(set(cleaned)) < len(cleaned):
        raise TokenError("the token's scopes are malformed")
