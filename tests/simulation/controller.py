"""The controller above a simulated node's consensus: it writes for the client, ends transactions, takes snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from migrator.raft.messages import EpochOffset
from migrator.raft.states import Role
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from tests.simulation import invariants as rules
from tests.simulation.batches import Record
from tests.simulation.invariants import check

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode


class Controller:
    """Lives as long as its node's process; what it has promised ends with leadership."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.is_active = False
        self._transaction: list[int] | None = None
        self._waiting: list[tuple[int, tuple[int, ...]]] = []

    def role_changed(self) -> None:
        """Uncommitted records may be lost: no caller has an answer about them."""
        self.is_active, self._transaction = False, None
        self._waiting.clear()

    @property
    def may_write_target(self) -> bool:
        """Not while records of others would be around it."""
        return self.is_active and self._transaction is None and not self.node.is_paused

    # Writes

    def write(self) -> None:
        """One turn of the client at this node."""
        if not self.is_active or self.node.is_paused:
            return
        random, world = self.node.random, self.node.world
        if self._transaction is None and random.random() >= world.options.transaction_share:
            writes = tuple(world.next_write() for _ in range(random.randint(1, 3)))
            self._append(writes, promise=writes)
        elif self._transaction is None:
            self._transaction = []
            self._append((BeginTransactionRecord(None),))
        elif len(self._transaction) < 3 or random.random() < 0.5:
            writes = tuple(world.next_write() for _ in range(random.randint(1, 3)))
            self._transaction.extend(writes)
            self._append(writes)
        else:
            self._end_transaction(self._transaction, is_commit=random.random() < 0.8)

    def _end_transaction(self, writes: list[int], *, is_commit: bool) -> None:
        self._transaction = None
        if is_commit:
            self.node.world.count("transactions committed")
            self._append((EndTransactionRecord(),), promise=tuple(writes))
        else:
            self.node.world.count("transactions aborted")
            self._append((AbortTransactionRecord(None),))

    def _append(self, records: tuple[Record, ...], promise: tuple[int, ...] = ()) -> None:
        raft = self.node.raft
        if raft is None or raft.role is not Role.LEADER:
            return
        batch = self.node.propose(raft.epoch, records)
        if promise:
            self._waiting.append((batch.end_offset, promise))

    # Commits

    def committed(self, high_watermark: int) -> None:
        """Answer the client, become active, take a snapshot."""
        node, raft = self.node, self.node.raft
        if raft is not None and raft.role is Role.LEADER:
            answered = [promise for end, promise in self._waiting if end <= high_watermark]
            self._waiting = [entry for entry in self._waiting if entry[0] > high_watermark]
            for promise in answered:
                check(rules.acknowledged_is_visible, promise, node.world.history.visible)
                node.world.history.acknowledged.update(promise)
            if not self.is_active and high_watermark > (raft.epoch_start_offset or 0):
                self.is_active = True
                self._abort_open_transaction()
        self._soon(self._maybe_take_snapshot)

    def _soon(self, action: Callable[[], None]) -> None:
        """After the step whose effects are being performed."""
        node, life = self.node, self.node.life
        node.world.at(max(node.world.now, node.paused_until), lambda: action() if node.life == life else None)

    def _abort_open_transaction(self) -> None:
        """A new leader ends what its predecessor left open ("Controller failover")."""
        node = self.node
        is_open = node.image.held is not None
        for batch in node.disk.log.batches_from(node.image.end.offset):
            for record in batch.records:
                if isinstance(record, BeginTransactionRecord):
                    is_open = True
                elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                    is_open = False
        if is_open:
            node.world.count("transactions left open by a leader")
            self._soon(lambda: self._append((AbortTransactionRecord(None),)))

    # Snapshots

    def _maybe_take_snapshot(self) -> None:
        node = self.node
        log = node.disk.log
        last = log.snapshots()[-1].offset if log.snapshots() else 0
        if node.image.held is not None or node.image.end.offset - last < node.world.options.snapshot_every:
            return
        if not node.disk_is_full:
            self.take_snapshot(node.image.end)

    def take_snapshot(self, snapshot_id: EpochOffset) -> None:
        """Write a snapshot of the image, then let retention cut the log, sometimes only to the snapshot before."""
        node, log = self.node, self.node.disk.log
        node.world.count("snapshots taken")
        check(rules.snapshot_is_committed, snapshot_id, node.high_watermark)
        check(rules.snapshot_is_replay, snapshot_id, node.image.digest, node.world.point_at(snapshot_id.offset))
        membership, point = log.membership_at(snapshot_id.offset), node.world.point_at(snapshot_id.offset)
        check(rules.snapshot_has_the_voters_of_its_offset, membership.voters, point)
        node.disk.snapshots[snapshot_id] = node.world.batches.encode_membership(membership) + node.image.to_bytes()
        log.add_snapshot(snapshot_id)
        if not node.world.network.is_calm and node.random.random() < 0.7:
            log.delete_before(
                node.random.choice([known for known in log.snapshots() if known.offset >= log.start_offset()])
            )
            node.disk.snapshots = {known: node.disk.snapshots[known] for known in log.snapshots()}
