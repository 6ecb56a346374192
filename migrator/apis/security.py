"""Quotas, SCRAM credentials and ACLs (APIs 49, 51, 29, 30, 31).

`registry` lists these functions. They translate between kio's messages and `migrator.controller`. An answer has Kafka's
errors, and never a password, salt or key.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call, error_fields
from migrator.controller.acls import UNKNOWN, AclFilter, DeletedAcls, create_acls, delete_acls, matching
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.quotas import AlterQuotasRequest, QuotaAlteration, alter_quotas
from migrator.controller.scram import AlterScramRequest, ScramDeletion, ScramUpsertion, alter_scram
from migrator.image.model import Acl, MetadataImage
from migrator.records.acl_codes import PatternType
from migrator.records.metadata import QuotaEntity
from migrator.values import fields_of


def quota_change(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AlterClientQuotas 0-1."""
    alterations = tuple(
        QuotaAlteration(_entity(entry), tuple((op.key, None if op.remove else op.value) for op in entry.ops))
        for entry in call.body.entries
    )
    decision = alter_quotas(image, AlterQuotasRequest(alterations, call.body.validate_only), context)
    return decision.answering(_quota_response(call, decision.response))


def refuse_quota_change(call: Call, error: ApiError) -> Any:
    """AlterClientQuotas refused as a whole."""
    return _quota_response(call, ((_entity(entry), error) for entry in call.body.entries))


def scram_change(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AlterUserScramCredentials 0."""
    request = AlterScramRequest(
        deletions=tuple(ScramDeletion(row.name, row.mechanism) for row in call.body.deletions),
        upsertions=tuple(
            ScramUpsertion(row.name, row.mechanism, row.iterations, bytes(row.salt), bytes(row.salted_password))
            for row in call.body.upsertions
        ),
    )
    decision = alter_scram(image, request, context)
    return decision.answering(_scram_response(call, decision.response))


def refuse_scram_change(call: Call, error: ApiError) -> Any:
    """AlterUserScramCredentials refused as a whole."""
    users = sorted({row.name for row in (*call.body.deletions, *call.body.upsertions)})
    return _scram_response(call, ((user, error) for user in users))


def acl_creation(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """CreateAcls 0-3; version 0 has literal patterns only."""
    _check_authorizer(context)
    acls = tuple(
        Acl(
            row.resource_type,
            row.resource_name,
            getattr(row, "resource_pattern_type", PatternType.LITERAL),
            row.principal,
            row.host,
            row.operation,
            row.permission_type,
        )
        for row in call.body.creations
    )
    decision = create_acls(image, acls, context)
    return decision.answering(call.respond(results=tuple(error_fields(error) for error in decision.response)))


def refuse_acl_creation(call: Call, error: ApiError) -> Any:
    """CreateAcls refused as a whole."""
    return call.respond(results=tuple(error_fields(error) for _ in call.body.creations))


def acl_deletion(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """DeleteAcls 0-3."""
    _check_authorizer(context)
    decision = delete_acls(image, tuple(_filter(row) for row in call.body.filters), context)
    return decision.answering(_deletion_response(call, decision.response))


def refuse_acl_deletion(call: Call, error: ApiError) -> Any:
    """DeleteAcls refused as a whole."""
    return _deletion_response(call, (DeletedAcls(error) for _ in call.body.filters))


def acl_description(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """DescribeAcls 0-3."""
    _check_authorizer(context, "No Authorizer is configured on the broker")
    wanted = _filter(call.body)
    if UNKNOWN in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        raise RefusedError(ErrorCode.invalid_request, "The filter has an unknown element.")
    found = sorted((acl for _, acl in matching(image, wanted)), key=_in_answer)
    resources = tuple(
        {
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": pattern,
            "acls": tuple(map(fields_of, acls)),
        }
        for (kind, name, pattern), acls in groupby(found, _pattern)
    )
    return Decision(call.respond(resources=resources))


def _check_authorizer(context: Context, otherwise: str = "No Authorizer is configured.") -> None:
    if not context.settings.authorizer_class_name:
        raise RefusedError(ErrorCode.security_disabled, otherwise)


def _entity(entry: Any) -> tuple[QuotaEntity, ...]:
    """The entity of an entry. When a type is named twice, the last one counts."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple(QuotaEntity(entity_type, name) for entity_type, name in names.items())


def _quota_response(call: Call, results: Iterable[tuple[Iterable[QuotaEntity], ApiError]]) -> Any:
    return call.respond(
        entries=tuple(
            {
                **error_fields(error),
                "entity": tuple(
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in sorted(entity, key=lambda part: part.entity_type)
                ),
            }
            for entity, error in results
        )
    )


def _scram_response(call: Call, results: Iterable[tuple[str, ApiError]]) -> Any:
    return call.respond(results=tuple({"user": user, **error_fields(error)} for user, error in results))


def _filter(row: Any) -> AclFilter:
    return AclFilter(
        resource_type=row.resource_type_filter,
        resource_name=row.resource_name_filter,
        pattern_type=getattr(row, "pattern_type_filter", PatternType.LITERAL),
        principal=row.principal_filter,
        host=row.host_filter,
        operation=row.operation,
        permission_type=row.permission_type,
    )


def _pattern(acl: Acl) -> tuple[int, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type


def _in_answer(acl: Acl) -> tuple[Any, ...]:
    """The image has no order: each controller, and each of its processes, would answer in another one."""
    return *_pattern(acl), acl.principal, acl.host, acl.operation, acl.permission_type


def _deletion_response(call: Call, results: Iterable[DeletedAcls]) -> Any:
    return call.respond(
        filter_results=tuple(
            {
                **error_fields(result.error),
                "matching_acls": tuple(map(fields_of, result.acls)),
            }
            for result in results
        )
    )
