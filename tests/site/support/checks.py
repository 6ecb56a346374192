"""Makes docs/checks.md, the reference of checks, from the table of checks."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.preflight.check import SPANS, PreflightCheck
from migrator.preflight.table import SUBJECTS

INTRODUCTION = """\
# Checks of `migrator preflight`

`migrator preflight` looks at a cluster before its migration, and names what would make it fail. It changes nothing: not
in ZooKeeper, not on a disk. It works for clusters that will migrate with this program, and with `--controllers stock`
for those that will with Kafka's own controllers; what concerns only the one is left out for the other.

    migrator preflight -c controller.properties --brokers server.properties --zookeeper zk1:2181/kafka

Each finding says where, what, and what to do. What several brokers and controllers have in common is one finding, with
all of them as its `hosts`. If ZooKeeper holds no cluster at the given address, preflight reports only that (M007), and
lists the chroots that hold one. Exit codes: 0 nothing is in the way, though there may be warnings; 1
something is in the way (a blocker); 2 no blocker was seen, but something could not be looked at
([all exit codes](troubleshooting.md#exit-codes)). With `--json`,
findings carry the codes below.

Whether our identity may write is asked without writing: by multis of the wanted operation and of a check that cannot
hold. ZooKeeper judges operations in order, each first by the access control list, and applies all or none; so it
answers NOAUTH, or that the check failed. No znode changes; the server's transaction log gets one failed transaction for
each.

Giving all property files, of controllers (`-c`, several times) and brokers (`--brokers`, several), on a machine that
has them all, sees most. Directories, ports and the disk are those of the machine that preflight runs on. The first file
of `-c` is that of this machine's controller. Every other file may be a copy from another host, so preflight looks up no
placeholder (`config.providers`) in it. It shows the placeholder instead of a value, and says what it did not examine
(M316). A cluster of 200,000 partitions takes about ten seconds.

`--here` asks neither ZooKeeper nor brokers. It makes only the checks that another host could not (M202, M313 to M315,
M324, M502, M504, M508 to M511); give it this host's file. Only a [rollout](rollout-executors.md#the-trial) finds M601
to M605: it reaches the hosts, and tries the commands of every node.

The column "phases" says in which phase of a [rollout](rollout.md) a fault does harm first, and until which phase its
check has a meaning. In a migration that has begun, `--before PHASE` leaves out what is over: a mark in /migration is a
blocker before the copy, and has to be there after it. About a warning that "asks", an operator decides: a rollout does
not go on without a yes.

This page is generated: `python -m tests.site.support.reference`.
"""


def checks_page() -> str:
    """The whole page in Markdown."""
    return "\n".join(
        [INTRODUCTION, *(line for subject, checks in SUBJECTS.items() for line in _table(subject, checks))]
    )


def _table(subject: str, checks: tuple[PreflightCheck, ...]) -> Iterator[str]:
    yield f"## {subject}\n\n| code | severity | finds | what to do | phases | concerns |\n|---|---|---|---|---|---|"
    for check in checks:
        remedy = check.remedy.replace("|", "\\|")
        severity = f"{check.severity.value}, asks" if check.asks else check.severity.value
        phases = SPANS[check.code]
        yield f"| {check.code} | {severity} | {check.title} | {remedy} | {phases} | {check.concerns.in_words} |"
    yield ""
