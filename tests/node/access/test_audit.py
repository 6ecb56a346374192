"""The log of the authorizer of a node: real listeners, real callers, and what its file has of them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from migrator.apis.authorization import Authorizer
from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.controller.acl_index import AclIndex
from migrator.image.model import Acl
from migrator.node.access.audit import LINE_BYTES, OTHERS, PRINCIPALS_MAX, Audit, Rations
from migrator.node.node import Notes, _listeners
from migrator.node.stop_reason import StopReason
from migrator.observe.authorizer_log import FILE_NAME
from migrator.observe.logins import BURST, PER_SECOND, LineRate
from migrator.observe.printable import json_text
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType
from migrator.wire.encode import encode_entity
from migrator.wire.hosts import peer_host
from migrator.wire.principal import Principal
from migrator.wire.schemas import CONTROLLER_APIS, ENVELOPE, RequestHeader, build, encode_request_header, request_type
from tests.controller.support.leading_controller import some_uuid
from tests.doors.support.caller import Login, ask, log_in
from tests.node.support.cluster import CLUSTER_ID, running, until
from tests.wire.support.principals import encode_principal

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ADMIN = "admin"
USERS = (ADMIN, "broker", "nobody")
PROPERTIES = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{MODULE} username="{ADMIN}" password="{ADMIN}-secret" '
        + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
        + ";"
    ),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:broker",
}
ACL = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:bob", "host": "*",
       "operation": 3, "permission_type": 3}  # fmt: skip
SCRAM = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt-and-pepper", "salted_password": b"s" * 32}


def forwarded(user: str) -> tuple[int, dict[str, Any]]:
    """CreateAcls of that user, in the Envelope of a broker."""
    inside = encode_request_header(RequestHeader(30, 3, 1, "c"))
    inside += encode_entity(build(request_type(30, 3), creations=(ACL,)))
    return ENVELOPE, {
        "request_data": b"".join(inside),
        "request_principal": encode_principal(Principal("User", user)),
        "client_host_address": bytes([10, 0, 0, 9]),
    }


class Place:
    """A node with a listener and its log."""

    def __init__(self, file: Path, port: int) -> None:
        self.file = file
        self.port = port

    async def asks(self, user: str, *questions: tuple[int, dict[str, Any]]) -> list[Any]:
        """On one connection."""
        return await asyncio.to_thread(self._asks, user, questions)

    def _asks(self, user: str, questions: tuple[tuple[int, dict[str, Any]], ...]) -> list[Any]:
        with closing(socket.create_connection(("127.0.0.1", self.port))) as connection:
            assert log_in(connection, Login(user, f"{user}-secret"))
            return [ask(connection, key, CONTROLLER_APIS[key].max, fields) for key, fields in questions]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]


@asynccontextmanager
async def audited(directory: Path, **extra: str) -> AsyncIterator[Place]:
    """Everything has been written when this ends."""
    properties = PROPERTIES | {key.replace("_", "."): text for key, text in extra.items()}
    async with running(directory, 1, **properties) as cluster:
        settings, node = cluster.settings(1), await cluster.leader()
        audit = Audit(settings, cluster.failures.append)
        (listener,) = _listeners(settings, CLUSTER_ID, node, StopReason(), Notes(audit))
        place = Place(settings.metadata_directory / FILE_NAME, await listener.start("127.0.0.1", 0))
        try:
            await until(lambda: node.metadata.has_reached_high_watermark, "the node knows its log")
            yield place
        finally:
            await listener.close()
            await audit.close()


async def test_what_a_super_user_orders_is_said_with_its_names_and_no_secret(tmp_path: Path) -> None:
    async with audited(tmp_path) as place:
        acls = (30, {"creations": (ACL,)})
        await place.asks(ADMIN, acls, (51, {"upsertions": (SCRAM,)}), (46, {}), (29, {"resource_type_filter": 1}))
    found = place.lines()
    assert [(line["api"], line["operation"], line["outcome"], line["error"], line["about"]) for line in found] == [
        ("CreateAcls", "ALTER", "allowed", "NONE", ["ALLOW READ for User:bob from * on Topic:LITERAL:t"]),
        ("AlterUserScramCredentials", "ALTER", "allowed", "NONE", ["set SHA_256 of bob"]),
    ]
    assert {line["principal"] for line in found} == {"User:admin"}
    assert b"pepper" not in place.file.read_bytes()


async def test_cluster_action_is_said_once_for_each_connection_and_everything_on_request(tmp_path: Path) -> None:
    beat = (63, {"broker_id": 7, "broker_epoch": 1})
    async with audited(tmp_path / "changes") as place:
        await place.asks("broker", beat, beat, beat)
        await place.asks("broker", beat)
    actions = [line for line in place.lines() if line["operation"] == "CLUSTER_ACTION"]
    assert [(line["principal"], line["api"]) for line in actions] == [("User:broker", "BrokerHeartbeat")] * 2
    async with audited(tmp_path / "all", migrator_authorizer_log_allowed="all") as place:
        await place.asks("broker", beat, beat, (60, {}))
    assert [line["api"] for line in place.lines()] == ["BrokerHeartbeat", "BrokerHeartbeat", "DescribeCluster"]


async def test_a_forwarded_request_is_its_clients_and_names_its_broker(tmp_path: Path) -> None:
    name = 'alice\n{"principal": "User:admin"} \'\\' + "x" * 30_000
    async with audited(tmp_path) as place:
        await place.asks("broker", forwarded(name))
    denied, opened = place.lines()
    assert (opened["api"], opened["principal"], opened["operation"]) == ("Envelope", "User:broker", "CLUSTER_ACTION")
    assert (denied["api"], denied["outcome"], denied["host"]) == ("CreateAcls", "denied", "10.0.0.9")
    assert (denied["forwarded_by"], denied["forwarded_from"]) == ("User:broker", "127.0.0.1")
    assert denied["principal"].startswith("User:alice\n{")
    assert len(denied["principal"]) < 400
    assert denied["error"] == "CLUSTER_AUTHORIZATION_FAILED"


async def test_a_flood_of_denials_is_counted_to_the_last_one(tmp_path: Path) -> None:
    order, count = (30, {"creations": (ACL,)}), 3 * BURST
    async with audited(tmp_path) as place:
        await place.asks("nobody", *[order] * count)
        await place.asks(ADMIN, order)
    *_, more = found = place.lines()
    assert (more["principal"], more["outcome"]) == ("User:nobody", "denied")
    said = [line for line in found if line["outcome"] == "denied" and "more" not in line]
    assert BURST <= len(said) < count
    assert sum(line["count"] for line in said) + more["more"]["CreateAcls"] == count
    assert [line["principal"] for line in found if line["outcome"] == "allowed"] == ["User:admin"]


async def test_without_an_authorizer_everybody_is_allowed_and_what_they_order_is_said(tmp_path: Path) -> None:
    async with audited(tmp_path, authorizer_class_name="", super_users="") as place:
        await place.asks("nobody", (64, {"broker_id": 3}))
    (line,) = place.lines()
    assert (line["principal"], line["outcome"], line["about"]) == ("User:nobody", "allowed", ["broker 3"])


async def test_the_page_has_a_real_line(tmp_path: Path) -> None:
    async with audited(tmp_path, super_users="User:broker;User:alice") as place:
        await place.asks("broker", forwarded("alice"))
    found, _ = place.file.read_text().splitlines()
    page = (Path(__file__).parents[3] / "docs/security.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*)\n```", page)
    assert re.sub(r'"time":"[^"]*"', "", found) == re.sub(r'"time":"[^"]*"', "", shown)
    assert json.loads(found)["time"][-1] == json.loads(shown)["time"][-1] == "Z"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def line(principal: str, count: int = 1, api: str = "CreateTopics", outcome: str = "denied") -> dict[str, Any]:
    return {"principal": principal, "api": api, "outcome": outcome, "count": count}


def test_what_has_no_line_of_its_own_is_counted_and_no_principal_hides_another() -> None:
    clock = Clock()
    rations = Rations(lambda: LineRate(clock))
    assert sum(rations.take(line("User:eve", 3)) for _ in range(1_000)) == BURST
    assert not rations.take(line("User:eve", 7, "DeleteTopics"))
    assert not rations.take(line("User:eve", 1, "CreateDelegationToken", "allowed"))
    assert rations.take(line("User:bob"))
    left_out = list(rations.left_out())
    assert [(each["principal"], each["outcome"], each["more"]) for each in left_out] == [
        ("User:eve", "allowed", {"CreateDelegationToken": 1}),
        ("User:eve", "denied", {"CreateTopics": 3 * (1_000 - BURST), "DeleteTopics": 7}),
    ]
    assert left_out[1]["text"] == f"{3 * (1_000 - BURST) + 7} more were denied, and have no lines of their own"
    assert list(rations.left_out()) == []
    clock.now = 1 / PER_SECOND
    assert rations.take(line("User:eve"))


def test_who_sends_long_names_pushes_no_more_out_than_who_sends_short_ones() -> None:
    """All files together have a bounded size. A long line is written whole, and the next ones wait for it."""
    clock = Clock()
    rations = Rations(lambda: LineRate(clock))
    long = line("User:eve") | {"resources": ["\u0001" * 300] * 50}
    written, seconds = 0, 10_000
    for clock.now in range(seconds):
        written += rations.take(long)
    assert written > 1
    assert written * len(json_text(long)) <= (BURST + seconds * PER_SECOND) * LINE_BYTES + len(json_text(long))
    (left_out,) = rations.left_out()
    assert left_out["more"] == {"CreateTopics": seconds - written}


def test_principals_without_number_cost_no_memory_and_are_counted_together() -> None:
    clock = Clock()
    rations = Rations(lambda: LineRate(clock))
    for number in range(PRINCIPALS_MAX + 10):
        for _ in range(BURST + 1):
            rations.take(line(f"User:{number}"))
    assert len(rations._rates) == PRINCIPALS_MAX
    found = {each["principal"]: each["more"]["CreateTopics"] for each in rations.left_out()}
    assert len(found) == PRINCIPALS_MAX + 1
    assert found[OTHERS] == 10
    assert sum(found.values()) == PRINCIPALS_MAX + 10


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


def authorizer(*acls: Acl) -> Authorizer:
    entries = Map({some_uuid(number): entry for number, entry in enumerate(acls)})
    return Authorizer(AclIndex.of(entries), (), allow_if_no_acl=False)


def entry(host: str, permission: int) -> Acl:
    return Acl(ResourceType.TOPIC, "t", 3, "User:bob", host, AclOperation.ALL, permission)
