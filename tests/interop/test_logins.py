"""Kafka's own clients and brokers log in at our controller; clients hear the same from a stock one beside it."""

from __future__ import annotations

import datetime as dt
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import install_exception_handler

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import BROKER_JVM
from migrator.parts.kafka import StockKafka, start_together
from migrator.parts.processes import free_port
from migrator.values import value
from tests.interop.support.login_attacks import ATTACKS
from tests.interop.support.login_cases import CASES, REFUSED, SHA_256, SHA_512, Case, password, token, write_tokens
from tests.interop.support.login_doors import ITERATIONS, OPERATOR, SALT_BYTES, SESSION_MS, SLOWED_MS, Door, Token, Town
from tests.interop.support.login_line import Line, Said, Scram
from tests.interop.support.stock_clients import Answer, StockAdmin, StockClients
from tests.patience import until

FAILED = "sasl_authentication_failed"
THREADS = 6
DIFFERENT: Mapping[str, str] = {}
"""Cases in which the client hears something else from stock, and why."""
_INVALID = f"{FAILED}: Authentication failed during authentication due to invalid credentials with SASL mechanism"
OTHERWISE: Mapping[str, Sequence[str]] = {
    # RFC 5802 wants both to be refused; stock reads past them.
    "SCRAM with a mandatory extension": [f"{_INVALID} {SHA_256}"],
    "SCRAM with another header": [f"{_INVALID} {SHA_256}"],
    # Stock stumbles over them, and closes without an answer.
    "SCRAM with a short proof": [f"{_INVALID} {SHA_256}"],
    "SCRAM with no proof": [f"{_INVALID} {SHA_256}"],
    "bearer, another scheme": [f"{_INVALID} OAUTHBEARER"],
    "a proof before the mechanism": ["illegal_sasl_state: SaslAuthenticate before SaslHandshake"],
    # Stock takes the second one.
    "bearer with a second token": [f"{_INVALID} OAUTHBEARER"],
    # Stock takes it for a question mark.
    "CONTROLLER: a token of half a character": [f'{FAILED}: {{"status":"invalid_token"}}'],
    # Stock answers before it closes.
    "again, half of it": ["none 2000", "none", "closed"],
}
"""Our answers to attacks where they differ from stock's. No attack gets in without a proof."""
SESSIONS = 3
"""For so many of them a broker's requests get through."""
LONG = pytest.mark.lane("test-long")
DOORS = pytest.mark.parametrize("which", ["stock", "ours"])
STOCK_TOO = pytest.mark.parametrize("which", [pytest.param("stock", marks=LONG), "ours"])


@value
class Played:
    """The doors, the clients, and what each client heard: by the case's name, of stock and of ours."""

    clients: StockClients
    stock: Door
    ours: Door
    answers: Mapping[str, tuple[Answer, Answer]]

    def door(self, which: str) -> Door:
        return self.ours if which == "ours" else self.stock


