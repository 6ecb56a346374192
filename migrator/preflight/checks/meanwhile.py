"""M132, M134 and M218: what fails only while a migration runs, which restarts each broker twice.

Source: ``Partition.effectiveMinIsr`` (as many replicas as ``min.insync.replicas`` says must be in sync, or all if there
are fewer), ``ReplicaManager.handleLogDirFailure`` and ``ControllerServer`` (``setMaxIdleIntervalNs``) of Kafka 3.9.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from migrator.config.reading import log_directories
from migrator.migration.machine.readiness import Severity
from migrator.preflight.census import MIN_ISR, merged
from migrator.preflight.check import Concerns, Found, PreflightCheck
from migrator.preflight.evidence import Endurance, Evidence, Sample, ZooKeeperFacts
from migrator.zookeeper.znodes import paths

IDLE = "metadata.max.idle.interval.ms"


def one_fails_all_fail(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        count = len(set(log_directories(broker.file.values)))
        if count > 1 and not broker.file.sets("process.roles"):
            what = f"it has {count} log directories, and stops when one of them fails in migration mode"
            yield Found(broker.file.at("log.dirs"), what, hosts=(broker.who,))


def never_idle(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        if controller.file.number(IDLE) == 0:
            what = "it is 0: on a quiet cluster nothing is written, and how far ZooKeeper is cannot be seen"
            yield Found(controller.file.at(IDLE), what, hosts=(controller.who,))


ONE_REPLICA = "partitions with one replica, each offline while its broker restarts"
ALL_NEEDED = f"partitions that refuse writes with acks=all while one of their brokers restarts, by {MIN_ISR}"
ONE_RACK = "partitions with all replicas in one rack, each offline while it restarts"
TOO_FEW_RACKS = f"partitions that refuse writes with acks=all while one of their racks restarts, by {MIN_ISR}"


def harmed_by_a_roll(evidence: Evidence) -> Iterator[Found]:
    """Count the partitions that a roll harms, each under the worst harm."""
    if evidence.zookeeper is None:
        return
    default, found = _default_min_isr(evidence, evidence.zookeeper), defaultdict[str, list[Sample]](list)
    for alike, sample in evidence.zookeeper.topics.endurance.items():
        found[_harm(alike, default, by_rack=evidence.roll_by_rack)].append(sample)
    for harm in (ONE_REPLICA, ONE_RACK, ALL_NEEDED, TOO_FEW_RACKS):
        if harm in found:
            some = merged(found[harm])
            yield Found(paths.TOPICS, f"{harm}: {some.count:,} ({some})")


def _harm(alike: Endurance, default: int, *, by_rack: bool) -> str:
    """The effect of a roll on such partitions; "" without an effect.

    :param default: ``min.insync.replicas`` of topics that do not set it.
    """
    needed = min(alike.min_isr or default, alike.replicas)
    if alike.replicas == 1:
        return ONE_REPLICA
    if by_rack and alike.without_a_rack == 0:
        return ONE_RACK
    if alike.replicas - 1 < needed:
        return ALL_NEEDED
    return TOO_FEW_RACKS if by_rack and alike.without_a_rack < needed else ""


def _default_min_isr(evidence: Evidence, zookeeper: ZooKeeperFacts) -> int:
    """The highest default ``min.insync.replicas`` of the brokers; Kafka's default, 1, if none is known."""
    own = {name: int(config[MIN_ISR]) for name, config in zookeeper.dynamic_defaults.items() if _is_number(config)}
    of_all = own.pop(paths.DEFAULT_ENTITY, None)
    others = [each.file.number(MIN_ISR) or 1 for each in evidence.brokers if str(each.broker_id) not in own]
    return max([*own.values(), *(others if of_all is None else [of_all])], default=1)


def _is_number(config: Mapping[str, str]) -> bool:
    return config.get(MIN_ISR, "").isdecimal()


CHECKS = (
    PreflightCheck(
        "M132", Severity.WARNING, "Partitions that a roll of the brokers takes offline, or keeps from writes",
        harmed_by_a_roll,
        "A migration restarts every broker twice. Give these partitions one replica more (kafka-reassign-partitions), "
            f"or lower {MIN_ISR} of their topics meanwhile; or tell the applications, and go on", asks=True,
    ),
    PreflightCheck(
        "M134", Severity.WARNING, "Brokers with several log directories stop when one fails", one_fails_all_fail,
        "Look at the disks before the migration, and do not leave the broker in migration mode for long. In ZooKeeper "
            "mode and in KRaft mode it goes on with its other directories (KAFKA-16431)",
    ),
    PreflightCheck(
        "M218", Severity.WARNING, "Kafka's controllers that write nothing on a quiet cluster", never_idle,
        f"Remove {IDLE} for the migration (Kafka's default is 500): otherwise the gates of the rollout stay shut until "
            "something changes", Concerns.STOCK,
    ),
)  # fmt: skip
