"""Authorization, case by case as in Kafka's StandardAuthorizerTest."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map

from migrator.apis.authorization import Authorizer
from migrator.controller.acl_index import AclIndex
from migrator.image.model import Acl
from migrator.records.acl_codes import AclOperation as Op
from migrator.records.acl_codes import ResourceType
from tests.controller.support.leading_controller import some_uuid

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED, DENY, ALLOW = 3, 4, 2, 3


def acl(name: str = "foo", operation: Op = Op.READ, permission: int = ALLOW, **changes: Any) -> Acl:
    fields = {"resource_type": TOPIC, "pattern_type": LITERAL, "principal": "User:bob", "host": "*", **changes}
    return Acl(resource_name=name, operation=operation, permission_type=permission, **fields)


def allowed(
    acls: list[Acl], name: str = "foo", operation: Op = Op.READ, principal: str = "User:bob", **options: Any
) -> bool:
    entries = Map({some_uuid(number): entry for number, entry in enumerate(acls)})
    authorizer = Authorizer(AclIndex.of(entries), ("User:root",), allow_if_no_acl=options.pop("default", False))
    return authorizer.access_of(principal, "10.0.0.1").allows(operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "question", "expected"),
    [
        ([], {}, False),
        ([], {"default": True}, True),
        ([acl("other")], {"default": True}, True),
        ([acl(principal="User:eve")], {"default": True}, False),
        ([], {"principal": "User:root"}, True),
        ([acl(permission=DENY)], {"principal": "User:root"}, True),
        ([acl()], {}, True),
        ([acl()], {"name": "foobar"}, False),
        ([acl(resource_type=GROUP)], {}, False),
        ([acl("*")], {}, True),
        ([acl("fo", pattern_type=PREFIXED)], {}, True),
        ([acl("foo", pattern_type=PREFIXED)], {}, True),
        ([acl("foob", pattern_type=PREFIXED)], {}, False),
        ([acl("fo")], {}, False),
        ([acl(principal="User:*")], {}, True),
        ([acl(host="10.0.0.1")], {}, True),
        ([acl(host="10.0.0.2")], {}, False),
        ([acl(operation=Op.ALL)], {}, True),
        ([acl(), acl(permission=DENY)], {}, False),
        ([acl(), acl("*", permission=DENY)], {}, False),
        ([acl(), acl("f", permission=DENY, pattern_type=PREFIXED)], {}, False),
        ([acl(), acl(operation=Op.ALL, permission=DENY)], {}, False),
        ([acl(), acl(permission=DENY, principal="User:eve")], {}, True),
        ([acl(operation=Op.WRITE)], {"operation": Op.DESCRIBE}, True),
        ([acl(operation=Op.ALTER)], {"operation": Op.DESCRIBE}, True),
        ([acl(operation=Op.CREATE)], {"operation": Op.DESCRIBE}, False),
        ([acl(operation=Op.ALTER_CONFIGS)], {"operation": Op.DESCRIBE_CONFIGS}, True),
        ([acl(operation=Op.DESCRIBE)], {}, False),
        ([acl(), acl(operation=Op.DESCRIBE, permission=DENY)], {"operation": Op.DESCRIBE}, False),
        ([acl(), acl(operation=Op.WRITE, permission=DENY)], {"operation": Op.DESCRIBE}, True),
    ],
)
def test_authorize(acls: list[Acl], question: dict[str, Any], expected: bool) -> None:
    assert allowed(acls, **question) is expected
