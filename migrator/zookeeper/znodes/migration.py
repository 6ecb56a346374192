"""``/migration``: how far ZooKeeper follows the metadata log. Source: ``kafka.zk.MigrationZNode``, KIP-866."""

from __future__ import annotations

import orjson

from migrator.values import value
from migrator.zookeeper.znodes.fields import INT64_MAX, Fields

_REMEDY = (
    "Find out which quorum wrote it. If none migrates this cluster, delete the znode; "
    "a newer Kafka's controller has to finish what it began"
)


@value
class MigrationState:
    """ZooKeeper holds the metadata up to ``kraft_metadata_offset`` of the log; -1 everywhere before the copy."""

    kraft_controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int

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
    )


def encode_migration(state: MigrationState) -> bytes:
    """Version 0."""
    return orjson.dumps(
        {
            "version": 0,
            "kraft_controller_id": state.kraft_controller_id,
            "kraft_controller_epoch": state.kraft_controller_epoch,
            "kraft_metadata_offset": state.kraft_metadata_offset,
            "kraft_metadata_epoch": state.kraft_metadata_epoch,
        }
    )
