"""The release of Kafka that takes over: which of our data it can read, and which keys its property file may have. Pure.

Hand-over, inventory and plans ask a `TargetRelease`. A release that cannot read this quorum's log is refused when it is
parsed.
"""

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
"""Keys that say how a controller reaches brokers in ZooKeeper mode. With the first key no controller of Kafka starts.
With the others it starts only if the file has more keys than ours needs: ``sasl.enabled.mechanisms`` of that listener,
an entry in the map (``KafkaConfig.validateValues``)."""
ZOOKEEPER_PREFIXES = ("zookeeper.", "password.encoder.")
"""Keys that a controller does not need after the migration: 3.9 ignores them, 4.x does not know them."""


@value
class TargetRelease:
    """``lowest`` and ``highest``: the levels of metadata.version on which this release starts. ``rolling``: whether its
    controllers may join a quorum of ours one by one. ``gone``: keys that the release does not have."""

    version: str
    lowest: int
    highest: int
    rolling: bool
    gone: frozenset[str] = frozenset()

    def drops(self, key: str) -> bool:
        """Whether a key must not be in the property file, or has no meaning there any more."""
        return key.startswith(("migrator.", *ZOOKEEPER_PREFIXES)) or key in self.gone | TOWARDS_BROKERS


def parse_target(text: str) -> TargetRelease:
    """Parse a release such as ``3.9.1`` or ``4.1.0``. Our quorum behaves as 3.9, so only 3.9 can join it; 4.x takes
    over the directories.

    :raises ValueError: the release cannot take over.
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
