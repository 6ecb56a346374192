"""Quotas, SCRAM credentials and ACLs (APIs 49, 51, 29, 30, 31)."""

from __future__ import annotations

from typing import Any

from tests.differential.support.steps import Step, acl, acl_filter, ask, labelled, quota, scram

RATE = ("producer_byte_rate", 5.0, False)


def _quotas(*entries: tuple[dict[str, str | None], tuple[tuple[str, float, bool], ...]], version: int = 1) -> Step:
    rows = tuple(
        {
            "entity": tuple({"entity_type": kind, "entity_name": name} for kind, name in entity.items()),
            "ops": tuple({"key": key, "value": number, "remove": remove} for key, number, remove in ops),
        }
        for entity, ops in entries
    )
    return ask(49, version, entries=rows)


def _scram(*upsertions: dict[str, Any], deletions: tuple[tuple[str, int], ...] = ()) -> Step:
    rows = tuple({"name": name, "mechanism": mechanism} for name, mechanism in deletions)
    return ask(51, 0, upsertions=upsertions, deletions=rows)


def _created(*changes: dict[str, Any], version: int = 3) -> Step:
    return ask(30, version, creations=tuple(acl(**change) for change in changes))


def _deleted(*changes: dict[str, Any], version: int = 3) -> Step:
    return ask(31, version, filters=tuple(acl_filter(**change) for change in changes))


def _described(version: int = 3, **changes: Any) -> Step:
    return ask(29, version, **acl_filter(**changes))


QUOTAS = (
    quota({"user": "a"}, RATE, ("request_percentage", 0.5, False)),
    quota({"user": "a"}, RATE),
    quota({"user": "a", "client-id": None}, RATE),
    quota({"client-id": "c"}, RATE),
    quota({"client-id": None}, RATE),
    quota({"user": None, "client-id": "c"}, ("controller_mutation_rate", 1.5, False)),
    quota({"user": None}, ("consumer_byte_rate", 9e18, False)),
    quota({"user": None}, ("consumer_byte_rate", float(2**63 - 1), False)),
    quota({"user": None}, ("consumer_byte_rate", 1e19, False)),
    quota({"user": "ü ?&%"}, RATE),
    quota({"ip": "1.2.3.4"}, ("connection_creation_rate", 5.0, False)),
    quota({"ip": None}, ("connection_creation_rate", 5.0, False)),
    quota({"ip": "1.2.3.4"}, ("connection_creation_rate", 5e9, False)),
    quota({"ip": "1.2.3.4"}, ("connection_creation_rate", 5.5, False)),
    quota({"ip": "1.2.3.4"}, RATE),
    quota({"ip": "::1"}, ("connection_creation_rate", 5.0, False)),
    quota({"ip": "localhost"}, ("connection_creation_rate", 5.0, False)),
    quota({"ip": "999.1.1.1"}, ("connection_creation_rate", 5.0, False)),
    quota({"ip": "1.2.3.4", "user": "a"}, RATE),
    quota({"ip": "1.2.3.4", "client-id": "a"}, RATE),
    quota({"user": ""}, RATE),
    quota({"client-id": ""}, RATE),
    quota({"ip": ""}, ("connection_creation_rate", 5.0, False)),
    quota({"group": "g"}, RATE),
    quota({"user": "a", "group": "g"}, RATE),
    quota({}, RATE),
    quota({"user": "a"}, ("producer_byte_rate", 0.0, False)),
    quota({"user": "a"}, ("producer_byte_rate", -1.0, False)),
    quota({"user": "a"}, ("producer_byte_rate", 1.5, False)),
    quota({"user": "a"}, ("producer_byte_rate", 5.0000001, False)),
    labelled("a quota that is no number", quota({"user": "a"}, ("request_percentage", float("nan"), False))),
    quota({"user": "a"}, ("request_percentage", float("inf"), False)),
    quota({"user": "a"}, ("producer_byte_rate", float("inf"), False)),
    quota({"user": "a"}, ("nope", 1.0, False)),
    quota({"user": "a"}, ("nope", 1.0, True)),
    quota({"user": "a"}, RATE, RATE),
    quota({"user": "a"}, ("connection_creation_rate", 1.0, False)),
    quota({"user": "b"}, RATE, validate_only=True),
    quota({"user": "a"}, ("producer_byte_rate", 0.0, True), ("consumer_byte_rate", 0.0, True)),
    quota({"user": "a"}),
    _quotas(({"user": "d"}, (RATE,)), ({"user": "d"}, (("consumer_byte_rate", 1.0, False),))),
    _quotas(({"user": "e"}, (RATE,)), ({"user": ""}, (RATE,))),
    _quotas(),
    quota({"user": "v0"}, RATE, version=0),
    quota({"user": ""}, RATE, version=0),
    ask(49, 1, entries=({"entity": 2 * ({"entity_type": "user", "entity_name": "z"},), "ops": ()},)),
)

