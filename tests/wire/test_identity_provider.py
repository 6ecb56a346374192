"""Requests to an identity provider, for its keys and for tokens of our own."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from migrator.config.key_lists import OAUTHBEARER_LOGINS, OAUTHBEARER_VALIDATORS
from migrator.config.types import Secret
from migrator.errors import OperatorError
from migrator.parts.certificates import Authority
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.sasl import AuthenticationError, NotReadyError
from migrator.wire.sasl.https import MAX_BYTES, parse_address, request
from migrator.wire.sasl.jwks import UNKNOWN_SECONDS, KeySet
from migrator.wire.sasl.login import BearerLogin, client_credentials
from migrator.wire.sasl_settings import token_validator
from migrator.wire.security import listener_security
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.tokens import EC_KEY, RSA_KEY, document, jwk, signed

NOW = time.time()
PREFIX = "listener.name.controller."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class Provider:
    """Publishes keys; counts how often it is asked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = keys
        self.away = False
        self.asked = 0
        self.turns = threading.Semaphore(0)
        self.now = 0.0
        self.set = KeySet("a test", self.fetch, 100, (1.0, 10.0), lambda: self.now)

    def fetch(self) -> bytes:
        self.asked += 1
        assert self.turns.acquire(timeout=PATIENCE_SECONDS)
        if self.away:
            raise OSError("away")
        return document(*self.keys)

    def settle(self) -> None:
        """Let the fetch that was begun get its answer."""
        self.turns.release()
        over = threading.Event()
        self.set._lane.begin(over.set)
        assert over.wait(timeout=PATIENCE_SECONDS)


def test_a_provider_that_does_not_answer_holds_up_no_other() -> None:
    silent, other = Provider(jwk(RSA_KEY)), Provider(jwk(RSA_KEY))
    for provider in (silent, other):
        with pytest.raises(NotReadyError):
            provider.set.fitting("RS256", "one")
    other.settle()
    assert other.set.fitting("RS256", "one")
    silent.settle()


def test_keys_are_fetched_again_and_outlive_their_provider() -> None:
    provider = Provider(jwk(RSA_KEY))
    with pytest.raises(NotReadyError):
        provider.set.fitting("RS256", "one")
    provider.settle()
    assert provider.set.fitting("RS256", "one")
    provider.away, provider.now = True, 101.0
    assert provider.set.fitting("RS256", "one")
    provider.settle()
    provider.now = 1000.0
    assert provider.set.fitting("RS256", "one")
    provider.settle()
    provider.away, provider.keys, provider.now = False, (jwk(RSA_KEY, "new"),), 2000.0
    provider.set.fitting("RS256", "one")
    provider.settle()
    assert not provider.set.fitting("RS256", "one")
    assert provider.set.fitting("RS256", "new")
    # After a long rest, old keys are not used before the provider was asked.
    provider.now = 9000.0
    with pytest.raises(NotReadyError):
        provider.set.fitting("RS256", "new")
    provider.settle()
    assert provider.set.fitting("RS256", "new")


def test_unknown_key_ids_do_not_make_us_ask_without_end() -> None:
    provider = Provider(jwk(RSA_KEY))
    provider.turns.release()
    provider.set.load()
    provider.keys = (jwk(RSA_KEY), jwk(EC_KEY, "two"))
    assert not provider.set.fitting("ES256", "two")
    provider.settle()
    assert provider.set.fitting("ES256", "two")
    for number in range(100):
        provider.set.fitting("RS256", f"made up {number}")
    assert provider.asked == 2
    provider.now += UNKNOWN_SECONDS
    provider.set.fitting("RS256", "made up")
    provider.settle()
    assert provider.asked == 3


