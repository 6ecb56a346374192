"""The steps of a rollout as data: phases in their order, why each is there, its undoing, its acts. Pure."""

from __future__ import annotations

from enum import Enum, StrEnum

from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.ports import GateQuestion
from migrator.values import value


class Direction(StrEnum):
    """Which way a rollout goes."""

    FORWARD = "forward"
    BACK = "back"


class Phase(StrEnum):
    """In the order in which they come, forward and then back."""

    PREFLIGHT = "preflight"
    REHEARSE = "rehearse"
    FORMAT = "format"
    START = "start"
    MIGRATE = "migrate"
    COPY = "copy"
    SOAK = "soak"
    KRAFT = "kraft"
    UNREGISTER = "unregister"
    READY = "ready"
    VERIFY = "verify"
    FINISH = "finish"
    HANDOVER = "handover"
    ARCHIVE = "archive"
    MIGRATION_ON = "migration-on"
    START_QUORUM = "start-quorum"
    LEAVE_KRAFT = "leave-kraft"
    DRAIN = "drain"
    STOP_QUORUM = "stop-quorum"
    GIVE_BACK = "give-back"
    SET_ASIDE = "set-aside"
    LEAVE_MIGRATION = "leave-migration"


@value
class PhaseText:
    """For people: why the phase is there, and what undoes it."""

    why: str
    undo: str


NOTHING = "nothing was changed"
ROLLBACK = "'migrator rollout rollback'"
TEXTS = {
    Phase.PREFLIGHT: PhaseText("finds what would make the migration fail", NOTHING),
    Phase.REHEARSE: PhaseText("tries the copy without writing to ZooKeeper, and forecasts its time", NOTHING),
    Phase.FORMAT: PhaseText("gives the controllers' directories their identity", ROLLBACK),
    Phase.START: PhaseText("the quorum waits for the brokers, and changes nothing", ROLLBACK),
    Phase.MIGRATE: PhaseText(
        "the broker registers with the quorum; ZooKeeper still rules. An earlier attempt's log is deleted",
        ROLLBACK,
    ),
    Phase.COPY: PhaseText("the quorum takes over and copies ZooKeeper; from now on both sides are written", ROLLBACK),
    Phase.SOAK: PhaseText("both sides are written while you watch your applications", ROLLBACK),
    Phase.KRAFT: PhaseText("the broker leaves ZooKeeper", ROLLBACK),
    Phase.UNREGISTER: PhaseText("the quorum forgets a broker that is gone for good", "start the broker: it registers"),
    Phase.READY: PhaseText(
        "the last gate before the way back closes; nothing is compared ('verify' is left out)", NOTHING
    ),
    Phase.VERIFY: PhaseText("proves that both sides are equal before the way back closes", NOTHING),
    Phase.FINISH: PhaseText(
        "ends the migration on this controller",
        f"{ROLLBACK}, until the last controller is restarted; with Kafka's controllers, until one of them leads "
        "without the migration",
    ),
    Phase.HANDOVER: PhaseText("Kafka's own controller takes over on the same directory", "start this program again"),
    Phase.ARCHIVE: PhaseText("keeps what proves the migration", NOTHING),
    Phase.MIGRATION_ON: PhaseText("the quorum must write to ZooKeeper again", "a new rollout"),
    Phase.START_QUORUM: PhaseText("only a quorum that runs can bring its changes to ZooKeeper", "stop the controllers"),
    Phase.LEAVE_KRAFT: PhaseText("the broker comes back to ZooKeeper; the quorum still rules", "a new rollout"),
    Phase.DRAIN: PhaseText("ZooKeeper gets what the quorum has committed", NOTHING),
    Phase.STOP_QUORUM: PhaseText("from now on nobody is the controller, for some seconds", "start the controllers"),
    Phase.GIVE_BACK: PhaseText("the brokers elect a ZooKeeper controller", "a new rollout"),
    Phase.SET_ASIDE: PhaseText("a new rollout formats empty directories; the old ones are kept", "move them back"),
    Phase.LEAVE_MIGRATION: PhaseText("the broker forgets the quorum", "a new rollout"),
}


def why_of(step: Step) -> str:
    """Why a step is there."""
    if step.phase is Phase.FINISH and step.node is None:
        return "the controllers see that the migration is off everywhere, and end it"
    return TEXTS[step.phase].why


class Act(StrEnum):
    """What a step is made of, one after the other. Those that change something are noted before and after."""

    CHECK_BEFORE = "check-before"
    CONFIRM = "confirm"
    EDIT = "edit"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    SOAK = "soak"
    RUN = "run"
    PROVE = "prove"
    """Compares both sides again, unless that was done a short time ago."""
    CHECK_AFTER = "check-after"


class Job(Enum):
    """What `Act.RUN` runs."""

    PREFLIGHT = "preflight"
    REHEARSE = "rehearse"
    FORMAT = "format"
    VERIFY = "verify"
    GIVE_BACK = "rollback"
    SET_ASIDE = "set aside"
    ARCHIVE = "archive"
    UNREGISTER = "unregister"
    LEAVE_OUT = "force finish"
    """The order to the leader to end the migration without controllers that are gone for good."""


class Condition(Enum):
    """When a step is there at all; found out by looking, as its turn comes."""

    ALWAYS = "always"
    NOT_COPIED = "nothing was copied yet"
    NOT_FINISHED = "the migration is not finished"
    RULES_AND_IS_DOWN = "the quorum has the cluster, and the controller does not run"
    DUAL_WRITING = "both sides are written"
    NODE_DOWN = "the controller does not run, and the migration is not finished"
    STILL_MIGRATING = "the controller has the migration on"
    MIGRATION_OFF = "the controller has the migration off"
    NOT_IN_KRAFT = "the migration is not finished, or the broker does not run in KRaft mode"
    IN_KRAFT = "the broker is in KRaft mode"
    NOT_IN_ZOOKEEPER = "the broker is not in ZooKeeper mode"
    NOT_STOCK = "the controller is not Kafka's own"
    REGISTERED = "the quorum has a registration of the broker"
    NO_ZOOKEEPER_CONTROLLER = "no broker is the ZooKeeper controller"


@value
class Step:
    """One line of a plan. ``name`` is unique. ``node``: which it is about; None for the cluster.

    ``mode``: of the node's file after `Act.EDIT`. ``successor``: Kafka's controller that `Act.START` starts instead of
    ``node``. ``before`` and ``after``: what the two checks ask. ``together``: the brokers of a rack that may be down at
    the same time; then `questions` says what the check after each of them asks.
    """

    name: str
    phase: Phase
    acts: tuple[Act, ...]
    node: Node | None = None
    mode: FileMode | None = None
    job: Job | None = None
    condition: Condition = Condition.ALWAYS
    successor: Node | None = None
    before: tuple[GateQuestion, ...] = ()
    after: tuple[GateQuestion, ...] = ()
    together: tuple[Node, ...] = ()
