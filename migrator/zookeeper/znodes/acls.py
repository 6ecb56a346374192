"""``/kafka-acl`` (literal patterns), ``/kafka-acl-extended/prefixed``, and the change notices of both. Pure.

Copy, reconcile, checks and `verify` decode with it, the write-behind encodes. Only paths that brokers read have
entries. An entry that a broker could not read is a `ZnodeError` with path and remedy. Numbers are Kafka's codes.
Source: ``AclEntry``, ``SecurityUtils``, ``kafka.zk.ZkAclStore``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

import orjson

from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.values import value
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.fields import JSON_BYTES_PER_CHARACTER, Fields

_REMEDY = "Correct the ACLs of this resource with kafka-acls or a ZooKeeper client, and try again"
_ENTRY_BYTES = 128
"""The limit, in bytes, of an entry without principal and host: names of fields, operation, permission."""


@value
class ResourcePattern:
    resource_type: ResourceType
    name: str
    pattern_type: PatternType


@value
class AclEntry:
    """One entry of a resource pattern."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


E_ = TypeVar("E_", bound=IntEnum)

ROOTS = {PatternType.LITERAL: paths.LITERAL_ACLS, PatternType.PREFIXED: paths.PREFIXED_ACLS}
_CHANGE_PREFIXES = {
    PatternType.LITERAL: paths.LITERAL_ACL_CHANGE_PREFIX,
    PatternType.PREFIXED: paths.PREFIXED_ACL_CHANGE_PREFIX,
}


def node_name(member: IntEnum) -> str:
    """Pascal case, as Kafka writes resource types, operations and permissions: ``TransactionalId``."""
    return "".join(word.capitalize() for word in member.name.split("_"))


_RESOURCE_TYPES = {node_name(member): member for member in ResourceType}


def acl_path(pattern: ResourcePattern) -> str:
    return f"{ROOTS[pattern.pattern_type]}/{node_name(pattern.resource_type)}/{pattern.name}"


def parse_acl_path(path: str) -> ResourcePattern | None:
    """The resource pattern of a znode that brokers read; None for any other path.

    Brokers look a type up in any case, but then list the znode with the type's own name (``AclAuthorizer.loadAllAcls``,
    ``ZkAclStore.path``): an entry below ``/kafka-acl/topic`` gives no right.
    """
    for pattern_type, root in ROOTS.items():
        if path.startswith(f"{root}/"):
            type_name, separator, name = path[len(root) + 1 :].partition("/")
            resource_type = _RESOURCE_TYPES.get(type_name)
            if resource_type is not None and separator and name:
                return ResourcePattern(resource_type, name, pattern_type)
    return None


def decode_acls(path: str, data: bytes | None) -> frozenset[AclEntry]:
    """No data means no entries, as in Kafka.

    :raises ZnodeError: the data is not a list of ACLs, or has an invalid principal, operation or permission.
    """
    if not data:
        return frozenset()
    fields = Fields.parse(path, data, _REMEDY)
    fields.version((1,))
    return frozenset(_entry(entry) for entry in fields.objects("acls"))


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Version 1, entries sorted."""
    ordered = sorted(entries, key=lambda entry: (entry.principal, entry.host, entry.operation, entry.permission))
    acls = [
        {
            "principal": entry.principal,
            "permissionType": node_name(entry.permission),
            "operation": node_name(entry.operation),
            "host": entry.host,
        }
        for entry in ordered
    ]
    return orjson.dumps({"version": 1, "acls": acls})


def entry_bytes_bound(principal: str, host: str) -> int:
    """The most bytes of an entry in `encode_acls`."""
    return _ENTRY_BYTES + JSON_BYTES_PER_CHARACTER * (len(principal) + len(host))


def acl_change_prefix(pattern: ResourcePattern) -> str:
    """The path of a change notice, without its number."""
    return _CHANGE_PREFIXES[pattern.pattern_type]


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Text for literal patterns, JSON of version 1 for prefixed ones."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return orjson.dumps(
        {
            "version": 1,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def _entry(fields: Fields) -> AclEntry:
    principal = fields.text("principal")
    if ":" not in principal:
        raise fields.fault(f"principal {principal!r} is not of the form type:name")
    operation = _member(AclOperation, fields.text("operation"))
    if operation is None:
        raise fields.fault(f"operation {fields.text('operation')!r} is unknown")
    permission = _member(AclPermission, fields.text("permissionType"))
    if permission is None:
        raise fields.fault(f"permission {fields.text('permissionType')!r} is unknown")
    return AclEntry(principal, fields.text("host"), operation, permission)


def _member(kind: type[E_], name: str) -> E_ | None:
    """The member with a name in Pascal case; upper and lower case are equal, as in ``SecurityUtils``.
    ``Describe_Configs`` is no such name."""
    wanted = name.upper()
    return next((member for member in kind if member.name.replace("_", "") == wanted), None)
