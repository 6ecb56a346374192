"""The phases of a rollout, forward and back, one object each: when a step is needed, its gates, its acts, why, and what
undoes it. Nothing else in the rollout asks which phase it is in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from migrator.migration.machine.states import PublicState
from migrator.rollout.inventory import ControllerKind, Inventory
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.steps import Act, Direction, GatesAt, Job, Need, Phase, PhaseRules, Place, Sight, Who
from migrator.rollout.ports import BrokerMode, Gate, GateKind
from migrator.seeing.controllers import ControllerProgram

# The gates of phases.

INELIGIBLE, DUAL_WRITE, FINISHED = (
    Gate(GateKind.MIGRATION_STATE, state=state.label)
    for state in (PublicState.MIGRATION_INELIGIBLE, PublicState.DUAL_WRITE, PublicState.FINISHED)
)
HEALTHY, QUORUM = Gate(GateKind.PARTITIONS_HEALTHY), Gate(GateKind.QUORUM_HEALTHY)
FINISHING, NOT_FINISHED = Gate(GateKind.FINISHING), Gate(GateKind.NOT_FINISHED)
WRITTEN, ALONE = Gate(GateKind.WRITE_BEHIND_IDLE), Gate(GateKind.NO_FOREIGN_WRITES)
AGREE, KEEPS_UP = Gate(GateKind.IMAGES_AGREE), Gate(GateKind.LEADER_KEEPS_UP)
VERSIONS = Gate(GateKind.VERSIONS_RAISED)
BOTH_WRITTEN = Gate(GateKind.BOTH_WRITTEN)
BROKER_RULES = Gate(GateKind.ZOOKEEPER_CONTROLLER)


def program_of(inventory: Inventory) -> ControllerProgram:
    """The program of the controllers that migrate the cluster."""
    stock = inventory.controllers.kind is ControllerKind.STOCK
    return ControllerProgram.STOCK if stock else ControllerProgram.MIGRATOR


def _asks(*gates: Gate) -> GatesAt:
    """The same gates for every step of a phase."""
    return lambda _: gates


def _quorum(place: Place) -> Gate:
    """The quorum is healthy, and its controllers are those of the inventory: a leader of Kafka's without the migration
    would end it."""
    return replace(QUORUM, program=program_of(place.inventory))


def _others_have_all(place: Place) -> Gate:
    return Gate(GateKind.OTHERS_CAUGHT_UP, place.node, program=program_of(place.inventory))


def may_be_handed_over(node: Node | None) -> tuple[Gate, ...]:
    """The gates before our controller is stopped for Kafka's, also in `migrator handover`."""
    return FINISHED, Gate(GateKind.VOTERS_SETTLED), Gate(GateKind.OTHERS_CAUGHT_UP, node)


def is_handed_over(node: Node | None) -> Gate:
    """The gate after the start of Kafka's controller, also in `migrator handover`."""
    return Gate(GateKind.CONTROLLER_BACK, node, program=ControllerProgram.STOCK)


def _is_back(place: Place, *, migration_on: bool) -> Gate:
    program = program_of(place.inventory)
    return Gate(GateKind.CONTROLLER_BACK, place.node, program=program, migration_on=migration_on)


def _may_stop(place: Place, *first: Gate) -> tuple[Gate, ...]:
    """The gates before a broker stops. Once a broker of a rack stops, replicas in the rack do not count: the replicas
    outside the rack have to be enough."""
    healthy = replace(HEALTHY, nodes=place.group) if len(place.group) > 1 else HEALTHY
    return (*first, healthy, Gate(GateKind.MAY_STOP, nodes=place.group))


def _are_back(place: Place, mode: BrokerMode, *first: Gate) -> tuple[Gate, ...]:
    """The gates after a restart. In a group, the rollout waits for the first broker; then it restarts the others one
    after the other, and waits for all of them together."""
    back = tuple(Gate(GateKind.BROKER_BACK, each, mode) for each in place.group)
    if place.node is place.group[-1]:
        return (*first, *back, HEALTHY)
    return (*first, back[0]) if place.node is place.group[0] else ()


