from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import pytest

from migrator.config.keys import KEYS
from migrator.config.load import HIDDEN_ATTRIBUTES, key_of_attribute, load_settings, settings_from
from migrator.config.reference import reference
from migrator.config.settings import Settings
from migrator.config.types import Secret, parse
from migrator.errors import ExitCode, OperatorError

MINIMAL = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.quorum.voters": "3000@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "log.dirs": "/data/kraft",
}
MIGRATING = MINIMAL | {
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "zk1:2181,zk2:2181/kafka",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    "password.encoder.secret": "s3cret-of-the-brokers",
}
PYTHON_TYPES = {
    "int": int,
    "long": int,
    "short": int,
    "double": float,
    "boolean": bool,
    "string": str,
    "class": str,
    "list": tuple[str, ...],
    "password": Secret,
}


def test_the_documented_example_of_a_stock_controller_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text("\n".join(f"{key}={text}" for key, text in MIGRATING.items()))
    settings, warnings = load_settings(file)
    assert settings.node_id == 3000
    assert settings.broker_rpc_listener == "INTERNAL"
    assert settings.metadata_directory == Path("/data/kraft")
    assert settings.parsed_listeners[0].port == 9093
    assert settings.voters[0].host == "localhost"
    assert settings.controller_quorum_fetch_timeout_ms == 2000
    assert warnings == []


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: str(field.name))
def test_every_attribute_has_a_key_of_its_type_and_a_default_that_parses(field: dataclasses.Field[object]) -> None:
    if field.name in HIDDEN_ATTRIBUTES:
        return
    key = key_of_attribute(field.name)
    expected: object = PYTHON_TYPES[key.kind]
    if key.default is None:
        expected = expected | None  # type: ignore[operator]
    else:
        parse(key.kind, key.default)
    assert typing.get_type_hints(Settings)[field.name] == expected


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"node.id": "x"}, "node.id"),
        ({"node.id": "99999999999"}, "node.id"),
        ({"process.roles": "broker,controller"}, "process.roles"),
        ({"process.roles": "broker"}, "process.roles"),
        ({"process.roles": "king"}, "process.roles"),
        ({"controller.quorum.voters": "1@h:1"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "h:1"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": ""}, "controller.quorum.voters"),
        ({"listeners": "CONTROLLER:9093"}, "listeners"),
        ({"listeners": "OTHER://:9093"}, "listeners"),
        ({"controller.listener.names": ""}, "controller.listener.names"),
        ({"zookeeper.connect": ""}, "zookeeper.connect"),
        ({"inter.broker.listener.name": "NOWHERE"}, "inter.broker.listener.name"),
        ({"create.topic.policy.class.name": "com.example.P"}, "create.topic.policy.class.name"),
        ({"alter.config.policy.class.name": "com.example.P"}, "alter.config.policy.class.name"),
        ({"authorizer.class.name": "com.example.A"}, "authorizer.class.name"),
        ({"principal.builder.class": "com.example.B"}, "principal.builder.class"),
        ({"zookeeper.metadata.migration.enable": "yes"}, "zookeeper.metadata.migration.enable"),
        ({"migrator.grpc.voters": "1@h:1"}, "migrator.grpc.voters"),
        ({"migrator.grpc.voters": "3000@h:1"}, "migrator.grpc.listener"),
        ({"migrator.metrics.listener": "nine"}, "migrator.metrics.listener"),
        ({"metadata.log.segment.bytes": "3"}, "metadata.log.segment.bytes"),
        ({"config.providers": "v", "config.providers.v.class": "com.example.Vault"}, "config.providers.v.class"),
    ],
)
def test_a_wrong_value_is_refused_with_file_key_and_remedy(changes: dict[str, str], key: str) -> None:
    with pytest.raises(OperatorError) as caught:
        settings_from(MIGRATING | changes, "controller.properties")
    assert caught.value.where == f"controller.properties: {key}"
    assert caught.value.remedy
    assert caught.value.exit_code == ExitCode.REFUSED


def test_unknown_keys_warn_and_name_the_likely_one() -> None:
    _, warnings = settings_from(MINIMAL | {"controller.quorum.voter": "x"}, "f")
    assert warnings == ["f: controller.quorum.voter: unknown key is ignored, did you mean controller.quorum.voters?"]


def test_controllers_that_only_access_control_entries_allow_are_warned_of() -> None:
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    voters = {"controller.quorum.voters": ",".join(f"{node}@localhost:{9000 + node}" for node in (3000, 3001))}
    _, (warning,) = settings_from(MINIMAL | voters | authorizer, "f")
    assert "super.users: is empty" in warning
    assert settings_from(MINIMAL | voters | authorizer | {"super.users": "User:controller"}, "f")[1] == []
    assert settings_from(MINIMAL | authorizer, "f")[1] == [], "a single voter elects itself"


def test_secrets_show_nowhere_but_when_asked() -> None:
    settings, _ = settings_from(MIGRATING, "f")
    assert settings.password_encoder_secret is not None
    assert "s3cret" not in repr(settings.password_encoder_secret)
    assert settings.password_encoder_secret.reveal() == "s3cret-of-the-brokers"
    assert "s3cret" not in repr(settings)


def test_values_may_stand_in_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("encoder=from-file\n")
    monkeypatch.setenv("MIGRATOR_TEST_CONNECT", "zk:2181")
    provider = "org.apache.kafka.common.config.provider."
    settings, _ = settings_from(
        MIGRATING
        | {
            "config.providers": "file,env",
            "config.providers.file.class": provider + "FileConfigProvider",
            "config.providers.env.class": provider + "EnvVarConfigProvider",
            "password.encoder.secret": f"${{file:{tmp_path}/secrets.properties:encoder}}",
            "zookeeper.connect": "${env:MIGRATOR_TEST_CONNECT}/chroot",
        },
        "f",
    )
    assert settings.password_encoder_secret == Secret("from-file")
    assert settings.zookeeper_connect == "zk:2181/chroot"


def test_a_password_that_does_not_resolve_is_refused_without_its_text() -> None:
    changes = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "password.encoder.secret": "${file:/no/such/file:encoder}",
    }
    with pytest.raises(OperatorError, match="/no/such/file"):
        settings_from(MIGRATING | changes, "f")


def test_the_broker_id_stands_in_for_the_node_id() -> None:
    raw = {key: text for key, text in MINIMAL.items() if key != "node.id"} | {"broker.id": "3000"}
    assert settings_from(raw, "f")[0].node_id == 3000


def test_the_reference_in_the_docs_is_the_table_in_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == reference(), "run: python -m migrator.config.reference > docs/configuration.md"
    assert all(f"`{name}`" in page.read_text() for name in KEYS if name.startswith("migrator."))


def test_brokers_get_their_rpcs_where_a_zookeeper_controller_would_send_them() -> None:
    """The control plane listener goes before the inter-broker listener (KAFKA-17788)."""
    protocols = "CONTROLLER:PLAINTEXT,INTERNAL:SASL_SSL,CONTROL:PLAINTEXT"
    both = MIGRATING | {"control.plane.listener.name": "CONTROL", "listener.security.protocol.map": protocols}
    assert settings_from(both, "f")[0].broker_rpc_listener == "CONTROL"
    assert settings_from(MIGRATING, "f")[0].broker_rpc_listener == "INTERNAL"
    assert settings_from(MINIMAL, "f")[0].broker_rpc_listener == "PLAINTEXT"
