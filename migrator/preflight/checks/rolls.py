"""M132: topics that are offline, or take no writes with acks=all, while a broker or a rack restarts.

A migration restarts each broker twice. A partition takes writes with acks=all while as many replicas are in sync as
``min.insync.replicas`` says, or all of them if there are fewer (``Partition.effectiveMinIsr`` of Kafka 3.9).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from migrator.migration.machine.readiness import Severity
from migrator.preflight.census import MIN_ISR, merged
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import Endurance, Evidence, Sample, ZooKeeperFacts
from migrator.zookeeper.znodes import paths

ONE_REPLICA = "partitions with one replica, each offline while its broker restarts"
ALL_NEEDED = f"partitions that refuse writes with acks=all while one of their brokers restarts, by {MIN_ISR}"
ONE_RACK = "partitions with all replicas in one rack, each offline while it restarts"
TOO_FEW_RACKS = f"partitions that refuse writes with acks=all while one of their racks restarts, by {MIN_ISR}"


def harmed_by_a_roll(evidence: Evidence) -> Iterator[Found]:
    """Each partition by the worst that happens to it."""
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
    """The highest of the brokers, of which each goes by its own; 1, as in Kafka, if none is known."""
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
)  # fmt: skip
