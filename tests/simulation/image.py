"""The state machine of a simulated node: the client's writes in order, transactions whole or not at all."""

from __future__ import annotations

from migrator.raft.messages import EpochOffset
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from tests.simulation.batches import Batch, Target

WRITE_BYTES = 4
NO_TARGET = 0
"""In a snapshot; a target has a bit for each of its nodes."""


class Image:
    """The image as readers of a node see it (``writes``, as a digest too) at ``end``; ``held`` is an open transaction,
    ``target`` the wanted voters."""

    def __init__(self) -> None:
        self.end = EpochOffset(0, 0)
        self.writes: list[int] = []
        self.digest = 0
        self.held: list[int] | None = None
        self.target: tuple[int, ...] | None = None

    def apply(self, batch: Batch) -> None:
        for record in batch.records:
            if isinstance(record, BeginTransactionRecord):
                self.held = []
            elif isinstance(record, EndTransactionRecord):
                for write in self.held or ():
                    self.show(write)
                self.held = None
            elif isinstance(record, AbortTransactionRecord):
                self.held = None
            elif isinstance(record, Target):
                self.target = record.nodes
            elif isinstance(record, int):
                if self.held is None:
                    self.show(record)
                else:
                    self.held.append(record)
        self.end = EpochOffset(batch.epoch, batch.end_offset)

    def show(self, write: int) -> None:
        """Make a write visible."""
        self.writes.append(write)
        self.digest = hash((self.digest, write))

    def to_bytes(self) -> bytes:
        """The content of a snapshot; it is never empty."""
        target = sum(1 << node for node in self.target or ())
        return target.to_bytes(WRITE_BYTES, "big") + b"".join(
            write.to_bytes(WRITE_BYTES, "big") for write in self.writes
        )

    @staticmethod
    def from_bytes(snapshot_id: EpochOffset, data: bytes) -> Image:
        image = Image()
        target = int.from_bytes(data[:WRITE_BYTES], "big")
        if target != NO_TARGET:
            image.target = tuple(node for node in range(target.bit_length()) if target >> node & 1)
        for at in range(WRITE_BYTES, len(data), WRITE_BYTES):
            image.show(int.from_bytes(data[at : at + WRITE_BYTES], "big"))
        image.end = snapshot_id
        return image
