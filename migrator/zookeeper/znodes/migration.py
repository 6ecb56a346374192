"""``/migration``: the offset of the metadata log up to which ZooKeeper follows it (``kafka.zk.MigrationZNode``,
KIP-866).

This program adds two fields. ``migrator_batch_crc`` proves the log to which the offset belongs: every young quorum has
an offset 100 of epoch 1. ``migrator_copied_as`` is the random name of the copy. The log keeps the name permanently, so
it is still a proof when the log has dropped the batch. Stock controllers ignore both fields, and leave them out when
they write.
"""

from __future__ import annotations

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.fields import INT64_MAX, UINT32_MAX, Fields

CRC_FIELD = "migrator_batch_crc"
COPY_FIELD = "migrator_copied_as"
_REMEDY = (
    "Find out which quorum wrote it. If none migrates this cluster, delete the znode; "
    "a newer Kafka's controller has to finish what it began"
)


@value
class MigrationState:
    """ZooKeeper has the metadata up to ``kraft_metadata_offset`` of the log; before the copy every field is -1.

    ``batch_crc``: CRC-32C of the batch that holds the offset, as in the batch's header; None if a stock controller
    wrote the znode. ``copied_as``: the name of the copy; None before the copy, and if another program wrote the znode.
    """

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int
    batch_crc: int | None = None
    copied_as: str | None = None

    @property
    def copied(self) -> bool:
        """Whether a copy has been completed; stock controllers use the same test."""
        return self.kraft_metadata_offset > 0


INITIAL_STATE = MigrationState(-1, -1, -1, -1)


def decode_migration(path: str, data: bytes | None) -> MigrationState | None:
    """Decode the state; None for a znode without data, as ``zookeeper-security-migration`` makes it (KAFKA-19480).

    :raises ZnodeError: the data is not the state of a migration, or has an unknown version.
    """
    if not data:
        return None
    fields = Fields.parse(path, data, _REMEDY)
    fields.version((0,))
    return MigrationState(
        kraft_controller_id=fields.integer("kraft_controller_id"),
        kraft_controller_epoch=fields.integer("kraft_controller_epoch"),
        kraft_metadata_offset=fields.integer("kraft_metadata_offset", -1, INT64_MAX),
        kraft_metadata_epoch=fields.integer("kraft_metadata_epoch"),
        batch_crc=fields.integer(CRC_FIELD, 0, UINT32_MAX) if fields.has(CRC_FIELD) else None,
        copied_as=fields.text(COPY_FIELD) if fields.has(COPY_FIELD) else None,
    )


def encode_migration(state: MigrationState) -> bytes:
    """Version 0."""
    fields: dict[str, int | str] = {
        "version": 0,
        "kraft_controller_id": state.kraft_controller_id,
        "kraft_controller_epoch": state.kraft_controller_epoch,
        "kraft_metadata_offset": state.kraft_metadata_offset,
        "kraft_metadata_epoch": state.kraft_metadata_epoch,
    }
    if state.batch_crc is not None:
        fields[CRC_FIELD] = state.batch_crc
    if state.copied_as is not None:
        fields[COPY_FIELD] = state.copied_as
    return orjson.dumps(fields)
