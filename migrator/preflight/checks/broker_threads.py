"""Dynamic numbers of threads with which a broker starts in ZooKeeper mode, but not in KRaft mode.

Source: ``DynamicThreadPool.validateReconfiguration``, ``LogCleaner.validateReconfiguration`` of Kafka 3.9 and 4.1. In
ZooKeeper mode a broker reads its dynamic configuration before anything checks it. In KRaft mode it starts with its
property file, and then compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from migrator.preflight.check import Found
from migrator.preflight.evidence import BrokerFile, Evidence
from migrator.zookeeper.znodes import paths

DEFAULTS: Final[Mapping[str, int]] = {
    "background.threads": 10,
    "log.cleaner.threads": 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 1,
    "num.replica.fetchers": 1,
}
"""Kafka's defaults of the numbers whose new value must be at least half and at most twice the value in force."""


def thread_counts(config: Mapping[str, str]) -> dict[str, int]:
    """The numbers of threads in a dynamic configuration. Another check finds values that are no numbers."""
    return {key: int(text) for key, text in config.items() if key in DEFAULTS and text.strip().isdecimal()}


def refused_in_kraft(evidence: Evidence) -> Iterator[Found]:
    """Find dynamic numbers of threads below half or above twice a file's number: KRaft mode refuses these."""
    if evidence.zookeeper is None:
        return
    dynamic = evidence.zookeeper.thread_counts
    for broker in evidence.brokers:
        own = dynamic.get(str(broker.broker_id), {})
        for key, count in sorted({**dynamic.get(paths.DEFAULT_ENTITY, {}), **own}.items()):
            static = _static(broker, key)
            if static is not None and not static // 2 <= count <= 2 * static:
                yield Found(
                    f"{paths.BROKER_CONFIGS}/{broker.broker_id if key in own else paths.DEFAULT_ENTITY}",
                    f"{key} is {count}, and {static} in its file",
                    hosts=(broker.who,),
                )


def _static(broker: BrokerFile, key: str) -> int | None:
    """The number with which the broker starts; None when it is unknown."""
    return broker.file.number(key)
