"""A controller, ours or stock, with a listener for each kind of login, and users who can log in there.

Both kinds get the same properties, so a test can compare their answers.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.drill.cluster import CLUSTER_ID, TOKEN_SECRET, ControllerProcess
from migrator.parts.certificates import Authority
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess, free_port, port_is_open
from migrator.values import value
from migrator.wire.sasl.exchange import SCRAM_HASHES
from tests.differential.support.steps import acl
from tests.interop.support.login_line import CLOSED, Line, Said
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.tokens import EC_KEY, jwk

NODE = 3000
LISTENERS = {"CONTROLLER": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL", "SIGNED": "SASL_SSL", "SHORT": "SASL_SSL"}
"""CONTROLLER takes every mechanism, SIGNED tokens of an identity provider only; sessions of SHORT end soon."""
SESSION_MS = 2000
SLOWED_MS = 300
"""``connection.failed.authentication.delay.ms``"""
AUDIENCE, ISSUER = "kafka", "an-identity-provider"
OPERATOR, BROKER = "operator", "broker"
SCRAM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_USERS = (
    ("bob", "SCRAM-SHA-256"), ("carol", "SCRAM-SHA-512"), ("carol", "SCRAM-SHA-256"),
    *((name, "SCRAM-SHA-512") for name in (OPERATOR, BROKER, "owner")),
)  # fmt: skip
ITERATIONS, SALT_BYTES = 4096, 16
CREATE, ALTER, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 5, 7, 9, 10, 11, 12
GRANTS: Mapping[str, tuple[int, ...]] = {
    "ANONYMOUS": (CREATE, CLUSTER_ACTION),
    "CN=client": (CLUSTER_ACTION, IDEMPOTENT_WRITE),
    "alice": (CREATE,),
    "bob": (CLUSTER_ACTION,),
    "carol": (DESCRIBE_CONFIGS,),
    "owner": (ALTER_CONFIGS,),
    "olga": (IDEMPOTENT_WRITE,),
    "sam": (CREATE, IDEMPOTENT_WRITE),
    **dict.fromkeys(("dave-256", "dave-512", "erin", "frank"), ()),
}
"""By principal: what nobody else may do, so that a client that hears what it may do knows who it is."""
_NAMES = {
    CREATE: {"CREATE"}, ALTER: {"ALTER", "DESCRIBE"}, CLUSTER_ACTION: {"CLUSTER_ACTION"},
    DESCRIBE_CONFIGS: {"DESCRIBE_CONFIGS"}, ALTER_CONFIGS: {"ALTER_CONFIGS", "DESCRIBE_CONFIGS"},
    IDEMPOTENT_WRITE: {"IDEMPOTENT_WRITE"},
}  # fmt: skip
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def operations_of(principal: str) -> frozenset[str]:
    """The rights that `principal` is told."""
    return frozenset(name for code in (ALTER, *GRANTS[principal]) for name in _NAMES[code])


class Town:
    """Shared by both controllers: certificates, passwords, and the identity provider's keys."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.authority = Authority("town")
        self.trust = self.authority.trust(directory / "authority.pem")
        self.server = self.authority.store(directory / "server.pem", "server")
        self.client = self.authority.store(directory / "client.pem", "client")
        self.expired = directory / "expired.pem"
        self.expired.write_text("".join(self.authority.issue("client", valid_for=dt.timedelta(hours=-1))))
        self.stranger = Authority("elsewhere").store(directory / "stranger.pem", "client")
        self.broker = self.authority.store(directory / "broker.pem", BROKER)
        users = (OPERATOR, BROKER, "alice", "bob", "carol", "owner")
        self.passwords = {user: f"{user}-secret" for user in users}
        self.keys = directory / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [jwk(EC_KEY, "one")]}))

    def properties(self, ports: Mapping[str, int]) -> dict[str, str]:
        """A controller's property file, but for where it keeps its log."""
        plain = "".join(f' user_{name}="{self.passwords[name]}"' for name in (OPERATOR, "alice"))
        own = f'username="{OPERATOR}" password="{self.passwords[OPERATOR]}"'
        return {
            "process.roles": "controller",
            "node.id": str(NODE),
            "controller.quorum.voters": f"{NODE}@localhost:{ports['CONTROLLER']}",
            "controller.listener.names": ",".join(LISTENERS),
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{text}" for name, text in LISTENERS.items()),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{OPERATOR};User:{BROKER};User:CN={BROKER}",
            "delegation.token.secret.key": TOKEN_SECRET,
            "delegation.token.expiry.check.interval.ms": "500",
            "connection.failed.authentication.delay.ms": str(SLOWED_MS),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "listener.name.mutual.ssl.client.auth": "required",
            **self._sasl("controller", {**dict.fromkeys(SCRAM_CODES, ""), "PLAIN": own + plain, "OAUTHBEARER": ""}),
            **self._sasl("short", {**dict.fromkeys(SCRAM_CODES, ""), "PLAIN": plain, "OAUTHBEARER": ""}),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            **self._sasl("signed", {"OAUTHBEARER": ""}),
            "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "listener.name.signed.sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.signed.sasl.oauthbearer.expected.issuer": ISSUER,
        }

    def of_broker(self, number: int, door: Door, listener: str, port: int) -> dict[str, str]:
        """A broker's property file, whose way to the controller is that listener."""
        mechanism = "SCRAM-SHA-512"
        own = f'username="{BROKER}" password="{self.passwords[BROKER]}"'
        return {
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.voters": f"{NODE}@localhost:{door.ports[listener]}",
            "controller.listener.names": listener,
            "listeners": f"CLIENTS://localhost:{port}",
            "inter.broker.listener.name": "CLIENTS",
            "listener.security.protocol.map": f"CLIENTS:SASL_SSL,{listener}:{LISTENERS[listener]}",
            "sasl.mechanism.inter.broker.protocol": mechanism,
            "sasl.mechanism.controller.protocol": mechanism,
            **self._sasl("clients", {mechanism: own}),
            **self._sasl(listener.lower(), {mechanism: own}),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{OPERATOR};User:{BROKER}",
            "delegation.token.secret.key": TOKEN_SECRET,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "log.cleaner.dedupe.buffer.size": "2097152",
        }

    @staticmethod
    def _sasl(listener: str, options: Mapping[str, str]) -> dict[str, str]:
        prefix = f"listener.name.{listener}."
        entries = {
            f"{prefix}{name.lower()}.sasl.jaas.config": f"{MODULES[name]} required {text};"
            for name, text in options.items()
        }
        return {f"{prefix}sasl.enabled.mechanisms": ",".join(options), **entries}


