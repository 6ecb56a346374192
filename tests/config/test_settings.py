from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import pytest

from migrator.config.checks import problems_of
from migrator.config.keys import key_of_attribute
from migrator.config.load import load_settings, settings_from, typed_settings
from migrator.config.settings import HIDDEN_ATTRIBUTES, Settings
from migrator.config.types import Secret, parse
from migrator.errors import ExitCode, OperatorError
from migrator.wire.listener_settings import broker_security

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
PRINCIPALS = "migrator.grpc.voter.principals"
GRPC = {
    "migrator.grpc.listener": "127.0.0.1:9094",
    "migrator.grpc.tls.certificate.file": "cert.pem",
    "migrator.grpc.tls.key.file": "key.pem",
    "migrator.grpc.tls.ca.file": "ca.pem",
    PRINCIPALS: "3000@User:CN=a\\,b,O=c;3000@User:CN=later",
}
CLOSED = {
    "listener.security.protocol.map": "CONTROLLER:SSL,INTERNAL:SASL_SSL,PLAINTEXT:PLAINTEXT",
    "ssl.client.auth": "required",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "delegation.token.secret.key": "s3cret-of-tokens",
}
"""No door stands open, so that nothing is said of one."""
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
    file.write_text("\n".join(f"{key}={text}" for key, text in (MIGRATING | CLOSED).items()))
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
        ({"controller.quorum.bootstrap.servers": "1@h:1"}, "controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": "h:0"}, "controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": ":1"}, "controller.quorum.bootstrap.servers"),
        ({"listeners": "CONTROLLER:9093"}, "listeners"),
        ({"listeners": "OTHER://:9093"}, "listeners"),
        (
            {"listener.security.protocol.map": "CONTROLLER:SSL,INTERNAL:SSL,controller:PLAINTEXT"},
            "listener.security.protocol.map",
        ),
        ({"controller.listener.names": ""}, "controller.listener.names"),
        ({"zookeeper.connect": ""}, "zookeeper.connect"),
        ({"inter.broker.listener.name": "NOWHERE"}, "inter.broker.listener.name"),
        ({"create.topic.policy.class.name": "com.example.P"}, "create.topic.policy.class.name"),
        ({"alter.config.policy.class.name": "com.example.P"}, "alter.config.policy.class.name"),
        pytest.param({"authorizer.class.name": "com.example.A"}, "authorizer.class.name", id="another authorizer"),
        ({"principal.builder.class": "com.example.B"}, "principal.builder.class"),
        ({"zookeeper.metadata.migration.enable": "yes"}, "zookeeper.metadata.migration.enable"),
        ({"migrator.grpc.voters": "1@h:1"}, "migrator.grpc.voters"),
        ({"migrator.grpc.voters": "3000@h:1"}, "migrator.grpc.listener"),
        ({"migrator.grpc.listener": "127.0.0.1:1"}, "migrator.grpc.tls.certificate.file"),
        ({**GRPC, "migrator.grpc.tls.ca.file": ""}, "migrator.grpc.tls.ca.file"),
        ({**GRPC, PRINCIPALS: ""}, PRINCIPALS),
        ({**GRPC, PRINCIPALS: "User:CN=a"}, PRINCIPALS),
        ({**GRPC, PRINCIPALS: "3000@CN=a"}, PRINCIPALS),
        ({**GRPC, PRINCIPALS: "3000@User:"}, PRINCIPALS),
        ({**GRPC, PRINCIPALS: "3000@User:CN=a;3000@User:CN=a"}, PRINCIPALS),
        ({**GRPC, PRINCIPALS: "3000@User:CN=a;4000@User:CN=b"}, PRINCIPALS),
        ({**GRPC, "migrator.grpc.operator.principals": "CN=alice"}, "migrator.grpc.operator.principals"),
        ({"migrator.metrics.listener": "nine"}, "migrator.metrics.listener"),
        ({"metadata.log.segment.bytes": "3"}, "metadata.log.segment.bytes"),
        ({"super.users": "admin"}, "super.users"),
        ({"super.users": "User:a,User:b"}, "super.users"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
        ({"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"}, "zookeeper.set.acl"),
        ({"config.providers": "v", "config.providers.v.class": "com.example.Vault"}, "config.providers.v.class"),
    ],
)
def test_a_wrong_value_is_refused_with_file_key_and_remedy(changes: dict[str, str], key: str) -> None:
    with pytest.raises(OperatorError) as caught:
        settings_from(MIGRATING | changes, "controller.properties")
    assert caught.value.where == f"controller.properties: {key}"
    assert caught.value.remedy
    assert caught.value.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "process.roles"),
        ({"controller.listener.names": ""}, "controller.listener.names"),
        ({"controller.listener.names": ",A"}, "controller.listener.names"),
        ({"migrator.grpc.voters": "1@h"}, "migrator.grpc.voters"),
        ({"migrator.grpc.voters": "h:1,"}, "migrator.grpc.voters"),
    ],
)
def test_all_problems_of_a_file_of_several_voters_are_told(changes: dict[str, str], key: str) -> None:
    several = MINIMAL | {"controller.quorum.voters": "3000@h:1,3001@h:2,3002@h:3"}
    problems = list(problems_of(typed_settings(several | changes if changes else {}, "f")))
    assert key in [key for key, _, _ in problems]


