"""Ends a KRaft claim whose quorum is lost together with its logs: only ZooKeeper can be asked.

A claim is a persistent ``/controller`` znode: brokers elect no controller while it exists. The decision is pure
(`examine`); `read_left_overs` reads for it. Only a log would tell which changes the quorum had confirmed and not yet
written to ZooKeeper, which brokers run in KRaft mode, and whether the migration had ended. So every broker has to be
registered in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.old_orders import NO_ORDERS, OldOrders, read_old_orders
from migrator.migration.rollback import check_way_back, end_ops, epoch_to_raise, state_epochs
from migrator.migration.translate.source import names_below
from migrator.observe.printable import duration, number_ranges, utc
from migrator.records.metadata import ZkMigrationState
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.leadership import ClaimView, read_view
from migrator.zookeeper.ops import Op
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.topics import decode_topic

WATCH_SECONDS = 10.0
YOUNG_SECONDS = 3600.0
"""A quorum writes nothing to ``/migration`` before its copy has ended; no copy lasts that long."""
_POLL_SECONDS = 0.1
_LOST = "If all logs of that quorum are lost for good, add --accept-loss"


@value
class LeftOvers:
    """``registered``: brokers that run in ZooKeeper mode. ``replicas``: brokers that the topics name.
    ``highest_epoch``: the highest controller epoch in the partition states, 0 when there is none. ``orders``: what a
    ZooKeeper controller would carry out, though the quorum had taken over before."""

    view: ClaimView
    registered: frozenset[int]
    replicas: frozenset[int]
    highest_epoch: int
    orders: OldOrders = NO_ORDERS

    @property
    def has_claim(self) -> bool:
        """Whether a KRaft controller holds ``/controller``."""
        return self.view.controller is not None and self.view.controller.is_kraft

    @property
    def has_mark(self) -> bool:
        """Whether ``/migration`` is there, with or without content."""
        return self.view.migration_version is not None

    @property
    def unseen(self) -> frozenset[int]:
        """Brokers that should hold replicas but are not registered. Those in KRaft mode still serve clients."""
        return self.replicas - self.registered

    @property
    def raised_epoch(self) -> int | None:
        """The value that ``/controller_epoch`` needs before brokers elect; None when no change is needed."""
        return epoch_to_raise(self.view, self.highest_epoch) if self.has_claim else None

    @property
    def ops(self) -> list[Op]:
        """The one multi that ends the claim; empty when nothing is left."""
        return end_ops(self.view, self.raised_epoch)


def read_left_overs(session: ZooKeeperSession) -> LeftOvers:
    """Read everything that `examine` judges. The claim is read first: if it changes during the reading, the multi
    fails.

    :raises OperatorError: ZooKeeper cannot be read, or a znode does not decode.
    """
    session.sync()
    reader = BulkReader(session)
    view = read_view(reader.read)
    topics = reader.read(map(paths.topic, names_below(reader, paths.TOPICS)))
    replicas = {
        broker
        for znode in topics
        if znode is not None
        for brokers in decode_topic(znode.path, znode.data).partitions.values()
        for broker in brokers
    }
    registered = frozenset(map(int, names_below(reader, paths.BROKER_IDS)))
    found = LeftOvers(view, registered, frozenset(replicas), max(state_epochs(reader), default=0))
    copied = view.migration is not None and view.migration.copied
    return replace(found, orders=read_old_orders(reader)) if found.has_claim and copied else found


def check_own_log(image: MetadataImage, where: str) -> None:
    """Check that a log which was found may be ignored: it may be only that of a new quorum, which has copied nothing.

    :raises OperatorError: the log is that of a migration, so it tells more than ZooKeeper does.
    """
    check_way_back(image)
    if image.features.zk_migration_state is ZkMigrationState.MIGRATION:
        raise OperatorError(
            "this controller has the log of a migration, which says what ZooKeeper may lack",
            where=where,
            remedy="Run 'migrator rollback' without --without-log",
        )


def examine(found: LeftOvers, now_ms: int, *, gone: Collection[str] = (), accept_loss: bool) -> None:
    """Check that ZooKeeper alone is enough to end the claim.

    :param now_ms: now, by the wall clock.
    :param gone: ids of brokers and controllers that the operator knows to be gone for good.
    :param accept_loss: the operator gives up what only a log could tell.
    :raises OperatorError: ZooKeeper alone is not enough.
    """
    claim = found.view.controller
    if claim is None or not found.has_claim:
        return
    if not found.registered:
        raise OperatorError(
            "no broker is registered: the brokers are stopped, or in KRaft mode, and then their metadata is only in "
            "the log of the quorum",
            where=paths.BROKER_IDS,
            remedy="If the migration was finished, ZooKeeper's metadata is old: only 'migrator reopen' leads back, and "
            "it needs the log of the quorum. Otherwise start the brokers in ZooKeeper mode with the migration on, and "
            "run this again",
        )
    unseen = {broker for broker in found.unseen if str(broker) not in gone}
    if unseen:
        raise OperatorError(
            f"{number_ranges('broker', unseen)} should hold replicas and "
            f"{'is' if len(unseen) == 1 else 'are'} not registered: stopped, gone, or in KRaft mode, which only the "
            "log of the quorum tells",
            where=paths.BROKER_IDS,
            remedy="Start these brokers in ZooKeeper mode with the migration on. A broker in KRaft mode goes on "
            f"serving clients, beside the new controller: stop it. If they are gone for good, add {_gone(unseen)}",
        )
    mark = found.view.migration
    age_ms = now_ms - claim.timestamp_ms
    if (mark is None or not mark.copied) and age_ms < YOUNG_SECONDS * 1000 and str(claim.broker_id) not in gone:
        raise OperatorError(
            f"controller {claim.broker_id} claimed the cluster {duration(max(age_ms, 0))} ago; a quorum that copies "
            "writes nothing to /migration, so this command cannot see whether it runs",
            where=paths.CONTROLLER,
            remedy=f"Stop every controller of that quorum. If controller {claim.broker_id} is stopped, or gone for "
            f"good, add {_gone([claim.broker_id])}",
        )
    if mark is not None and mark.copied and not accept_loss:
        raise OperatorError(
            f"the quorum of controller {mark.kraft_controller_id} wrote its metadata here up to offset "
            f"{mark.kraft_metadata_offset} of its log; what it confirmed later is only in that log",
            where=paths.MIGRATION,
            remedy=f"Run 'migrator rollback' with the metadata directories of its controllers (--log). {_LOST}",
        )


def check_silent(session: ZooKeeperSession, seen: ClaimView, seconds: float) -> None:
    """Check that no quorum writes. A living quorum writes ``/migration`` every second, also when its listeners cannot
    be reached from here.

    :raises OperatorError: ``/migration`` or the claim changes within that time.
    """
    reader = BulkReader(session)

    def written() -> bool:
        session.sync()
        return read_view(reader.read) != seen

    retrying = Retrying(
        retry=retry_if_result(lambda changed: not changed),
        stop=stop_after_delay(seconds),
        wait=wait_fixed(_POLL_SECONDS),
        retry_error_callback=lambda _: False,
    )
    if retrying(written):
        raise OperatorError(
            "somebody has just written the claim or /migration, so a controller still runs on some machine",
            where=session.options.hosts,
            remedy="Nothing was changed. Stop every controller of that quorum, also one that cannot be reached from "
            "this machine; then repeat the command",
        )


def described(found: LeftOvers, hosts: str) -> Iterator[str]:
    """The facts of the claim, in words for the operator."""
    view = found.view
    claim = view.controller
    if claim is None:
        yield f"{paths.CONTROLLER}: missing, so nobody is the controller"
    elif not claim.is_kraft:
        yield f"{paths.CONTROLLER}: broker {claim.broker_id}, a ZooKeeper controller"
    else:
        yield (
            f"{paths.CONTROLLER}: KRaft controller {claim.broker_id} in epoch {claim.kraft_epoch}, since "
            f"{utc(claim.timestamp_ms)}"
        )
    raised = "" if found.raised_epoch is None else f"; it will be raised to {found.raised_epoch}"
    known = "missing" if view.epoch is None else view.epoch
    yield f"{paths.CONTROLLER_EPOCH}: {known}; the highest epoch in a partition state is {found.highest_epoch}{raised}"
    if view.migration is not None:
        mark = view.migration
        until = f"copied, up to offset {mark.kraft_metadata_offset} of its log" if mark.copied else "nothing copied"
        yield f"{paths.MIGRATION}: controller {mark.kraft_controller_id}, {until}"
    else:
        yield f"{paths.MIGRATION}: {'without content' if found.has_mark else 'missing'}"
    for order in found.orders.told:
        yield f"{order}; it will be removed"
    registered = number_ranges("broker", found.registered) if found.registered else "nobody"
    yield f"{paths.BROKER_IDS} of {hosts}: {registered}"
    if found.unseen:
        yield f"not registered, and should hold replicas: {number_ranges('broker', found.unseen)}"


def check_named(found: LeftOvers, controllers: Iterable[int], where: str, gone: Collection[str] = ()) -> None:
    """Check that the claim belongs to one of these controllers, whose addresses are known.

    :param gone: as in `examine`.
    :raises OperatorError: it belongs to another controller, of which this command cannot tell whether it runs.
    """
    known = sorted(controllers)
    claim = found.view.controller
    if not found.has_claim or claim is None or claim.broker_id in known or str(claim.broker_id) in gone:
        return
    named = number_ranges("controller", known) if known else "no controller by its id"
    raise OperatorError(
        f"the claim is of controller {claim.broker_id}, and the file names {named}: it cannot be seen here whether "
        "that one still runs",
        where=where,
        remedy=f"Give the property file of controller {claim.broker_id}, or one that names it in "
        f"controller.quorum.voters. If it is gone for good, add {_gone([claim.broker_id])}",
    )


def _gone(nodes: Iterable[int]) -> str:
    """The options of the command with which an operator confirms that these nodes are gone."""
    return " ".join(f"--gone {node}" for node in sorted(nodes))
