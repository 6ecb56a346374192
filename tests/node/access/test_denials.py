"""Denials in the log: in Kafka's words, bounded, one line each; and hosts of IPv6 are denied by Java's spelling."""

from __future__ import annotations

import logging

import pytest
from immutables import Map

from migrator.apis.authorization import Authorizer, unlogged
from migrator.controller.acl_index import AclIndex
from migrator.image.model import Acl
from migrator.node.access.denials import PRINCIPALS_MAX, Denials
from migrator.observe.logins import BURST, LineRate
from migrator.observe.logs import TextFormatter
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType
from migrator.wire.hosts import peer_host
from tests.controller.support.leading_controller import some_uuid

CREATE_TOPICS = (19, 7)
LOGGER = "kafka.authorizer.logger"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def authorizer(*acls: Acl) -> Authorizer:
    entries = Map({some_uuid(number): entry for number, entry in enumerate(acls)})
    return Authorizer(AclIndex.of(entries), (), allow_if_no_acl=False)


def entry(host: str, permission: int) -> Acl:
    return Acl(ResourceType.TOPIC, "t", 3, "User:bob", host, AclOperation.ALL, permission)


def test_a_denial_is_told_in_kafkas_words(lines: pytest.LogCaptureFixture) -> None:
    access = authorizer(entry("10.0.0.1", AclPermission.ALLOW)).access_of("User:bob", "10.0.0.2")
    watched = Denials().watch(access, "User:bob", "10.0.0.2", CREATE_TOPICS)
    assert not watched.allows(AclOperation.CREATE, ResourceType.TOPIC, "t")
    (line,) = lines.messages
    assert line.startswith("Principal = User:bob is Denied operation = CREATE from host = 10.0.0.2 on resource = ")
    assert line.endswith("Topic:LITERAL:t for request = CreateTopics")
    assert not unlogged(watched).allows(AclOperation.CREATE, ResourceType.TOPIC, "t")
    assert len(lines.messages) == 1, "nobody asked for that"


def test_what_is_allowed_is_not_logged(lines: pytest.LogCaptureFixture) -> None:
    access = authorizer(entry("*", AclPermission.ALLOW)).access_of("User:bob", "10.0.0.2")
    assert (
        Denials()
        .watch(access, "User:bob", "10.0.0.2", CREATE_TOPICS)
        .allows(AclOperation.CREATE, ResourceType.TOPIC, "t")
    )
    assert lines.messages == []


def test_names_forge_no_line_and_no_principal_hides_another(lines: pytest.LogCaptureFixture) -> None:
    denials = Denials(lambda: LineRate(lambda: 0.0))
    nothing = authorizer().access_of("User:eve", "10.0.0.2")
    for number in range(3 * BURST):
        denials.watch(nothing, "User:eve", "10.0.0.2", CREATE_TOPICS).allows(
            AclOperation.CREATE, ResourceType.TOPIC, f"t{number}\r\n[2026] INFO \x1b[2Jall is well" + "x" * 10_000
        )
    assert len(lines.records) == BURST
    shown = [TextFormatter().format(record) for record in lines.records]
    assert all(line.isprintable() and len(line) < 1_000 for line in shown)
    denials.watch(nothing, "User:bob", "10.0.0.2", (-1, -1)).allows(AclOperation.CREATE, ResourceType.CLUSTER, "c")
    assert "Principal = User:bob" in lines.messages[-1]
    assert lines.messages[-1].endswith("Cluster:LITERAL:c for request = API -1")


def test_principals_without_number_cost_no_memory(lines: pytest.LogCaptureFixture) -> None:
    denials = Denials()
    nothing = authorizer().access_of("User:eve", "10.0.0.2")
    for number in range(2 * PRINCIPALS_MAX):
        denials.watch(nothing, f"User:{number}", "h", CREATE_TOPICS).allows(AclOperation.READ, ResourceType.USER, "u")
    assert len(denials._rates) == PRINCIPALS_MAX


@pytest.mark.parametrize(
    ("host", "address", "scope"),
    [
        ("0:0:0:0:0:0:0:1", "::1", 0),
        ("2001:db8:0:0:0:0:0:7", "2001:db8::7", 0),
        ("fe80:0:0:0:0:0:0:1%2", "fe80::1", 2),
        ("10.0.0.2", "::ffff:10.0.0.2", 0),
    ],
)
def test_an_entry_that_denies_a_host_holds_for_ipv6(host: str, address: str, scope: int) -> None:
    entries = authorizer(entry("*", AclPermission.ALLOW), entry(host, AclPermission.DENY))
    question = (AclOperation.READ, ResourceType.TOPIC, "t")
    assert not entries.access_of("User:bob", peer_host(address, scope)).allows(*question)
    assert entries.access_of("User:bob", peer_host("2001:db8::8")).allows(*question)
