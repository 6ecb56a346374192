"""Looks for a secured drill's secrets where they must not be: logs, journals, pages, reports, arguments of processes,
files that others may read.

Passwords belong into property files, private keys into PEM files, SCRAM keys into ZooKeeper and the metadata log, and
the passwords of configurations into the metadata log, which holds them as they are (``ConfigRecord``). A rollout keeps
copies of these files in other places: old property files, and the archive.
"""

from __future__ import annotations

import base64
import re
import stat
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from migrator.controller.token_index import token_hmac
from migrator.drill.cluster import ENCODER_SECRET, TOKEN_SECRET
from migrator.drill.security.protection import Secured
from migrator.drill.workload.fill import VAULT_PASSWORD, token_ids
from migrator.log.metadata_log import DIRECTORY_NAME

_KEY = re.compile(rb"-----BEGIN PRIVATE KEY-----\s+\S+\s+(\S+)")
"""Its second line: the first begins as that of any other key."""
_SCRAM = re.compile(r"(stored_key|server_key)=([^,]+)")
_LOG_DIRECTORIES = (DIRECTORY_NAME, "version-2")
"""The log directories of controllers and brokers, and of ZooKeeper."""
_NO_TEXT = (".index", ".timeindex", ".txnindex")
"""These files have their full size from the start, and are mostly empty."""


class SecretKind(Enum):
    """The kinds of secrets, and the places where each may be."""

    PASSWORD = "password"  # noqa: S105
    KEY = "private key"
    CONFIG = "password of a configuration"
    SCRAM = "SCRAM key"
    TOKEN = "delegation token"  # noqa: S105 - names of kinds

    def belongs_into(self, path: Path) -> bool:
        match self:
            case SecretKind.PASSWORD:
                return is_property_file(path) or path.name == "metrics-users"
            case SecretKind.KEY:
                return path.suffix == ".pem"
            case SecretKind.CONFIG:  # encrypted in ZooKeeper; in clear in KRaft's log files
                return path.parent.name == DIRECTORY_NAME or is_archive(path.parent)
            case SecretKind.SCRAM:
                return path.parent.name in _LOG_DIRECTORIES or is_archive(path.parent)
            case SecretKind.TOKEN:
                return False


def is_property_file(path: Path) -> bool:
    """Whether a file is a property file, also a copy that a rollout keeps (``FILE.before-PHASE.ROLLOUT``)."""
    return path.suffix == ".properties" or ".properties.before-" in path.name


def is_archive(directory: Path) -> bool:
    """The place of the metadata log and the znodes at the end of a rollout."""
    return directory.name.startswith("archive-") and directory.parent.suffix == ".rollout"


class Secrets:
    """All secrets of one drill; ``find`` searches a text for them."""

    def __init__(self, known: Mapping[bytes, SecretKind]) -> None:
        self._known = known
        self._any = re.compile(b"|".join(map(re.escape, sorted(known, key=len, reverse=True))))

    def __len__(self) -> int:
        return len(self._known)

    def find(self, text: bytes) -> set[SecretKind]:
        return {self._known[match.group()] for match in self._any.finditer(text)}


def secrets_of(security: Secured, directory: Path) -> Secrets:
    """The secrets of a drill with its files in ``directory``."""
    known: dict[bytes, SecretKind] = {}
    for password in (*security.passwords.values(), ENCODER_SECRET, TOKEN_SECRET):
        known[password.encode()] = SecretKind.PASSWORD
    known[VAULT_PASSWORD.encode()] = SecretKind.CONFIG
    for path in directory.rglob("*.pem"):
        known |= dict.fromkeys(_KEY.findall(path.read_bytes()), SecretKind.KEY)
    for config in security.users.values():
        for text in config.values():
            for _, key in _SCRAM.findall(text):
                known[key.encode()] = SecretKind.SCRAM
                known[base64.b64decode(key).hex().encode()] = SecretKind.SCRAM
    for token_id in token_ids():
        own = token_hmac(TOKEN_SECRET.encode(), token_id)
        known |= dict.fromkeys((base64.b64encode(own), own.hex().encode()), SecretKind.TOKEN)
    return Secrets(known)


def given_away(directory: Path, secrets: Secrets) -> tuple[int, list[str]]:
    """The number of files that were read, and a sentence for each with a secret that must not be there."""
    found: list[str] = []
    count = 0
    for path in _files(directory):
        if path.suffix in _NO_TEXT:
            continue
        count += 1
        kinds = {kind.value for kind in secrets.find(path.read_bytes()) if not kind.belongs_into(path)}
        if kinds:
            found.append(f"{path.relative_to(directory)}: {', '.join(sorted(kinds))}")
    return count, found


def open_to_others(directory: Path) -> list[str]:
    """Files below that the group or all users may read or write, regardless of the directories above."""
    return [
        str(path.relative_to(directory))
        for path in _files(directory)
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    ]


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink())
