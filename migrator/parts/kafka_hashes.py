"""SHA-256 of each jar of each Kafka release that this program fetches and runs, and the comparison with a folder.

The list is `kafka_jars.sha256` next to this file, in the format of ``sha256sum``: a digest, two spaces, and
``RELEASE/FILE``. CONTRIBUTING.md says how to add a release.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from migrator.errors import OperatorError

LIST = Path(__file__).with_name("kafka_jars.sha256")
SHOWN = 3
RELEASE = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_LINE = re.compile(rf"(?P<digest>[0-9a-f]{{64}}) [ *](?P<release>{RELEASE.pattern})/(?P<file>[^/\s]+\.jar)")


def read_hashes(file: Path = LIST) -> dict[str, dict[str, str]]:
    """Digests by file, by release; the releases in the order of the file.

    :raises OperatorError: the file cannot be read, is empty, or has a line in another format.
    """
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        raise _unusable(file, f"the file of hashes cannot be read: {error}") from error
    found: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise _unusable(file, f"line {number} is no SHA-256 of a jar")
        known = found.setdefault(match["release"], {}).setdefault(match["file"], match["digest"])
        if known != match["digest"]:
            raise _unusable(file, f"line {number} gives {match['file']} a second SHA-256")
    if not found:
        raise _unusable(
            file, "the file of hashes has no line with a jar: the command that was to write it may have failed"
        )
    return found


def hashes_of(folder: Path) -> dict[str, str]:
    found = {}
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as content:
            found[jar.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def refuse_other_jars(version: str, folder: Path, expected: Mapping[str, str], *, where: str, remedy: str) -> None:
    """Compare the jars of a folder with those of the release. Every file is read each time: it takes 0.1 s.

    :raises OperatorError: a jar differs, is missing, or does not belong to the release.
    """
    found = hashes_of(folder)
    differences = list(_differences(found, expected))
    if differences:
        shown = "; ".join(differences[:SHOWN])
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise OperatorError(
            f"these are not the jars of Apache Kafka {version}, and nothing of them was run: {shown}{more}",
            where=where,
            remedy=remedy,
        )


def _differences(found: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            yield f"{name} is missing"
        elif name not in expected:
            yield f"{name} is not a file of this release"
        elif found[name] != expected[name]:
            yield f"{name} has the SHA-256 {found[name]}, expected was {expected[name]}"


def _unusable(file: Path, what: str) -> OperatorError:
    return OperatorError(
        what,
        where=str(file),
        remedy="Each line is a SHA-256, two spaces and RELEASE/FILE.jar, as 'sha256sum RELEASE/*.jar' prints it",
    )
