"""Certificates of a small quorum, of its operator, and of callers who have no rights there.

Made once for all tests of a process, in a temporary directory.
"""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from migrator.parts.certificates import Authority
from migrator.rpc.identity import Identities
from migrator.rpc.tls import TlsFiles

AUTHORITY = Authority("quorum")
VOTERS = {f"User:CN=voter-{number}": number for number in (1, 2, 3)}
OPERATOR = "User:CN=operator"
IDENTITIES = Identities(VOTERS, frozenset({OPERATOR}))
_HOME = TemporaryDirectory()
atexit.register(_HOME.cleanup)


@cache
def files_of(name: str) -> TlsFiles:
    """A certificate of the quorum's authority for that common name."""
    return TlsFiles(*AUTHORITY.files(Path(_HOME.name) / name, name))


def voter(number: int) -> TlsFiles:
    """That voter's own."""
    return files_of(f"voter-{number}")


def properties_of(files: TlsFiles) -> dict[str, str]:
    """The keys that name them, and the quorum's voters."""
    return {
        "migrator.grpc.tls.certificate.file": str(files.certificate),
        "migrator.grpc.tls.key.file": str(files.key),
        "migrator.grpc.tls.ca.file": str(files.authority),
    }


def command_config() -> Path:
    """The file for --command-config."""
    file = Path(_HOME.name) / "operator.properties"
    keys = properties_of(files_of("operator")) | {
        "migrator.grpc.voter.principals": ";".join(f"{number}@{principal}" for principal, number in VOTERS.items())
    }
    file.write_text("".join(f"{key}={text}\n" for key, text in keys.items()))
    return file
