"""The stock release that takes over: what it reads of ours, and what its property file may hold. Pure."""

from __future__ import annotations

import re

from migrator.records.versions import VERSIONS, MinLevel
from migrator.values import value

GONE_IN_4 = frozenset(
    {
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "eligible.leader.replicas.enable",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "reserved.broker.max.id",
    }
)
"""Keys of Kafka 3.9 that 4.1 does not have, besides those that only ZooKeeper needed."""

TOWARDS_BROKERS = frozenset(
    {"control.plane.listener.name", "inter.broker.listener.name", "security.inter.broker.protocol"}
)
"""How a controller reaches brokers in ZooKeeper mode. With the first key no controller of Kafka starts. It starts with
the others only if the file says more than ours needs: ``sasl.enabled.mechanisms`` of that listener, an entry in the map
(``KafkaConfig.validateValues``)."""
ZOOKEEPER_PREFIXES = ("zookeeper.", "password.encoder.")
"""Of no use to a controller of a finished migration: 3.9 passes over them, 4.x does not know them."""


@value
class TargetRelease:
    """``lowest`` and ``highest`` are the levels of metadata.version that this release boots on; ``rolling`` says
    whether its controllers may join a quorum of ours, one by one."""

    version: str
    lowest: int
    highest: int
    rolling: bool
    gone: frozenset[str] = frozenset()

    def drops(self, key: str) -> bool:
        """Whether a key has to go from the property file, or has no meaning any more."""
        return key.startswith(("migrator.", *ZOOKEEPER_PREFIXES)) or key in self.gone | TOWARDS_BROKERS


def parse_target(text: str) -> TargetRelease:
    """``3.9.1`` or ``4.1.0``. A quorum of ours is one of 3.9, so only 3.9 joins it; 4.x takes over the directories.

    :raises ValueError: for a release that cannot take over.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)?", text.strip())
    release = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    known = [version.level for version in VERSIONS if _numbers(version.release) <= release]
    if release < (3, 9) or release > _numbers(VERSIONS[-1].release):
        raise ValueError(f"{text!r} is not a release of Kafka from 3.9 to {VERSIONS[-1].release}")
    if release < (4, 0):
        return TargetRelease(text.strip(), VERSIONS[0].level, known[-1], rolling=True)
    return TargetRelease(text.strip(), MinLevel.CONTROLLED_SHUTDOWN_STATE, known[-1], rolling=False, gone=GONE_IN_4)


def _numbers(release: str) -> tuple[int, int]:
    major, minor = release.split(".")
    return int(major), int(minor)
