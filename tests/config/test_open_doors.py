from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.key_lists import OAUTHBEARER_VALIDATORS
from migrator.config.load import load_settings, typed_settings
from migrator.config.open_doors import open_doors
from tests.config.test_settings import MINIMAL

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SSL = {"listener.security.protocol.map": "CONTROLLER:SSL"}
SASL_PLAINTEXT = {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"}
SASL_SSL = {"listener.security.protocol.map": "CONTROLLER:SASL_SSL"}
FAR = {"listeners": "CONTROLLER://:9093"}
MECHANISMS = "sasl.enabled.mechanisms"
REQUIRED = {"listener.name.controller.ssl.client.auth": "required"}
PREFIX = "listener.name.controller."
HOST_NAMES = "ssl.endpoint.identification.algorithm"
VALIDATOR = PREFIX + "oauthbearer.sasl.server.callback.handler.class"


def doors(keys: dict[str, str]) -> list[str]:
    return [key for key, _, _ in open_doors(typed_settings(MINIMAL | keys, "f"))]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, ["listeners"]),
        (AUTHORIZER, ["listener.security.protocol.map"]),
        (AUTHORIZER | {"ssl.client.auth": "required"}, ["listener.security.protocol.map"]),
        (SSL | REQUIRED, ["listeners"]),
        (SSL | REQUIRED | AUTHORIZER, []),
        (SSL | REQUIRED | AUTHORIZER | {"migrator.metrics.listener": "0.0.0.0:1"}, ["migrator.metrics.listener"]),
        (SSL | REQUIRED | AUTHORIZER | {"migrator.metrics.listener": "127.0.0.1:1"}, []),
        (SSL | AUTHORIZER, [PREFIX + "ssl.client.auth"]),
        (SSL | AUTHORIZER | {"ssl.client.auth": "requested"}, [PREFIX + "ssl.client.auth"]),
        (SSL | AUTHORIZER | {"ssl.client.auth": "required"}, []),
        (SASL_PLAINTEXT | FAR | AUTHORIZER | {MECHANISMS: "PLAIN"}, [PREFIX + MECHANISMS]),
        (SASL_PLAINTEXT | FAR | AUTHORIZER | {MECHANISMS: "PLAIN,SCRAM-SHA-512"}, [PREFIX + MECHANISMS] * 2),
        (SASL_PLAINTEXT | FAR | AUTHORIZER | {PREFIX + MECHANISMS: "SCRAM-SHA-256"}, [PREFIX + MECHANISMS]),
        (SASL_PLAINTEXT | AUTHORIZER | {MECHANISMS: "PLAIN,SCRAM-SHA-256"}, []),
        (SASL_SSL | AUTHORIZER | {MECHANISMS: "PLAIN"}, []),
        (SASL_SSL | AUTHORIZER | {MECHANISMS: "OAUTHBEARER"}, [VALIDATOR]),
        (SASL_SSL | AUTHORIZER | {MECHANISMS: "OAUTHBEARER", VALIDATOR: OAUTHBEARER_VALIDATORS[0]}, []),
        (SASL_SSL | AUTHORIZER | {"ssl.client.auth": "required"}, ["ssl.client.auth"]),
        (SSL | REQUIRED | AUTHORIZER | {HOST_NAMES: ""}, [HOST_NAMES]),
        (SSL | REQUIRED | AUTHORIZER | {HOST_NAMES: "https"}, []),
        (SSL | REQUIRED | AUTHORIZER | {PREFIX + HOST_NAMES: " "}, [PREFIX + HOST_NAMES]),
        (SSL | REQUIRED | AUTHORIZER | {"zookeeper." + HOST_NAMES: ""}, ["zookeeper." + HOST_NAMES]),
        (SASL_SSL | AUTHORIZER | {"ssl.client.auth": "required"} | REQUIRED, []),
        (SSL | REQUIRED | AUTHORIZER | {"super.users": "User:ANONYMOUS;User:a"}, ["super.users"]),
        (SSL | REQUIRED | AUTHORIZER | {"allow.everyone.if.no.acl.found": "true"}, ["allow.everyone.if.no.acl.found"]),
    ],
)
def test_a_door_that_is_left_open_is_named(keys: dict[str, str], found: list[str]) -> None:
    assert doors(keys) == found


def test_what_somebody_could_do_and_the_remedy_are_said_at_each_start(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in MINIMAL.items()))
    _, warnings = load_settings(file)
    (warning,) = warnings
    assert warning.startswith(
        f"{file}: listeners: everybody who reaches listener CONTROLLER (PLAINTEXT) may read all secrets"
    )
    assert "authorizer.class.name" in warning


@pytest.mark.parametrize(
    ("mode", "parent", "text", "found"),
    [
        (0o644, 0o755, "password.encoder.secret=x", True),
        (0o640, 0o755, "password.encoder.secret=x", False),
        (0o644, 0o750, "password.encoder.secret=x", False),
        (0o644, 0o755, "password.encoder.secret=${file:/a:b}", False),
        (0o644, 0o755, "listener.name.controller.plain.sasl.jaas.config=x;", True),
        (0o644, 0o755, "", False),
    ],
)
def test_a_file_of_passwords_that_everybody_may_read_is_named(
    mode: int, parent: int, text: str, found: bool, public: Path
) -> None:
    public.chmod(parent)
    file = public / "controller.properties"
    file.write_text(text + "\n")
    file.chmod(mode)
    keys = [key for key, _, _ in open_doors(typed_settings(MINIMAL, str(file)))]
    assert ("(the file itself)" in keys) is found


def test_a_key_store_that_everybody_may_read_is_named(public: Path) -> None:
    store = public / "own.pem"
    store.touch()
    key = PREFIX + "ssl.keystore.location"
    for mode, found in ((0o644, True), (0o600, False)):
        store.chmod(mode)
        assert (key in doors({key: str(store)})) is found


@pytest.mark.parametrize(
    ("provider", "place"),
    [("FileConfigProvider", "{directory}/secrets:token"), ("DirectoryConfigProvider", "{directory}:secrets")],
)
def test_a_file_that_a_provider_takes_passwords_from_is_named_when_everybody_may_read_it(
    provider: str, place: str, public: Path
) -> None:
    secrets = public / "secrets"
    secrets.write_text("token=t\n")
    file = public / "controller.properties"
    text = "${p:" + place.format(directory=public) + "}"
    keys = {
        "config.providers": "p",
        "config.providers.p.class": f"org.apache.kafka.common.config.provider.{provider}",
        "delegation.token.secret.key": text,
        "password.encoder.secret": text,
    }
    file.write_text("".join(f"{key}={text}\n" for key, text in (MINIMAL | keys).items()))
    for mode, found in ((0o644, [("delegation.token.secret.key", f"Run: chmod 600 {secrets}")]), (0o600, [])):
        secrets.chmod(mode)
        settings, _ = load_settings(file)
        assert [(key, remedy) for key, _, remedy in open_doors(settings) if remedy.startswith("Run: chmod")] == found


def test_a_key_that_stands_there_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    keys = MINIMAL | SSL | REQUIRED | AUTHORIZER | {"super.users": "User:a"}
    text = "".join(f"{key}={value}\n" for key, value in keys.items())
    file.write_text(text + "node.id = 3000\n# super.users=User:c\nsuper.users=User:\\\n  mallory\n")
    settings, _ = load_settings(file)
    first = len(keys)
    what = f"the key is in line {first} and, with another value, in line {first + 3}: the last one counts, as in Kafka"
    assert list(open_doors(settings)) == [
        (
            "super.users",
            what,
            "Keep one of the lines",
        )
    ]
