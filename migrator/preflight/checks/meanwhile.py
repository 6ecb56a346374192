"""M134 and M218: checks that apply only while a migration runs.

Source: ``ReplicaManager.handleLogDirFailure`` and ``ControllerServer`` (``setMaxIdleIntervalNs``) of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.reading import log_directories
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Concerns, Found, PreflightCheck
from migrator.preflight.evidence import Evidence

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


CHECKS = (
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
