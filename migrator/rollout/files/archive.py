"""What is kept of a rollout: verdicts as they come, and in the end one directory with checksums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from migrator.log.files import PRIVATE_DIRECTORY, sync_directory, write_durably
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.observe.journal import COMMAND_FILE
from migrator.observe.printable import json_text
from migrator.rollout.files.property_files import text_of
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import directories_of
from migrator.rollout.plan.modes import digest, parsed
from migrator.rollout.ports import ExecutorError, Output

VERDICTS, OUTPUTS, SUMS = "verdicts", "outputs", "SHA256SUMS"
ZOOKEEPER = "zookeeper.jsonl"
SNAPSHOT_SUFFIX, SEGMENT_SUFFIX = ".checkpoint", ".log"
FILE_OF_LOG = re.compile(r"[0-9]{20}(-[0-9]{10}\.checkpoint|\.log)")


def keep_verdict(state: Path, step: str, report: Mapping[str, Any]) -> None:
    """Of `migrator verify` or `migrator rehearse`; a later one of the same step takes its place.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / VERDICTS)
    write_durably(directory / f"{step.replace('/', '-')}.json", json_text(report, indent=True).encode() + b"\n")


def keep_output(state: Path, step: str, output: Output) -> Path:
    """What a command of a step said when it failed, readable for this user only; a later one takes its place.

    :raises StorageError: the disk refuses.
    """
    path = _directory(state / OUTPUTS) / f"{step.replace('/', '-')}.txt"
    write_durably(path, f"{output.text}\n{output.errors}".lstrip().encode())
    return path


async def make_archive(parts: RolloutParts, node: Node, state: Path, rollout: str) -> Path:
    """The journal, the verdicts, the metadata that the controller ``node`` has, and what Kafka has in ZooKeeper.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / f"archive-{rollout}")
    for source in (state / COMMAND_FILE, *sorted((state / VERDICTS).glob("*.json"))):
        write_durably(directory / source.name, source.read_bytes())
    await _keep_metadata(parts, node, directory)
    kept = directory / ZOOKEEPER
    # One of an earlier try has at least as much: nobody writes there any more, and somebody may have removed all since.
    why_not = "" if kept.exists() else await parts.keep_zookeeper(kept)
    if why_not:
        parts.tell(f"archive: ZooKeeper's znodes are not in it: {why_not}")
    names = sorted(path.name for path in directory.iterdir() if path.name != SUMS)
    sums = "".join(f"{digest((directory / name).read_bytes())}  {name}\n" for name in names)
    write_durably(directory / SUMS, sums.encode())
    return directory


async def _keep_metadata(parts: RolloutParts, node: Node, directory: Path) -> None:
    """Files of the metadata log, one after the other: the newest snapshot, and the segments. What cannot be brought
    here is said. The node's host names them, and may be anybody's by now: a name is no path.
    """
    try:
        where = directories_of(parsed(node, await text_of(parts.executor, node)))
        log = PurePosixPath(where[0] if where else "/") / DIRECTORY_NAME
        listed = await parts.executor.run(node, ["ls", "-1", str(log)], seconds=parts.inventory.times.command)
        names = sorted(filter(FILE_OF_LOG.fullmatch, listed.text.splitlines()))
        snapshots = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        for name in (*snapshots[-1:], *(name for name in names if name.endswith(SEGMENT_SUFFIX))):
            content = await parts.executor.read(node, str(log / name))
            if content is not None:
                write_durably(directory / name, content)
    except ExecutorError as error:
        parts.tell(f"archive: the metadata of {node.name} are not complete in it: {error.what}. Keep a copy yourself")


def _directory(path: Path) -> Path:
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    sync_directory(path.parent)
    return path
