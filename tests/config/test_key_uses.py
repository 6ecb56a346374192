from __future__ import annotations

import re
from pathlib import Path

import pytest

import migrator
from migrator.config.kafka_keys import BROKER_KEYS
from migrator.config.key_lists import (
    IGNORED,
    OF_BROKERS,
    OF_BROKERS_FAMILIES,
    REFUSED,
    SECURITY_FAMILIES,
    TOPIC_DEFAULTS,
)
from migrator.config.key_uses import ACTED_UPON, Use, judge, listed_use
from migrator.config.keys import KEYS, OWN_KEYS, key_of_attribute
from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from tests.config.test_settings import CLOSED, MIGRATING
from tests.site.support.configuration import MEANINGS

LISTS = (ACTED_UPON, frozenset(REFUSED), frozenset(name for names in IGNORED.values() for name in names), OF_BROKERS)
LISTENERS = ("controller", "internal", "internal.two")


def test_each_key_of_kafka_and_of_ours_stands_in_exactly_one_list() -> None:
    for key in KEYS:
        families = key.startswith(OF_BROKERS_FAMILIES)
        named = [key in names for names in LISTS]
        assert sum(named) == 1 or (not any(named) and families), key
        assert listed_use(key) is not Use.UNKNOWN
    assert {row[0] for row in BROKER_KEYS} | {key.name for key in OWN_KEYS} <= KEYS.keys()
    assert set().union(*LISTS) <= KEYS.keys(), "the lists name no key that nobody has"


def test_no_key_of_security_is_passed_over_without_a_word() -> None:
    silent = [key for key in KEYS if listed_use(key) is Use.OF_BROKERS]
    assert not [key for key in silent if key.startswith(SECURITY_FAMILIES)]


def test_what_is_said_to_be_acted_upon_is_read_somewhere() -> None:
    """By an attribute of the settings, or by the key's own name."""
    sources = [path for path in Path(migrator.__file__).parent.rglob("*.py") if path.parent.name != "config"]
    text = "".join(path.read_text(encoding="utf-8") for path in (*sources, *_of_config("settings", "checks")))
    words = frozenset(re.findall(r"[\w.-]+", text))
    attributes = frozenset(re.findall(r"\b(?:settings|self)\.(\w+)", text))
    computed = re.compile(r"(zookeeper\.)?ssl\.(key|trust)store\.(location|type|password)")
    unread = {
        key for key in ACTED_UPON - TOPIC_DEFAULTS if key not in words and key.replace(".", "_") not in attributes
    }
    assert {key for key in unread if not computed.fullmatch(key)} <= {
        "broker.id",
        "config.providers",
        "sasl.jaas.config",
    }


def _of_config(*names: str) -> list[Path]:
    return [Path(migrator.__file__).parent / "config" / f"{name}.py" for name in names]


