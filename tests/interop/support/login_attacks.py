"""Login messages that no client of Kafka sends: out of order, of another user, forged, or too long.

Each attack is sent to a stock listener and to ours, and both must answer the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jwt

from migrator.wire.schemas import API_VERSIONS
from tests.interop.support.login_cases import SHA_256, SHA_512, by_public_key, claims, es256
from tests.interop.support.login_doors import SESSION_MS, Door
from tests.interop.support.login_line import Line, Said, Scram
from tests.wire.support.tokens import EC_KEY

METADATA = 3
HUGE = 524_288
Attack = Callable[[Door], Iterator[Said]]
"""Messages to a door with its answers, in order."""


def on(listener: str, attack: Callable[[Line, Door], Iterator[Said]]) -> Attack:
    def played(door: Door) -> Iterator[Said]:
        with door.line(listener) as line:
            yield from attack(line, door)

    return played


def _order() -> Iterator[tuple[str, Attack]]:
    def plain(line: Line, door: Door) -> Said:
        return line.plain("alice", door.town.passwords["alice"])

    def late(line: Line, door: Door) -> Iterator[Said]:
        yield plain(line, door)
        yield line.choose("PLAIN")
        yield line.say(b"\0alice\0x")
        yield line.ask(API_VERSIONS, 0)

    def token_for_a_token(line: Line, door: Door) -> Iterator[Said]:
        found = door.tokens["sound"]
        yield _plainly(line.scram(found.token_id, found.password, extensions=",tokenauth=true"))
        for key, fields in ((38, {"renewers": ()}), (39, {"hmac": b"x"}), (40, {"hmac": b"x"})):
            yield Said(line.ask(key, 2, **fields).error)

    yield "a token of a token", on("CONTROLLER", token_for_a_token)
    yield "a proof before the mechanism", on("CONTROLLER", lambda line, _: iter((line.say(b"\0alice\0x"),)))
    yield "two mechanisms", on("CONTROLLER", lambda line, _: iter((line.choose("PLAIN"), line.choose(SHA_256))))
    yield "a request before the login", on("CONTROLLER", lambda line, _: iter((line.ask(METADATA, 9),)))
    yield "a login after the login", on("CONTROLLER", late)
    for mechanism in ("GSSAPI", "plain", "", "x" * 30_000):

        def choose(line: Line, _: Door, mechanism: str = mechanism) -> Iterator[Said]:
            yield line.choose(mechanism)

        yield f"mechanism {mechanism[:10]!r}", on("CONTROLLER", choose)


def _again() -> Iterator[tuple[str, Attack]]:
    """On a connection whose session ends."""

    def begin(line: Line, door: Door) -> Said:
        return line.plain("alice", door.town.passwords["alice"])

    def another(line: Line, door: Door) -> Iterator[Said]:
        yield begin(line, door)
        yield line.plain("operator", door.town.passwords["operator"])
        yield line.ask(API_VERSIONS, 0)

    def mechanism(line: Line, door: Door) -> Iterator[Said]:
        yield begin(line, door)
        line.choose(SHA_256)
        yield line.say(Scram("bob", "x").first)

    def wrong(line: Line, door: Door) -> Iterator[Said]:
        yield begin(line, door)
        yield line.plain("alice", "x")
        yield line.ask(API_VERSIONS, 0)

    def soon(line: Line, door: Door) -> Iterator[Said]:
        yield begin(line, door)
        yield line.plain("alice", door.town.passwords["alice"])
        yield line.choose("PLAIN")

    def half(line: Line, door: Door) -> Iterator[Said]:
        yield begin(line, door)
        yield line.choose("PLAIN")
        yield line.ask(METADATA, 9)

    def never(line: Line, door: Door) -> Iterator[Said]:
        began = time.monotonic()
        yield begin(line, door)
        while (said := line.ask(API_VERSIONS, 0)).error == "none":
            pass
        yield said
        assert time.monotonic() - began >= SESSION_MS / 1000

    def as_owner(line: Line, door: Door) -> Iterator[Said]:
        yield line.scram("bob", door.town.passwords["bob"])
        found = door.tokens["sound"]
        yield line.scram(found.token_id, found.password, extensions=",tokenauth=true")

    yield "again as another", on("SHORT", another)
    yield "again by another mechanism", on("SHORT", mechanism)
    yield "again with a wrong password", on("SHORT", wrong)
    yield "again too soon", on("SHORT", soon)
    yield "again, half of it", on("SHORT", half)
    yield "never again", on("SHORT", never)
    yield "again by another's token", on("SHORT", as_owner)


def _plain() -> Iterator[tuple[str, Attack]]:
    for name, token in {
        "for another": b"operator\0alice\0alice-secret",
        "for oneself": b"alice\0alice\0alice-secret",
        "of two parts": b"alice\0alice-secret",
        "of four parts": b"\0alice\0alice-secret\0",
        "of nobody": b"\0\0alice-secret",
        "without a password": b"\0alice\0",
        "with more behind it": b"\0alice\0alice-secret ",
        "that is empty": b"",
    }.items():

        def attack(line: Line, _: Door, token: bytes = token) -> Iterator[Said]:
            line.choose("PLAIN")
            yield line.say(token)

        yield f"PLAIN {name}", on("CONTROLLER", attack)


def _scram() -> Iterator[tuple[str, Attack]]:
    def login(user: str, secret: str, **how: Any) -> Callable[[Line, Door], Iterator[Said]]:
        return lambda line, _: iter((_plainly(line.scram(user, secret, **how)),))

    for name, how in {
        "for oneself": {"header": "n,a=bob,"},
        "for another": {"header": "n,a=operator,"},
        "with channel binding": {"header": "p=tls-unique,,"},
        "with a mandatory extension": {"extensions": ",m=1"},
        "with another extension": {"extensions": ",x=1"},
        "as no token": {"extensions": ",tokenauth=false"},
        "as perhaps a token": {"extensions": ",tokenauth=maybe"},
        "as a TOKEN": {"extensions": ",tokenauth=TRUE"},
    }.items():
        yield f"SCRAM {name}", on("CONTROLLER", login("bob", "bob-secret", **how))
    finals: Mapping[str, Mapping[str, Any]] = {
        "with another nonce": {"nonce": "once"},
        "with another header": {"binding": "y,,"},
        "with a short proof": {"proof": b"x"},
        "with no proof": {"proof": b""},
        "with a proof of zeros": {"proof": bytes(32)},
    }
    for name, final in finals.items():

        def attack(line: Line, _: Door, final: Mapping[str, Any] = final) -> Iterator[Said]:
            exchange = Scram("bob", "bob-secret")
            line.choose(SHA_256)
            yield _plainly(line.say(exchange.final(line.say(exchange.first).token, **final)))

        yield f"SCRAM {name}", on("CONTROLLER", attack)

    def once_more(line: Line, _: Door) -> Iterator[Said]:
        exchange = Scram("bob", "bob-secret")
        line.choose(SHA_256)
        final = exchange.final(line.say(exchange.first).token)
        yield _plainly(line.say(final))
        yield line.say(final)

    def turned(line: Line, _: Door) -> Iterator[Said]:
        line.choose(SHA_512)
        yield line.say(b"c=biws,r=once,p=AAAA")

    yield "SCRAM, the last message twice", on("CONTROLLER", once_more)
    yield "SCRAM, the last message first", on("CONTROLLER", turned)


def _plainly(said: Said) -> Said:
    """Without what depends on a nonce or on the time."""
    return Said(said.error, said.message, lifetime_ms=1 if said.lifetime_ms else 0)


def forged(header: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """A token signed with the provider's key, whatever it says."""
    now = int(time.time())
    return jwt.encode(
        claims(**{"iat": now, "exp": now + 600, **changes}), EC_KEY, "ES256", {"kid": "one", **(header or {})}
    )


