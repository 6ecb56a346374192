"""Who may do what, by the image's access control entries: Kafka's `StandardAuthorizer`, as a pure function.

Deny beats allow; super users may do everything; without an entry for the resource ``allow.everyone.if.no.acl.found``
decides. Reading and writing imply describing. Source: ``StandardAuthorizerData``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from migrator.controller.acl_index import AclIndex
from migrator.controller.acls import CLUSTER_NAME
from migrator.image.model import Acl
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType

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


class Audited:
    """Another access, whose denials are told.

    :param denied: hears operation, type and name.
    """

    __slots__ = ("denied", "within")

    def __init__(self, within: Access, denied: Callable[[AclOperation, ResourceType, str], None]) -> None:
        self.within = within
        self.denied = denied

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """As the other says."""
        allowed = self.within.allows(operation, resource_type, name)
        if not allowed:
            self.denied(operation, resource_type, name)
        return allowed


def unlogged(access: Access) -> Access:
    """For questions that the caller did not ask: what may be shown of a list, or may be done beside what was asked."""
    return access.within if isinstance(access, Audited) else access


class Authorizer:
    """What the entries of one image say.

    :param super_users: principals in text, ``User:admin``.
    """

    __slots__ = ("_acls", "_default", "_super_users")

    def __init__(self, acls: AclIndex, super_users: Iterable[str], *, allow_if_no_acl: bool) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._default = allow_if_no_acl

    def access_of(self, principal: str, host: str) -> Access:
        """What a principal may do from a host (an IP address)."""
        return Unlimited() if principal in self._super_users else _Caller(self, principal, host)

    def allows(self, caller: tuple[str, str], operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller, principal and host, may do that."""
        found = tuple(self._acls.applying_to(resource_type, name))
        if not found:
            return self._default
        principal, host = caller
        entries = (by_principal.get(who) for by_principal in found for who in (principal, ANY_USER))
        mine = [acl for some in entries if some for _, acl in some if acl.host in (host, ANY_HOST)]
        if any(acl.permission_type == AclPermission.DENY and _names(acl, {operation}) for acl in mine):
            return False
        implying = _IMPLIED.get(operation, frozenset({operation}))
        return any(acl.permission_type == AclPermission.ALLOW and _names(acl, implying) for acl in mine)


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
