"""Judges gates: a gate and a look at the cluster -> who is waited for, and what to do about it. Pure.

What could not be looked at keeps a gate shut: no answer is not a good answer. The one exception is foreign writes,
which Kafka's controllers do not look for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from migrator.config.reading import means_the_same
from migrator.config.sensitive import broker_type, is_sensitive
from migrator.migration.machine.states import PublicState
from migrator.observe.printable import number_of, number_ranges
from migrator.rollout.gates import following
from migrator.rollout.gates.following import (
    REACH_CONTROLLERS,
    REACH_ZOOKEEPER,
    SEE_STATUS,
    Found,
    named,
    unknown,
)
from migrator.rollout.gates.placements import harmed, without_replicas_on
from migrator.rollout.ports import (
    BrokerMode,
    BrokerSeen,
    Gate,
    GateKind,
    Observation,
    PartitionsSeen,
    Placement,
    Shut,
    Some,
)
from migrator.seeing.controllers import CANCEL_REASSIGNMENT, ControllerSeen

ORDER = [state.label for state in PublicState]
ON = {True: "on", False: "off", None: "unknown"}
SEE_BROKER = "See the broker's log. If it does not run, start it"
SEE_CONTROLLER = "See the controller's log. If it does not run, start it"
REACH_BROKERS = "See that brokers run, and that this machine reaches a listener of them ('access' of the inventory)"
SEE_PROGRAM = "See which program is started. Where it is the right one, correct 'controllers.kind' of the inventory"
STOP_OR_START = (
    "On the way back, behind 'give-back', stop controller {}: ZooKeeper has the cluster again. Before it, see that the "
    "other controllers run, and that this machine reaches them ('access' of the inventory)"
)
RESTART_IT = (
    "Restart it with this file. If the command that starts it sets the key, or names another file, correct that command"
)
JOINS_QUORUM = (
    "A broker in migration mode does so seconds after its start. If it does not, see its property file, whether it was "
    "restarted since that was changed, and its log"
)
NOT_SERVING = "is registered, but does not serve yet"
ISR_REMEDY = "Replicas catch up by themselves, unless a broker is down: see which"
IMAGES_DIFFER = (
    "See 'migrator status'. Each controller compares its metadata with its own log. The one that is wrong stops: start "
    "it again, and it reads its log anew"
)

FINISHED = "is finished: ZooKeeper gets no changes any more"
DOES_THE_REST = "'migrator rollout apply' does the rest of the migration"
FORWARD_AGAIN = f"{DOES_THE_REST}, and takes back what the way back has changed"
ONLY_REOPEN = "'migrator reopen' alone leads back, and only while this program's controllers run (docs/way-back.md)"


def judge(gate: Gate, seen: Observation) -> tuple[Shut, ...]:
    """Why the gate is shut; empty when it is open."""
    return tuple(_JUDGES[gate.kind](gate, seen))


def _partitions_healthy(gate: Gate, seen: Observation) -> Found:
    partitions = seen.partitions
    if partitions is None:
        yield Shut("partitions", unknown("their state is unknown", seen), REACH_BROKERS)
        return
    if seen.brokers is None:
        yield Shut("brokers", unknown("which of them are registered is unknown", seen), _reach(seen))
    for broker in (seen.brokers or {}).values():  # a broker that died stays registered for a while
        if broker.mode is not None and not broker.serving and broker.broker_id not in _ids(gate):
            yield Shut(f"broker {broker.broker_id}", NOT_SERVING, SEE_BROKER)
    if gate.nodes:
        partitions = without_replicas_on(partitions, _ids(gate))
    for broker_id in _down(partitions, seen):
        if broker_id not in _ids(gate):
            yield Shut(f"broker {broker_id}", "is down: it is not registered, and partitions miss it", SEE_BROKER)
    for some, what, remedy in _troubles(partitions):
        if some.count:
            more = ", ..." if some.count > len(some.names) else ""
            names = f" ({', '.join(some.names)}{more})" if some.names else ""
            yield Shut("partitions", f"{some.count} {what}{names}", remedy)


def _troubles(partitions: PartitionsSeen) -> Iterator[tuple[Some, str, str]]:
    yield partitions.offline, "offline", "Start the brokers that have their replicas"
    yield partitions.under_min_isr, "with fewer replicas in sync than min.insync.replicas", ISR_REMEDY
    yield partitions.under_replicated, "under-replicated", ISR_REMEDY
    yield partitions.reassigning, "being reassigned", "Wait for the reassignment, or cancel it"


def _may_stop(gate: Gate, seen: Observation) -> Found:
    names, partitions = ", ".join(node.name for node in gate.nodes), seen.partitions
    for node in gate.nodes:
        broker = seen.broker(node)
        if broker is not None and broker.rack and node.rack and broker.rack != node.rack:
            what = f"its broker.rack is {broker.rack}, and the inventory says {node.rack}"
            yield Shut(node.name, what, "Correct the rack in the inventory, then 'migrator rollout resume'")
    if partitions is None or (len(gate.nodes) > 1 and not partitions.placed):
        yield Shut("partitions", unknown("which brokers have their replicas is unknown", seen), REACH_BROKERS)
        return
    for goes_offline, what in ((True, "would go offline"), (False, "would fall below min.insync.replicas")):
        found = [each for each, offline in harmed(partitions, _ids(gate)) if offline is goes_offline]
        if found:
            some = named(tuple(each.names[0] for each in found if each.names))
            count = number_of(sum(each.count for each in found), "partition")
            remedy = _move_away(found, gate, seen) or _together(gate)
            yield Shut(names, f"without {_them(gate)}, {count} {what}: {some}", remedy)


def _move_away(found: Sequence[Placement], gate: Gate, seen: Observation) -> str:
    """The remedy where replicas are on brokers that are down; "" where none is."""
    down = [broker for broker in _missing(found, seen) if broker not in _ids(gate)]
    if not down:
        return ""
    who = f"broker{'s' if len(down) > 1 else ''} {named(tuple(map(str, down)))}"
    return (
        f"Start {who}. If it is gone for good, first move its replicas to other brokers, or take them out of these "
        "partitions (kafka-reassign-partitions); then 'migrator rollout resume'"
    )


def _missing(placements: Sequence[Placement], seen: Observation) -> list[int]:
    """Brokers that are down, and whose replicas here are out of sync, or were the last in-sync ones."""
    if seen.brokers is None:
        return []
    out = {broker for each in placements for broker in each.replicas - each.in_sync}
    out |= {broker for each in placements if not each.led for broker in each.replicas}
    return sorted(broker for broker in out if not _is_registered(broker, seen))


def _down(partitions: PartitionsSeen, seen: Observation) -> list[int]:
    """The brokers that make partitions unhealthy. When it is unknown whose replicas these are, every broker that is
    down may be one of them."""
    if not any(some.count for some, *_ in _troubles(partitions)):
        return []
    if partitions.placements:
        return _missing(partitions.placements, seen)
    return sorted(broker for broker in seen.brokers or {} if not _is_registered(broker, seen))


def _is_registered(broker_id: int, seen: Observation) -> bool:
    broker = (seen.brokers or {}).get(broker_id)
    return broker is not None and broker.mode is not None


def _them(gate: Gate) -> str:
    return "these brokers" if len(gate.nodes) > 1 else "this broker"


def _together(gate: Gate) -> str:
    if len(gate.nodes) == 1:
        return ISR_REMEDY
    return (
        "Wait until all replicas are in sync. If it stays so, these brokers cannot stop together: set brokers.roll: "
        "broker in the inventory, then 'migrator rollout resume'"
    )


def _ids(gate: Gate) -> list[int]:
    return [node.node_id for node in gate.nodes]


def _caught_up(gate: Gate, seen: Observation) -> Found:
    """Every voter except the one that is about to stop has every committed record: the quorum continues without that
    one."""
    quorum = seen.quorum
    if quorum is None:
        yield Shut("quorum", unknown("no controller answers", seen), REACH_CONTROLLERS)
        return
    if quorum.leader_id is None:
        yield Shut("quorum", "no controller leads", SEE_STATUS)
    for voter in quorum.voters.values():
        if (other := _other_program(voter, gate)) and not seen.is_finished:  # after the end, Kafka's may take over
            yield Shut(f"controller {voter.node_id}", other, SEE_PROGRAM, for_ever=True)
        elif voter.node_id != _node_id(gate):
            yield from _behind(voter)


def _other_program(voter: ControllerSeen, gate: Gate) -> str:
    wanted, runs = gate.program, voter.program
    return f"is {runs.value}, not {wanted.value}" if wanted and runs and runs is not wanted else ""


def _behind(voter: ControllerSeen) -> Found:
    who = f"controller {voter.node_id}"
    if voter.program is None:
        yield Shut(who, "does not answer", SEE_CONTROLLER)
    elif voter.lag_records > 0:
        yield Shut(who, f"is {number_of(voter.lag_records, 'record')} behind", SEE_CONTROLLER)
    elif voter.lag_records < 0:
        yield Shut(who, "how far it is behind the leader is unknown", SEE_STATUS)


def _voters_settled(_: Gate, seen: Observation) -> Found:
    """Kafka's controllers carry no reassignment out, so it would stay half done."""
    target = None if seen.quorum is None else seen.quorum.target
    if target is None:
        yield Shut("voters", unknown("whether they are being reassigned is unknown", seen), REACH_CONTROLLERS)
    elif target:
        yield Shut("voters", f"a reassignment to {target} is under way", CANCEL_REASSIGNMENT)