SCRAM = (
    _scram(
        scram("a"),
        scram("b", 2),
        scram("", 1),
        scram("c", 3),
        scram("d", 1, 1),
        scram("e", 1, 99_999),
        scram("f", 1, 16_384),
        scram("g", 1, 16_385),
        scram("h", 1, 4095),
        scram("i", 0),
    ),
    _scram(scram("salted", salt=b"")),
    labelled("an empty salted password", _scram(scram("empty", salted_password=b""))),
    _scram(scram("a", 2), deletions=(("x", 1),)),
    _scram(scram("b"), scram("b", 2), deletions=(("a", 1), ("z", 1))),
    _scram(scram("b"), scram("b"), scram("b")),
    _scram(scram("b"), deletions=(("b", 2),)),
    _scram(deletions=(("b", 2), ("b", 2))),
    _scram(deletions=(("b", 2), ("b", 1))),
    _scram(deletions=(("b", 2), ("", 1), ("b", 7), ("y", 7), ("", 7))),
    _scram(deletions=(("b", 2),)),
    _scram(deletions=(("b", 2),)),
    _scram(),
    _scram(scram("ü", 2, 8192)),
)

ACLS = (
    _created({}),
    _created({}),
    _created({}, {"principal": "User:b"}, {"principal": "User:b"}),
    _created({"resource_type": 4, "resource_name": "kafka-cluster", "operation": 9}),
    _created({"resource_type": 4, "resource_name": "other"}),
    _created({"resource_name": ""}),
    _created(*({"resource_type": kind, "resource_name": "n"} for kind in range(2, 8))),
    _created(*({"resource_pattern_type": kind} for kind in range(3, 5))),
    _created(*({"operation": operation} for operation in range(2, 15))),
    _created(*({"permission_type": permission} for permission in range(2, 4))),
    *(
        labelled("an ACL with an unknown element", _created({name: 1}))
        for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")
    ),
    labelled("an ACL with an unknown element", _created({"operation": 0})),
    *(
        _created({name: code})
        for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")
        for code in (99, -1)
    ),
    labelled("an ACL with an unknown element", _created({"resource_pattern_type": 2})),
    _created({"resource_name": "te", "resource_pattern_type": 4}),
    _created({"resource_name": "*"}),
    _created({"host": "1.2.3.4"}, {"host": ""}, {"principal": ""}, {"principal": "nobody"}),
    _created({"resource_type": 7, "resource_name": "User:a", "operation": 13}),
    _created({"resource_type": 7, "resource_name": "a", "operation": 13}),
    _created({"resource_type": 5, "resource_name": "tx", "principal": "Group:g"}),
    _created(),
    *(_created({"resource_name": f"v{version}"}, version=version) for version in range(4)),
    *(_described(version) for version in range(4)),
    *(_described(version, resource_type_filter=2, resource_name_filter="t") for version in range(4)),
    _described(resource_type_filter=2, resource_name_filter="test", pattern_type_filter=2),
    _described(resource_type_filter=2, resource_name_filter="te", pattern_type_filter=4),
    _described(resource_type_filter=2, resource_name_filter="t", pattern_type_filter=3),
    _described(resource_name_filter="*", pattern_type_filter=3),
    _described(principal_filter="User:b"),
    _described(principal_filter="User:nobody"),
    _described(host_filter="1.2.3.4"),
    _described(operation=9, permission_type=3),
    *(_described(resource_type_filter=kind) for kind in (4, 5, 7, 9, -1)),
    *(_described(pattern_type_filter=kind) for kind in (5, -1)),
    *(_described(operation=operation) for operation in (2, 3, 15, 16, -1)),
    *(_described(permission_type=permission) for permission in (2, 3, 4, -1)),
    labelled("a filter of ACLs with an unknown element", _described(operation=0)),
    _deleted({"resource_type_filter": 2, "resource_name_filter": "nobody"}),
    _deleted({"principal_filter": "User:b"}, {"principal_filter": "User:b"}),
    _deleted({"host_filter": "1.2.3.4"}),
    _deleted({"host_filter": "1.2.3.4"}, {"resource_type_filter": 99}, {"operation": 99}, {"permission_type": -1}),
    _deleted({"resource_type_filter": 2, "resource_name_filter": "test", "pattern_type_filter": 2}),
    _deleted(),
    *(_deleted({"resource_name_filter": f"v{version}"}, version=version) for version in range(4)),
    labelled("a filter of ACLs with an unknown element", _deleted({"resource_type_filter": 0})),
    _created({"resource_name": "pre", "resource_pattern_type": 4}),
    *(_described(version, resource_type_filter=2, pattern_type_filter=4) for version in range(4)),
    _created({}),
)

STEPS = (*QUOTAS, *SCRAM, *ACLS)
