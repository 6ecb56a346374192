"""Who may do what, by the image's access control entries: Kafka's `StandardAuthorizer`, as a pure function.

Deny beats allow; super users may do everything; without an entry for the resource ``allow.everyone.if.no.acl.found``
decides. Reading and writing imply describing. Source: ``StandardAuthorizerData``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from immutables import Map

from migrator.controller.acls import CLUSTER_NAME, WILDCARD
from migrator.image.model import Acl
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.uuid import Uuid

ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"

_IMPLIED: Final[Mapping[int, frozenset[int]]] = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
}
"""Operations whose permission implies another's."""


class Access(Protocol):
    """What one caller may do."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do that to the resource of that name."""


class Unlimited:
    """Access where no authorizer is configured."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Everything is allowed."""
        del operation, resource_type, name
        return True


class Authorizer:
    """The entries of one image, arranged for look-ups. Build a new one when ``image.acls`` is another object.

    :param super_users: principals in text, ``User:admin``.
    """

    __slots__ = ("_default", "_exact", "_prefixes", "_super_users")

    def __init__(self, acls: Map[Uuid, Acl], super_users: Iterable[str], *, allow_if_no_acl: bool) -> None:
        self._super_users = frozenset(super_users)
        self._default = allow_if_no_acl
        self._exact: dict[tuple[int, str], list[Acl]] = {}
        self._prefixes: dict[int, dict[str, list[Acl]]] = {}
        for acl in acls.values():
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefixes.setdefault(acl.resource_type, {}).setdefault(acl.resource_name, []).append(acl)
            else:
                self._exact.setdefault((acl.resource_type, acl.resource_name), []).append(acl)

    def access_of(self, principal: str, host: str) -> Access:
        """What a principal may do from a host (an IP address)."""
        return Unlimited() if principal in self._super_users else _Caller(self, principal, host)

    def allows(self, caller: tuple[str, str], operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller, principal and host, may do that."""
        found = list(self._entries(resource_type, name))
        if not found:
            return self._default
        mine = [acl for acl in found if acl.principal in (caller[0], ANY_USER) and acl.host in (caller[1], ANY_HOST)]
        if any(acl.permission_type == AclPermission.DENY and _names(acl, {operation}) for acl in mine):
            return False
        implying = _IMPLIED.get(operation, frozenset({operation}))
        return any(acl.permission_type == AclPermission.ALLOW and _names(acl, implying) for acl in mine)

    def _entries(self, resource_type: int, name: str) -> Iterator[Acl]:
        yield from self._exact.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._exact.get((resource_type, WILDCARD), ())
        prefixes = self._prefixes.get(resource_type)
        if prefixes:
            for length in range(len(name) + 1):
                yield from prefixes.get(name[:length], ())


class _Caller:
    __slots__ = ("_authorizer", "_caller")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._caller = (principal, host)

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self._authorizer.allows(self._caller, operation, resource_type, name)


def _names(acl: Acl, operations: Iterable[int]) -> bool:
    return acl.operation == AclOperation.ALL or acl.operation in operations


def allows_cluster(access: Access, operation: AclOperation) -> bool:
    """Whether the caller may do that to the cluster."""
    return access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)