def _may_end(place: Place, *last: Gate) -> tuple[Gate, ...]:
    """The gates that must be open until the migration ends; each step to the end asks them."""
    in_kraft = Gate(GateKind.BROKERS_IN_MODE, mode=BrokerMode.KRAFT, nodes=place.inventory.brokers.nodes)
    return DUAL_WRITE, in_kraft, replace(WRITTEN, program=program_of(place.inventory)), ALONE, AGREE, *last


def _not_ended(place: Place) -> tuple[Gate, ...]:
    """A way back that began before the end stops when the migration ends meanwhile."""
    return () if place.reopens else (NOT_FINISHED,)


def _drained(place: Place) -> tuple[Gate, ...]:
    return NOT_FINISHED, Gate(GateKind.NONE_IN_KRAFT, nodes=place.inventory.brokers.nodes), WRITTEN


# When a step is needed.


def _is_copied(sight: Sight) -> bool:
    copied = (PublicState.MIGRATE_ZK_DATA, PublicState.DUAL_WRITE, PublicState.FINISHED)
    return sight.seen.migration is not None and sight.seen.migration.state in [state.label for state in copied]


def _is_still_migrating(sight: Sight) -> bool:
    voter = sight.seen.voter(sight.node)
    return (
        sight.file is FileMode.CONTROLLER_MIGRATING
        or (voter is not None and voter.migration_on is True)
        or (sight.starts and not sight.runs and (voter is None or voter.program is None))
    )


def _has_migration_off(sight: Sight) -> bool:
    voter = sight.seen.voter(sight.node)
    off = voter is not None and voter.migration_on is False
    return sight.file is FileMode.CONTROLLER_ENDED or (sight.runs and off)


def _is_not_in_kraft(sight: Sight) -> bool:
    broker = sight.seen.broker(sight.node)
    may_be = broker is None or broker.mode in (None, BrokerMode.KRAFT)
    return not (sight.seen.is_finished and sight.runs and sight.file is FileMode.BROKER_KRAFT and may_be)


def _is_in_kraft(sight: Sight) -> bool:
    broker = sight.seen.broker(sight.node)
    is_seen = broker is not None and (broker.mode is BrokerMode.KRAFT or broker.kraft_in_log)
    return sight.file is FileMode.BROKER_KRAFT or is_seen


def _is_not_in_zookeeper(sight: Sight) -> bool:
    broker = sight.seen.broker(sight.node)
    is_seen = broker is not None and broker.mode is BrokerMode.ZOOKEEPER and not broker.may_migrate
    return sight.file is not FileMode.BROKER_ZOOKEEPER or not is_seen


def _is_not_stock(sight: Sight) -> bool:
    voter = sight.seen.voter(sight.node)
    return voter is None or voter.program is not ControllerProgram.STOCK


def _voter_is_seen(sight: Sight) -> Gate | None:
    """For a controller whose process runs. A silent controller does not block here; and on the way back this is not
    asked, because a silent controller may be the reason to go back."""
    return Gate(GateKind.VOTER_SEEN, sight.node) if sight.runs else None


def _brokers_are_seen(_: Sight) -> Gate:
    return Gate(GateKind.BROKERS_SEEN)


def _zookeeper_is_seen(_: Sight) -> Gate:
    return Gate(GateKind.ZOOKEEPER_SEEN)


def _migration_is_seen(_: Sight) -> Gate:
    """Any state."""
    return INELIGIBLE


ALWAYS = Need(lambda _: True)
NOT_COPIED = Need(lambda sight: not _is_copied(sight))
UNFINISHED = Need(lambda sight: not sight.seen.is_finished)
ENDED = Need(lambda sight: sight.seen.is_finished, _migration_is_seen)
NODE_DOWN = Need(lambda sight: not sight.seen.is_finished and not sight.runs)
DUAL_WRITING = Need(lambda sight: sight.seen.may_be_dual_writing)
RULES_AND_IS_DOWN = Need(lambda sight: sight.seen.quorum_claims and not sight.runs, _zookeeper_is_seen)
STILL_MIGRATING = Need(_is_still_migrating, _voter_is_seen)
MIGRATION_OFF = Need(_has_migration_off)
NOT_IN_KRAFT = Need(_is_not_in_kraft)
IN_KRAFT = Need(_is_in_kraft, _brokers_are_seen)
NOT_IN_ZOOKEEPER = Need(_is_not_in_zookeeper)
NOT_STOCK = Need(_is_not_stock)
REGISTERED = Need(lambda sight: sight.seen.broker(sight.node) is not None, _brokers_are_seen)
NO_BROKER_RULES = Need(lambda sight: sight.seen.controller_broker is None)

