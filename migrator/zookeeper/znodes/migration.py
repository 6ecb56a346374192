"""``/migration``: how far ZooKeeper follows the metadata log. Source: ``kafka.zk.MigrationZNode``, KIP-866.

Ours has one field more, ``migrator_batch_crc``, which proves whose log the offset is of: every young quorum has an
offset 100 of epoch 1. Stock controllers pass over a field that they do not know, and leave it out when they write.
"""

from __future__ import annotations

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.fields import INT64_MAX, UINT32_MAX, Fields

CRC_FIELD = "migrator_batch_crc"
_REMEDY = (
    "Find out which quorum wrote it. If none migrates this cluster, delete the znode; "
    "a newer Kafka's controller has to finish what it began"
)


@value
class MigrationState:
    """ZooKeeper holds the metadata up to ``kraft_metadata_offset`` of the log; -1 everywhere before the copy.

    ``batch_crc``: CRC-32C of the batch of that log which holds the offset, as in the batch's header; None in what stock
    controllers write.
    """

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int
    batch_crc: int | None = None

    @property
    def copied(self) -> bool:
        """Whether a copy has been completed, the test that stock controllers make, too."""
        return self.kraft_metadata_offset > 0


INITIAL_STATE = MigrationState(-1, -1, -1, -1)


def decode_migration(path: str, data: bytes | None) -> MigrationState | None:
    """None for a znode without data: ``zookeeper-security-migration`` makes such ones (KAFKA-19480).

    :raises ZnodeError: when it is not the state of a migration, or of an unknown version.
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
    )


def encode_migration(state: MigrationState) -> bytes:
    """Version 0."""
    fields = {
        "version": 0,
        "kraft_controller_id": state.kraft_controller_id,
        "kraft_controller_epoch": state.kraft_controller_epoch,
        "kraft_metadata_offset": state.kraft_metadata_offset,
        "kraft_metadata_epoch": state.kraft_metadata_epoch,
    }
    if state.batch_crc is not None:
        fields[CRC_FIELD] = state.batch_crc
    return orjson.dumps(fields)