@pytest.fixture(scope="module")
def played(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Both controllers, and all clients, each once at each; in a process in which Spark has been."""
    install_exception_handler()
    directory = tmp_path_factory.mktemp("logins")
    town = Town(directory / "town")
    tokens = write_tokens(town)
    stock, ours = doors = Door(town, directory / "stock", kafka_391), Door(town, directory / "ours")
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(Door.open, doors))
            for door in doors:
                door.tokens["expired"] = door.create_token(dt.timedelta(milliseconds=1))
                door.until("without that token", FAILED, partial(log_in_by, door, "expired"))
            with StockClients(kafka_391, directory, tokens=tokens) as clients:
                heard = threads.map(lambda case: [clients.answer(case.client(door)) for door in doors], CASES)
                answers = {
                    case.name: (of_stock, of_ours) for case, (of_stock, of_ours) in zip(CASES, heard, strict=True)
                }
                yield Played(clients, stock, ours, answers)
    finally:
        for door in doors:
            door.kill()


@pytest.fixture(scope="module")
def said(played: Played) -> Mapping[str, tuple[Sequence[str], Sequence[str]]]:
    """The answers to every attack, by stock and by ours."""
    with ThreadPoolExecutor(THREADS) as threads:
        both = threads.map(lambda name: (heard(played.stock, name), heard(played.ours, name)), ATTACKS)
        return dict(zip(ATTACKS, both, strict=True))


def log_in_by(door: Door, which: str) -> str:
    """The error of a login by a delegation token."""
    with door.line() as line:
        known = door.tokens[which]
        return line.scram(known.token_id, known.password, extensions=",tokenauth=true").error


def heard(door: Door, attack: str) -> Sequence[str]:
    return [f"{each} {each.lifetime_ms or ''}".strip() for each in ATTACKS[attack](door)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_client_hears_what_it_hears_from_stock(played: Played, case: Case) -> None:
    stock, ours = played.answers[case.name]
    assert case.came_true(ours), str(ours)
    if case.name not in DIFFERENT:
        assert ours == stock


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_no_client_sends_is_answered_as_by_stock(
    said: Mapping[str, tuple[Sequence[str], Sequence[str]]], attack: str
) -> None:
    stock, ours = said[attack]
    assert ours == OTHERWISE.get(attack, stock)
    assert (ours == stock) == (attack not in OTHERWISE), f"stock: {stock}, ours: {ours}"


@STOCK_TOO
@pytest.mark.parametrize("mechanism", [SHA_256, pytest.param(SHA_512, marks=LONG)])
def test_a_session_is_renewed_until_the_password_changes(played: Played, which: str, mechanism: str) -> None:
    door, user = played.door(which), f"dave-{mechanism[-3:]}"
    client = partial(of_short, door, mechanism, user)
    door.set_password(user, "first", mechanism)
    door.until("known", "", lambda: played.clients.answer(client("first")).error)
    with played.clients.admin(client("first")) as admin:
        until(lambda: not admin.ask().error and admin.metric("successful-reauthentication-total") >= 1)
        door.set_password(user, "second", mechanism)
        until_refused(admin)
        assert admin.metric("failed-reauthentication-total") >= 1
    assert played.clients.answer(client("first")).error == REFUSED
    assert played.clients.answer(client("second")).error == ""


@STOCK_TOO
def test_a_session_ends_after_its_user_is_deleted(played: Played, which: str) -> None:
    door = played.door(which)
    client = of_short(door, SHA_256, "erin", "secret")
    door.set_password("erin", "secret")
    door.until("known", "", lambda: played.clients.answer(client).error)
    with played.clients.admin(client) as admin:
        assert admin.ask().error == ""
        door.delete_user("erin")
        until_refused(admin)
    assert played.clients.answer(client).error == REFUSED


def test_a_session_ends_with_its_token(played: Played) -> None:
    door, client = played.ours, Case("", "CONTROLLER", token(SHA_512, "short"), "owner")
    for seconds in (4, 16, 64):  # a slow machine is still busy when a short life is over
        door.tokens["short"] = door.create_token(dt.timedelta(seconds=seconds))
        with played.clients.admin(client.client(door)) as admin:
            if client.came_true(admin.ask()):
                # In its last second a client may hear that it logs in again too often, from stock as from us.
                until(partial(is_refused, admin))
                until(lambda: played.clients.answer(client.client(door)).error == REFUSED)
                return
    raise AssertionError("nobody got in by a token")


@STOCK_TOO
def test_a_session_is_not_renewed_by_a_token_that_was_expired(played: Played, which: str) -> None:
    door, client = played.door(which), Case("", "SHORT", token(SHA_256, "revoked"), "owner")
    door.tokens["revoked"] = door.create_token(dt.timedelta(days=1))
    until(lambda: client.came_true(played.clients.answer(client.client(door))))
    with played.clients.admin(client.client(door)) as admin:
        assert client.came_true(admin.ask())
        door.expire_token(door.tokens["revoked"])
        until_refused(admin)


@DOORS
def test_failed_logins_are_slowed(played: Played, which: str) -> None:
    attempts: Sequence[Callable[[Line], Said]] = (
        lambda line: line.plain("alice", "x"),
        lambda line: line.plain("mallory", "x"),
        lambda line: line.scram("bob", "x"),
        lambda line: line.scram("mallory", "x", mechanism=SHA_512),
        lambda line: line.bearer("x"),
        lambda line: line.choose("GSSAPI"),
    )
    for attempt in attempts:
        with played.door(which).line() as line:
            begin = time.monotonic()
            assert attempt(line).error in (FAILED, "unsupported_sasl_mechanism")
            assert time.monotonic() - begin >= SLOWED_MS / 1000


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_the_first_answer_does_not_tell_who_is_known(played: Played, mechanism: str) -> None:
    """Stock refuses unknown names at once."""
    known = first_answer(played.ours, "carol", mechanism)
    unknown = [first_answer(played.ours, name, mechanism) for name in ("mallory", "mallory", "mallet")]
    assert [len(salt) for salt, _ in (known, *unknown)] == [SALT_BYTES] * 4
    assert {iterations for _, iterations in (known, *unknown)} == {ITERATIONS}
    assert unknown[0] == unknown[1] != unknown[2]


def first_answer(door: Door, user: str, mechanism: str) -> tuple[bytes, int]:
    """Salt and iterations."""
    with door.line() as line:
        line.choose(mechanism)
        said = line.say(Scram(user, "x", mechanism).first)
        fields = dict(part.split("=", 1) for part in said.token.decode().split(",") if part)
        return b64decode(fields.get("s", "")), int(fields.get("i", "0"))


def test_brokers_come_by_scram_and_by_certificate_and_what_they_write_counts_at_once(
    played: Played, kafka_391: StockKafka, tmp_path: Path
) -> None:
    door, ports = played.ours, {1: free_port(), 2: free_port()}
    brokers = [
        kafka_391.node(
            f"broker {number}",
            tmp_path / f"broker-{number}",
            door.town.of_broker(number, door, listener, ports[number]),
            jvm=BROKER_JVM,
        )
        for number, listener in ((1, "SHORT"), (2, "MUTUAL"))
    ]
    try:
        for broker in brokers:
            broker.format(CLUSTER_ID, release_version="3.9")
        start_together(brokers)
        with played.clients.admin(at_broker(door, ports[2], "owner")) as admin:
            door.tokens["of a broker"] = Token(*admin.create_token())
        owner = Case("", "CONTROLLER", token(SHA_256, "of a broker"), "owner")
        until(lambda: owner.came_true(played.clients.answer(owner.client(door))))
        with played.clients.admin(at_broker(door, ports[1], OPERATOR)) as admin:
            begin, number = time.monotonic(), 0
            while time.monotonic() < begin + SESSIONS * SESSION_MS / 1000:
                number += 1
                admin.set_password("frank", f"secret-{number}")
            client = of_short(door, SHA_256, "frank", f"secret-{number}")
            until(lambda: played.clients.answer(client).error == "")
        before = of_short(door, SHA_256, "frank", f"secret-{number - 1}")
        assert played.clients.answer(before).error == REFUSED
    finally:
        for broker in brokers:
            broker.kill()


def at_broker(door: Door, port: int, user: str) -> Mapping[str, str]:
    known = Case("", "CONTROLLER", password(SHA_512, user), user).client(door)
    known.pop("bootstrap.controllers")
    return known | {"bootstrap.servers": f"localhost:{port}"}


def of_short(door: Door, mechanism: str, user: str, secret: str) -> Mapping[str, str]:
    """A client of the listener whose sessions end soon."""
    return Case("", "SHORT", password(mechanism, user, secret), user).client(door)


def is_refused(admin: StockAdmin) -> bool:
    return bool(admin.ask().error)


def until_refused(admin: StockAdmin) -> None:
    """A client asks until its session ends and it can't log in again."""
    until(partial(is_refused, admin))
    assert admin.ask().error == REFUSED
