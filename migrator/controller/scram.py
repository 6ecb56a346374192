"""AlterUserScramCredentials: sets and deletes the credentials of users. Pure.

The client sends a salted password; stored and server key are made from it here (RFC 5802), and only they are in the
record. `repr` of a request never shows the salted password. One change for each user is made, or none. Source: Kafka's
``ScramControlManager``.

`migrator format` calls `parse_credential` for the credentials of a new quorum, in the form of ``kafka-storage format
--add-scram``:

``SCRAM-SHA-512=[name=alice,password=secret]``, and in any order ``iterations=8192``, ``salt="BASE64"``, and
``saltedpassword="BASE64"`` in the place of the password. Source: ``org.apache.kafka.metadata.storage.ScramParser``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context, supports
from migrator.controller.decision import NO_ERROR, ApiError, Decision, decided
from migrator.image.model import MetadataImage, ScramKey
from migrator.records.java_base64 import decode_base64
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
    """Delete and set credentials. Each user may have one change in a request; more are an error."""
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


MECHANISMS: Final = {"SCRAM-SHA-256": ScramMechanism.SHA_256, "SCRAM-SHA-512": ScramMechanism.SHA_512}
SALT_BYTES: Final = 16
_ARGUMENT = re.compile(r"([^=]+)=\[(.*)\]", re.DOTALL)
_PART = re.compile(r'\s*(name|password|saltedpassword|salt|iterations)=("[^"]*"|[^,"]*)\s*(?:,|$)', re.DOTALL)
FORM: Final = "SCRAM-SHA-256|SCRAM-SHA-512=[name=USER,password=PASSWORD]"


def parse_credential(text: str, fresh_salt: bytes) -> UserScramCredentialRecord:
    """One credential.

    :param fresh_salt: random bytes, for a credential that names no salt.
    :raises ValueError: the text has another form. The message quotes no part of a password.
    """
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError("it has another form")
    mechanism = MECHANISMS.get(match[1].strip())
    if mechanism is None:
        raise ValueError(f"the mechanism is none of {', '.join(MECHANISMS)}")
    parts = _parts(match[2])
    name, iterations = parts.get("name", ""), _iterations(parts)
    if not name:
        raise ValueError("it has no name")
    salt, salted = _salted(parts, HASHES[mechanism], iterations, fresh_salt)
    return credential_record(ScramUpsertion(name, mechanism, iterations, salt, salted))


def _parts(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise ValueError(
                "what is between [ and ] is not NAME=VALUE with commas between, with the names name, password, "
                "saltedpassword, salt and iterations. A value with a comma stands in quotation marks"
            )
        if match[1] in found:
            raise ValueError(f"it has {match[1]} twice")
        found[match[1]] = match[2].strip('"')
        position = match.end()
    return found


def _iterations(parts: Mapping[str, str]) -> int:
    text = parts.get("iterations", str(MIN_ITERATIONS))
    if not (text.isascii() and text.isdecimal()) or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ValueError(f"iterations is no number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _salted(parts: Mapping[str, str], algorithm: str, iterations: int, fresh_salt: bytes) -> tuple[bytes, bytes]:
    password, ready = parts.get("password"), parts.get("saltedpassword")
    if (password is None) == (ready is None):
        raise ValueError("it has to have either password or saltedpassword")
    if ready is not None:
        if "salt" not in parts:
            raise ValueError("it has saltedpassword and no salt")
        return _bytes(parts, "salt"), _bytes(parts, "saltedpassword")
    if not password:
        raise ValueError("the password is empty")
    salt = _bytes(parts, "salt") if "salt" in parts else fresh_salt
    return salt, hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


def _bytes(parts: Mapping[str, str], name: str) -> bytes:
    try:
        found = decode_base64(parts[name])
    except ValueError:
        raise ValueError(f"{name} is not Base64") from None
    if not found:
        raise ValueError(f"{name} is empty")
    return found
