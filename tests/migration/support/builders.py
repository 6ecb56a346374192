"""Values that the tests of this room share."""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from migrator.image.model import BrokerRegistration, ClusterImage, ControllerRegistration
from migrator.migration.machine.guards import MarkEvidence, Standing
from migrator.migration.machine.readiness import ControllerSignals, Surroundings, ZooKeeperBrokers
from migrator.records.metadata import FeatureRange
from migrator.records.uuid import ZERO_UUID
from migrator.zookeeper.leadership import ClaimView
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState

CLUSTER_ID = "TestClusterTestCluster"


BROKER_1 = ControllerClaim(1, 0)
ALIVE_MS = 1_000_000_000
"""Later than any look of a test."""
CRC = 0xC0FFEE
"""Of the batch in our log that holds the offset of a mark."""


def standing(
    *,
    controller: ControllerClaim | None = BROKER_1,
    mark: MigrationState = INITIAL_STATE,
    mark_in_log: int | None = None,
    cluster_id: str = CLUSTER_ID,
    epoch: int | None = 7,
) -> Standing:
    """A cluster under ZooKeeper broker 1, never migrated, unless said otherwise.

    :param mark_in_log: the epoch of the batch in our log that holds the mark's offset, and has `CRC`.
    """
    view = ClaimView(
        epoch=epoch,
        epoch_version=7,
        controller=controller,
        controller_version=1,
        migration=mark,
        migration_version=3,
    )
    return Standing(cluster_id, view, MarkEvidence() if mark_in_log is None else MarkEvidence(mark_in_log, CRC))


def broker(broker_id: int, *, migrating: bool = True, levels: tuple[int, int] = (19, 19)) -> BrokerRegistration:
    """A registered broker, unfenced, metadata.version 19 (3.7-IV4) by default."""
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=10 + broker_id,
        incarnation_id=ZERO_UUID,
        is_migrating_zk_broker=migrating,
        listeners=(),
        features=(FeatureRange("metadata.version", *levels),),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


def controller(controller_id: int, *, ready: bool = True) -> ControllerRegistration:
    return ControllerRegistration(controller_id, ZERO_UUID, ready, (), ())


def cluster(brokers: list[BrokerRegistration], controllers: list[ControllerRegistration]) -> ClusterImage:
    return ClusterImage(
        Map({entry.broker_id: entry for entry in brokers}), Map({entry.controller_id: entry for entry in controllers})
    )


def surroundings(
    *registered: int,
    running: Mapping[int, int] | None = None,
    silent: tuple[int, ...] = (),
    asking: tuple[int, ...] = (),
    alive_ms: int = ALIVE_MS,
) -> Surroundings:
    """Of broker 0, which ZooKeeper has, unless others are named with their czxid; registered are only those given."""
    born = {0: 1} if running is None else running
    found = ZooKeeperBrokers(dict.fromkeys(born, frozenset({"PLAINTEXT"})), frozenset({0}), born=born)
    signals = ControllerSignals(
        {3001: True},
        silent_brokers=frozenset(silent),
        asking_brokers=frozenset(asking),
        alive_ms=dict.fromkeys(registered, alive_ms),
    )
    return Surroundings(found, signals, cluster([broker(number) for number in registered], [controller(3001)]), 19)
