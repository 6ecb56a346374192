"""M5xx: this machine and the servers it talks to: disk, rights, clock, ports, ZooKeeper's release. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy. A rollout uses `room_for` for the hosts of controllers, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Concerns, Found, PreflightCheck, of_zookeeper
from migrator.preflight.evidence import Evidence, ZooKeeperFacts

RECORD_BYTES = 150
"""Bytes of a record in a batch, rather too many: a partition with three replicas has 123."""
COPIES = 4
"""The log, a snapshot, the next snapshot while it is written, and the records appended in that time."""
SPARE_BYTES = 512 * 1024 * 1024
CLOCK_MS = 5_000
FIRST_WITH_MULTI_READ = (3, 6, 0)
OLDEST = (3, 5, 0)


def room_for(records: int) -> int:
    """The bytes that a node needs for the metadata of a cluster."""
    return SPARE_BYTES + COPIES * RECORD_BYTES * records


def little_disk(evidence: Evidence) -> Iterator[Found]:
    records = 0 if evidence.zookeeper is None else evidence.zookeeper.records
    needed = room_for(records)
    for controller in evidence.controllers:
        free = controller.directory.free_bytes
        if free is not None and free < needed:
            yield Found(
                controller.directory.path,
                f"{free:,} bytes are free, and a controller needs about {needed:,} for {records:,} records",
                hosts=(controller.who,),
            )


def not_writable(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        if not controller.directory.writable:
            what = "the user who runs preflight may not write there"
            yield Found(controller.directory.path, what, hosts=(controller.who,))


def run_by_root(evidence: Evidence) -> Iterator[Found]:
    """Preflight may run as another user than the controller will, so the owner of the controller's directory
    decides."""
    for controller in evidence.controllers:
        if controller.directory.of_root:
            what = "its directory belongs to root, so it would have to run as root: a break-in would own the machine"
            yield Found(controller.directory.path, what, hosts=(controller.who,))


def changed_by_all(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for path in controller.directory.changeable:
            what = "every user of this machine may put another log in the place of its own"
            yield Found(path, what, f"Run: chmod o-w {path}", (controller.who,))


def read_by_all(evidence: Evidence) -> Iterator[Found]:
    """This program denies other users the log in its directory; the files of stock Kafka have the rights of its
    umask."""
    for controller in evidence.controllers:
        if controller.directory.readable:
            what = "every user of this machine may enter its directory, and snapshots hold SCRAM credentials"
            yield Found(
                controller.directory.path, what, f"Run: chmod o= {controller.directory.path}", (controller.who,)
            )


def wrong_clock(evidence: Evidence) -> Iterator[Found]:
    if evidence.zookeeper is None:
        return
    path, stamp = evidence.zookeeper.newest_stamp
    ahead = stamp - evidence.machine.now_ms
    if ahead > CLOCK_MS:
        yield Found(path, f"a broker wrote it {ahead / 1000:,.0f} s in the future of this machine's clock")


def taken_port(evidence: Evidence) -> Iterator[Found]:
    for port in evidence.machine.ports:
        if port.fault:
            yield Found(port.where, f"{port.address} cannot be bound on this machine: {port.fault}")


def cannot_verify(evidence: Evidence) -> Iterator[Found]:
    lacks = evidence.machine.cannot_verify
    if lacks is not None:
        yield Found(lacks.where, f"verify will run on this machine, and cannot: {lacks.what}", lacks.remedy)


@of_zookeeper
def old_server(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if zookeeper.version is not None and zookeeper.version < OLDEST:
        yield Found(zookeeper.hosts, f"the server is ZooKeeper {_text(zookeeper.version)}")


@of_zookeeper
def slow_server(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if zookeeper.version is not None and OLDEST <= zookeeper.version < FIRST_WITH_MULTI_READ:
        yield Found(zookeeper.hosts, f"the server is ZooKeeper {_text(zookeeper.version)}, which reads one by one")


@of_zookeeper
def silent_server(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if zookeeper.version is None:
        yield Found(zookeeper.hosts, "the server does not say its version (four letter word srvr)")


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


CHECKS = (
    PreflightCheck(
        "M501", Severity.BLOCKER, "Little room on the disk", little_disk,
        "Make room, or set metadata.log.dir to a bigger disk",
    ),
    PreflightCheck(
        "M502", Severity.WARNING, "A directory that may not be written", not_writable,
        "Run preflight as the user of the controller, or correct the permissions", of_host=True,
    ),
    PreflightCheck(
        "M503", Severity.WARNING, "Clocks differ", wrong_clock,
        "Synchronize the clocks, because delegation tokens expire by the clock. Preflight can only detect a clock "
            "that is behind",
    ),
    PreflightCheck(
        "M504", Severity.BLOCKER, "A port that is taken", taken_port,
        "Stop the process that uses the port; or choose another port, in every file that names this port", of_host=True,
    ),
    PreflightCheck(
        "M505", Severity.WARNING, "ZooKeeper is very old", old_server,
        "Kafka 3.9's ZooKeeper client is made for servers from 3.5 on: upgrade ZooKeeper first",
    ),
    PreflightCheck(
        "M506", Severity.WARNING, "ZooKeeper without multiRead", slow_server,
        "Nothing, if you have time: reading takes about 20 times as long as with ZooKeeper 3.6 or later", Concerns.OURS,
    ),
    PreflightCheck(
        "M507", Severity.WARNING, "ZooKeeper's version is unknown", silent_server,
        "Find out the version, or allow srvr in 4lw.commands.whitelist. Servers should be 3.6 or later",
    ),
    PreflightCheck(
        "M508", Severity.WARNING, "Controllers that run as root", run_by_root,
        "Run the controller as a user of its own, and give it that directory (chown -R)", of_host=True,
    ),
    PreflightCheck(
        "M509", Severity.WARNING, "Metadata directories that every user may change", changed_by_all,
        "Let only the controller's user write there", of_host=True,
    ),
    PreflightCheck(
        "M510", Severity.WARNING, "Metadata directories that every user may read", read_by_all,
        "Let only the controller's user enter it: stock Kafka makes its files as the umask says", Concerns.STOCK,
        of_host=True,
    ),
    PreflightCheck(
        "M511", Severity.BLOCKER, "verify cannot run on this machine", cannot_verify,
        "Install Java and the extra [verify] on every controller's machine; in a rollout, or leave the comparison out "
            "(steps.verify: false)", of_host=True,
    ),
)  # fmt: skip
