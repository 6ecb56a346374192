"""The gates about ZooKeeper: whether it follows the log, and whether only the quorum writes there. Pure.

`gates` lists these functions. Each takes a gate and a look, and returns why the gate is shut, or nothing. An unknown
fact keeps a gate shut, unless another gate asks for it, or Kafka's controllers do not tell it.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.migration.machine.states import PublicState
from migrator.observe.printable import number_of
from migrator.rollout.ports import Gate, MigrationSeen, Observation, Shut
from migrator.seeing.controllers import ControllerProgram

NAMED_MAX = 5
SEE_STATUS = "See 'migrator status', and the log of the controllers"
REACH_CONTROLLERS = "See that the controllers run, and that this machine reaches them ('access' of the inventory)"
REACH_ZOOKEEPER = "See that ZooKeeper runs, and that this machine reaches it ('access' of the inventory)"

Found = Iterator[Shut]


def unknown(what: str, seen: Observation) -> str:
    """The sentence with the reasons why something is unknown; a reason that is the sentence itself is not repeated."""
    if any(reason.startswith(what) for reason in seen.unknown):
        return named(seen.unknown)
    return f"{what}: {named(seen.unknown)}" if seen.unknown else what


def named(names: tuple[str, ...]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f", and {more} more" if more > 0 else "")


SEE_WRITER = (
    "A new leader first compares ZooKeeper with the log, which may take minutes. See 'migrator status', and the log of "
    "the controllers. Kafka's controllers with metadata.max.idle.interval.ms=0 write only what changes: then change "
    "something, such as a topic"
)
NOT_SEEN_TO_WRITE = "the leader was not yet seen to write what is committed"
OF_ZOOKEEPER = "ZooKeeper: "
"""How a problem about ZooKeeper begins in the leader's status."""
SEE_ENSEMBLE = "See that ZooKeeper runs, and that the controllers reach it"
BEHIND_MS = 10_000
"""The longest age of a record that is not in ZooKeeper yet. A leader that writes needs some milliseconds for each."""


def write_behind_idle(gate: Gate, seen: Observation) -> Found:
    lag = -1 if seen.migration is None else seen.migration.write_behind_lag
    if seen.is_finished:
        return
    if not seen.zookeeper_answers:
        yield Shut("ZooKeeper", unknown("does not answer", seen), REACH_ZOOKEEPER)
    elif lag < 0 and seen.migration is not None and gate.program is ControllerProgram.STOCK:
        return
    elif lag < 0:
        remedy = REACH_CONTROLLERS if seen.migration is None else SEE_WRITER
        yield Shut("ZooKeeper", unknown("how far it is behind the log is unknown", seen), remedy)
    elif lag:
        yield Shut("ZooKeeper", f"is {number_of(lag, 'record')} behind the log", SEE_STATUS)


def versions_raised(_: Gate, seen: Observation) -> Found:
    """Before a ZooKeeper controller takes over: it sends these versions, and brokers skip older ones. `migrator
    rollback` would raise them, too, while the cluster has no controller. Kafka's controllers raise none."""
    migration = seen.migration
    if migration is None or seen.is_finished:
        return
    if migration.versions:
        yield Shut("ZooKeeper", migration.versions, SEE_STATUS, left=migration.versions_left)
    elif migration.versions_left < 0:
        what = unknown("whether versions of partition states are still to be raised is unknown", seen)
        yield Shut("ZooKeeper", what, REACH_CONTROLLERS)


def leader_keeps_up(_: Gate, seen: Observation) -> Found:
    """In dual-write, a new leader first compares all of ZooKeeper with the log. Until that is over, a leader of Kafka's
    tells brokers in ZooKeeper mode of no new partition leader, so no broker may stop. Before the copy the quorum writes
    nothing, and another gate asks whether it leads."""
    migration = seen.migration
    if migration is None or migration.state != PublicState.DUAL_WRITE.label or migration.keeps_up:
        return
    if migration.problems:
        yield Shut("the leader", f"does not write to ZooKeeper, and waits: {named(migration.problems)}", SEE_STATUS)
        return
    if not seen.zookeeper_answers:
        yield Shut("ZooKeeper", unknown("does not answer", seen), REACH_ZOOKEEPER)
    elif migration.write_behind_lag > 0:
        behind = number_of(migration.write_behind_lag, "record")
        yield Shut("ZooKeeper", f"is {behind} behind the log, and has been for seconds", SEE_WRITER)
    else:
        yield Shut("ZooKeeper", unknown(NOT_SEEN_TO_WRITE, seen), SEE_WRITER)


def both_written(gate: Gate, seen: Observation) -> Found:
    """For the soak: the leader has its session with ZooKeeper, and no record waits for long. In a cluster where nothing
    changes, nothing is written, and the session alone must do."""
    migration = seen.migration
    if migration is None or not migration.state:
        yield Shut("migration", unknown("its state is unknown", seen), REACH_CONTROLLERS)
        return
    if seen.is_finished:
        return
    if migration.state != PublicState.DUAL_WRITE.label:
        what = f"is in {migration.state}, not in {PublicState.DUAL_WRITE.label}"
        yield Shut("migration", what, SEE_STATUS)
        return
    shut = [*_out_of_reach(migration, seen)] or [*leader_keeps_up(gate, seen)] or [*_falls_behind(migration)]
    yield from shut


def _out_of_reach(migration: MigrationSeen, seen: Observation) -> Found:
    said = [each.removeprefix(OF_ZOOKEEPER) for each in migration.problems if each.startswith(OF_ZOOKEEPER)]
    if said:
        yield Shut("ZooKeeper", f"the leading controller says: {named(tuple(said))}", SEE_ENSEMBLE)
    elif not seen.zookeeper_answers:
        yield Shut("ZooKeeper", unknown("does not answer", seen), REACH_ZOOKEEPER)


def _falls_behind(migration: MigrationSeen) -> Found:
    behind = number_of(migration.write_behind_lag, "record")
    if migration.behind_ms > BEHIND_MS:
        what = f"is {behind} behind the log, and the oldest has waited for {migration.behind_ms // 1000} s"
        yield Shut("ZooKeeper", what, SEE_STATUS)
    elif migration.behind_ms < 0 < migration.write_behind_lag:
        yield Shut("ZooKeeper", f"lacks {behind} that the log had at the look before", SEE_STATUS)


def no_foreign_writes(_: Gate, seen: Observation) -> Found:
    written = () if seen.migration is None else seen.migration.foreign_writes
    if written:
        what = f"other programs have written to it: {named(written)}"
        yield Shut("ZooKeeper", what, "Find out who, and repair with 'migrator verify --repair'")
