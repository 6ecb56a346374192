"""``quorum-recovery``: the recoveries of a lost majority in this directory. The last one may be unfinished.

The file is next to the log, and is written before the log is. An entry counts once its records are in the log; until
then nothing has changed. Stock Kafka ignores the file. See docs/adr/0024-a-lost-majority.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from migrator.log.errors import StorageError, storage_errors
from migrator.log.files import write_durably
from migrator.machine import machine
from migrator.raft.refused import Recovered, merged
from migrator.raft.storage import LogView
from migrator.raft.voter_set import ReplicaKey
from migrator.records.uuid import uuid_from_text, uuid_to_text
from migrator.values import value

FILE_NAME = "quorum-recovery"
_DATA_VERSION = 0


@value
class RecoveryEntry:
    """Its records are in the log from ``offset`` to ``end_offset``, all in ``epoch``.

    ``is_done``: the election state and the journal have been written, too.
    """

    epoch: int
    offset: int
    end_offset: int
    survivor: ReplicaKey
    lost: tuple[ReplicaKey, ...]
    is_done: bool = False

    def counts(self, log: LogView) -> bool:
        """Whether its records are in the log, or in a snapshot at the log's start."""
        is_there = log.epoch_at(self.offset) in {None, self.epoch}
        return is_there and log.last_epoch() >= self.epoch and log.end_offset() >= self.end_offset


class RecoveryFile:
    """The file of one log directory. Without a recovery there is no file."""

    def __init__(self, log_directory: Path) -> None:
        self._path = log_directory / FILE_NAME

    def read(self) -> tuple[RecoveryEntry, ...]:
        """The entries in the order of their epochs.

        :raises StorageError: the file cannot be read or understood. Without it, lost controllers could come back.
        """
        with storage_errors("cannot read", self._path):
            if not machine().exists(self._path):
                return ()
            data = machine().content(self._path)
        try:
            return _decode(data)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"the file about the recovery of the quorum is damaged: {error}",
                where=str(self._path),
                remedy="Restore the file from a copy. If other voters run, empty this controller's metadata directory "
                "and format it again instead",
            ) from error

    def write(self, entries: Iterable[RecoveryEntry]) -> None:
        """Durable when this returns.

        :raises StorageError: when that fails.
        """
        write_durably(self._path, _encode(tuple(entries)))


def recovered(entries: Sequence[RecoveryEntry], log: LogView) -> Recovered:
    """The refused replicas and the place in the log, of the entries that count."""
    return merged(
        Recovered(frozenset(entry.lost), entry.epoch, entry.end_offset) for entry in entries if entry.counts(log)
    )


def _encode(entries: Sequence[RecoveryEntry]) -> bytes:
    rows = [
        {
            "epoch": entry.epoch,
            "offset": entry.offset,
            "endOffset": entry.end_offset,
            "survivor": _key_fields(entry.survivor),
            "lost": list(map(_key_fields, entry.lost)),
            "done": entry.is_done,
        }
        for entry in sorted(entries, key=lambda entry: entry.epoch)
    ]
    return orjson.dumps({"recoveries": rows, "data_version": _DATA_VERSION})


def _key_fields(key: ReplicaKey) -> dict[str, Any]:
    return {"id": key.node_id, "directoryId": uuid_to_text(key.directory_id)}


def _decode(data: bytes) -> tuple[RecoveryEntry, ...]:
    fields = orjson.loads(data)
    if not isinstance(fields, dict) or fields.get("data_version") != _DATA_VERSION:
        raise ValueError("it is no object with data_version 0")
    return tuple(map(_entry, fields["recoveries"]))


def _entry(row: Mapping[str, Any]) -> RecoveryEntry:
    epoch, offset, end_offset, is_done = row["epoch"], row["offset"], row["endOffset"], row["done"]
    numbers = (epoch, offset, end_offset)
    if not all(type(number) is int for number in numbers) or not 0 <= offset < end_offset or epoch < 0:
        raise ValueError(f"epoch, offset and endOffset are {numbers}")
    if not isinstance(is_done, bool):
        raise TypeError(f"done is {is_done!r}")
    return RecoveryEntry(epoch, offset, end_offset, _key(row["survivor"]), tuple(map(_key, row["lost"])), is_done)


def _key(row: Mapping[str, Any]) -> ReplicaKey:
    if type(row["id"]) is not int:
        raise ValueError(f"id is {row['id']!r}")
    return ReplicaKey(row["id"], uuid_from_text(row["directoryId"]))
