"""M6xx: requirements of later rollout steps on the host of each node. A rollout gathers these facts, because only it
reaches the hosts; `migrator preflight` alone has none.

Source: Kafka 4.0 needs Java 17 for brokers and controllers (KIP-1013), earlier releases Java 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import Evidence


def would_fail(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        for fault in host.faults:
            yield Found(fault.where, fault.what, fault.remedy, (host.who,))


def little_room(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        if host.free_bytes is not None and host.free_bytes < host.needed_bytes:
            what = f"{host.free_bytes:,} bytes are free, and the metadata need about {host.needed_bytes:,}"
            yield Found(host.directory, what, hosts=(host.who,))


def not_writable(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        if not host.writable:
            yield Found(host.directory, "the user of the service may not write there", hosts=(host.who,))


def old_java(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        if host.java is not None and host.java < host.needs_java:
            has = f"Java {host.java}" if host.java else "no Java"
            what = f"the user of the service has {has}, and the release that takes over needs {host.needs_java}"
            yield Found(host.where, what, hosts=(host.who,))


def not_tried(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        if host.untried:
            what = f"the inventory words the command to {', '.join(host.untried)}, which preflight cannot try"
            yield Found(host.where, what, hosts=(host.who,))
        if host.unseen:
            what = f"its disk was not looked at: {host.unseen}"
            yield Found(host.where, what, "See that the disk has room for the metadata", (host.who,))


def not_yet(evidence: Evidence) -> Iterator[Found]:
    for host in evidence.hosts:
        for fault in host.later:
            yield Found(fault.where, fault.what, fault.remedy, (host.who,))


CHECKS = (
    PreflightCheck(
        "M601", Severity.BLOCKER, "A command of the rollout that would fail", would_fail,
        "Correct the inventory, or give the right (docs/rollout-executors.md)",
    ),
    PreflightCheck(
        "M602", Severity.BLOCKER, "Little room on the disk of a host", little_room,
        "Make room, or set metadata.log.dir to a bigger disk. On the host of the rollout, the archive needs the room: "
            "name another directory with 'state' in the inventory",
    ),
    PreflightCheck(
        "M603", Severity.WARNING, "A metadata directory that may not be written", not_writable,
        "Correct the permissions, or 'run_as' of the inventory",
    ),
    PreflightCheck(
        "M604", Severity.WARNING, "Kafka's controllers would not start with this Java", old_java,
        "Install it there, unless the unit names another Java (JAVA_HOME)",
    ),
    PreflightCheck(
        "M605", Severity.WARNING, "Commands that were not tried", not_tried,
        "Try the command yourself, on a node that may be restarted now",
    ),
    PreflightCheck(
        "M606", Severity.WARNING, "Kafka's controllers that could not take over yet", not_yet,
        "Install them, or correct the inventory, before the step 'handover'",
    ),
)  # fmt: skip
