"""Which nodes are not ready for the copy, why, and what to do about it. Pure: readings in, named gaps out.

Known brokers are those in ``/brokers/ids`` and every replica of every assignment: a stopped broker that holds a replica
would come back in ZooKeeper mode and find no controller. A registration stays when a broker leaves the migration mode,
so a running broker must also send heartbeats. Stock controllers do not ask for them: they would take over a cluster
whose brokers were rolled back meanwhile and obey no KRaft controller. Source: KIP-866, ``KRaftMigrationDriver``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from types import MappingProxyType

from migrator.image.model import ClusterImage
from migrator.observe.problem_groups import groups_of
from migrator.observe.status import Problem
from migrator.records.metadata import Endpoint
from migrator.values import value

_ENABLE = (
    "set zookeeper.metadata.migration.enable=true, controller.quorum.voters (or, if the voters are in the log, "
    "controller.quorum.bootstrap.servers) and controller.listener.names in its file, and restart it."
)
FIRST_METADATA_VERSION_WITH_CONTROLLER_REGISTRATION = 15
"""3.7-IV0: only from this level on do controllers register, so that the image shows their readiness."""


UNREGISTERED = "it runs, but has not registered with the quorum"
NOT_RUNNING = "it holds replicas, but is not running"
"""A broker in KRaft mode is not registered in ZooKeeper. Status says why a registration was refused."""
TOO_MANY_STOCK = "they are stock controllers, and enough of them to elect a leader that ends the migration at once"
TOO_MANY_STOCK_REMEDY = "Let this program run on a majority of the voters until the migration is finished."


def is_too_many_stock(stock: frozenset[int], voters: int) -> bool:
    """Whether the stock voters could elect a leader alone. Our voters look at a candidate's migration flag; stock
    voters do not."""
    return len(stock) > voters // 2


class Severity(Enum):
    BLOCKER = "blocker"
    WARNING = "warning"


@value
class Gap:
    """One thing that is missing for the copy. ``who`` is "broker 3", "controller 3001" or a znode."""

    who: str
    reason: str
    remedy: str
    severity: Severity = Severity.BLOCKER

    def __str__(self) -> str:
        return f"{self.who}: {self.reason}. {self.remedy}"


@value
class ZooKeeperBrokers:
    """The brokers as ZooKeeper shows them. ``listeners``: listener names by broker id, for each znode of
    ``/brokers/ids``; ``replicas``: every broker id of any assignment; ``configured``: ids with a dynamic configuration
    only."""

    listeners: Mapping[int, frozenset[str]]
    replicas: frozenset[int]
    configured: frozenset[int] = frozenset()
    faults: tuple[Gap, ...] = ()
    """Znodes that did not decode while this was read."""
    born: Mapping[int, int] = field(default_factory=dict)
    """The czxid of each znode of ``/brokers/ids``. It changes with a restart, and with an expired session."""
    endpoints: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict)


@value
class ControllerSignals:
    """``ready``: ZkMigrationReady of the ApiVersions of each voter, None for a voter that did not answer; ``stock``:
    the voters that are Kafka's own controllers; ``silent_brokers``: registered, but without heartbeats to the active
    controller; ``asking_brokers``: in migration mode, and told to wait with their registration until the copy is
    complete; ``rivals``: registered brokers whose id another process tries to register; ``alive_ms``: the latest time
    at which a registered process was certainly alive (`Sessions`)."""

    ready: Mapping[int, bool | None]
    stock: frozenset[int] = frozenset()
    silent_brokers: frozenset[int] = frozenset()
    asking_brokers: frozenset[int] = frozenset()
    rivals: frozenset[int] = frozenset()
    alive_ms: Mapping[int, int] = field(default_factory=dict)


@value
class Surroundings:
    """Which nodes run at one moment. ``metadata_version`` is the finalized level."""

    brokers: ZooKeeperBrokers
    signals: ControllerSignals
    cluster: ClusterImage
    metadata_version: int


@value
class Requirements:
    """The requirements of this controller. ``inter_broker_listener`` "" requires nothing; ``metadata_version`` is the
    finalized level."""

    inter_broker_listener: str
    metadata_version: int


@value
class Readiness:
    """The result. The metrics of the same names show ``ineligible_brokers`` and ``ineligible_controllers``. When no
    broker runs and none is known, a broker is missing."""

    controllers: tuple[Gap, ...]
    brokers: tuple[Gap, ...]
    warnings: tuple[Gap, ...] = ()
    ineligible_brokers: int = 0
    ineligible_controllers: int = 0

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.controllers and not self.brokers

    def sentence(self, limit: int = 3) -> str:
        """The first gaps in words, grouped by remedy; the fields have all of them."""
        gaps = self.controllers + self.brokers
        if not gaps:
            return "every controller and every known broker is ready"
        groups = groups_of(Problem(gap.who, gap.reason, gap.remedy) for gap in gaps)
        more = f" (and {len(groups) - limit} more)" if len(groups) > limit else ""
        return "; ".join(group.sentence for group in groups[:limit]) + more


def assess(
    brokers: ZooKeeperBrokers,
    signals: ControllerSignals,
    cluster: ClusterImage,
    requirements: Requirements,
    doubts: Mapping[int, Gap] = MappingProxyType({}),
) -> Readiness:
    """Name everything that prevents the start of the copy.

    :param doubts: registered brokers whose znode may belong to another process (`sightings`).
    """
    found = tuple(_controller_gaps(signals, cluster, requirements))
    controllers = tuple(gap for gap in found if gap.severity is Severity.BLOCKER)
    known = brokers.replicas.union(brokers.listeners)
    by_broker = {
        broker_id: gap
        for broker_id in sorted(known)
        if (gap := _broker_gap(broker_id, brokers, signals, cluster, requirements) or doubts.get(broker_id)) is not None
    }
    return Readiness(
        controllers=controllers,
        brokers=(*_nobody(brokers), *by_broker.values(), *brokers.faults),
        warnings=(
            *(gap for gap in found if gap.severity is Severity.WARNING),
            *_config_only(brokers.configured - known),
        ),
        ineligible_brokers=len(by_broker) or (not brokers.listeners),
        ineligible_controllers=len({gap.who for gap in controllers}),
    )


def strangers(around: Surroundings, doubts: Mapping[int, Gap]) -> tuple[Gap, ...]:
    """Brokers that run and would obey no controller once the copy is complete: they have started meanwhile, and not in
    migration mode. A stopped broker is not among them, nor one that came back and waits for the end of the transaction
    to register.

    :param doubts: as in `assess`.
    """
    registered, silent = around.cluster.brokers, around.signals.silent_brokers
    return tuple(
        _unregistered(who, in_zookeeper=True)
        if broker_id not in registered
        else _silent(who)
        if broker_id in silent
        else doubts[broker_id]
        for broker_id in sorted(set(around.brokers.listeners) - around.signals.asking_brokers)
        if broker_id not in registered or broker_id in silent or broker_id in doubts
        for who in [f"broker {broker_id}"]
    )


def foresee(brokers: ZooKeeperBrokers, inter_broker_listener: str) -> tuple[Gap, ...]:
    """The gaps that ZooKeeper alone shows before there is a quorum, with warnings.

    :param inter_broker_listener: see `Requirements`.
    """
    gaps = [*_nobody(brokers), *brokers.faults]
    known = brokers.replicas.union(brokers.listeners)
    for broker_id in sorted(known):
        listeners = brokers.listeners.get(broker_id)
        who = f"broker {broker_id}"
        gap = _listener_gap(who, listeners, inter_broker_listener)
        if listeners is None:
            gap = _unregistered(who, in_zookeeper=False)
        gaps += [] if gap is None else [gap]
    return (*gaps, *_config_only(brokers.configured - known))


def incompatible_brokers(cluster: ClusterImage, metadata_version: int) -> dict[int, Gap]:
    """Registered brokers that do not support the finalized metadata.version: they get no RPCs and are named."""
    gaps: dict[int, Gap] = {}
    for broker_id, registration in cluster.brokers.items():
        supported = next((range_ for range_ in registration.features if range_.name == "metadata.version"), None)
        if supported is None or supported.min_version <= metadata_version <= supported.max_version:
            continue
        gaps[broker_id] = Gap(
            f"broker {broker_id}",
            f"it supports metadata.version {supported.min_version} to {supported.max_version}, "
            f"but {metadata_version} is finalized",
            "Set its inter.broker.protocol.version to the release that the quorum was formatted with, and restart it.",
        )
    return gaps


def _controller_gaps(signals: ControllerSignals, cluster: ClusterImage, requirements: Requirements) -> Iterable[Gap]:
    """The gaps of controllers. A stopped voter that has registered as ready delays nothing, as with stock controllers:
    a majority is enough for the copy, and if the voter comes back without the flag, it cannot end the migration alone
    (`finish`)."""
    if is_too_many_stock(signals.stock, len(signals.ready)):
        names = ", ".join(map(str, sorted(signals.stock)))
        yield Gap(f"controllers {names}", TOO_MANY_STOCK, TOO_MANY_STOCK_REMEDY)
    for voter, ready in sorted(signals.ready.items()):
        who = f"controller {voter}"
        if ready is None:
            known = cluster.controllers.get(voter)
            severity = Severity.WARNING if known is not None and known.zk_migration_ready else Severity.BLOCKER
            yield Gap(who, "it does not answer", "Start it, or look at its log and at the network.", severity)
        elif not ready:
            yield Gap(
                who,
                "it does not announce that it is ready for the migration",
                "Set zookeeper.metadata.migration.enable=true and zookeeper.connect in its file, and restart it.",
            )
        elif requirements.metadata_version >= FIRST_METADATA_VERSION_WITH_CONTROLLER_REGISTRATION:
            registration = cluster.controllers.get(voter)
            if registration is None:
                yield Gap(
                    who, "it has not registered with the active controller", "The controller retries; look at its log."
                )
            elif not registration.zk_migration_ready:
                yield Gap(who, "its registration says that it is not ready", "Restart it with the migration enabled.")


def _broker_gap(
    broker_id: int,
    brokers: ZooKeeperBrokers,
    signals: ControllerSignals,
    cluster: ClusterImage,
    requirements: Requirements,
) -> Gap | None:
    who = f"broker {broker_id}"
    listeners = brokers.listeners.get(broker_id)
    registration = cluster.brokers.get(broker_id)
    if broker_id in signals.ready:
        return Gap(
            who,
            "it has the id of a controller",
            "Stop the quorum, give its controllers ids that no broker has, and format their directories anew.",
        )
    wrong_listener = _listener_gap(who, listeners, requirements.inter_broker_listener)
    if wrong_listener is not None:
        return wrong_listener
    if registration is None:
        return _unregistered(who, in_zookeeper=listeners is not None)
    if not registration.is_migrating_zk_broker:
        return Gap(who, "it runs in KRaft mode before the copy", "Restart it in ZooKeeper mode, migration enabled.")
    if listeners is not None and broker_id in signals.silent_brokers:
        return _silent(who)
    return incompatible_brokers(cluster, requirements.metadata_version).get(broker_id)


def _nobody(brokers: ZooKeeperBrokers) -> tuple[Gap, ...]:
    if brokers.listeners:
        return ()
    return (Gap("/brokers/ids", "no broker is registered in ZooKeeper", "Start the brokers in migration mode."),)


def _listener_gap(who: str, listeners: frozenset[str] | None, wanted: str) -> Gap | None:
    if listeners is None or wanted in listeners | {""}:
        return None
    return Gap(
        who,
        f"it has no listener {wanted}, which this controller connects to "
        f"(it has {', '.join(sorted(listeners)) or 'none'})",
        "Give the controllers the inter.broker.listener.name (or control.plane.listener.name) of the brokers.",
    )


def _silent(who: str) -> Gap:
    return Gap(
        who,
        "it runs and is registered, but sends no heartbeats",
        "Wait a few seconds after a start or an election. If it persists, the broker was restarted without the "
        f"migration: {_ENABLE}",
    )


def _unregistered(who: str, *, in_zookeeper: bool) -> Gap:
    if in_zookeeper:
        return Gap(
            who,
            UNREGISTERED,
            f"{_ENABLE[0].upper()}{_ENABLE[1:]}",
        )
    return Gap(
        who,
        NOT_RUNNING,
        "Start it in migration mode, or move its replicas away if it will never come back.",
    )


def _config_only(broker_ids: Iterable[int]) -> Iterable[Gap]:
    for broker_id in sorted(broker_ids):
        yield Gap(
            f"broker {broker_id}",
            "it has a dynamic configuration, but neither runs nor holds replicas",
            f"Delete /config/brokers/{broker_id} with kafka-configs if that broker is gone for good.",
            Severity.WARNING,
        )
