"""Before a node whose migration flag is off joins the quorum: would it finish a migration that is not ready for it?

The migration ends for good when every voter has the flag off, so such a node must not even start while brokers in
ZooKeeper mode are registered. It asks the leader; only where no voter answers, its own log. Source: KIP-866,
KAFKA-20960.
"""

from __future__ import annotations

import logging

from migrator.config.settings import Settings
from migrator.image.model import MetadataImage
from migrator.migration.finish import POST_MIGRATION_FLAG_WARNING, refuse_start_with_flag_off, zk_mode_brokers
from migrator.node.remote_image import NoAnswerError, RemoteImage
from migrator.records.metadata import ZkMigrationState
from migrator.rpc.transport import RaftTransport

log = logging.getLogger(__name__)


async def check_start(settings: Settings, own: MetadataImage, cluster_id: str, transport: RaftTransport) -> None:
    """Refuse a start that would end the migration too early; warn of a flag that has no effect any more.

    :param own: the image at the end of this node's own log.
    :raises OperatorError: (exit code 2) names the brokers that are in ZooKeeper mode.
    """
    state = own.features.zk_migration_state
    if state is ZkMigrationState.POST_MIGRATION and settings.zookeeper_metadata_migration_enable:
        log.warning("%s", POST_MIGRATION_FLAG_WARNING)
    ended = state in (ZkMigrationState.POST_MIGRATION, ZkMigrationState.NONE) and own.provenance.offset >= 0
    if settings.zookeeper_metadata_migration_enable or ended:
        return
    others = [voter.voter_id for voter in settings.voters if voter.voter_id != settings.node_id]
    try:
        image, leader = await RemoteImage(transport, others, cluster_id).read()
        source = f"the leader, controller {leader},"
    except NoAnswerError:
        image, source = own, "the log of this node"
    if image.features.zk_migration_state is ZkMigrationState.MIGRATION:
        refuse_start_with_flag_off(zk_mode_brokers(image.cluster), source=source)
