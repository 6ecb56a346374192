"""Logins of Kafka's own clients, and the result of each: a principal or an error.

Each case runs against a stock controller and against ours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from migrator.parts.certificates import Authority
from migrator.values import value
from tests.interop.support.login_doors import AUDIENCE, ISSUER, MODULES, Door, Token, Town, operations_of
from tests.interop.support.stock_clients import Answer
from tests.wire.support.tokens import EC_KEY, signed

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
REFUSED = "SaslAuthenticationException"
TLS_REFUSED = "SslAuthenticationException"
LIFE_SECONDS = 3600
"""Of sound tokens: longer than any run takes."""
UNSUPPORTED = "UnsupportedSaslMechanismException"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
Properties = Mapping[str, str]


@value
class Case:
    """One client.

    :ivar properties: of its own, at that door.
    :ivar expected: the principal that it gets in as, or the error that Kafka's client raises.
    """

    name: str
    listener: str
    properties: Callable[[Door], Properties]
    expected: str

    def client(self, door: Door) -> dict[str, str]:
        return {
            "bootstrap.controllers": f"localhost:{door.ports[self.listener]}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(door.town.trust),
            "reconnect.backoff.ms": "20",
            "reconnect.backoff.max.ms": "200",
            **self.properties(door),
        }

    def came_true(self, answer: Answer) -> bool:
        """Whether this is what was expected."""
        if self.expected in (REFUSED, TLS_REFUSED, UNSUPPORTED):
            return answer.error == self.expected
        return not answer.error and answer.operations == operations_of(self.expected)


def sasl(mechanism: str, **options: str) -> dict[str, str]:
    """Of a client of SASL_SSL."""
    text = " ".join(f'{name}="{option}"' for name, option in options.items())
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{MODULES[mechanism]} required {text};",
    }


def password(mechanism: str, user: str, secret: str | None = None, **options: str) -> Callable[[Door], Properties]:
    """User and password; their own by default."""
    return lambda door: sasl(mechanism, username=user, password=secret or door.town.passwords[user], **options)


def token(mechanism: str, which: str, **changes: str) -> Callable[[Door], Properties]:
    def properties(door: Door) -> Properties:
        found: Token = door.tokens[which]
        known = {"username": found.token_id, "password": found.password, "tokenauth": "true"}
        return sasl(mechanism, **{name: text for name, text in (known | changes).items() if text})

    return properties


def unsecured(user: str) -> Callable[[Door], Properties]:
    """A token of the client's own making."""
    return lambda _: sasl("OAUTHBEARER", unsecuredLoginStringClaim_sub=user)


def bearer(name: str) -> Callable[[Door], Properties]:
    """A token of the identity provider, from a file."""
    return lambda door: (
        sasl("OAUTHBEARER")
        | {
            "sasl.login.callback.handler.class": LOGIN,
            "sasl.oauthbearer.token.endpoint.url": token_file(door.town, name).as_uri(),
        }
    )


def certificate(name: str) -> Callable[[Door], Properties]:
    """TLS with that file of key and certificate."""
    return lambda door: {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(getattr(door.town, name)),
    }


def tls(_: Door) -> Properties:
    return {"security.protocol": "SSL"}


def distrusting(door: Door) -> Properties:
    """TLS with a trust store in which the door's authority is not."""
    other = door.town.directory / "other-authority.pem"
    if not other.exists():
        Authority("another").trust(other)
    return {"security.protocol": "SSL", "ssl.truststore.location": str(other)}


def _everybody() -> Iterator[Case]:
    yield Case("TLS", "TLS", tls, "ANONYMOUS")
    yield Case("TLS, and it does not trust us", "TLS", distrusting, TLS_REFUSED)
    yield Case("mutual TLS", "MUTUAL", certificate("client"), "CN=client")
    yield Case("mutual TLS without a certificate", "MUTUAL", tls, TLS_REFUSED)
    yield Case("mutual TLS, another authority", "MUTUAL", certificate("stranger"), TLS_REFUSED)
    yield Case("mutual TLS, expired", "MUTUAL", certificate("expired"), TLS_REFUSED)
    yield Case("PLAIN", "CONTROLLER", password("PLAIN", "alice"), "alice")
    yield Case("PLAIN, wrong password", "CONTROLLER", password("PLAIN", "alice", "alice-secre"), REFUSED)
    yield Case("PLAIN, unknown user", "CONTROLLER", password("PLAIN", "mallory", "x"), REFUSED)
    yield Case("PLAIN, not enabled", "SIGNED", password("PLAIN", "alice"), UNSUPPORTED)
    yield from _scram()
    yield from _tokens()
    yield Case("unsigned token", "CONTROLLER", unsecured("olga"), "olga")
    yield Case("unsigned token where they are signed", "SIGNED", unsecured("olga"), REFUSED)
    yield Case("signed token", "SIGNED", bearer("sound"), "sam")
    for name in WRONG_TOKENS:
        yield Case(f"signed token, {name}", "SIGNED", bearer(name), REFUSED)


