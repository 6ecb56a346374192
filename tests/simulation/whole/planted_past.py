"""Bugs that this program had, and that people found by reading or with slow tests."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

from migrator import turns
from migrator.node import active
from migrator.node.active import ActiveController
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.storage import NodeStorage
from migrator.raft.messages import EpochOffset
from migrator.records.batch import restamp
from migrator.wire.aside import lanes
from tests.simulation.whole.planting import Patches, bug


@bug(
    controllers=5,
    dynamic="no",
    chaos_seconds=20,
    big_share=0.15,
    big_groups=10,
    snapshot_bytes=3_000,
    retention_bytes=1,
    segment_bytes=1_000,
    clean_seconds=1,
    turn_ms_max=1,
    alone_rate=0.3,
    aside_rate=1,
)
def image_keeps_what_a_snapshot_has_replaced() -> Patches:
    """Records of the new log were passed over in silence, when it was cut while the snapshot was being applied (etcd
    13766 and the postmortem of its 3.5: what is applied and how far are two facts that have to move together). Turns
    of few records make the load as long as that of an image with millions of them."""

    def installed(self: MetadataRuntime, snapshot: EpochOffset) -> None:
        self._go_on_from(snapshot.offset)
        self._work = self._install(snapshot)
        self._wake()

    return [(MetadataRuntime, "installed", installed), (turns, "TURN_RECORDS", 5)]


@bug(dynamic="yes", observers=1, chaos_seconds=10, change_rate=20, writes=40, thread_ms_max=30)
def batch_is_encoded_for_an_offset_that_a_voter_change_takes() -> Patches:
    """The leader resigned, as its own batch did not fit its log (KAFKA-15213, KAFKA-17304: at which offset a
    record will be is known only where it is appended)."""

    async def append_whole(self: ActiveController, epoch: int, records: Any) -> None:
        if not records:
            return
        base = self._end_offset()
        batch = await lanes().decisions.run(partial(active._batch, self._metadata.image, records))
        self._check_still(epoch)
        stamped = restamp(batch, base, epoch)[0]
        with patch.object(NodeStorage, "stamped", lambda _self, _batches, _epoch: stamped):
            self._taken(epoch, self._quorum.append(epoch, batch))
        await self._metadata.caught_up()
        self._check_still(epoch)

    async def change_voters(self: ActiveController, change: Any, look: Any = lambda: None, **_: Any) -> int:
        look()
        return self._quorum.change_voters(change)

    return [(ActiveController, "_append_whole", append_whole), (ActiveController, "change_voters", change_voters)]


@bug(
    dynamic="no",
    chaos_seconds=20,
    wipe_rate=0.4,
    wiped_at_once=2,
    requires_bootstrap="yes",
    kill_rate=1.5,
    hang_rate=0.7,
    snapshot_bytes=1_500,
    retention_bytes=1,
    segment_bytes=1_000,
    clean_seconds=1,
    chunk_bytes=100,
    delay_ms_max=40,
    writes=20,
)
def mark_of_an_empty_disk_is_forgotten_at_the_second_start() -> Patches:
    """A node with an election state beside its empty log counted as a voter: wiped voters began anew (ZOOKEEPER-2325:
    a server without its data takes part as one that never had any)."""

    def mark_if_empty(self: NodeStorage) -> bool:
        is_empty = not self.log.end_offset() and not self.log.snapshots()
        return is_empty and self._quorum_state.read() is None

    return [
        (NodeStorage, "mark_if_empty", mark_if_empty),
        (NodeStorage, "must_fetch_first", property(lambda _self: False)),
    ]
