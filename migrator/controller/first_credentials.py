"""SCRAM credentials that a new quorum is formatted with, as ``kafka-storage format --add-scram`` takes them.

``SCRAM-SHA-512=[name=alice,password=secret]``, and in any order ``iterations=8192``, ``salt="BASE64"``, and
``saltedpassword="BASE64"`` in the place of the password. Source: ``org.apache.kafka.metadata.storage.ScramParser``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from migrator.controller.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, ScramUpsertion, credential_record
from migrator.records.java_base64 import decode_base64
from migrator.records.metadata import ScramMechanism, UserScramCredentialRecord

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
