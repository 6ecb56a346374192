"""The archive of a rollout: verdicts when they come, and at the end one directory with checksums.

The engine keeps verdicts and outputs here, a job of its last step makes the archive, and `apply` completes it. Files
are private, because they may hold secrets. Names that come from another host are checked before they become a path.
What cannot be fetched is named, and does not stop the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from migrator.config.properties import decoded
from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_DIRECTORY, TEMPORARY_SUFFIX, file_digest, sync_directory, write_durably
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.observe.journal import COMMAND_FILE
from migrator.observe.printable import json_text, printable
from migrator.rollout.files.property_files import properties_of
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import directories_of
from migrator.rollout.plan.modes import changes_shown, digest_shown
from migrator.rollout.ports import ExecutorError, HostUnreachableError, Output

VERDICTS, OUTPUTS, CHANGES, SUMS = "verdicts", "outputs", "changes", "SHA256SUMS"
ZOOKEEPER = "zookeeper.jsonl"
TRIES = 3
SEGMENTS_MAX = 1000
"""The most segments of one log; the newest ones are kept."""
SNAPSHOT_SUFFIX, SEGMENT_SUFFIX = ".checkpoint", ".log"
REPORT_PAGE = "report.html"
FILE_OF_LOG = re.compile(r"[0-9]{20}(-[0-9]{10}\.checkpoint|\.log)")


def keep_verdict(state: Path, step: str, report: Mapping[str, Any]) -> None:
    """Keep the report of `migrator preflight`, `rehearse` or `verify`. A later report of the same step replaces it.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / VERDICTS)
    write_durably(directory / f"{step.replace('/', '-')}.json", json_text(report, indent=True).encode() + b"\n")


def read_verdict(state: Path, step: str) -> Mapping[str, Any] | None:
    """The verdict that `keep_verdict` has kept; None if there is none, or it is damaged."""
    with suppress(OSError, orjson.JSONDecodeError):
        kept = orjson.loads((state / VERDICTS / f"{step.replace('/', '-')}.json").read_bytes())
        return kept if isinstance(kept, dict) else None
    return None


def keep_output(state: Path, step: str, output: Output) -> Path:
    """Keep what a command of a step printed when it failed, without terminal control characters. Only this user can
    read the file; a later output of the step replaces it.

    :raises StorageError: the disk refuses.
    """
    path = _directory(state / OUTPUTS) / f"{step.replace('/', '-')}.txt"
    said = f"{output.text}\n{output.errors}".lstrip().split("\n")
    write_durably(path, "\n".join(printable(line.rstrip("\r").expandtabs()) for line in said).encode())
    return path


def keep_changes(state: Path, rollout: str, step: str, node: Node, before: bytes | None, after: bytes) -> None:
    """Keep which keys a step changes in a property file, for the report; values that may be secrets are hidden. A later
    change of the same step replaces it.

    :param before: None for a new file.
    :raises StorageError: the disk refuses.
    """
    lines = changes_shown(decoded(before or b""), decoded(after))
    digests = ["" if content is None else digest_shown(decoded(content)) for content in (before, after)]
    kept = {"step": step, "node": node.name, "host": node.host, "file": node.properties, "changes": lines}
    kept["digests"] = digests
    path = _directory(state / CHANGES) / f"{rollout}-{step.replace('/', '-')}.json"
    write_durably(path, json_text(kept, indent=True).encode() + b"\n")