@pytest.mark.parametrize(
    ("name", "text", "use"),
    [
        ("ssl.client.auth", "required", Use.ACTED_UPON),
        ("ssl.client.auth", "require", Use.REFUSED),
        ("ssl.client.auth", "", Use.REFUSED),
        ("ssl.clientauth", "required", Use.REFUSED),
        ("ssl.client.authentication", "required", Use.REFUSED),
        ("SSL.client.auth", "required", Use.REFUSED),
        ("ssl_client_auth", "required", Use.REFUSED),
        ("security.protocol", "SASL_SSL", Use.REFUSED),
        ("super.user", "User:a", Use.REFUSED),
        ("authorizer.class", "x", Use.REFUSED),
        ("migrator.grpc.listner", "h:1", Use.REFUSED),
        ("connection.max.reauth.ms", "1", Use.REFUSED),
        ("zookeeper.ssl.keyStore.location", "/x", Use.REFUSED),
        ("java.security.auth.login.config", "/x", Use.REFUSED),
        ("ssl.engine.factory.class", "com.example.F", Use.REFUSED),
        ("ssl.protocol", "TLSv1.3", Use.ACTED_UPON),
        ("ssl.protocol", "TLSv1", Use.REFUSED),
        ("ssl.enabled.protocols", "TLSv1.3", Use.ACTED_UPON),
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1.2", Use.REFUSED),
        ("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Use.ACTED_UPON),
        ("ssl.cipher.suites", "TLS_RSA_WITH_NULL_SHA256", Use.REFUSED),
        ("zookeeper.ssl.cipher.suites", "NONE", Use.REFUSED),
        ("ssl.endpoint.identification.algorithm", "", Use.ACTED_UPON),
        ("ssl.endpoint.identification.algorithm", "htps", Use.REFUSED),
        ("zookeeper.ssl.endpoint.identification.algorithm", "none", Use.REFUSED),
        ("ssl.truststore.type", "PME", Use.REFUSED),
        ("zookeeper.ssl.crl.enable", "true", Use.REFUSED),
        ("zookeeper.ssl.crl.enable", "False", Use.ACTED_UPON),
        ("ssl.key.password", "${vault:a:b}", Use.REFUSED),
        ("ssl.secure.random.implementation", "DRBG", Use.IGNORED),
        ("log.cleaner.threads", "2", Use.OF_BROKERS),
        ("remote.log.some.plugin", "2", Use.OF_BROKERS),
        ("confluent.license", "x", Use.UNKNOWN),
        ("controller.quorum.voter", "x", Use.UNKNOWN),
        ("listener.name.controller.ssl.client.auth", "required", Use.ACTED_UPON),
        ("listener.name.controller.ssl.client.auth", "yes", Use.REFUSED),
        ("listener.name.controller.ssl.client.aut", "required", Use.REFUSED),
        ("listener.name.internal.two.ssl.client.auth", "none", Use.ACTED_UPON),
        ("listener.name.CONTROLLER.ssl.client.auth", "required", Use.REFUSED),
        ("listener.name.ctrl.ssl.client.auth", "required", Use.REFUSED),
        ("listener.name.ctrl.num.network.threads", "3", Use.IGNORED),
        ("listener.name.controller.super.users", "User:a", Use.REFUSED),
        ("listener.name.controller.num.network.threads", "3", Use.IGNORED),
        ("listener.name.controller.plain.sasl.jaas.config", "x;", Use.ACTED_UPON),
        ("listener.name.controller.sasl.jaas.config", "x;", Use.IGNORED),
        ("listener.name.controller.PLAIN.sasl.jaas.config", "x;", Use.REFUSED),
        ("listener.name.controller.plain.sasl.server.callback.handler.class", "x", Use.REFUSED),
        ("listener.name.controller.plain.ssl.client.auth", "required", Use.REFUSED),
        ("listener.name.controller.nonsense", "x", Use.REFUSED),
    ],
)
def test_what_becomes_of_a_key(name: str, text: str, use: Use) -> None:
    judged = judge(name, text, LISTENERS)
    assert judged.use is use, judged
    assert bool(judged.remedy) == (use is Use.REFUSED)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ssl.clientauth", "ssl.client.auth"),
        ("listener.name.controler.ssl.client.auth", "listener.name.controller."),
        ("listener.name.CONTROLLER.ssl.client.auth", "listener.name.controller."),
        ("listener.name.controller.ssl.client.atuh", "ssl.client.auth"),
        ("zookeeper.ssl.keyStore.location", "zookeeper.ssl.keystore.location"),
        ("super.user", "super.users"),
    ],
)
def test_a_misspelt_key_of_security_names_the_likely_one(name: str, meant: str) -> None:
    judged = judge(name, "required", LISTENERS)
    assert meant in judged.what + judged.remedy


def test_a_refused_key_ends_the_start_with_file_key_and_remedy() -> None:
    key = "listener.name.controller.ssl.engine.factory.class"
    with pytest.raises(OperatorError) as caught:
        settings_from(MIGRATING | {key: "com.example.F"}, "controller.properties")
    assert caught.value.where == f"controller.properties: {key}"
    assert "Java" in caught.value.what
    assert "PEM" in caught.value.remedy


def test_what_has_no_effect_is_named_in_one_line() -> None:
    ignored = {"num.io.threads": "8", "listener.name.controller.num.network.threads": "3", "log.cleaner.threads": "2"}
    _, warnings = settings_from(MIGRATING | CLOSED | ignored, "f")
    (warning,) = warnings
    assert warning.endswith(": listener.name.controller.num.network.threads, num.io.threads")


def test_attributes_of_the_settings_are_acted_upon() -> None:
    fields = set(Settings.__dataclass_fields__) - {"source", "explicit"}
    assert {key_of_attribute(name).name for name in fields} <= ACTED_UPON


def test_the_page_says_what_each_used_key_does() -> None:
    assert MEANINGS.keys() == ACTED_UPON - {key.name for key in OWN_KEYS}
    assert [key for key, text in MEANINGS.items() if not text.endswith((".", ":"))] == []


def test_the_page_names_each_key() -> None:
    page = (Path(migrator.__file__).parents[1] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert not [key for key in KEYS if f"`{key}`" not in page and not key.startswith(OF_BROKERS_FAMILIES)]
    assert all(f"`{family}`" in page for family in OF_BROKERS_FAMILIES)
