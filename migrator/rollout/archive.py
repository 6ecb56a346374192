"""What is kept of a rollout: verdicts as they come, and in the end one directory with checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from migrator.log.files import PRIVATE_DIRECTORY, sync_directory, write_durably
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.observe.printable import json_text
from migrator.rollout.jobs import directories_of
from migrator.rollout.journal import FILE_NAME
from migrator.rollout.modes import parsed
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.ports import ExecutorError

VERDICTS, SUMS = "verdicts", "SHA256SUMS"
SNAPSHOT_SUFFIX = ".checkpoint"


def keep_verdict(state: Path, step: str, report: Mapping[str, Any]) -> None:
    """Of `migrator verify`; a later one of the same step takes its place.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / VERDICTS)
    write_durably(directory / f"{step.replace('/', '-')}.json", json_text(report, indent=True).encode() + b"\n")


async def make_archive(parts: RolloutParts, node: Node, state: Path, rollout: str) -> Path:
    """The journal, the verdicts, and the newest snapshot of the metadata that the controller ``node`` has.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / f"archive-{rollout}")
    for source in (state / FILE_NAME, *sorted((state / VERDICTS).glob("*.json"))):
        write_durably(directory / source.name, source.read_bytes())
    found = await _snapshot(parts, node)
    if found is None:
        parts.tell(f"archive: {node.name} gives no snapshot of the metadata; keep a copy of its directory yourself")
    else:
        write_durably(directory / found[0], found[1])
    names = sorted(path.name for path in directory.iterdir() if path.name != SUMS)
    sums = "".join(f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    write_durably(directory / SUMS, sums.encode())
    return directory


async def _snapshot(parts: RolloutParts, node: Node) -> tuple[str, bytes] | None:
    """Name and content of the newest one; None where there is none, or where it cannot be brought here."""
    try:
        text = await parts.executor.read(node, node.properties)
        where = directories_of(parsed(node, (text or b"").decode()))
        log = str(PurePosixPath(where[0]) / DIRECTORY_NAME) if where else ""
        listed = await parts.executor.run(node, ["ls", "-1", log], seconds=parts.inventory.times.command)
        names = sorted(name for name in listed.text.splitlines() if name.endswith(SNAPSHOT_SUFFIX))
        content = await parts.executor.read(node, str(PurePosixPath(log) / names[-1])) if names else None
    except ExecutorError:
        return None
    return None if content is None else (names[-1], content)


def _directory(path: Path) -> Path:
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    sync_directory(path.parent)
    return path