def _broker_gone(gate: Gate, seen: Observation) -> Found:
    who = _who(gate)
    if seen.brokers is None:
        yield Shut(who, unknown("whether it is registered is unknown", seen), _reach(seen))
        return
    broker = seen.brokers.get(_node_id(gate))
    if broker is not None and broker.mode is not None:
        yield Shut(
            who,
            f"is still registered, in {broker.mode.value} mode",
            "Its registration ends with its session, at most zookeeper.session.timeout.ms after its process",
        )


def _broker_back(gate: Gate, seen: Observation) -> Found:
    if seen.brokers is None:
        yield Shut(_who(gate), unknown("whether it has restarted is unknown", seen), _reach(seen))
        return
    broker = seen.brokers.get(_node_id(gate)) or BrokerSeen(_node_id(gate), None)
    waiting = list(_in_mode(_who(gate), broker, gate.mode))
    before = gate.before
    if not waiting and before is not None:
        if before.registration and broker.registration == before.registration:
            what = "has not been restarted: its registration is the old one"
            waiting.append(Shut(_who(gate), what, "See whether its restart command restarts it"))
        elif before.release and broker.release and broker.release != before.release:
            what = f"is back with release {broker.release}; before its restart it had {before.release}"
            waiting.append(Shut(_who(gate), what, "Start it with the release that it had"))
    yield from waiting or _old_settings(gate, broker)


