"""Create, renew and expire delegation tokens (APIs 38, 39, 40).

`registry` lists these functions. They translate between kio's messages and `migrator.controller.delegation_tokens`.
Requests over a connection that was authenticated with a token are refused, as in Kafka. The HMAC is in the answer to
the creator only; the audit trail has the token's id.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import tell
from migrator.apis.call import Call
from migrator.apis.fields import milliseconds_in, time_out
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.delegation_tokens import (
    CreateTokenRequest,
    TokenChange,
    create_token,
    expire_token,
    renew_token,
)
from migrator.image.model import MetadataImage
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from migrator.wire.principal import Principal

USER: Final = "User"
NO_TIME: Final = time_out(-1)
"""The time in answers to callers without the right."""
NEVER: Final = time_out(0)
"""The time in refusals for another reason."""
FORBIDDEN: Final = (
    ErrorCode.delegation_token_request_not_allowed,
    ErrorCode.delegation_token_authorization_failed,
)


def token_creation(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """CreateDelegationToken 0-3; from version 3 on for another owner, too."""
    with _audited(call, AclOperation.CREATE) as done:
        decision, token_id = _create(call, image, context)
        done(token_id)
    return decision


def _create(call: Call, image: MetadataImage, context: Context) -> tuple[Decision[Any], str]:
    _check_connection(call)
    owner = _owner(call)
    if owner != call.principal and not call.access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise RefusedError(
            ErrorCode.delegation_token_authorization_failed, "The principal may not create tokens of another."
        )
    request = CreateTokenRequest(
        requester=str(call.principal),
        owner=str(owner),
        renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in call.body.renewers),
        max_lifetime_ms=milliseconds_in(call.body.max_lifetime),
    )
    decision = create_token(image, request, context)
    created = decision.response
    response = call.respond(
        **_principals(call),
        issue_timestamp=time_out(created.token.issue_timestamp),
        expiry_timestamp=time_out(created.token.expiration_timestamp),
        max_timestamp=time_out(created.token.max_timestamp),
        token_id=created.token.token_id,
        hmac=created.hmac,
    )
    return decision.answering(response), created.token.token_id


def refuse_token_creation(call: Call, error: ApiError) -> Any:
    moment = _moment(error)
    return call.respond(
        error_code=error.code,
        **_principals(call),
        issue_timestamp=moment,
        expiry_timestamp=moment,
        max_timestamp=moment,
    )


def token_renewal(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """RenewDelegationToken 0-2."""
    with _audited(call, AclOperation.ALTER) as done:
        return _change(call, image, context, renew_token, milliseconds_in(call.body.renew_period), done)


def token_expiry(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """ExpireDelegationToken 0-2."""
    with _audited(call, AclOperation.DELETE) as done:
        return _change(call, image, context, expire_token, milliseconds_in(call.body.expiry_time_period), done)


def refuse_token_change(call: Call, error: ApiError) -> Any:
    """Renewal or expiry refused."""
    return call.respond(error_code=error.code, expiry_timestamp=_moment(error))


def _moment(error: ApiError) -> dt.datetime:
    return NO_TIME if error.code in FORBIDDEN else NEVER


def _change(
    call: Call,
    image: MetadataImage,
    context: Context,
    decide: Callable[[MetadataImage, TokenChange, Context], Decision[int]],
    period_ms: int,
    done: Callable[[str], None],
) -> Decision[Any]:
    _check_connection(call)
    decision = decide(image, TokenChange(str(call.principal), bytes(call.body.hmac), period_ms), context)
    for record in decision.records:
        if isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
            done(record.token_id)
    return decision.answering(call.respond(expiry_timestamp=time_out(decision.response)))


@contextmanager
def _audited(call: Call, operation: AclOperation) -> Iterator[Callable[[str], None]]:
    """Note a token operation in the trail, because no access control entry decides it: with the token's id once it is
    known, or as refused."""
    try:
        yield lambda token_id: tell(call.access, (operation, ResourceType.DELEGATION_TOKEN, token_id), allowed=True)
    except RefusedError:
        tell(call.access, (operation, ResourceType.DELEGATION_TOKEN, ""), allowed=False)
        raise


def _check_connection(call: Call) -> None:
    if not call.may_use_tokens:
        raise RefusedError(
            ErrorCode.delegation_token_request_not_allowed,
            "Delegation tokens need a connection that logged in with SASL or a client certificate, not with a token.",
        )


def _owner(call: Call) -> Principal:
    name = getattr(call.body, "owner_principal_name", None)
    return Principal(call.body.owner_principal_type or USER, name) if name else call.principal


def _principals(call: Call) -> dict[str, str]:
    owner = _owner(call)
    return {
        "principal_type": owner.kind,
        "principal_name": owner.name,
        "token_requester_principal_type": call.principal.kind,
        "token_requester_principal_name": call.principal.name,
    }