@value
class Token:
    """A delegation token: what its bearer has for user and password."""

    token_id: str
    password: str


class Door:
    """One running controller.

    :param kafka: None for ours.
    """

    def __init__(self, town: Town, directory: Path, kafka: StockKafka | None = None) -> None:
        self.town = town
        self.name = "ours" if kafka is None else "stock"
        self.ports = {name: free_port() for name in LISTENERS}
        properties = town.properties(self.ports)
        self._ours = ControllerProcess(NODE, directory, properties) if kafka is None else None
        flags = (*Jvm().flags, f"-D{_ALLOWED}={town.keys.as_uri()}")
        self._stock = kafka and kafka.node("stock", directory, properties, jvm=Jvm(heap="320m", flags=flags))
        self.tokens: dict[str, Token] = {}

    @property
    def process(self) -> ChildProcess:
        process = self._ours.process if self._ours else self._stock.process if self._stock else None
        assert process is not None
        return process

    def start(self) -> None:
        """Format and start, without waiting."""
        if self._ours:
            self._ours.format()
            self._ours.start()
        elif self._stock:
            self._stock.format(CLUSTER_ID, release_version="3.9")
            self._stock.launch()

    def open(self) -> None:
        """Start it and fill it."""
        self.start()
        self.fill()

    def kill(self) -> None:
        """End it."""
        if self._ours:
            self._ours.kill()
        if self._stock:
            self._stock.kill()

    def fill(self) -> None:
        """Wait until it leads; then make rights, users and tokens."""
        opened = self.ports.values()
        self.process.wait_until(
            lambda: all(map(port_is_open, opened)), "all listeners open", timeout_seconds=PATIENCE_SECONDS
        )
        self.process.wait_until(self._leads, "active", timeout_seconds=PATIENCE_SECONDS)
        for user, mechanism in SCRAM_USERS:
            self.set_password(user, self.town.passwords[user], mechanism)
        self.tokens = {"sound": self.create_token(dt.timedelta(days=1))}

    def line(self, listener: str = "CONTROLLER") -> Line:
        """A connection of ours."""
        return Line(self.ports[listener], self.town.authority.pem)

    def ask(self, key: int, version: int, **fields: Any) -> Said:
        """The answer to the operator, who logs in by PLAIN."""
        with self.line() as line:
            said = line.plain(OPERATOR, self.town.passwords[OPERATOR])
            return said if said.error != "none" else line.ask(key, version, **fields)

    def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        """Create or change a user of SCRAM."""
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, ITERATIONS)
        row = {
            "name": user, "mechanism": SCRAM_CODES[mechanism], "iterations": ITERATIONS, "salt": salt,
            "salted_password": salted,
        }  # fmt: skip
        self._change(51, 0, upsertions=(row,), deletions=())

    def delete_user(self, user: str, mechanism: str = "SCRAM-SHA-256") -> None:
        self._change(51, 0, upsertions=(), deletions=({"name": user, "mechanism": SCRAM_CODES[mechanism]},))

    def create_token(self, lifetime: dt.timedelta) -> Token:
        """A delegation token of ``owner``."""
        asked = {"owner_principal_type": "User", "owner_principal_name": "owner", "renewers": ()}
        said = self.ask(38, 3, **asked, max_lifetime=lifetime)
        assert said.error == "none", f"{self.name}: {said}"
        return Token(said.body.token_id, b64encode(said.body.hmac).decode())

    def expire_token(self, token: Token) -> None:
        """End the life of a delegation token; its owner asks for it."""
        with self.line() as line:
            said = line.scram("owner", self.town.passwords["owner"], mechanism="SCRAM-SHA-512")
            assert said.error == "none", f"{self.name}: {said}"
            said = line.ask(40, 2, hmac=b64decode(token.password), expiry_time_period=dt.timedelta(milliseconds=-1))
            assert said.error == "none", f"{self.name}: {said}"

    def until(self, what: str, wanted: Any, ask: Any) -> None:
        """Wait until an answer is as wanted: metadata are published a moment after they are committed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (last := ask()) != wanted:
            assert time.monotonic() < deadline, f"{self.name}: not {what}, but {last}"

    def _leads(self) -> bool:
        rows = [
            acl(
                resource_type=4, resource_name="kafka-cluster", principal=f"User:{name}", operation=operation,
                permission_type=3,
            )
            for name, operations in GRANTS.items()
            for operation in (ALTER, *operations)
        ]  # fmt: skip
        said = self.ask(30, 3, creations=tuple(rows))
        return said.error != CLOSED and said.body is not None and self._all_done(said.body)

    def _change(self, key: int, version: int, **fields: Any) -> None:
        said = self.ask(key, version, **fields)
        assert self._all_done(said.body), f"{self.name}: {said.body}"

    @staticmethod
    def _all_done(body: Any) -> bool:
        results = getattr(body, "results", ())
        return bool(results) and all(result.error_code.name == "none" for result in results)
