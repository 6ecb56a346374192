"""CreateAcls, DeleteAcls, and the matching of filters that DescribeAcls shares with them. Pure.

`migrator.apis` calls it with the image at the log's end; it returns the answer and the records. No entry is added
twice, and the number of entries that a deletion with several filters may scan is bounded, because other writes wait for
the decision. Source: Kafka's ``AclControlManager``, ``AclApis``, ``ResourcePatternFilter``,
``AccessControlEntryFilter``.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.acl_index import WILDCARD, AclIndex, ByPrincipal
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, check_size, decided
from migrator.image.model import Acl, MetadataImage
from migrator.image.security import acl_record
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import MetadataRecord, RemoveAccessControlEntryRecord
from migrator.records.uuid import Uuid, random_uuid
from migrator.values import value

UNKNOWN, ANY = 0, 1
CLUSTER_NAME: Final = "kafka-cluster"


MAX_SCANNED: Final = 200_000
"""The most entries that a request with several filters may scan."""
_RESOURCES: Final = frozenset(int(kind) for kind in ResourceType)
_PATTERNS: Final = frozenset((int(PatternType.LITERAL), int(PatternType.PREFIXED)))
_OPERATIONS: Final = frozenset(int(operation) for operation in AclOperation)
_PERMISSIONS: Final = frozenset(int(permission) for permission in AclPermission)


@value
class AclFilter:
    """A filter. None and ANY match everything. ``pattern_type`` MATCH finds every entry that applies to the
    resource."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the filter finds the entry."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
            and self._finds_name(acl)
        )

    def _finds_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or self.resource_name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


@value
class DeletedAcls:
    """The entries that one filter found."""

    error: ApiError = NO_ERROR
    acls: tuple[Acl, ...] = ()


def create_acls(image: MetadataImage, acls: tuple[Acl, ...], context: Context) -> Decision[tuple[ApiError, ...]]:
    """Add entries. An entry that exists already succeeds without a record.

    :raises RefusedError: POLICY_VIOLATION.
    """
    results: list[ApiError] = []
    records: list[MetadataRecord] = []
    new: set[Acl] = set()
    for acl in acls:
        fault = _fault(acl)
        if fault is None and acl not in new and not context.index.acls.holds(acl):
            new.add(acl)
            records.append(acl_record(_unused_id(image, context), acl))
        results.append(NO_ERROR if fault is None else ApiError(ErrorCode.invalid_request, fault))
    return decided(tuple(results), records)


def delete_acls(
    image: MetadataImage, filters: tuple[AclFilter, ...], context: Context
) -> Decision[tuple[DeletedAcls, ...]]:
    """Delete the entries that the filters find. An entry that several filters find is in each one's answer.

    A filter with a resource's name needs a look-up; any other scans every entry, so their number is bounded.

    :raises RefusedError: POLICY_VIOLATION.
    """
    results: list[DeletedAcls] = []
    ids: dict[Uuid, None] = {}
    _check_scans(image, filters)
    for wanted in filters:
        fault = filter_fault(wanted)
        if fault is not None:
            results.append(DeletedAcls(ApiError(ErrorCode.invalid_request, fault)))
            continue
        found = tuple(_candidates(image, context.index.acls, wanted))
        ids.update((acl_id, None) for acl_id, _ in found)
        check_size(len(ids))
        results.append(DeletedAcls(acls=tuple(acl for _, acl in sorted(found, key=itemgetter(0)))))
    return decided(tuple(results), [RemoveAccessControlEntryRecord(acl_id) for acl_id in sorted(ids)])


def matching(image: MetadataImage, wanted: AclFilter) -> Iterator[tuple[Uuid, Acl]]:
    """The entries that a filter finds, with their ids."""
    return ((acl_id, acl) for acl_id, acl in image.acls.items() if wanted.matches(acl))


def _candidates(image: MetadataImage, index: AclIndex, wanted: AclFilter) -> Iterator[tuple[Uuid, Acl]]:
    """Like `matching`, by the index if the filter names a resource."""
    if wanted.resource_name is None:
        yield from matching(image, wanted)
        return
    kinds = _RESOURCES if wanted.resource_type == ANY else (wanted.resource_type,)
    for kind in kinds:
        for by_principal in _at(index, kind, wanted.resource_name, wanted.pattern_type):
            for entries in by_principal.values():
                yield from ((acl_id, acl) for acl_id, acl in entries if wanted.matches(acl))


def _at(index: AclIndex, kind: int, name: str, pattern_type: int) -> Iterator[ByPrincipal]:
    if pattern_type == PatternType.MATCH:
        yield from index.applying_to(kind, name)
        return
    for known in _PATTERNS if pattern_type == ANY else (pattern_type,):
        found = index.at((kind, known, name))
        if found is not None:
            yield found


def _check_scans(image: MetadataImage, filters: tuple[AclFilter, ...]) -> None:
    scans = sum(1 for wanted in filters if wanted.resource_name is None)
    if scans > 1 and scans * len(image.acls) > MAX_SCANNED:
        raise RefusedError(
            ErrorCode.policy_violation,
            f"{scans} filters without a resource's name look at {len(image.acls)} entries each. Split the request.",
        )


def filter_fault(wanted: AclFilter) -> str | None:
    """The fault of a filter, or None."""
    allowed = {ANY} | _PATTERNS | {PatternType.MATCH}
    if wanted.resource_type not in {ANY} | _RESOURCES or wanted.pattern_type not in allowed:
        return "Unknown patternFilter."
    if wanted.operation not in {ANY} | _OPERATIONS or wanted.permission_type not in {ANY} | _PERMISSIONS:
        return "Unknown entryFilter."
    return None


def _fault(acl: Acl) -> str | None:
    faults = (
        (
            acl.resource_type != ResourceType.CLUSTER or acl.resource_name == CLUSTER_NAME,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        ),
        (bool(acl.resource_name), "Invalid empty resource name"),
        (acl.resource_type in _RESOURCES, f"Invalid resourceType {_unusable(acl.resource_type)}"),
        (acl.pattern_type in _PATTERNS, f"Invalid patternType {_unusable(acl.pattern_type)}"),
        (acl.operation in _OPERATIONS, f"Invalid operation {_unusable(acl.operation)}"),
        (acl.permission_type in _PERMISSIONS, f"Invalid permissionType {_unusable(acl.permission_type)}"),
        (
            ":" in acl.principal,
            f"Could not parse principal from `{acl.principal}` {_NO_COLON}",
        ),
    )
    return next((sentence for holds, sentence in faults if not holds), None)


_NO_COLON: Final = "(no colon is present separating the principal type from the principal name)"


def _unusable(code: int) -> str:
    return {ANY: "ANY", int(PatternType.MATCH): "MATCH"}.get(code, "UNKNOWN")


def _unused_id(image: MetadataImage, context: Context) -> Uuid:
    while True:
        acl_id = random_uuid(context.random)
        if acl_id not in image.acls:
            return acl_id
