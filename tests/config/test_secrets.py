"""A secret is planted in every key that may hold one, and in the likely wrong places; whatever is said shows none."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.config.key_uses import ACTED_UPON
from migrator.config.keys import KEYS
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.looked_up import without_looked_up
from migrator.observe.logs import TextFormatter
from migrator.parts.certificates import Authority
from migrator.wire.listener_settings import broker_security, controller_security
from migrator.zookeeper.session import options_from
from tests.config.test_settings import MIGRATING

MARK = "Pl4nted-Secret"
MODULE = "org.apache.kafka.common.security.{}LoginModule"
PLAIN = f'{MODULE.format("plain.Plain")} required username="u" password="{MARK}" user_u="{MARK}";'
SCRAM = f'{MODULE.format("scram.Scram")} required username="u" password="{MARK}";'
PASSWORDS = sorted(name for name, key in KEYS.items() if key.kind == "password")
OF_A_LISTENER = [name for name in PASSWORDS if name.startswith(("ssl.", "sasl."))]
SASL_SSL = {
    "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INTERNAL:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    "listener.name.internal.scram-sha-256.sasl.jaas.config": SCRAM,
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "zookeeper.ssl.client.enable": "true",
}


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine take 30 ms to read, for each key and each place."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


def places() -> Iterator[dict[str, str]]:
    """Keys with a secret: right ones, misspelt ones, and right ones whose value is of no use."""
    for key in PASSWORDS:
        yield {key: MARK}
        yield {key: f"{MARK}${{vault:{MARK}"}
    for key in OF_A_LISTENER:
        for prefix in ("listener.name.controller.", "listener.name.internal.", "listener.name.nobody."):
            yield {prefix + key: MARK}
    for mechanism in ("plain", "scram-sha-256", "oauthbearer", "PLAIN", "plian"):
        for listener in ("controller", "internal"):
            for text in (
                MARK,
                f"{MARK};",
                f'x.PlainLoginModule required password="{MARK};',
                f"Module required {MARK}=;",
            ):
                yield {f"listener.name.{listener}.{mechanism}.sasl.jaas.config": text}
    for key in (
        "password.encoder.secrets",
        "ssl.key.pasword",
        "ssl.keystore.passwort",
        "migrator.grpc.password",
        "zookeeper.ssl.keystore.pasword",
        "sasl.jaas.conf",
        "listener.name.controller.ssl.key.pasword",
        "delegation.token.secret",
        "com.example.password",
        "java.password",
    ):
        yield {key: MARK}
    for options in (f'clientId="c" clientSecret="{MARK}" extension_1="{MARK}"', f'{MARK}="{MARK}"', f"a={MARK} b"):
        yield {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.controller.oauthbearer.sasl.jaas.config": (
                f"{MODULE.format('oauthbearer.OAuthBearer')} required {options};"
            ),
        }
    pem = "-----BEGIN {0}-----" + MARK + "-----END {0}-----"
    for kind in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "CERTIFICATE"):
        yield {"ssl.keystore.location": "", "ssl.keystore.key": pem.format(kind), "ssl.key.password": MARK}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority("ca")
    own = str(authority.store(directory / "own.pem", "node"))
    trust = str(authority.trust(directory / "ca.pem"))
    return {
        f"{door}ssl.{store}.location": path
        for door in ("", "zookeeper.")
        for store, path in (("keystore", own), ("truststore", trust))
    }


def said_of(file: Path) -> str:
    """Everything that comes of a property file: settings and what is built of them, as text, and every error."""
    found = []
    try:
        settings, warnings = load_settings(file)
    except OperatorError as error:
        return _error(error)
    found += [repr(settings), str(settings), *warnings]
    for build in (controller_security, broker_security, options_from):
        try:
            found.append(repr(build(settings)))
        except OperatorError as error:
            found.append(_error(error))
    return "\n".join(found)


def _error(error: BaseException) -> str:
    said = ["".join(traceback.format_exception(error)), repr(error)]
    cause: BaseException | None = error
    while cause is not None:
        said += [str(cause), repr(cause), repr(vars(cause))]
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(said)


def write(directory: Path, keys: dict[str, str]) -> Path:
    file = directory / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    return file


def test_what_comes_of_a_good_file_shows_none(tmp_path: Path, stores: dict[str, str]) -> None:
    said = said_of(write(tmp_path, MIGRATING | SASL_SSL | stores | {"password.encoder.secret": MARK}))
    assert "Traceback" not in said
    assert MARK not in said


def test_no_place_of_a_secret_shows_it(tmp_path: Path, stores: dict[str, str]) -> None:
    told = set()
    for keys in places():
        of_a_listener = any(name in key for key in keys for name in ("ssl.", "sasl."))
        said = said_of(write(tmp_path, MIGRATING | (SASL_SSL | stores if of_a_listener else {}) | keys))
        assert MARK not in said, keys
        told.add("Traceback" in said)
    assert told == {True, False}, "both files that are good and files that are refused were seen"


@pytest.mark.parametrize("content", [f"a=\\u{MARK}", f"a={MARK}\nb=\\uzz", f"{MARK}", f"a\x00={MARK}\xff"])
def test_a_file_or_directory_of_secrets_that_is_of_no_use_shows_none(content: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(content.encode("latin-1"))
    own = tmp_path / "own"
    own.mkdir()
    for kind, placeholder in (("File", f"${{p:{secret}:b}}"), ("Directory", f"${{p:{tmp_path}:secret}}")):
        provider = {
            "config.providers": "p",
            "config.providers.p.class": f"org.apache.kafka.common.config.provider.{kind}ConfigProvider",
        }
        for key in ("password.encoder.secret", "listener.name.controller.plain.sasl.jaas.config"):
            assert MARK not in said_of(write(own, MIGRATING | SASL_SSL | provider | {key: placeholder}))
    assert MARK not in said_of(secret)


WRONG = (MARK, f"CONTROLLER://{MARK}", f"a,{MARK}", f"User:{MARK};b", f"1@{MARK}:77", f"/proc/{MARK}")
OF_FILES = {
    "config.providers": "p",
    "config.providers.p.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def shown_of(file: Path) -> str:
    """The lines of the log at a start, and the error that ends it."""
    lines = []
    try:
        settings, warnings = load_settings(file)
        lines += [TextFormatter().format(logging.makeLogRecord({"name": "x", "msg": warning})) for warning in warnings]
        for build in (controller_security, broker_security, options_from):
            with suppress(ValueError, LookupError):
                build(settings)
    except OperatorError as error:
        lines += [str(error), str(error.as_json()), TextFormatter().format(_logged(error))]
    return "\n".join(lines)


def _logged(error: OperatorError) -> logging.LogRecord:
    seen = (type(error), error, error.__traceback__)
    return logging.makeLogRecord({"name": "x", "msg": "%s", "args": (error,), "exc_info": seen})


def test_no_key_shows_what_its_placeholder_stands_for(tmp_path: Path) -> None:
    """Whatever is wrong with the value: it may be a secret that stands under another key of its file."""
    secret = tmp_path / "secret"
    secret.write_text("".join(f"{number}={text}\n" for number, text in enumerate(WRONG)))
    named = set()
    for number, key in enumerate(sorted(ACTED_UPON)):
        placeholders = {f"${{p:{secret}:{form}}}" for form in (0, number % len(WRONG))}
        for text in {*placeholders, f"x{min(placeholders)}y"}:
            keys = MIGRATING | OF_FILES | {key: text}
            shown = shown_of(write(tmp_path, keys))
            assert MARK.lower() not in shown.lower(), (key, shown)
            if f"${{p:{secret}:" in shown:
                named.add(key)
    assert {"listeners", "super.users", "controller.quorum.voters", "log.dirs", "ssl.keystore.type"} <= named
    assert without_looked_up("Run it as a user of its own") == "Run it as a user of its own"