def test_a_byte_order_mark_before_a_key_is_refused_and_before_a_comment_is_none_of_our_business(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    text = "\n".join(f"{key}={value}" for key, value in MINIMAL.items())
    file.write_text("\ufeff" + text, encoding="utf-8")
    with pytest.raises(OperatorError, match=r"byte order mark.*does not know its first key, process\.roles") as caught:
        load_settings(file)
    assert caught.value.where == str(file)
    file.write_text("\ufeff# ours\n" + text, encoding="utf-8")
    assert load_settings(file)[0].node_id == 3000
    for encoding in ("utf-16-le", "utf-16-be"):
        file.write_text("\ufeff" + text, encoding=encoding)
        with pytest.raises(OperatorError, match="the file is in UTF-16, of which Java understands no key"):
            load_settings(file)


def test_a_file_is_read_as_kafka_reads_it_whatever_its_author_saved_it_as(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    text = "".join(f"{key}={value}\n" for key, value in MINIMAL.items()) + "# für ä\nssl.keystore.password=ä\n"
    file.write_bytes(text.encode("latin-1"))
    assert load_settings(file)[0].explicit["ssl.keystore.password"] == "ä"
    file.write_bytes(text.encode())
    assert load_settings(file)[0].explicit["ssl.keystore.password"] == "\u00c3\u00a4"


@pytest.mark.parametrize(
    ("file", "what", "remedy"),
    [
        ({}, "is not set", "Set process.roles=controller"),
        ({"broker.id": "1"}, "this looks like the file of a broker", "Give the file of a controller"),
        (MINIMAL | {"process.roles": "broker"}, "is broker: this looks like", "Give the file of a controller"),
        (MINIMAL | {"log.dirs": "~/kafka"}, "'~/kafka' is not in your home directory", "Write the whole path"),
        (MINIMAL | {"metadata.log.dir": "~kafka/m"}, "'~kafka/m' is not in your home", "Write the whole path"),
    ],
)
def test_a_file_that_is_not_what_its_writer_meant(file: dict[str, str], what: str, remedy: str) -> None:
    with pytest.raises(OperatorError) as refused:
        settings_from(file, "f.properties")
    assert what in refused.value.what
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("http://localhost:2181/kafka", "is an address of the web"),
        ("zk1:2181/kafka,zk2:2181/kafka", "the chroot stands once, at the end: write zk1:2181,zk2:2181/kafka"),
        ("zk1:2181/kafka,zk2:2181", "the chroot stands once, at the end: write zk1:2181,zk2:2181/kafka"),
        ("zk1/kafka , zk2,", "the chroot stands once, at the end: write zk1,zk2/kafka"),
        ("zk1:port/kafka", "'zk1:port' is not host:port"),
        (" , ", "',' names no server"),
        ("zk1:2181/kafka/", "is no path of ZooKeeper"),
        ("zk1:2181;zk2:2181", "'zk1:2181;zk2:2181' is not host:port"),
    ],
)
def test_servers_of_zookeeper_that_nobody_could_connect_to(text: str, what: str) -> None:
    with pytest.raises(OperatorError) as refused:
        settings_from(MIGRATING | {"zookeeper.connect": text}, "f.properties")
    assert what in str(refused.value)
    for good in ("zk1:2181, zk2:2181/a/b-c", "[::1]:2181", "zk1", "zk1:2181 ,,zk2,", "zk1/"):
        settings_from(MIGRATING | {"zookeeper.connect": good}, "f.properties")