# Whether an inventory has a phase at all.


def _waits_for_gone(inventory: Inventory) -> bool:
    """Whether the end needs an order: our leader asks every controller before it finishes, Kafka's asks none."""
    ours = inventory.controllers.kind is ControllerKind.MIGRATOR
    return ours and any(node.role is NodeKind.CONTROLLER for node in inventory.gone)


NOTHING, ROLLBACK, NEW = "nothing was changed", "'migrator rollout rollback'", "a new rollout"
RESTARTS = (Act.CHECK_BEFORE, Act.EDIT, Act.RESTART, Act.CHECK_AFTER)
_FIRST, _CLUSTER, _BROKERS, _CONTROLLERS = Who.FIRST_CONTROLLER, Who.CLUSTER, Who.BROKERS, Who.CONTROLLERS

# Each phase: for which nodes it has a step, its acts, when it is needed; then its gates; then why, and how to undo it.
# fmt: off
_START = PhaseRules(
    Phase.START, _CONTROLLERS, (Act.START,), UNFINISHED, waits_for_all=True,
    why="the quorum waits for the brokers, and changes nothing", undo=ROLLBACK,
)
_UNREGISTER = PhaseRules(  # while such a broker is registered, the migration can neither end nor go back
    Phase.UNREGISTER, Who.GONE_BROKERS, (Act.RUN,), REGISTERED, job=Job.UNREGISTER,
    why="the quorum forgets a broker that is gone for good", undo="start the broker: it registers",
)
_FINISH = PhaseRules(
    Phase.FINISH, _CONTROLLERS, (Act.CONFIRM, Act.CHECK_BEFORE, Act.PROVE, Act.EDIT, Act.RESTART, Act.CHECK_AFTER),
    STILL_MIGRATING, mode=FileMode.CONTROLLER_ENDED, proof=Act.PROVE, leader_last=True, ends_migration=True,
    before=lambda place: _may_end(place, _others_have_all(place)),
    after=lambda place: (_is_back(place, migration_on=False), QUORUM),
    why="ends the migration on this controller",
    undo=f"{ROLLBACK}, until the last controller is restarted, then 'migrator reopen'; with Kafka's controllers, until "
    "one of them leads without the migration",
)
_FINISHED = PhaseRules(
    Phase.FINISH, _CLUSTER, (Act.CHECK_AFTER,), ALWAYS, name="finished", ends_migration=True,
    is_there=lambda inventory: not _waits_for_gone(inventory),
    after=_asks(FINISHED, QUORUM),
    why="the controllers see that the migration is off everywhere, and end it", undo=_FINISH.undo,
)

