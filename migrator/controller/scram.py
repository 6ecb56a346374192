"""AlterUserScramCredentials: sets and deletes the credentials of users. Pure.

The client sends a salted password; stored and server key are made from it here (RFC 5802), and only they are in the
record. `repr` of a request never shows the salted password. One change for each user is made, or none. Source: Kafka's
``ScramControlManager``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context, supports
from migrator.controller.decision import NO_ERROR, ApiError, Decision, decided
from migrator.image.model import MetadataImage, ScramKey
from migrator.records.metadata import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from migrator.records.versions import MinLevel
from migrator.values import value

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
HASHES: Final[dict[int, str]] = {ScramMechanism.SHA_256: "sha256", ScramMechanism.SHA_512: "sha512"}

DUPLICATE_USER: Final = ApiError(
    ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
)


@value
class ScramDeletion:
    user: str
    mechanism: int


class ScramUpsertion:
    """A new credential. `repr` does not show its salted password."""

    __slots__ = ("iterations", "mechanism", "salt", "salted_password", "user")

    def __init__(self, user: str, mechanism: int, iterations: int, salt: bytes, salted_password: bytes) -> None:
        self.user = user
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, mechanism={self.mechanism}, [hidden])"


@value
class AlterScramRequest:
    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()


def alter_scram(
    image: MetadataImage, request: AlterScramRequest, _: Context
) -> Decision[tuple[tuple[str, ApiError], ...]]:
    """Delete and set credentials: one change for each user, or none."""
    granted: dict[str, ScramDeletion | ScramUpsertion] = {}
    errors: dict[str, ApiError] = {}
    changes: tuple[ScramDeletion | ScramUpsertion, ...] = (*request.deletions, *request.upsertions)
    for change in changes:
        if change.user in errors:
            continue
        if granted.pop(change.user, None) is not None:
            errors[change.user] = DUPLICATE_USER
            continue
        fault = _fault(image, change)
        if fault is None:
            granted[change.user] = change
        else:
            errors[change.user] = fault
    records: list[MetadataRecord] = [_record(change) for change in _deletions_first(granted)]
    results = [(change.user, NO_ERROR) for change in _deletions_first(granted)]
    return decided((*results, *errors.items()), records)


def _deletions_first(
    granted: dict[str, ScramDeletion | ScramUpsertion],
) -> Iterator[ScramDeletion | ScramUpsertion]:
    yield from sorted(granted.values(), key=lambda change: isinstance(change, ScramUpsertion))


def _fault(image: MetadataImage, change: ScramDeletion | ScramUpsertion) -> ApiError | None:
    if not supports(image, MinLevel.SCRAM):
        return ApiError(ErrorCode.unsupported_version, "The current metadata.version does not support SCRAM")
    if not change.user:
        return ApiError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if change.mechanism not in HASHES:
        return ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, ScramDeletion):
        if ScramKey(change.mechanism, change.user) not in image.scram:
            return ApiError(ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist")
    elif not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        few = "few" if change.iterations < MIN_ITERATIONS else "many"
        return ApiError(ErrorCode.unacceptable_credential, f"Too {few} iterations")
    elif not change.salted_password:
        return ApiError(ErrorCode.unacceptable_credential, "The salted password is empty.")
    return None


def _record(change: ScramDeletion | ScramUpsertion) -> MetadataRecord:
    if isinstance(change, ScramDeletion):
        return RemoveUserScramCredentialRecord(change.user, change.mechanism)
    return credential_record(change)


def credential_record(change: ScramUpsertion) -> UserScramCredentialRecord:
    """The record of a new credential. Its keys allow no login and do not reveal the password."""
    algorithm = HASHES[change.mechanism]
    client_key = hmac.digest(change.salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(change.salted_password, b"Server Key", algorithm),
        iterations=change.iterations,
    )
