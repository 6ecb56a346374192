"""Lines that anybody may cause: bounded for each principal, and none is left out unsaid; hosts in Java's spelling."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from migrator.apis.authorization import Authorizer
from migrator.controller.acl_index import AclIndex
from migrator.image.model import Acl
from migrator.node.access.rations import LINE_BYTES, OTHERS, PRINCIPALS_MAX, Rations
from migrator.observe.logins import BURST, PER_SECOND, LineRate
from migrator.observe.printable import json_text
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType
from migrator.wire.hosts import peer_host
from tests.controller.support.leading_controller import some_uuid


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