FORWARD = (
    PhaseRules(
        Phase.PREFLIGHT, _FIRST, (Act.RUN,), NOT_COPIED, job=Job.PREFLIGHT,
        is_there=lambda inventory: not inventory.left_out.preflight,
        why="finds what would make the migration fail", undo=NOTHING,
    ),
    PhaseRules(
        Phase.REHEARSE, _FIRST, (Act.RUN,), NOT_COPIED, job=Job.REHEARSE,
        is_there=lambda inventory: not inventory.left_out.rehearse,
        why="tries the copy without writing to ZooKeeper, and forecasts its time", undo=NOTHING,
        again=(Phase.PREFLIGHT, Phase.REHEARSE),
    ),
    PhaseRules(
        Phase.FORMAT, _CONTROLLERS, (Act.EDIT, Act.RUN), NODE_DOWN, mode=FileMode.CONTROLLER_MIGRATING, job=Job.FORMAT,
        why="gives the controllers' directories their identity", undo=ROLLBACK,
    ),
    _START,
    replace(_START, name="started", who=_CLUSTER, acts=(Act.CHECK_AFTER,),
        after=lambda place: (_quorum(place), INELIGIBLE)),
    PhaseRules(
        Phase.MIGRATE, _BROKERS, RESTARTS, UNFINISHED, mode=FileMode.BROKER_MIGRATING, first_of_brokers=True,
        before=lambda place: _may_stop(place, QUORUM, KEEPS_UP),
        after=lambda place: _are_back(place, BrokerMode.MIGRATING),
        why="the broker registers with the quorum; ZooKeeper still rules. An earlier attempt's log is deleted",
        undo=ROLLBACK,
    ),
    PhaseRules(
        Phase.COPY, _CLUSTER, (Act.CHECK_AFTER,), UNFINISHED,
        after=_asks(DUAL_WRITE, QUORUM, WRITTEN),
        why="the quorum takes over and copies ZooKeeper; from now on both sides are written", undo=ROLLBACK,
    ),
    PhaseRules(
        Phase.SOAK, _FIRST, (Act.SOAK, Act.RUN), UNFINISHED, job=Job.VERIFY, proof=Act.RUN,
        is_there=lambda inventory: bool(inventory.times.soak) or not inventory.left_out.verify,
        before=_asks(BOTH_WRITTEN, QUORUM, ALONE),
        why="both sides are written while you watch your applications", undo=ROLLBACK,
    ),
    PhaseRules(
        Phase.KRAFT, _BROKERS, RESTARTS, NOT_IN_KRAFT, mode=FileMode.BROKER_KRAFT,
        before=lambda place: _may_stop(place, DUAL_WRITE, QUORUM, KEEPS_UP),
        after=lambda place: _are_back(place, BrokerMode.KRAFT),
        why="the broker leaves ZooKeeper", undo=ROLLBACK,
    ),
    _UNREGISTER,
    PhaseRules(
        Phase.READY, _CLUSTER, (Act.CHECK_BEFORE,), UNFINISHED,
        is_there=lambda inventory: inventory.left_out.verify,
        before=lambda place: _may_end(place, _quorum(place)),
        why="the last gate before the migration ends; nothing is compared ('verify' is left out)", undo=NOTHING,
    ),
    PhaseRules(
        Phase.VERIFY, _FIRST, (Act.CHECK_BEFORE, Act.RUN), UNFINISHED, job=Job.VERIFY,
        is_there=lambda inventory: not inventory.left_out.verify,
        before=lambda place: _may_end(place, _quorum(place)),
        why="proves that both sides are equal before the migration ends", undo=NOTHING,
    ),
    _FINISH,
    _FINISHED,
    replace(
        _FINISHED, acts=(Act.CHECK_BEFORE, Act.RUN, Act.CHECK_AFTER), job=Job.LEAVE_OUT,
        is_there=_waits_for_gone,
        before=_asks(FINISHING),
    ),
    PhaseRules(
        Phase.HANDOVER, _CONTROLLERS, (Act.CHECK_BEFORE, Act.EDIT, Act.STOP, Act.START, Act.CHECK_AFTER), NOT_STOCK,
        mode=FileMode.STOCK, leader_last=True, silent_first=True, leaves_quorum_lock=True,
        is_there=lambda inventory: inventory.handover is not None,
        before=lambda place: may_be_handed_over(place.node),
        after=lambda place: (is_handed_over(place.node), QUORUM),
        why="Kafka's own controller takes over on the same directory", undo="start this program again",
    ),
    PhaseRules(
        Phase.ARCHIVE, _FIRST, (Act.RUN,), ALWAYS, job=Job.ARCHIVE, leaves_quorum_lock=True,
        why="keeps what proves the migration", undo=NOTHING,
    ),
)