@pytest.mark.parametrize(
    ("key", "written"), [("controller.quorum.voters", "controller.quorum.voter"), ("node.id", "nodeid")]
)
def test_a_key_that_is_needed_and_misspelt_is_named(key: str, written: str) -> None:
    file = dict(MINIMAL)
    file[written] = file.pop(key)
    with pytest.raises(
        OperatorError, match=f"{key}: the key is not set. Did you mean {key}. The file sets {written}, which"
    ):
        settings_from(file, "f.properties")


def test_a_path_that_depends_on_where_the_program_starts_is_warned_of() -> None:
    _, warnings = settings_from(MINIMAL | {"log.dirs": "data/kraft"}, "f.properties")
    assert f"'data/kraft' depends on the directory that this program is started in; here it is {Path.cwd()}" in "".join(
        warnings
    )


def test_names_on_grpc_are_whole_subjects() -> None:
    settings = settings_from(MIGRATING | GRPC | {"migrator.grpc.operator.principals": "User:CN=x ;User:CN=y"}, "f")[0]
    assert settings.grpc_voter_principals == {"User:CN=a\\,b,O=c": 3000, "User:CN=later": 3000}
    assert settings.grpc_operator_principals == {"User:CN=x", "User:CN=y"}
    settings_from(MIGRATING | GRPC, "f")


def test_unknown_keys_warn_and_name_the_likely_one() -> None:
    _, warnings = settings_from(MINIMAL | CLOSED | {"controller.quorum.voter": "x"}, "f")
    assert warnings == ["f: controller.quorum.voter: unknown key is ignored, did you mean controller.quorum.voters?"]


def test_secrets_show_nowhere_but_when_asked() -> None:
    settings, _ = settings_from(MIGRATING, "f")
    assert settings.password_encoder_secret is not None
    assert "s3cret" not in repr(settings.password_encoder_secret)
    assert settings.password_encoder_secret.reveal() == "s3cret-of-the-brokers"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    "authentication",
    [
        {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/own.pem"},
        {"migrator.zookeeper.jaas.file": "/jaas.conf"},
    ],
)
def test_znodes_may_be_protected_where_zookeeper_learns_who_we_are(authentication: dict[str, str]) -> None:
    settings, _ = settings_from(MIGRATING | authentication | {"zookeeper.set.acl": "true"}, "f")
    assert settings.zookeeper_set_acl


def test_super_users_are_names_of_certificates_too() -> None:
    settings, _ = settings_from(MIGRATING | {"super.users": "User:CN=a,OU=b:c; User:admin ;"}, "f")
    assert settings.super_user_names == {"User:CN=a,OU=b:c", "User:admin"}


def test_the_broker_id_stands_in_for_the_node_id() -> None:
    raw = {key: text for key, text in MINIMAL.items() if key != "node.id"} | {"broker.id": "3000"}
    assert settings_from(raw, "f")[0].node_id == 3000


