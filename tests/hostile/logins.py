"""Logins of an attacker: tokens of each mechanism that look right, and whose content is hostile."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import orjson

from migrator.wire.decode import decode_exactly
from migrator.wire.encode import encode_entity
from migrator.wire.sasl import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_HASHES, NotReadyError, SaslServer, ServerExchange
from migrator.wire.sasl.exchange import Passwords
from migrator.wire.sasl.oauthbearer import OAuthBearerServer
from migrator.wire.sasl.plain import PlainServer
from migrator.wire.sasl.scram import ScramServer
from migrator.wire.sasl.unsecured import UnsecuredRules, UnsecuredValidator
from migrator.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, request_type, response_type
from tests.hostile.doors import Knock
from tests.hostile.values import Hostile
from tests.wire.support.accounts import Accounts

ACCOUNTS: Final = Accounts({"alice": "p"}, {"token-1": ("c2VjcmV0", "alice", 5_000)})
PASSWORDS: Final = Passwords({"alice": "p"})
SCRAM_STEPS: Final = 3


def new_server() -> SaslServer:
    """Of a connection to a listener that takes everything."""
    bearer = UnsecuredValidator(UnsecuredRules())
    exchanges: dict[str, Callable[[], ServerExchange]] = {
        PLAIN: lambda: PlainServer(PASSWORDS),
        OAUTHBEARER: lambda: OAuthBearerServer(bearer),
        **{name: partial(ScramServer, name, ACCOUNTS) for name in SCRAM_HASHES},
    }
    return SaslServer(exchanges)


def log_in(random: Random, hostile: Hostile, knock: Knock) -> None:
    """One login.

    :raises AssertionError: an answer is not one of its version, or SCRAM has let somebody in.
    """
    if knock.key == API_VERSIONS:
        return  # the listener's own answer; its request has two texts
    server, answers = new_server(), []
    mechanism = random.choice(MECHANISMS) if knock.schema is not None else knock.name.rpartition(" ")[2]
    server.handle(SASL_HANDSHAKE, 1, request_type(SASL_HANDSHAKE, 1)(mechanism=mechanism))
    try:
        if knock.schema is not None:
            answer = server.handle(knock.key, knock.version, hostile.entity(knock.schema))
            answers.append((knock.key, knock.version, answer))
        else:
            for number in range(SCRAM_STEPS):
                request = request_type(SASL_AUTHENTICATE, 2)(auth_bytes=_token(random, hostile, mechanism, number))
                answers.append((SASL_AUTHENTICATE, 2, server.handle(SASL_AUTHENTICATE, 2, request)))
    except NotReadyError:
        return
    for key, version, answer in answers:
        decode_exactly(response_type(key, version), b"".join(encode_entity(answer)))
    assert server.principal is None or mechanism not in SCRAM_HASHES, "a login without a proof"


def _token(random: Random, hostile: Hostile, mechanism: str, number: int) -> bytes:
    if random.random() < 0.2:
        return hostile.raw("token")
    texts = [hostile.text("name", 5_000) for _ in range(3)]
    if mechanism == PLAIN:
        return "\0".join(texts[: random.choice((1, 2, 3, 3, 3))]).encode()
    if mechanism == OAUTHBEARER:
        return _bearer(random, hostile, texts)
    if number == 0:
        first = random.choice(("n,,", "y,,", "p=tls-unique,,", "n,a=x,")) + f"n={texts[0]},r={texts[1]}"
        return first.encode()
    channel = random.choice(("biws", "eSws", texts[2]))
    return f"c={channel},r={texts[0]},p={random.choice((texts[1], 'AAAA', '=', 'é'))}".encode()


def _bearer(random: Random, hostile: Hostile, texts: list[str]) -> bytes:
    odd: tuple[Any, ...] = (hostile.number("time", 64), texts[0], None, [], {}, 1.5, True)
    claims = {name: random.choice(odd) for name in ("sub", "exp", "iat", "nbf", "scope", "aud", "iss")}
    if random.random() < 0.5:
        claims |= {"sub": "alice", "exp": random.choice((2**40, 2**63 - 1, -1))}
    head = {"alg": random.choice(("none", "RS256", texts[1], None))}
    parts = [_base64(orjson.dumps(part)) for part in (head, claims)]
    token = ".".join((*parts, random.choice(("", "AAAA", "=="))))
    separator = random.choice(("\x01", "\x01", "\x01\x01", "\0"))
    return f"n,{random.choice(('', 'a=alice', texts[2]))},{separator}auth=Bearer {token}{separator}{separator}".encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