# The migration may end until the last controller is restarted with the migration on, so each step back checks that it
# has not ended. Until then the quorum is the only controller of brokers in KRaft mode, so no voter stops while another
# one is down.
BACK = (
    PhaseRules(
        Phase.MIGRATION_ON, _CONTROLLERS, RESTARTS, MIGRATION_OFF, mode=FileMode.CONTROLLER_MIGRATING, leader_last=True,
        silent_first=True, starts_silent=True,
        before=lambda place: (*_not_ended(place), _others_have_all(place)),
        after=lambda place: (*_not_ended(place), _is_back(place, migration_on=True)),
        why="the quorum must write to ZooKeeper again", undo=NEW,
    ),
    PhaseRules(
        Phase.REOPEN, _FIRST, (Act.CHECK_BEFORE, Act.RUN, Act.CHECK_AFTER), ENDED, job=Job.REOPEN, only_reopening=True,
        leaves_quorum_lock=True,
        before=lambda place: (_quorum(place),),
        after=_asks(NOT_FINISHED, DUAL_WRITE, QUORUM, WRITTEN),
        why="the finished migration goes on: ZooKeeper gets everything that has changed since", undo=NEW,
    ),
    PhaseRules(
        Phase.START_QUORUM, _CONTROLLERS, (Act.CHECK_BEFORE, Act.START), RULES_AND_IS_DOWN,
        before=_asks(NOT_FINISHED),
        why="only a quorum that runs can bring its changes to ZooKeeper", undo="stop the controllers",
    ),
    PhaseRules(
        Phase.LEAVE_KRAFT, _BROKERS, RESTARTS, IN_KRAFT, mode=FileMode.BROKER_MIGRATING, to_zookeeper=True,
        before=lambda place: _may_stop(place, NOT_FINISHED, DUAL_WRITE, QUORUM, KEEPS_UP),
        after=lambda place: _are_back(place, BrokerMode.MIGRATING, NOT_FINISHED),
        why="the broker comes back to ZooKeeper; the quorum still rules", undo=NEW,
    ),
    _UNREGISTER,
    PhaseRules(
        Phase.DRAIN, _CLUSTER, (Act.CHECK_AFTER,), DUAL_WRITING,
        after=lambda place: (*_drained(place), VERSIONS),
        why="ZooKeeper gets what the quorum has committed", undo=NOTHING,
    ),
    PhaseRules(
        Phase.STOP_QUORUM, _CONTROLLERS, (Act.CHECK_BEFORE, Act.STOP), ALWAYS, leader_last=True,
        only_while_written=True,
        before=_drained,
        why="the quorum ends; behind its last controller nobody is the controller, for some seconds",
        undo="start the controllers",
    ),
    PhaseRules(  # only a running quorum can write what ZooKeeper lacks: then all of this begins anew
        Phase.GIVE_BACK, _FIRST, (Act.RUN, Act.CHECK_AFTER), NO_BROKER_RULES, job=Job.GIVE_BACK,
        again=(Phase.START_QUORUM, Phase.DRAIN, Phase.STOP_QUORUM, Phase.GIVE_BACK),
        after=_asks(BROKER_RULES),
        why="the brokers elect a ZooKeeper controller", undo=NEW,
    ),
    PhaseRules(  # the log is not needed any more, and a broker that starts during a later migration must not find it
        Phase.SET_ASIDE, _CONTROLLERS, (Act.CHECK_BEFORE, Act.STOP, Act.RUN), ALWAYS, job=Job.SET_ASIDE,
        before=_asks(NOT_FINISHED, BROKER_RULES),
        why="a new rollout formats empty directories; the old ones are kept", undo="move them back",
    ),
    PhaseRules(
        Phase.LEAVE_MIGRATION, _BROKERS, RESTARTS, NOT_IN_ZOOKEEPER, mode=FileMode.BROKER_ZOOKEEPER, to_zookeeper=True,
        before=lambda place: _may_stop(place, NOT_FINISHED),
        after=lambda place: _are_back(place, BrokerMode.ZOOKEEPER, NOT_FINISHED),
        why="the broker forgets the quorum", undo=NEW,
    ),
)
# fmt: on

WAYS: dict[Direction, Sequence[PhaseRules]] = {Direction.FORWARD: FORWARD, Direction.BACK: BACK}
