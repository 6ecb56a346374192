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

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.node.access.audit import Audit
from migrator.node.node import Notes, _listeners
from migrator.node.stop_reason import StopReason
from migrator.observe.authorizer_log import FILE_NAME
from migrator.observe.logins import BURST
from migrator.wire.encode import encode_entity
from migrator.wire.principal import Principal
from migrator.wire.schemas import CONTROLLER_APIS, ENVELOPE, RequestHeader, build, encode_request_header, request_type
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
