"""Tokens and published keys of a test's identity provider, made with real keys."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from migrator.wire.sasl.jwks import KeySet
from migrator.wire.sasl.jwt_tokens import SignedTokenValidator, TokenRules

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, key_id: str | None = "one", **more: Any) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    fields: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    fields.pop("key_ops", None)
    return {**fields, **({} if key_id is None else {"kid": key_id}), **more}


def document(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def loaded(*keys: dict[str, Any]) -> KeySet:
    found = KeySet("a test", lambda: document(*keys), 3600, (0.1, 1.0))
    found.load()
    return found


def signed(key: Any = RSA_KEY, algorithm: str = "RS256", key_id: str | None = "one", **claims: Any) -> str:
    now = time.time()
    body = {"sub": "alice", "iat": now, "exp": now + 60, **claims}
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode({name: text for name, text in body.items() if text is not None}, key, algorithm, headers)


def validator(*keys: dict[str, Any], **rules: Any) -> SignedTokenValidator:
    return SignedTokenValidator(TokenRules(**rules), loaded(*(keys or (jwk(RSA_KEY), jwk(EC_KEY, "two")))))
