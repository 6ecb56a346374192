from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.node.access.own_principal import check_own_principal
from migrator.node.node import run_node
from migrator.node.stop_reason import StopReason
from migrator.parts.certificates import Authority, common_name
from migrator.wire.listener_settings import controller_security

VOTERS = "3000@localhost:9093,3001@localhost:9094"
PROTECTED = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.quorum.voters": VOTERS,
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="c1" password="p" user_c1="p";'


def check(keys: dict[str, str]) -> None:
    settings: Settings = settings_from(PROTECTED | keys, "f")[0]
    check_own_principal(settings, controller_security(settings))


def tls(directory: Path, protocol: str, client_auth: str) -> dict[str, str]:
    authority = Authority("ca")
    return {
        "listener.security.protocol.map": f"CONTROLLER:{protocol}",
        "listener.name.controller.ssl.client.auth": client_auth,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.store(directory / "own.pem", common_name("node-1"))),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trust(directory / "ca.pem")),
    }


def sasl(mechanism: str, jaas: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": jaas,
    }


def plaintext(_: Path) -> dict[str, str]:
    return {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}


def mutual(directory: Path) -> dict[str, str]:
    return tls(directory, "SSL", "required")


def mapped(directory: Path) -> dict[str, str]:
    return mutual(directory) | {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/kafka-$1/U"}


def one_sided(directory: Path) -> dict[str, str]:
    return tls(directory, "SSL", "none")


def plain(_: Path) -> dict[str, str]:
    return {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"} | sasl("PLAIN", PLAIN)


def login_over_tls(directory: Path) -> dict[str, str]:
    """The login counts, not the certificate."""
    return tls(directory, "SASL_SSL", "required") | sasl("PLAIN", PLAIN)


@pytest.mark.parametrize(
    ("door", "principal"),
    [
        (plaintext, "User:ANONYMOUS"),
        (mutual, "User:CN=node-1"),
        (mapped, "User:KAFKA-NODE-1"),
        (one_sided, "User:ANONYMOUS"),
        (plain, "User:c1"),
        (login_over_tls, "User:c1"),
    ],
)
def test_a_voter_starts_only_where_it_is_a_super_user(door: object, principal: str, tmp_path: Path) -> None:
    assert callable(door)
    keys: dict[str, str] = door(tmp_path)
    for others in ("", "User:admin", "User:ANONYMOUS;User:admin" if "ANON" not in principal else "User:CN=node-1"):
        with pytest.raises(OperatorError) as caught:
            check(keys | {"super.users": others})
        assert caught.value.where == "f: super.users"
        assert principal in caught.value.remedy
    check(keys | {"super.users": f"User:admin; {principal}"})


def test_a_certificate_that_no_rule_names_is_refused_before_peers_refuse_it(tmp_path: Path) -> None:
    keys = mutual(tmp_path) | {"ssl.principal.mapping.rules": "RULE:^OU=(.*)$/$1/", "super.users": "User:node-1"}
    with pytest.raises(OperatorError) as caught:
        check(keys)
    assert "ssl.principal.mapping.rules" in caught.value.where


@pytest.mark.parametrize(
    "keys",
    [{"authorizer.class.name": ""}, {"controller.quorum.voters": "3000@localhost:9093", "super.users": "User:a"}],
)
def test_nothing_is_demanded_without_an_authorizer_or_of_a_single_voter(keys: dict[str, str]) -> None:
    check(keys)


async def test_a_node_does_not_run_where_it_is_no_super_user() -> None:
    with pytest.raises(OperatorError, match=r"super\.users of every controller"):
        await run_node(
            settings_from(PROTECTED | plaintext(Path()) | {"super.users": "User:admin"}, "f")[0], StopReason()
        )