def read_changes(state: Path, rollout: str) -> dict[str, Mapping[str, Any]]:
    """The changes that `keep_changes` has kept of a rollout, by step. A file that is damaged is left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted((state / CHANGES).glob(f"{rollout}-*.json")):
        with suppress(OSError, orjson.JSONDecodeError, LookupError, TypeError):
            kept = orjson.loads(path.read_bytes())
            found[str(kept["step"])] = kept
    return found


async def make_archive(parts: RolloutParts, node: Node, state: Path, rollout: str) -> Path:
    """Archive the journal, the verdicts, the metadata log of the controller ``node``, and Kafka's znodes.

    :raises StorageError: the disk refuses.
    """
    directory = _directory(state / f"archive-{rollout}")
    for source in (state / COMMAND_FILE, *sorted((state / VERDICTS).glob("*.json"))):
        write_durably(directory / source.name, source.read_bytes())
    for left in directory.glob(f"*{TEMPORARY_SUFFIX}"):  # left by a command that was killed
        left.unlink()
    await _keep_metadata(parts, node, directory)
    kept = directory / ZOOKEEPER
    # A copy of an earlier try has at least as much: nobody writes to ZooKeeper any more, but its znodes may be removed.
    why_not = "" if kept.exists() else await parts.keep_zookeeper(kept)
    if why_not:
        parts.tell(f"archive: ZooKeeper's znodes are not in it: {why_not}")
    await asyncio.to_thread(_write_sums, directory)
    return directory


def _write_sums(directory: Path) -> None:
    names = sorted(path.name for path in directory.iterdir() if path.name != SUMS)
    sums = "".join(f"{file_digest(directory / name)}  {name}\n" for name in names)
    write_durably(directory / SUMS, sums.encode())


def complete_archive(directory: Path, state: Path, *files: tuple[str, bytes]) -> None:
    """Put the whole journal and more files into an archive that was made before the last lines of the journal.

    :param files: name and content.
    :raises OSError: the disk refuses.
    """
    for name, content in ((COMMAND_FILE, (state / COMMAND_FILE).read_bytes()), *files):
        write_durably(directory / name, content)
    _write_sums(directory)


async def _keep_metadata(parts: RolloutParts, node: Node, directory: Path) -> None:
    """Keep the files of the metadata log one after the other: the newest snapshot, and the segments. A file that cannot
    be fetched is reported, and does not stop the others. The node's host names the files and may be under other control
    by now, so a name is not used as a path."""
    try:
        where = directories_of(node, await properties_of(parts.executor, node))
        log = PurePosixPath(where[0] if where else "/") / DIRECTORY_NAME
        listed = await parts.executor.run(node, ["ls", "-1", str(log)], seconds=parts.inventory.times.command)
    except OperatorError as error:
        _tell_missing(parts, node, "all", error.what)
        return
    if listed.exit_code:
        _tell_missing(parts, node, "all", f"ls of {log} ended with exit code {listed.exit_code}")
        return
    names = sorted(filter(FILE_OF_LOG.fullmatch, listed.text.splitlines()))
    snapshots = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    segments = [name for name in names if name.endswith(SEGMENT_SUFFIX)]
    if len(segments) > SEGMENTS_MAX:
        segments = segments[-SEGMENTS_MAX:]
        _tell_missing(parts, node, f"what is before {segments[0]}", f"{log} shows more than {SEGMENTS_MAX} segments")
    elif not segments:
        _tell_missing(parts, node, "all", f"{log} shows no segment of the log")
    for name in (*snapshots[-1:], *segments):
        try:
            if not await _fetch(parts, node, str(log / name), directory / name):
                _tell_missing(parts, node, name, "it is not there any more")
        except HostUnreachableError as error:
            _tell_missing(parts, node, f"{name}, and what comes behind it", error.what)
            return
        except ExecutorError as error:
            _tell_missing(parts, node, name, error.what)


async def _fetch(parts: RolloutParts, node: Node, path: str, file: Path) -> bool:
    """Fetch a file, which may take long; try again when the connection breaks."""
    for _ in range(TRIES - 1):
        with suppress(HostUnreachableError):
            return await parts.executor.fetch(node, path, file, seconds=parts.inventory.times.command)
    return await parts.executor.fetch(node, path, file, seconds=parts.inventory.times.command)


def _tell_missing(parts: RolloutParts, node: Node, what: str, why: str) -> None:
    parts.tell(f"archive: the metadata of {node.name} are not complete in it: {what}: {why}. Keep a copy yourself")


def _directory(path: Path) -> Path:
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    sync_directory(path.parent)
    return path
