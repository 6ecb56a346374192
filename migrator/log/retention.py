"""When the oldest snapshot, and the log that only it needs, may go.

Source: ``kafka.raft.KafkaMetadataLog.maybeClean``, KIP-630.
"""

from __future__ import annotations

from migrator.log.snapshots import SnapshotStore
from migrator.values import value


@value
class Retention:
    """metadata.max.retention.bytes and metadata.max.retention.ms; negative is without limit."""

    max_bytes: int = 100 * 1024 * 1024
    max_ms: int = 7 * 24 * 3600 * 1000


def oldest_may_go(store: SnapshotStore, log_bytes: int, retention: Retention, now_ms: int) -> bool:
    """Whether the oldest snapshot is beyond a limit and not the only one.

    :raises StorageError: when a snapshot cannot be looked at.
    """
    ids = store.ids()
    if len(ids) < 2:
        return False
    total = log_bytes + sum(map(store.size, ids))
    if 0 <= retention.max_bytes < total:
        return True
    return 0 <= retention.max_ms < now_ms - store.last_contained_log_timestamp_ms(ids[0])
