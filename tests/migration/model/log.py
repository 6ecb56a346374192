"""The log of the model: what is in it is committed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from tests.migration.model.images import Content

PRE, MIGRATION_ON, POST = ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION, ZkMigrationState.POST_MIGRATION


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed record: begin, put, drop, end, abort, change, post, reopen or admit. The offset is its
    place, from 1."""

    epoch: int
    kind: str
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Committed:
    """The image of the log, closed transactions only."""

    record: ZkMigrationState
    content: tuple[tuple[str, str], ...]
    open_transaction: bool
    completed_at: EpochOffset
    reopened_at: int = 0
    """The offset of the record that reopened the migration, until brokers in ZooKeeper mode are admitted."""

    @property
    def as_content(self) -> Content:
        return dict(self.content)


@cache
def committed(log: tuple[Entry, ...], initial: ZkMigrationState) -> Committed:
    """Replay."""
    record, content, pending, base = initial, dict[str, str](), dict[str, str](), EpochOffset(-1, -1)
    is_open, reopened_at = False, 0
    for offset, entry in enumerate(log, start=1):
        match entry.kind:
            case "begin":
                is_open, pending = True, {}
            case "put" if is_open:
                pending[entry.name] = entry.text
            case "put":
                content[entry.name] = entry.text
            case "drop":
                (pending if is_open else content).pop(entry.name, None)
            case "end":
                content, record, is_open = dict(pending), MIGRATION_ON, False
                base = EpochOffset(epoch=entry.epoch, offset=offset)
            case "abort":
                is_open = False
            case "post" | "admit":
                record, reopened_at = POST if entry.kind == "post" else record, 0
            case "reopen":
                record, reopened_at, base = MIGRATION_ON, offset, EpochOffset(epoch=entry.epoch, offset=offset)
    return Committed(record, tuple(sorted(content.items())), is_open, base, reopened_at)