def unsigned(**changes: Any) -> str:
    """A token whose algorithm is none."""
    now = int(time.time())
    body = claims(**{"iat": now, "exp": now + 600, "aud": None, "iss": None, **changes})
    parts = ({"alg": "none"}, body)
    return "".join(f"{jwt.utils.base64url_encode(json.dumps(part).encode()).decode()}." for part in parts)


def _again_signed(alg: str) -> str:
    """A sound token whose header names another algorithm."""
    _, body, proof = es256().split(".")
    header = jwt.utils.base64url_encode(json.dumps({"alg": alg, "kid": "one"}).encode()).decode()
    return f"{header}.{body}.{proof}"


SIGNED: Mapping[str, Callable[[], str]] = {
    "sound": es256,
    "of algorithm none": unsigned,
    "of algorithm None": lambda: unsigned().replace(
        "eyJhbGciOiAibm9uZSJ9", jwt.utils.base64url_encode(b'{"alg":"None"}').decode()
    ),
    "by the public key": by_public_key,
    "of ES384": lambda: _again_signed("ES384"),
    "without its proof": lambda: es256().rpartition(".")[0] + ".",
    "without a key id": lambda: es256(key_id=None),
    "with an empty key id": lambda: es256(key_id=""),
    "with a key of its own": lambda: jwt.encode(
        claims(iat=int(time.time()), exp=int(time.time()) + 600),
        "a secret of thirty-two characters", "HS256",
        {"kid": "one", "jwk": {"kty": "oct", "k": "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBjaGFyYWN0ZXJz"}},
    ),
    "with a critical header": lambda: forged({"crit": ["exp"], "exp": 1}),
    "without iat": lambda: forged(iat=None),
    "without exp": lambda: forged(exp=None),
    "whose end is no number": lambda: forged(exp="never"),
    "without a subject": lambda: forged(sub=None),
    "of an empty subject": lambda: forged(sub=" "),
    "not before an hour": lambda: forged(nbf=int(time.time()) + 3600),
    "within the skew": lambda: forged(iat=int(time.time()) - 60, exp=int(time.time()) - 10),
    "beyond the skew": lambda: forged(iat=int(time.time()) - 60, exp=int(time.time()) - 40),
    "of many audiences": lambda: forged(aud=["others", "kafka"]),
    "of an audience that begins so": lambda: forged(aud="kafka2"),
    "of a scope twice": lambda: forged(scope=["a", "a"]),
    "of a scope": lambda: forged(scope="a"),
    "that is long": lambda: forged(more="x" * 20_000),
}  # fmt: skip