def _scram() -> Iterator[Case]:
    yield Case(SHA_256, "CONTROLLER", password(SHA_256, "bob"), "bob")
    yield Case(SHA_512, "CONTROLLER", password(SHA_512, "carol"), "carol")
    for mechanism, user in ((SHA_256, "bob"), (SHA_512, "carol")):
        yield Case(f"{mechanism}, wrong password", "CONTROLLER", password(mechanism, user, "x"), REFUSED)
        yield Case(f"{mechanism}, unknown user", "CONTROLLER", password(mechanism, "mallory", "x"), REFUSED)
    yield Case(f"{SHA_512}, of a user of the other", "CONTROLLER", password(SHA_512, "bob"), REFUSED)
    as_token = password(SHA_256, "bob", tokenauth="true")
    yield Case(f"{SHA_256}, a user as a token", "CONTROLLER", as_token, REFUSED)


def _tokens() -> Iterator[Case]:
    for mechanism in (SHA_256, SHA_512):
        yield Case(f"token by {mechanism}", "CONTROLLER", token(mechanism, "sound"), "owner")
        wrong = token(mechanism, "sound", password="AAAA")
        yield Case(f"token by {mechanism}, wrong HMAC", "CONTROLLER", wrong, REFUSED)
    yield Case("token that there is not", "CONTROLLER", token(SHA_256, "sound", username="nobody"), REFUSED)
    yield Case("token as a user", "CONTROLLER", token(SHA_256, "sound", tokenauth=""), REFUSED)
    yield Case("token by PLAIN", "CONTROLLER", token("PLAIN", "sound", tokenauth=""), REFUSED)
    yield Case("token that has expired", "CONTROLLER", token(SHA_256, "expired"), REFUSED)


def _public_pem() -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - one forgery needs it

    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return EC_KEY.public_key().public_bytes(encoding, form)


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a sound token; None removes a claim."""
    sound = {"sub": "sam", "aud": AUDIENCE, "iss": ISSUER, "exp": time.time() + LIFE_SECONDS} | changes
    return {name: claim for name, claim in sound.items() if claim is not None}


def es256(key: Any = EC_KEY, key_id: str | None = "one", **changes: Any) -> str:
    """A token that is sound but for its changes."""
    return signed(key, "ES256", key_id, **claims(**changes))


def by_public_key() -> str:
    """Signed by HMAC with the key that everybody may read, as if that were a secret."""
    now = int(time.time())
    header = {"alg": "HS256", "kid": "one", "typ": "JWT"}
    body = claims(iat=now, exp=now + 600)
    import hashlib  # noqa: PLC0415 - PyJWT refuses to make this
    import hmac  # noqa: PLC0415

    parts = [jwt.utils.base64url_encode(json.dumps(part).encode()) for part in (header, body)]
    proof = hmac.digest(_public_pem(), b".".join(parts), hashlib.sha256)
    return b".".join((*parts, jwt.utils.base64url_encode(proof))).decode()


WRONG_TOKENS: Mapping[str, Callable[[], str]] = {
    "expired": lambda: es256(iat=time.time() - 600, exp=time.time() - 300),
    "by another key": lambda: es256(ec.generate_private_key(ec.SECP256R1())),
    "of an unknown key": lambda: es256(key_id="two"),
    "whose key is a path": lambda: es256(ec.generate_private_key(ec.SECP256R1()), key_id="../../../dev/null"),
    "for others": lambda: es256(aud="others"),
    "for nobody": lambda: es256(aud=None),
    "of another issuer": lambda: es256(iss="others"),
    "of no issuer": lambda: es256(iss=None),
    "by the public key": by_public_key,
}
"""By what is wrong with them."""


def token_file(town: Town, name: str) -> Path:
    return town.directory / "tokens" / f"{name.replace(' ', '-')}.jwt"


def write_tokens(town: Town) -> Path:
    """The folder with the tokens of the identity provider, which clients read."""
    makers = {"sound": es256, **WRONG_TOKENS}
    for name, make in makers.items():
        file = token_file(town, name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(make())
    return token_file(town, "sound").parent


CASES = tuple(_everybody())