def _old_settings(gate: Gate, broker: BrokerSeen) -> Found:
    """Keys whose value in the broker differs from its property file. The values are left out, because the journal keeps
    this."""
    file, read = gate.file, broker.file
    if file is None or read is None:
        return
    missing = [f"without {key}" for key in sorted(file) if key not in read]
    left = [f"still with {key}" for key in sorted(read) if key not in file]
    shown = [key for key in sorted(file) if key in read and _is_shown(key, file[key], read[key])]
    other = [f"with another value of {key}" for key in shown if not means_the_same(key, file[key], read[key] or "")]
    if found := (*missing, *left, *other):
        yield Shut(_who(gate), f"does not run with its property file as it is: {named(found)}", RESTART_IT)


def unseen(gate: Gate, seen: Observation) -> Iterator[str]:
    """Facts that an open gate could not see, a sentence each."""
    if gate.kind is GateKind.IMAGES_AGREE:
        yield from _not_compared(seen)
        return
    broker = seen.broker(gate.node)
    if gate.kind is not GateKind.BROKER_BACK or broker is None or gate.file is None:
        return
    if broker.file is None:
        why = f" ({broker.hidden})" if broker.hidden else ""
        what = "the mode and the settings" if broker.may_migrate else "the settings"
        yield (
            f"{_who(gate)}: {what} that it runs with could not be looked at{why}. The login of 'access' "
            "needs the right DescribeConfigs of the cluster"
        )
        return
    hidden = [key for key in sorted(gate.file) if not _is_shown(key, gate.file[key], broker.file.get(key))]
    if hidden:
        yield f"{_who(gate)}: does not show the values of {named(tuple(hidden))}: only that they are set was seen"


