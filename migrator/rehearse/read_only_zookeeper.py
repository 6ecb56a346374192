"""Reads ZooKeeper before there is a quorum: the controller, obstacles to a copy, and later changes.

A rehearsal runs on a `ReadOnlyZooKeeper`, which has no method that writes. Methods block. A gap is an obstacle to the
copy, or a warning, that is visible without decoding.
"""

from __future__ import annotations

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.examination import read_registered, read_replicas, read_standing
from migrator.migration.machine.guards import Claimant, Standing, examine
from migrator.migration.machine.readiness import Gap, Severity, ZooKeeperBrokers, foresee
from migrator.migration.machine.transitions import Finding
from migrator.migration.write_behind.audit import FAMILIES, ForeignWrites, slices
from migrator.records.metadata import ZkMigrationState
from migrator.rehearse.local_log import EPOCH
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.clusters import NoClusterError, no_cluster
from migrator.zookeeper.leadership import ClaimView, read_view
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths

_NO_CONTROLLER = Gap(
    paths.CONTROLLER,
    "no broker is the ZooKeeper controller",
    "Start the brokers of the cluster in ZooKeeper mode. They elect a controller at once.",
)
_STRAY_REMEDY = (
    "Make sure that no KRaft quorum runs for this cluster, then delete /controller. The brokers elect "
    "a ZooKeeper controller."
)


class ReadOnlyZooKeeper:
    """A session on which nothing is ever written. Methods block.

    :param retry_seconds: how long a reading continues through lost connections.
    """

    def __init__(self, session: ZooKeeperSession, retry_seconds: float) -> None:
        self._session = session
        self.reader = BulkReader(session, retry_seconds=retry_seconds)

    def view(self) -> ClaimView:
        """The three znodes of the migration, not older than the call (see `ReadPort`)."""
        self._session.sync()
        return read_view(self.reader.read)

    def no_cluster(self) -> OperatorError:
        """See `ReadPort`."""
        return no_cluster(self._session)

    def zxid(self) -> int:
        """The newest transaction that this session knows of."""
        self._session.sync()
        return int(self._session.client.last_zxid)

    def standing(self) -> Standing:
        """The controller of the cluster.

        :raises NoClusterError: there is no cluster.
        """
        standing = read_standing(self)
        if isinstance(standing.fault, NoClusterError):
            raise standing.fault
        return standing

    def brokers(self) -> ZooKeeperBrokers:
        """Every broker that ZooKeeper knows, also those that only assignments name."""
        found = read_registered(self.reader)
        return ZooKeeperBrokers(found.listeners, read_replicas(self.reader), found.configured, found.faults)

    def changed_since(self, zxid: int, image: MetadataImage) -> list[str]:
        """Paths of the image's znodes, and of the parents of entities (`FAMILIES`), that were written after that
        transaction."""
        audit = ForeignWrites(zxid)
        found = [*audit.foreign(self.reader.read(FAMILIES))]
        for some in slices(image):
            found += audit.foreign(self.reader.read(some))
        return found


@value
class PlannedQuorum:
    """The controllers that are going to migrate. ``cluster_id``: None while they are not formatted; then any id
    fits."""

    node_id: int
    inter_broker_listener: str = ""
    cluster_id: str | None = None


def gaps(standing: Standing, brokers: ZooKeeperBrokers, quorum: PlannedQuorum) -> list[Gap]:
    """Obstacles to the copy, and warnings, that are visible in ZooKeeper without decoding."""
    return [*_standing_gaps(standing, quorum), *foresee(brokers, quorum.inter_broker_listener)]


def blockers(found: list[Gap]) -> tuple[Gap, ...]:
    """The gaps that are more than a warning."""
    return tuple(gap for gap in found if gap.severity is Severity.BLOCKER)


def _standing_gaps(standing: Standing, quorum: PlannedQuorum) -> list[Gap]:
    us = Claimant(quorum.node_id, EPOCH, quorum.cluster_id or standing.cluster_id or "", ZkMigrationState.PRE_MIGRATION)
    verdict = examine(standing, us)
    match verdict.finding:
        case Finding.NO_CONTROLLER:
            return [_NO_CONTROLLER]
        case Finding.STRAY_CLAIM:
            return [Gap(paths.CONTROLLER, verdict.reason, _STRAY_REMEDY)]
        case Finding.REFUSE | Finding.ELSEWHERE:
            return [Gap("the cluster", verdict.reason, verdict.remedy)]
    return []
