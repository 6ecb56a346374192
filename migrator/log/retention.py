"""The rule by which the oldest snapshot, and the log that only it needs, is removed.

`metadata_log` asks it, and removes; the rule only reads sizes and times of snapshots. The newest snapshot always stays.
Records that a proof still needs are kept beyond the limits, up to `HELD_BACK` times the bytes. Source:
``kafka.raft.KafkaMetadataLog.maybeClean``, KIP-630.
"""

from __future__ import annotations

from migrator.log.snapshots import SnapshotStore
from migrator.values import value


@value
class Retention:
    """metadata.max.retention.bytes and metadata.max.retention.ms. A negative value means no limit."""

    max_bytes: int = 100 * 1024 * 1024
    max_ms: int = 7 * 24 * 3600 * 1000


HELD_BACK = 10
"""Records that are still needed are kept beyond the limits, up to this many times ``max_bytes``: a full disk would be
worse than losing them."""


def oldest_may_go(
    store: SnapshotStore, log_bytes: int, retention: Retention, now_ms: int, needed_from: int | None = None
) -> bool:
    """Whether the oldest snapshot is beyond a limit and not the only one.

    :param needed_from: the log is to keep this offset and everything after it, up to `HELD_BACK`; None for no offset.
    :raises StorageError: a snapshot cannot be read.
    """
    ids = store.ids()
    if len(ids) < 2:
        return False
    total = log_bytes + sum(map(store.size, ids))
    if needed_from is not None and ids[1].offset > needed_from and not 0 <= HELD_BACK * retention.max_bytes < total:
        return False
    if 0 <= retention.max_bytes < total:
        return True
    return 0 <= retention.max_ms < now_ms - store.last_contained_log_timestamp_ms(ids[0])