def _not_compared(seen: Observation) -> Iterator[str]:
    images = None if seen.migration is None else seen.migration.images
    if images is None and not seen.is_finished:
        yield "whether all controllers have the same metadata is not known: no leader has compared them"
    elif images is not None and images.unknown:
        who = number_ranges("controller", images.unknown)
        yield f"whether the metadata of {who} are those of the leader is not known: not every controller can say"


def _is_shown(key: str, known: str, read: str | None) -> bool:
    """Whether Kafka shows the value: it is no secret, and no configuration provider fills it in."""
    return read is not None and not is_sensitive(broker_type(key)) and "${" not in known


def _in_mode(who: str, broker: BrokerSeen, mode: BrokerMode | None) -> Found:
    if broker.mode is None:
        yield Shut(who, "is not registered, or fenced", SEE_BROKER)
    elif (broker.mode, mode) == (BrokerMode.ZOOKEEPER, BrokerMode.MIGRATING):  # normal for a second after a start
        yield Shut(who, "is registered in ZooKeeper, and not yet with the quorum", JOINS_QUORUM)
    elif mode is not None and broker.mode is not mode:
        remedy = "See its property file, and whether it was restarted since that was changed"
        yield Shut(who, f"runs in {broker.mode.value} mode, not in {mode.value} mode", remedy)
    elif not broker.serving:
        yield Shut(who, NOT_SERVING, SEE_BROKER)


def _controller_back(gate: Gate, seen: Observation) -> Found:
    who, voter = _who(gate), seen.voter(gate.node)
    if voter is None:
        yield Shut(who, unknown("no controller says that it is a voter", seen), REACH_CONTROLLERS)
    elif voter.program is None:
        yield from _behind(voter)
    elif other := _other_program(voter, gate):
        yield Shut(who, other, SEE_PROGRAM)
    elif gate.migration_on is not None and voter.migration_on is not gate.migration_on:
        what = f"its migration is {ON[voter.migration_on]}, not {ON[gate.migration_on]}"
        yield Shut(who, what, "See its property file, and whether it was restarted since that was changed")
    else:
        yield from _behind(voter)


def _brokers_in_mode(gate: Gate, seen: Observation) -> Found:
    if not seen.brokers:
        yield Shut("brokers", unknown("which brokers there are is unknown", seen), _reach(seen))
        return
    if gate.nodes and seen.is_finished:
        return
    names = {node.node_id: node.name for node in gate.nodes}
    for broker_id in sorted({*seen.brokers, *names}):
        broker = seen.brokers.get(broker_id) or BrokerSeen(broker_id, None)
        yield from _in_mode(names.get(broker_id, f"broker {broker_id}"), broker, gate.mode)


def _none_in_kraft(gate: Gate, seen: Observation) -> Found:
    """A ZooKeeper controller cannot lead a broker in KRaft mode; `migrator rollback` refuses a log that has one."""
    if seen.brokers is None:
        yield Shut("brokers", unknown("which of them are in KRaft mode is unknown", seen), _reach(seen))
        return
    names = {node.node_id: node.name for node in gate.nodes}
    for broker_id, broker in sorted(seen.brokers.items()):
        if broker.kraft_in_log:
            what = "is registered in KRaft mode" + ("" if broker_id in names else ", and is not in the inventory")
            yield Shut(names.get(broker_id, f"broker {broker_id}"), what, _leaves_kraft(broker_id))


def _leaves_kraft(broker_id: int) -> str:
    return (
        f"If broker {broker_id} is to stay, see that the inventory has it; then 'migrator rollout resume'. If it is to "
        f"go, stop it, and remove its registration with 'migrator quorum unregister -c FILE --id {broker_id}', where "
        "FILE is the one that 'access' of the inventory names; then 'migrator rollout resume'"
    )


def _migration_state(gate: Gate, seen: Observation) -> Found:
    migration = seen.migration
    state = "" if migration is None else migration.state
    if migration is None or state not in ORDER:
        yield Shut("migration", unknown("its state is unknown", seen), REACH_CONTROLLERS)
    elif ORDER.index(state) < ORDER.index(gate.state):
        what = f"is in {state}, not yet in {gate.state}"
        why = f": {named(migration.problems)}" if migration.problems else ""
        yield Shut("migration", what + why, SEE_STATUS)


