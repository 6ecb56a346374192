"""Checks, before a node stands for election, that the quorum would not finish a migration too early.

The migration ends permanently when every voter has the flag off, so a node whose flag is off must not go on while
brokers in ZooKeeper mode are registered. And it ends as soon as a stock controller without the flag is elected, which
our voters prevent as long as every majority needs one of them. The leader is asked. Only if no node can tell what is
committed now, the node's own log is read. That log may be behind, so a refusal that rests on it is not final: its exit
code makes a service start again. Source: KIP-866, KAFKA-20960.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.machine.finish import POST_MIGRATION_FLAG_WARNING, refuse_start_with_flag_off, zk_mode_brokers
from migrator.migration.machine.readiness import TOO_MANY_STOCK, TOO_MANY_STOCK_REMEDY, is_too_many_stock
from migrator.observe.printable import number_ranges
from migrator.raft.transport import RaftTransport
from migrator.records.metadata import ZkMigrationState
from migrator.wire.observer import NoAnswerError, Observer
from migrator.wire.remote_image import read_remote_image
from migrator.wire.voters import VoterAnswer, stock

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long to wait for a quorum that has no leader, or whose leader has not committed anything in its epoch."""

AskVoters = Callable[[], Awaitable[Mapping[int, VoterAnswer | None]]]


def stands_first(settings: Settings, own: MetadataImage) -> bool:
    """Whether a node may stand for election before the check. A node with neither a log nor the flag cannot end a
    migration: it has to fetch first, and only a leader knows of a migration. The nodes of a new quorum all start now,
    and each would wait for a leader."""
    return own.provenance.offset < 0 and not settings.zookeeper_metadata_migration_enable


async def check_start(
    settings: Settings,
    own: MetadataImage,
    cluster_id: str,
    transport: RaftTransport,
    ask_voters: AskVoters,
    *,
    voters: AbstractSet[int],
    others: Collection[int],
) -> None:
    """Refuse a start that would end the migration too early; warn of a flag that has no effect any more.

    :param own: the image at the end of this node's own log.
    :param voters: the voters in force, as far as this node knows.
    :param others: the nodes to ask for the leader: the other voters, and bootstrap servers.
    :param ask_voters: asks every voter's process what it says of itself.
    :raises OperatorError: names the brokers that are in ZooKeeper mode, or the stock controllers. Exit code 2; 75 when
        only the log of this node could be read.
    """
    state = own.features.zk_migration_state
    migrates = settings.zookeeper_metadata_migration_enable
    if state is ZkMigrationState.POST_MIGRATION and migrates:
        log.warning("%s", POST_MIGRATION_FLAG_WARNING)
    if not state.is_under_way and own.provenance.offset >= 0:
        return
    strangers = stock(await ask_voters())
    outnumbered = is_too_many_stock(strangers, len(voters))
    if migrates and not outnumbered:
        return
    current = True
    if others:
        asked = voters - {settings.node_id}
        log.info(
            "This controller asks %s who leads, and the leader whether a migration is under way that this controller "
            "must not end. It waits for a leader for at most %g s",
            number_ranges("controller", asked) if asked else "the bootstrap servers",
            PATIENCE_SECONDS,
        )
    try:
        observer = Observer(transport, others, cluster_id, patience_seconds=PATIENCE_SECONDS, gives_up=True)
        image = await read_remote_image(observer)
        source = f"the leader, controller {observer.leader},"
    except NoAnswerError as error:
        image, source = own, f"the log of this node, because {error},"
        current = not others
    state = image.features.zk_migration_state
    if outnumbered and (state.is_under_way or (migrates and image.provenance.offset < 0)):
        names = ", ".join(map(str, sorted(strangers)))
        raise OperatorError(
            f"the stock controllers {names} are too many of the voters: {TOO_MANY_STOCK} ({source} says that a "
            f"migration is under way)",
            where="controller.quorum.voters",
            remedy=TOO_MANY_STOCK_REMEDY,
        )
    if state is ZkMigrationState.MIGRATION and not migrates:
        refuse_start_with_flag_off(zk_mode_brokers(image.cluster), source=source, current=current)