class Answers(BaseHTTPRequestHandler):
    """An identity provider of one answer."""

    status = 200
    body = b""
    headers_sent: tuple[tuple[str, str], ...] = ()
    seen: list[tuple[str, str | None, bytes]]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, said: bytes) -> None:
        self.seen.append((self.path, self.headers["Authorization"], said))
        self.send_response(self.status)
        for name, text in self.headers_sent:
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Silent."""


@contextlib.contextmanager
def provider_at(authority: Authority, **fields: Any) -> Iterator[tuple[int, list[Any]]]:
    key, certificate = authority.issue("localhost")
    seen: list[Any] = []
    handler = type("Handler", (Answers,), {**fields, "seen": seen})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    from tempfile import NamedTemporaryFile  # noqa: PLC0415 - OpenSSL reads certificates from files only

    with NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(key + certificate)
        file.flush()
        context.load_cert_chain(file.name)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def test_https_is_bounded_and_goes_nowhere_else() -> None:
    authority = Authority("an IdP's CA")
    with provider_at(authority, body=b"{}") as (port, seen):
        at = parse_address(f"https://localhost:{port}/keys?x=1")
        assert request(at, trusting(authority)) == b"{}"
        assert seen[0][0] == "/keys?x=1"
        with pytest.raises(OSError, match="CERTIFICATE"):
            request(at, trusting(Authority("another CA")))
    elsewhere = (("Location", "file:///etc/passwd"),)
    for fields, what in (
        ({"body": b"x" * (MAX_BYTES + 1)}, "more than"),
        ({"status": 302, "headers_sent": elsewhere}, "302"),
    ):
        with provider_at(authority, **fields) as (port, _), pytest.raises(OSError, match=what):
            request(parse_address(f"https://localhost:{port}"), trusting(authority))
    for address in (
        "http://localhost/",
        "ftp://x/",
        "x",
        "https:",
        "https:" + "//u:p@localhost/",
        "file://host/x",
        "file:",
    ):
        with pytest.raises(ValueError, match=r"\w"):
            parse_address(address)


def test_client_credentials() -> None:
    authority = Authority("an IdP's CA")
    body = json.dumps({"access_token": signed(exp=NOW + 100)}).encode()
    with provider_at(authority, body=body) as (port, seen):
        at = parse_address(f"https://localhost:{port}/token")
        fetch = client_credentials(
            lambda form, headers: request(at, trusting(authority), body=form, headers=headers),
            "me",
            Secret("s:ecret"),
            "kafka",
        )
        clock = [NOW]
        login = BearerLogin(fetch, {}, lambda: clock[0])
        assert login.exchange().first() == login.exchange().first()
        assert len(seen) == 1
        assert seen[0][1:] == (
            f"Basic {base64.b64encode(b'me:s:ecret').decode()}",
            b"grant_type=client_credentials&scope=kafka",
        )
        clock[0] += 81
        login.exchange()
        assert len(seen) == 2
    clock[0] += 10  # the provider is away: the token of before serves on until it expires
    login.exchange()
    clock[0] += 10
    with pytest.raises(AuthenticationError, match="no token"):
        login.exchange()


def test_a_provider_that_hangs_is_asked_again_after_a_rest() -> None:
    """All logins of a controller share one thread. The rest began with the question, and ended before that failed."""
    clock, asked = [NOW], []

    def fetch() -> tuple[str, float]:
        asked.append(clock[0])
        clock[0] += 30
        raise OSError("no answer")

    login = BearerLogin(fetch, {}, lambda: clock[0])
    for _ in range(3):
        with pytest.raises(AuthenticationError, match="no answer"):
            login.exchange()
    assert asked == [NOW]
    clock[0] += 5
    with pytest.raises(AuthenticationError):
        login.exchange()
    assert len(asked) == 2


def oauth(**keys: str) -> dict[str, str]:
    named = {name.replace("_", "."): text for name, text in keys.items()}
    return {"sasl.enabled.mechanisms": "OAUTHBEARER", **named}


def test_keys_of_a_file_and_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(document(jwk(RSA_KEY)))
    url = f"file://{tmp_path}/jwks.json"
    handler = f"{PREFIX}oauthbearer.sasl.server.callback.handler.class"
    for name in OAUTHBEARER_VALIDATORS:
        keys = {handler: name, "sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.sub.claim.name": "client"}
        found = token_validator(ListenerKeys(keys, "CONTROLLER"))
        assert str(found.validate(signed(client="bob")).principal) == "User:bob"
    login = f"{PREFIX}oauthbearer.sasl.login.callback.handler.class"
    jaas = f"{PREFIX}oauthbearer.sasl.jaas.config"
    for wrong, where in (
        ({handler: "com.example.Mine"}, handler),
        ({handler: OAUTHBEARER_VALIDATORS[0]}, "jwks.endpoint.url"),
        ({handler: OAUTHBEARER_VALIDATORS[0], "sasl.oauthbearer.jwks.endpoint.url": "http://localhost/"}, "jwks"),
        ({handler: OAUTHBEARER_VALIDATORS[0], "sasl.oauthbearer.jwks.endpoint.url": f"{url}x"}, "jwks"),
        ({"sasl.oauthbearer.jwks.endpoint.url": url}, "jwks.endpoint.url"),
        ({"sasl.server.callback.handler.class": OAUTHBEARER_VALIDATORS[0]}, "sasl.server.callback"),
        ({jaas: f"{MODULE};"}, jaas),
        ({jaas: f"{MODULE};", login: OAUTHBEARER_LOGINS[0]}, "token.endpoint.url"),
        ({jaas: f"{MODULE};", login: "com.example.Mine"}, login),
        ({jaas: f'{MODULE} clientId="x";', login: OAUTHBEARER_LOGINS[1]} | token_url("https://localhost/"), jaas),
        ({jaas: f'{MODULE} unsecuredLoginStringClaim_sub="x";'} | token_url(url), "token.endpoint.url"),
    ):
        mechanism = "OAUTHBEARER" if jaas in wrong else None
        with pytest.raises(OperatorError) as caught:
            listener_security(oauth() | wrong, "CONTROLLER", "SASL_PLAINTEXT", client_mechanism=mechanism)
        assert where in caught.value.where
        assert caught.value.remedy


def token_url(url: str) -> dict[str, str]:
    return {"sasl.oauthbearer.token.endpoint.url": url}