UNSIGNED: Mapping[str, Callable[[], str]] = {
    "sound": unsigned,
    "over": lambda: unsigned(exp=int(time.time()) - 1, iat=int(time.time()) - 60),
    "without an end": lambda: unsigned(exp=None),
    "that never ends": lambda: unsigned(exp=10**400),
    "of half a character": lambda: unsigned(sub="\ud800"),
    "of the future": lambda: unsigned(iat=int(time.time()) + 300),
    "of nobody": lambda: unsigned(sub=None),
    "with a proof": es256,
    "no token": lambda: "x",
}


def _bearers() -> Iterator[tuple[str, Attack]]:
    for listener, tokens in (("SIGNED", SIGNED), ("CONTROLLER", UNSIGNED)):
        for name, make in tokens.items():
            said = lambda line, _, make=make: iter((_without_time(line.bearer(make())),))  # noqa: E731 - one of many
            yield f"{listener}: a token {name}", on(listener, said)
    for name, how in {
        "for oneself": {"authorization": "sam"},
        "for another": {"authorization": "operator"},
        "with an extension": {"extensions": "a=b\x01"},
        "with a second token": {"extensions": "auth=Bearer x\x01"},
    }.items():
        said = lambda line, _, how=how: iter((_without_time(line.bearer(unsigned(), **how)),))  # noqa: E731
        yield f"bearer {name}", on("CONTROLLER", said)

    def raw(token: bytes) -> Callable[[Line, Door], Iterator[Said]]:
        def attack(line: Line, _: Door) -> Iterator[Said]:
            line.choose("OAUTHBEARER")
            yield line.say(token)

        return attack

    for name, token in {
        "empty": b"", "without a token": b"n,,\x01\x01", "another scheme": b"n,,\x01auth=Basic x\x01\x01",
        "acknowledged first": b"\x01", "no end": b"n,,\x01auth=Bearer x\x01",
    }.items():  # fmt: skip
        yield f"bearer, {name}", on("CONTROLLER", raw(token))
    yield "a login above the limit", on("CONTROLLER", raw(b"n,,\x01auth=Bearer " + b"x" * HUGE + b"\x01\x01"))


def _without_time(said: Said) -> Said:
    """How long exactly a token lasts differs by what the two logins took."""
    return Said(said.error, said.message, said.token, lifetime_ms=1 if said.lifetime_ms else 0)


ATTACKS: Mapping[str, Attack] = dict((*_order(), *_again(), *_plain(), *_scram(), *_bearers()))