def test_brokers_get_their_rpcs_where_a_zookeeper_controller_would_send_them() -> None:
    """The control plane listener goes before the inter-broker listener (KAFKA-17788)."""
    protocols = "CONTROLLER:PLAINTEXT,INTERNAL:SASL_SSL,CONTROL:PLAINTEXT"
    both = MIGRATING | {"control.plane.listener.name": "CONTROL", "listener.security.protocol.map": protocols}
    assert settings_from(both, "f")[0].broker_rpc_listener == "CONTROL"
    assert settings_from(MIGRATING, "f")[0].broker_rpc_listener == "INTERNAL"
    assert settings_from(MINIMAL, "f")[0].broker_rpc_listener == "PLAINTEXT"
    assert settings_from(both, "f")[0].broker_rpc_protocol == "PLAINTEXT"
    assert settings_from(MIGRATING, "f")[0].broker_rpc_protocol == "SASL_SSL"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_the_protocol_that_names_the_brokers_listener_needs_no_entry_in_the_map(protocol: str) -> None:
    """Red Hat's manual maps the controllers' listener alone; a stock controller takes the file."""
    raw = MIGRATING | {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": protocol,
    }
    del raw["inter.broker.listener.name"]
    settings, _ = settings_from(raw, "f")
    assert (settings.broker_rpc_listener, settings.broker_rpc_protocol) == (protocol, protocol)
    assert (broker_security(settings).tls is not None) == (protocol == "SSL")


def test_bootstrap_servers_take_the_place_of_the_voters() -> None:
    """Kafka takes both as well: then the voters are those of the configuration."""
    servers = {"controller.quorum.bootstrap.servers": "one:9093,[::1]:9094,one:9093"}
    settings, _ = settings_from(MINIMAL | servers | {"controller.quorum.voters": ""}, "f")
    assert (settings.voters, settings.bootstrap_servers) == ((), (("one", 9093), ("::1", 9094)))
    both, _ = settings_from(MINIMAL | servers, "f")
    assert (both.voters, len(both.bootstrap_servers)) == (settings_from(MINIMAL, "f")[0].voters, 2)


def test_where_a_controller_is_reached_is_what_it_advertises_and_else_what_it_binds() -> None:
    keys = MINIMAL | {
        "controller.listener.names": "FIRST,SECOND",
        "listener.security.protocol.map": "FIRST:PLAINTEXT,SECOND:PLAINTEXT",
        "listeners": "SECOND://:2,FIRST://:1",
        "advertised.listeners": "SECOND://there:20",
    }
    found = settings_from(keys, "f")[0].advertised_controller_listeners
    assert [(one.name, one.host, one.port) for one in found] == [("FIRST", "", 1), ("SECOND", "there", 20)]


def secured(mechanism: str, *, voters: int = 3, **more: str) -> dict[str, str]:
    named = ",".join(f"{3000 + number}@localhost:{9093 + number}" for number in range(voters))
    return MINIMAL | {
        "controller.quorum.voters": named,
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "sasl.mechanism.controller.protocol": mechanism,
        "sasl.enabled.mechanisms": mechanism,
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def test_controllers_cannot_log_in_at_each_other_by_scram() -> None:
    with pytest.raises(OperatorError, match="could never elect a leader") as caught:
        settings_from(secured("SCRAM-SHA-512"), "a file")
    assert "sasl.mechanism.controller.protocol" in caught.value.where
    assert "PLAIN" in caught.value.remedy
    for fine in (
        secured("PLAIN"),
        secured("SCRAM-SHA-512", voters=1),
        secured("SCRAM-SHA-512", listener_security_protocol_map="CONTROLLER:SSL"),
    ):
        settings_from(fine, "a file")


@pytest.mark.parametrize(
    ("mechanisms", "warned"),
    [("SCRAM-SHA-512", True), ("SCRAM-SHA-512,SCRAM-SHA-256", True), ("PLAIN,SCRAM-SHA-512", False)],
)
def test_brokers_cannot_log_in_by_scram_before_the_copy(mechanisms: str, warned: bool) -> None:
    keys = MIGRATING | {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INTERNAL:SASL_SSL",
        "listener.name.controller.sasl.enabled.mechanisms": mechanisms,
        "sasl.mechanism.controller.protocol": "PLAIN",
    }
    _, warnings = settings_from(keys, "a file")
    assert any("names SCRAM only" in warning for warning in warnings) == warned