def _not_finished(_: Gate, seen: Observation) -> Found:
    """An unknown state does not keep this gate shut: only a running quorum tells it, and a way back may have to start
    one."""
    if seen.is_finished:
        yield Shut("migration", FINISHED, f"{FORWARD_AGAIN}. {ONLY_REOPEN}", for_ever=True)


def _finishing(_: Gate, seen: Observation) -> Found:
    if not seen.is_finished and (seen.migration is None or not seen.migration.finishing):
        what = unknown("does not say that it asks the other controllers whether their migration is off", seen)
        yield Shut("the leader", what, SEE_STATUS)


def _images_agree(_: Gate, seen: Observation) -> Found:
    """A controller of Kafka does not tell a digest of its metadata, and keeps this gate open."""
    images = None if seen.migration is None else seen.migration.images
    if images is not None and images.different:
        yield Shut("quorum", images.disagreement, IMAGES_DIFFER)


def _zookeeper_controller(_: Gate, seen: Observation) -> Found:
    if not seen.zookeeper_answers:
        yield Shut("ZooKeeper", unknown("does not answer", seen), REACH_ZOOKEEPER)
    elif seen.controller_broker is None:
        yield Shut("brokers", "none is the ZooKeeper controller", "See 'migrator rollback', and the brokers' logs")


def _brokers_seen(_: Gate, seen: Observation) -> Found:
    """While a broker is the ZooKeeper controller, no broker is in KRaft mode, even if brokers cannot be seen."""
    if seen.brokers is None and seen.controller_broker is None:
        yield Shut("brokers", unknown("which of them are registered is unknown", seen), _reach(seen))


def _voter_seen(gate: Gate, seen: Observation) -> Found:
    voter = seen.voter(gate.node)
    if voter is None or voter.migration_on is None:
        what = unknown("does not say whether it has the migration on", seen)
        yield Shut(_who(gate), what, f"{SEE_CONTROLLER}. {REACH_CONTROLLERS}")


def _zookeeper_seen(_: Gate, seen: Observation) -> Found:
    if not seen.zookeeper_answers and not seen.is_finished:
        yield Shut("ZooKeeper", unknown("does not answer", seen), REACH_ZOOKEEPER)


def _reach(seen: Observation) -> str:
    if seen.controller_broker is not None and seen.quorum is not None and seen.quorum.leader_id is None:
        answer = [str(voter.node_id) for voter in seen.quorum.voters.values() if voter.program is not None]
        return STOP_OR_START.format(", ".join(answer))
    return REACH_CONTROLLERS if seen.zookeeper_answers else REACH_ZOOKEEPER


def _who(gate: Gate) -> str:
    return "the node" if gate.node is None else gate.node.name


def _node_id(gate: Gate) -> int:
    return -1 if gate.node is None else gate.node.node_id


_JUDGES: Mapping[GateKind, Callable[[Gate, Observation], Found]] = {
    GateKind.PARTITIONS_HEALTHY: _partitions_healthy,
    GateKind.MAY_STOP: _may_stop,
    GateKind.QUORUM_HEALTHY: _caught_up,
    GateKind.OTHERS_CAUGHT_UP: _caught_up,
    GateKind.VOTERS_SETTLED: _voters_settled,
    GateKind.BROKER_GONE: _broker_gone,
    GateKind.BROKER_BACK: _broker_back,
    GateKind.CONTROLLER_BACK: _controller_back,
    GateKind.BROKERS_IN_MODE: _brokers_in_mode,
    GateKind.NONE_IN_KRAFT: _none_in_kraft,
    GateKind.MIGRATION_STATE: _migration_state,
    GateKind.NOT_FINISHED: _not_finished,
    GateKind.WRITE_BEHIND_IDLE: following.write_behind_idle,
    GateKind.VERSIONS_RAISED: following.versions_raised,
    GateKind.LEADER_KEEPS_UP: following.leader_keeps_up,
    GateKind.BOTH_WRITTEN: following.both_written,
    GateKind.FINISHING: _finishing,
    GateKind.NO_FOREIGN_WRITES: following.no_foreign_writes,
    GateKind.IMAGES_AGREE: _images_agree,
    GateKind.ZOOKEEPER_CONTROLLER: _zookeeper_controller,
    GateKind.BROKERS_SEEN: _brokers_seen,
    GateKind.VOTER_SEEN: _voter_seen,
    GateKind.ZOOKEEPER_SEEN: _zookeeper_seen,
}
