"""A property file as Kafka reads it. The tables are judged by Kafka's own classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from migrator.config.endpoints import parse_zookeeper_connect
from migrator.config.keys import INTERNAL_KAFKA_KEYS, KEYS, OWN_KEYS, key_of_attribute
from migrator.config.load import settings_from
from migrator.config.properties import encoded, parse_properties, read_decoded
from migrator.config.property_edits import file_of
from migrator.config.reading import (
    is_on,
    is_set,
    listener_names,
    log_directories,
    means_the_same,
    metadata_directory,
    number_of,
    text_of,
)
from migrator.config.settings import HIDDEN_ATTRIBUTES, Settings
from migrator.config.types import Secret, parse
from migrator.errors import OperatorError
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from tests.config.support.kafka_reader import KafkaReader

FILE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://h:9093",
    "log.dirs": "/x",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,B:SSL",
}
NUMBERS = ["1", "+1", " 1", "1\t", "-1", "-0", "007", "1_0", "0x1", "1L", "1.0", "", "  ", "\u00a01", "1\x1f"]
NUMBERS += ["2147483647", "2147483648", "9223372036854775808", "-2147483649", "--1", "+", "1 2", "32768"]
TEXTS = ["a", " a ", "a\t", "\u00a0a\u00a0", "", "   ", "a b", "\x01a\x02", "\u2003a", "SSL", "ssl", " none"]
LISTS = ["a,b", " a , b ", "a,", "a,,b", ",a", ",", "a ,\tb\x0b,c", "a\u00a0,b", "", "  ", "a\x1f,b", "a;b"]
LISTS += ["controller", " controller ", "Controller", "controller,", "broker , controller", "PLAIN, SCRAM-SHA-256"]
VALUES = {
    "int": NUMBERS,
    "long": NUMBERS,
    "boolean": ["true", "TRUE", " True\t", "yes", "1", "", "tru e", "FALSE ", "\u00a0true"],
    "string": TEXTS,
    "class": ["", "  ", "java.lang.String ", " java.lang.String"],
    "list": LISTS,
    "password": TEXTS,
}
STRICTER = frozenset({"controller.quorum.voters", "controller.quorum.bootstrap.servers"})
"""Kafka looks into their entries at once; here a check does, see `FILES`."""
CONNECTS = ["a:2181", "a:2181,b:2181,", "a:2181 ,b:2182/x", ",a", "a,,b:1", " a , b ", "a/", "a:1/x/", "a/b//c", "a:x"]
CONNECTS += ["[::1]:2181,b", "[::1]", "a:1/x/./y", "a:2181, b:2181/kafka"]
FILES: list[dict[str, str]] = [
    {"log.dirs": "/x,"},
    {"log.dirs": ",/x"},
    {"log.dirs": " /x ,, /y "},
    {"log.dirs": ","},
    {"log.dirs": "  ", "log.dir": "/z"},
    {"log.dirs": "/x", "metadata.log.dir": " /m "},
    {"listeners": ",CONTROLLER://h:9093 ,"},
    {"listeners": "controller://:9093"},
    {"listeners": "CONTROLLER://[::1]:9093"},
    {"listeners": "CONTROLLER://h :1"},
    {"listeners": "CONTROLLER://h\u00e4:1"},
    {"listeners": "CONTROLLER://h_x:1"},
    {"listeners": "CONTROLLER://h:"},
    {"listeners": "CONTROLLER://h:1,controller://h:2"},
    {"listeners": "CONTROLLER://0.0.0.0:1", "advertised.listeners": "CONTROLLER://g:1,"},
    {"advertised.listeners": "CONTROLLER://0.0.0.0:1"},
    {"controller.listener.names": "CONTROLLER,"},
    {"controller.listener.names": ",CONTROLLER"},
    {"controller.listener.names": " CONTROLLER "},
    {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"},
    {"listener.security.protocol.map": " CONTROLLER : PLAINTEXT ,PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": ",CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,,B:SSL"},
    {"listener.security.protocol.map": ":PLAINTEXT,CONTROLLER:PLAINTEXT"},
    {"listener.security.protocol.map": "controller:plaintext,PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": "CONTROLLER"},
    {"controller.quorum.voters": "1@h:1,"},
    {"controller.quorum.voters": " 1@h:1 , 2@h:2 "},
    {"controller.quorum.voters": "+1@h:1"},
    {"controller.quorum.voters": "01@h:1"},
    {"controller.quorum.voters": "1@h:1,2147483648@h:1"},
    {"controller.quorum.voters": "1@h:65536"},
    {"node.id": " +1 "},
    {"node.id": "01"},
    {"broker.id": "1"},
    {"broker.id": "2"},
    {"broker.id": "-1"},
    {"inter.broker.listener.name": ""},
    {"inter.broker.listener.name": " b "},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "ssl"},
    {"control.plane.listener.name": " "},
    {"max.connections.per.ip.overrides": "h:1 ,"},
    {"max.connections.per.ip.overrides": "h"},
    {"max.connections.per.ip.overrides": "h:x"},
    {"max.connections.per.ip.overrides": "h:2147483648"},
    {"principal.builder.class": ""},
    {"ssl.client.auth": " "},
    {"process.roles": " controller "},
    {"super.users": " User:a ; User:b ;"},
]
READ = [
    ({"log.dirs": "/x/meta,"}, ("/x/meta",), "/x/meta"),
    ({"log.dirs": ",/x/meta , /y"}, ("/x/meta", "/y"), "/x/meta"),
    ({"log.dirs": "/x", "metadata.log.dir": " /m\t"}, ("/x",), "/m"),
    ({"log.dir": "/z,"}, ("/z",), "/z"),
    ({}, ("/tmp/kafka-logs",), "/tmp/kafka-logs"),  # noqa: S108 (Kafka's default)
    ({"log.dirs": ",", "log.dir": "/z"}, (), ""),
]


@pytest.mark.parametrize(("file", "directories", "metadata"), READ)
def test_empty_entries_are_no_directories(file: dict[str, str], directories: tuple[str, ...], metadata: str) -> None:
    assert (log_directories(file), metadata_directory(file)) == (directories, metadata)
    if directories:
        settings = settings_from({key: text for key, text in FILE.items() if key != "log.dirs"} | file, "f")[0]
        assert settings.log_directories == tuple(map(Path, directories))
        assert settings.metadata_directory == Path(metadata)


def test_values_are_trimmed_and_synonyms_and_defaults_count() -> None:
    file = {
        "broker.id": " +7 ",
        "zookeeper.metadata.migration.enable": " TRUE\t",
        "authorizer.class.name": "x.Y ",
        "log.dir": " ",
    }
    assert number_of(file, "node.id") == number_of(file, "broker.id") == 7
    assert is_on(file, "zookeeper.metadata.migration.enable")
    assert not is_on({}, "zookeeper.metadata.migration.enable")
    assert text_of(file, "authorizer.class.name") == "x.Y"
    assert text_of({}, "zookeeper.session.timeout.ms") == "18000"
    assert number_of({"broker.id": "x"}, "node.id") is None
    assert is_set(file, "node.id")
    assert not is_set(file, "log.dir")
    assert listener_names(" A, B,,") == ("A", " B")
    assert listener_names(" , ") == listener_names("") == ()


@pytest.mark.parametrize("line", ["=true\n", ": true\n", "\\\n true", "\\"])
def test_a_line_without_a_key_sets_no_other_key(line: str) -> None:
    file = parse_properties(file_of(FILE) + line)
    assert "" in file or "true" in file
    assert not is_on(file, "zookeeper.metadata.migration.enable")
    assert not is_set(file, "zookeeper.connect")
    assert number_of(file, "reserved.broker.max.id") == 1000
    assert settings_from(file, "f")[0] == dataclasses.replace(settings_from(FILE, "f")[0], explicit=file)


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("controller.quorum.voters", "1@a:1 , 2@b:2", "1@a:1,2@b:2", True),
        ("controller.quorum.voters", "2@b:2,1@a:1", "1@a:1,2@b:2", True),
        ("controller.listener.names", "A, B", "A,B", False),
        ("zookeeper.set.acl", " True", "true", True),
        ("num.partitions", "01", "1 ", True),
        ("num.partitions", "x", "1", False),
        ("listener.name.a.sasl.jaas.config", "a ", "a", True),
    ],
)
def test_whether_two_texts_are_one_value(key: str, one: str, other: str, *, same: bool) -> None:
    assert means_the_same(key, one, other) is same


def test_kazoo_gets_servers_and_chroot_as_zookeepers_own_client_reads_them() -> None:
    session = ZooKeeperSession(SessionOptions("127.0.0.1:1 ,[::1]:2,, localhost:3,/kafka/a"))
    assert session.client.hosts == [("127.0.0.1", 1), ("::1", 2), ("localhost", 3)]
    assert session.chroot == "/kafka/a"


@pytest.mark.lane("test-all")
def test_kafka_reads_every_value_likewise(tmp_path: Path, kafka_391: StockKafka) -> None:
    fields = (field.name for field in dataclasses.fields(Settings) if field.name not in HIDDEN_ATTRIBUTES)
    known = {key.name: key for key in map(key_of_attribute, fields)}
    not_in_its_table = {key.name for key in (*OWN_KEYS, *INTERNAL_KAFKA_KEYS)}
    used = [known[name] for name in sorted(known.keys() - not_in_its_table - STRICTER)]
    asked = [(key, text) for key in used for text in VALUES[key.kind]]
    answers = KafkaReader(kafka_391, tmp_path).ask({"key": key.name, "text": text} for key, text in asked)
    assert [(key.name, text, _value(key.name, text)) for key, text in asked] == [
        (key.name, text, answer.get("value", "refused")) for (key, text), answer in zip(asked, answers, strict=True)
    ]


@pytest.mark.lane("test-all")
def test_zookeepers_client_reads_connection_strings_likewise(tmp_path: Path, kafka_391: StockKafka) -> None:
    answers = KafkaReader(kafka_391, tmp_path).ask({"connect": text} for text in CONNECTS)
    assert [_connect(text) for text in CONNECTS] == [
        "refused" if "refused" in answer else (answer["servers"], answer["chroot"]) for answer in answers
    ]


@pytest.mark.lane("test-all")
def test_kafka_reads_whole_files_likewise(tmp_path: Path, kafka_391: StockKafka) -> None:
    answers = KafkaReader(kafka_391, tmp_path).ask_of_files(FILE | changes for changes in FILES)
    for changes, answer in zip(FILES, answers, strict=True):
        assert (changes, _file(FILE | changes)) == (changes, None if "refused" in answer else answer), answer


RAW = [
    "log.dirs=/a\\\n   ,/b\nnode.id : +1",
    "log.dirs=/gone\nlog.dirs = /x\\u002c /y\n! log.dirs=/no",
    "listeners CONTROLLER:\\/\\/h:9093\\\n\t, \nlog.dirs=/x\\ \\ ",
    "log\\.dirs=/escaped\nmetadata.log.dir=\\t/m\\f",
    "node.id=2\nnode.id=1",
    "node.id=1\nnode.id=2",
    "log.dirs=/\u00e4,/\\u4e2d",
]
"""Continued lines, escapes, keys that stand there twice: behind the lines of `FILE`."""


@pytest.mark.lane("test-all")
def test_kafka_reads_escapes_continued_lines_and_doubled_keys_likewise(tmp_path: Path, kafka_391: StockKafka) -> None:
    paths = [tmp_path / f"raw-{number}.properties" for number in range(len(RAW))]
    for path, text in zip(paths, RAW, strict=True):
        path.write_bytes(encoded(f"{file_of(FILE)}\n{text}\n"))
    answers = KafkaReader(kafka_391, tmp_path).ask({"file": str(path)} for path in paths)
    for path, text, answer in zip(paths, RAW, answers, strict=True):
        found = _file(parse_properties(read_decoded(path)))
        assert (text, found) == (text, None if "refused" in answer else answer), answer


def _value(key: str, text: str) -> Any:
    try:
        found = parse(KEYS[key].kind, text, KEYS[key].valid)
    except ValueError:
        return "refused"
    return found.reveal() if isinstance(found, Secret) else list(found) if isinstance(found, tuple) else found


def _connect(text: str) -> Any:
    try:
        found = parse_zookeeper_connect(text)
    except ValueError:
        return "refused"
    return [server.translate({ord("["): "", ord("]"): ""}) for server in found.servers], found.chroot


def _file(keys: dict[str, str]) -> dict[str, Any] | None:
    try:
        settings = settings_from(keys, "f")[0]
    except OperatorError:
        return None
    return {
        "log.dirs": list(map(str, settings.log_directories)),
        "metadata.log.dir": str(settings.metadata_directory),
        "controllers": list(settings.controller_listeners),
        "listeners": {
            it.name: f"{it.host or 'null'}:{it.port}:{it.security_protocol}" for it in settings.parsed_listeners
        },
        "map": settings.protocol_map,
        "inter.broker": settings.broker_rpc_listener,
        "node.id": settings.node_id,
    }
