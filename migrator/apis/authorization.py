"""Decides rights by the image's access control entries, as Kafka's `StandardAuthorizer`. Pure.

Deny beats allow; super users may do everything; without an entry for the resource ``allow.everyone.if.no.acl.found``
decides, but not while such entries are still being loaded. Reading and writing imply describing. Source:
``StandardAuthorizerData``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from migrator.controller.acl_index import AclIndex
from migrator.controller.acls import CLUSTER_NAME
from migrator.controller.decision import RefusedError
from migrator.image.model import Acl
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType

ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"
NOT_READY: Final = "The access control entries are not loaded yet; try again."

_IMPLIED: Final[Mapping[int, frozenset[int]]] = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
}
"""Operations whose permission implies another's."""


class Access(Protocol):
    """The rights of one caller."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do that to the resource of that name."""


class Unlimited:
    """Access where no authorizer is configured."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        del operation, resource_type, name
        return True


class ForwardedAccess:
    """The access of a request that a broker forwards.

    While nothing can be decided, the answer is NOT_CONTROLLER: the broker then asks again
    (``NodeToControllerChannelManager``). Any other error would reach its client as a final UNKNOWN_SERVER_ERROR.
    """

    __slots__ = ("_within",)

    def __init__(self, within: Access) -> None:
        self._within = within

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The answer of the other access.

        :raises RefusedError: NOT_CONTROLLER; see `not_ready`.
        """
        try:
            return self._within.allows(operation, resource_type, name)
        except RefusedError as error:
            raise RefusedError(ErrorCode.not_controller, error.error.message) from error


Question = tuple[AclOperation, ResourceType, str]


class Trail:
    """The questions to the authorizer in one request, and its answers, in the order in which they were first asked.

    Each question counts once, however often it is asked. Of the denials a bounded number is kept; the others are
    counted in ``denied_more``, because a caller without rights can cause any number.
    """

    __slots__ = ("allowed", "denied", "denied_more")
    DENIED_MAX: Final = 50

    def __init__(self) -> None:
        self.allowed: dict[Question, None] = {}
        self.denied: dict[Question, None] = {}
        self.denied_more = 0

    def hear(self, question: Question, *, allowed: bool) -> None:
        """Note one more answer."""
        if allowed:
            self.allowed[question] = None
        elif len(self.denied) < self.DENIED_MAX:
            self.denied[question] = None
        elif question not in self.denied:
            self.denied_more += 1


class Audited:
    """An access that leaves a trail of another one's answers.

    :param tells_denials: False for rights that the caller need not have, because another right is enough.
    """

    __slots__ = ("_tells_denials", "trail", "within")

    def __init__(self, within: Access, trail: Trail, *, tells_denials: bool = True) -> None:
        self.within = within
        self.trail = trail
        self._tells_denials = tells_denials

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The answer of the other access."""
        allowed = self.within.allows(operation, resource_type, name)
        if allowed or self._tells_denials:
            self.trail.hear((operation, resource_type, name), allowed=allowed)
        return allowed


def unlogged(access: Access) -> Access:
    """The access without a trail, for operations that an answer only shows (``logIfAllowed`` and ``logIfDenied``
    false)."""
    return access.within if isinstance(access, Audited) else access


def undenied(access: Access) -> Access:
    """The access without denials in the trail, for rights that the caller need not have (``logIfDenied`` false)."""
    return Audited(access.within, access.trail, tells_denials=False) if isinstance(access, Audited) else access


def tell(access: Access, question: Question, *, allowed: bool) -> None:
    """Note in the trail a decision that a handler makes itself."""
    if isinstance(access, Audited):
        access.trail.hear(question, allowed=allowed)


def not_ready() -> RefusedError:
    """The decision is unknown yet: clients try again, as after Kafka's AuthorizerNotReadyException."""
    return RefusedError(ErrorCode.unknown_server_error, NOT_READY)


class Authorizer:
    """The rights by the entries of one image.

    :param super_users: principals in text, ``User:admin``.
    :param allow_if_no_acl: the answer about a resource without an entry.
    :param unknown: the types of resources of which entries are still taken in: nobody is allowed there by default.
    """

    __slots__ = ("_acls", "_default", "_super_users", "_unknown")

    def __init__(
        self, acls: AclIndex, super_users: Iterable[str], *, allow_if_no_acl: bool, unknown: Container[int] = ()
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._default = allow_if_no_acl
        self._unknown = unknown

    def access_of(self, principal: str, host: str) -> Access:
        """The rights of a principal from a host (an IP address)."""
        return Unlimited() if principal in self._super_users else _Caller(self, principal, host)

    def allows(self, caller: tuple[str, str], operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller, principal and host, may do that.

        :raises RefusedError: UNKNOWN_SERVER_ERROR, see `not_ready`.
        """
        found = tuple(self._acls.applying_to(resource_type, name))
        if not found:
            if self._default and resource_type in self._unknown:
                raise not_ready()
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
