"""Creates, renews and expires delegation tokens, and removes expired ones.

A token's HMAC is computed from its id and the cluster's secret key, and never stored. Times are milliseconds since
1970. Source: Kafka's ``DelegationTokenControlManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context, ControllerSettings, supports
from migrator.controller.decision import Decision, RefusedError, decided
from migrator.controller.token_index import size_of, token_hmac
from migrator.image.model import MetadataImage
from migrator.records.metadata import DelegationTokenRecord, MetadataRecord, RemoveDelegationTokenRecord
from migrator.records.uuid import random_uuid, uuid_to_text
from migrator.records.versions import MinLevel
from migrator.values import value

USER_PREFIX: Final = "User:"
MAX_RENEWERS: Final = 100
MAX_RENEWER_BYTES: Final = 16 * 1024
"""The most bytes of all renewers' names in a token. Every authenticated client may create tokens, and a token stays for
days in the memory and on the disk of every controller and in ZooKeeper. Kafka has no bound; real tokens name one or two
renewers."""
MAX_BYTES_OF_OWNER: Final = 16 * 1024 * 1024
"""The most bytes of all tokens of one owner: some 13,000 usual tokens, or 700 with the most renewers."""
LATEST_MS: Final = 253_402_300_799_999
"""The latest end of a token, in the year 9999, the last one of times in this program's messages. In stock Kafka a
lifetime near 2^63 ms overflows, and the token has expired before it is created."""


@value
class CreateTokenRequest:
    """Principals in text, ``Type:name``; ``owner`` is the requester when it asks for itself. ``max_lifetime_ms`` 0 or
    below means the configured one."""

    requester: str
    owner: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


class CreatedToken:
    """A new token with its HMAC, which `repr` does not show."""

    __slots__ = ("hmac", "token")

    def __init__(self, token: DelegationTokenRecord, digest: bytes) -> None:
        self.token = token
        self.hmac = digest

    def __repr__(self) -> str:
        return f"CreatedToken({self.token.token_id!r}, [hidden])"


@value
class TokenChange:
    """Renew or expire the token with that HMAC; ``period_ms`` counts from now. A renewal of 0 or below means the
    configured period; an expiry below 0 means at once."""

    requester: str
    hmac: bytes
    period_ms: int


def create_token(image: MetadataImage, request: CreateTokenRequest, context: Context) -> Decision[CreatedToken]:
    """Issue a token.

    :raises RefusedError: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION, INVALID_PRINCIPAL_TYPE; POLICY_VIOLATION
        above `MAX_RENEWER_BYTES` or `MAX_BYTES_OF_OWNER`.
    """
    secret = _secret(image, context)
    if not all(renewer.startswith(USER_PREFIX) for renewer in request.renewers):
        raise RefusedError(ErrorCode.invalid_principal_type, "Only users can be renewers.")
    _check_bounds(request, context)
    settings, now = context.settings, context.wall_ms
    lifetime = settings.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    token_id = uuid_to_text(random_uuid(context.random))
    token = DelegationTokenRecord(
        token_id=token_id,
        owner=request.owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_timestamp=now,
        max_timestamp=_moment(now + lifetime),
        expiration_timestamp=_moment(now + min(lifetime, settings.delegation_token_expiry_time_ms)),
    )
    return decided(CreatedToken(token, token_hmac(secret, token_id)), [token])


def _check_bounds(request: CreateTokenRequest, context: Context) -> None:
    renewers = request.renewers
    if len(renewers) > MAX_RENEWERS or sum(len(name.encode()) for name in renewers) > MAX_RENEWER_BYTES:
        raise RefusedError(
            ErrorCode.policy_violation,
            f"A token has at most {MAX_RENEWERS} renewers, with {MAX_RENEWER_BYTES} bytes of names together.",
        )
    size = size_of(request.owner, request.requester, renewers)
    if context.index.tokens.bytes_of(request.owner) + size > MAX_BYTES_OF_OWNER:
        raise RefusedError(
            ErrorCode.policy_violation,
            f"The delegation tokens of {request.owner} would take more than {MAX_BYTES_OF_OWNER} bytes. Expire some of "
            "them first.",
        )


def renew_token(image: MetadataImage, request: TokenChange, context: Context) -> Decision[int]:
    """Renew a token, up to its maximum lifetime; the answer is its new expiry.

    :raises RefusedError: as `create_token`; DELEGATION_TOKEN_NOT_FOUND, _EXPIRED, _OWNER_MISMATCH.
    """
    token = _find(image, request, context)
    if is_expired(token, context.wall_ms):
        raise RefusedError(ErrorCode.delegation_token_expired, "The token has expired.")
    _check_allowed(token, request.requester)
    period = context.settings.delegation_token_expiry_time_ms
    if request.period_ms > 0:
        period = min(period, request.period_ms)
    expiry = _moment(min(token.max_timestamp, context.wall_ms + period))
    return decided(expiry, [replace(token, expiration_timestamp=expiry)])


def expire_token(image: MetadataImage, request: TokenChange, context: Context) -> Decision[int]:
    """Set a token's expiry, or remove the token at once; the answer is its new expiry.

    :raises RefusedError: as `renew_token`.
    """
    token = _find(image, request, context)
    _check_allowed(token, request.requester)
    if request.period_ms < 0:
        return decided(context.wall_ms, [RemoveDelegationTokenRecord(token.token_id)])
    if is_expired(token, context.wall_ms):
        raise RefusedError(ErrorCode.delegation_token_expired, "The token has expired.")
    expiry = _moment(min(token.max_timestamp, context.wall_ms + request.period_ms))
    return decided(expiry, [replace(token, expiration_timestamp=expiry)])


def _moment(milliseconds: int) -> int:
    return min(milliseconds, LATEST_MS)


def expired_tokens(image: MetadataImage, context: Context, token_ids: Iterable[str]) -> Iterator[MetadataRecord]:
    """The records that remove the expired ones of these tokens."""
    for token_id in token_ids:
        token = image.tokens.get(token_id)
        if token is not None and is_expired(token, context.wall_ms):
            yield RemoveDelegationTokenRecord(token_id)


def is_expired(token: DelegationTokenRecord, wall_ms: int) -> bool:
    """Whether a token is past its expiry or its maximum."""
    return min(token.max_timestamp, token.expiration_timestamp) < wall_ms


def secret_key(settings: ControllerSettings) -> bytes | None:
    """The cluster's secret key under its new or old name; None when delegation tokens are off."""
    secret = settings.delegation_token_secret_key or settings.delegation_token_master_key
    return None if secret is None else secret.reveal().encode()


def _secret(image: MetadataImage, context: Context) -> bytes:
    secret = secret_key(context.settings)
    if secret is None:
        raise RefusedError(
            ErrorCode.delegation_token_auth_disabled, "Delegation tokens are off (delegation.token.secret.key)."
        )
    if not supports(image, MinLevel.DELEGATION_TOKENS):
        raise RefusedError(ErrorCode.unsupported_version, "Delegation tokens need metadata.version 3.6-IV2.")
    return secret


def _find(image: MetadataImage, request: TokenChange, context: Context) -> DelegationTokenRecord:
    _secret(image, context)
    token_id = context.index.tokens.find(request.hmac)
    if token_id is None:
        raise RefusedError(ErrorCode.delegation_token_not_found, "There is no such token.")
    return image.tokens[token_id]


def _check_allowed(token: DelegationTokenRecord, requester: str) -> None:
    if requester != token.owner and requester not in token.renewers:
        raise RefusedError(
            ErrorCode.delegation_token_owner_mismatch, "Only the token's owner and renewers may change it."
        )
