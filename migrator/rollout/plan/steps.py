"""The types of a plan: phases, acts and jobs of a step, and what decides whether a step is needed. Pure.

`migrator.rollout.plan.phases` has one object for each phase; `migrator.rollout.plan.plan` makes steps of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from enum import Enum, StrEnum

from migrator.rollout.inventory import Inventory
from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.ports import Gate, Observation
from migrator.values import value


class Direction(StrEnum):
    """Which way a rollout goes."""

    FORWARD = "forward"
    BACK = "back"


class Phase(StrEnum):
    """The names of phases, in their order, forward and then back."""

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
    REOPEN = "reopen"
    START_QUORUM = "start-quorum"
    LEAVE_KRAFT = "leave-kraft"
    DRAIN = "drain"
    STOP_QUORUM = "stop-quorum"
    GIVE_BACK = "give-back"
    SET_ASIDE = "set-aside"
    LEAVE_MIGRATION = "leave-migration"


class Act(StrEnum):
    """The parts of a step, one after the other. An act that changes something is noted before and after."""

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


TOUCH_NODE = frozenset((Act.RESTART, Act.STOP, Act.START))
STOPS = frozenset((Act.RESTART, Act.STOP))
"""Acts that stop a serving process: the gate before the step is asked once more right before the stop."""


class Job(Enum):
    """The jobs that `Act.RUN` runs."""

    PREFLIGHT = "preflight"
    REHEARSE = "rehearse"
    FORMAT = "format"
    VERIFY = "verify"
    GIVE_BACK = "rollback"
    REOPEN = "reopen"
    SET_ASIDE = "set aside"
    ARCHIVE = "archive"
    UNREGISTER = "unregister"
    LEAVE_OUT = "force finish"
    """Orders the leader to end the migration without controllers that are gone for good."""


class Who(Enum):
    """The nodes for which a phase has a step."""

    CLUSTER = "one step, about no node"
    FIRST_CONTROLLER = "one step, on the machine of the first controller"
    CONTROLLERS = "a step for each controller"
    BROKERS = "a step for each broker, rack by rack"
    GONE_BROKERS = "a step for each broker that is gone for good"


@value
class Sight:
    """What is seen of a step's node when its turn comes. ``file``: what its property file is for; None when the step is
    about no file. ``runs``: whether its process runs. ``starts``: whether this rollout has to start it, because it was
    left out and is there again."""

    seen: Observation
    node: Node | None
    file: FileMode | None = None
    runs: bool = False
    starts: bool = False


@value
class Need:
    """When a step has to be done. ``before_leaving_out``: the gate before a step that looks unneeded is left out,
    because it is left out for good. Without it, a look without answers would pass for a cluster without brokers and
    controllers. None where a look without answers makes the step look needed."""

    is_there: Callable[[Sight], bool]
    before_leaving_out: Callable[[Sight], Gate | None] = lambda _: None


@value
class Place:
    """Where a step is; its gates are made from this. ``group``: the brokers that may be down at the same time.
    ``reopens``: the way back has begun after the end of the migration, and reopens it."""

    inventory: Inventory
    node: Node | None
    group: tuple[Node, ...]
    reopens: bool = False


GatesAt = Callable[[Place], tuple[Gate, ...]]


def no_gates(_: Place) -> tuple[Gate, ...]:
    """Yields no gates: for a check that a phase does not have."""
    return ()


@value
class PhaseRules:
    """One phase: which nodes it has a step for, its acts, when it is needed, its gates, why, and what undoes it.

    ``name``: of its one step, where that is not the name of the phase. ``mode``: the mode of the node's file after
    `Act.EDIT`. ``proof``: an act that is left out when the operator wants no comparison. ``is_there``: whether an
    inventory has the phase.

    ``leader_last``: the leader of the quorum comes last. ``silent_first``: a voter that does not answer comes first.
    ``starts_silent``: a silent voter is started even if others lack records; while no voter leads, its records are not
    waited for. ``waits_for_all``: the check after it waits for all voters. ``only_while_written``: the gate before it
    counts only while both sides may be written. ``ends_migration``: after its last step the migration has ended.
    ``leaves_quorum_lock``: Kafka's controllers take over, and have no place for the lock. ``to_zookeeper``: a broker
    goes back to ZooKeeper mode, where it needs ``meta.properties`` of version 0. ``first_of_brokers``: the first phase
    of brokers; a broker's file may be in a later mode, and a broker may have the metadata log of an earlier attempt.
    ``again``: the phases that begin anew if its job fails. ``only_reopening``: only of a way back that reopens the
    migration.
    """

    phase: Phase
    who: Who
    acts: tuple[Act, ...]
    needed: Need
    _: KW_ONLY
    why: str
    undo: str
    before: GatesAt = no_gates
    after: GatesAt = no_gates
    name: str = ""
    mode: FileMode | None = None
    job: Job | None = None
    proof: Act | None = None
    is_there: Callable[[Inventory], bool] = lambda _: True
    leader_last: bool = False
    silent_first: bool = False
    starts_silent: bool = False
    waits_for_all: bool = False
    only_while_written: bool = False
    ends_migration: bool = False
    leaves_quorum_lock: bool = False
    to_zookeeper: bool = False
    first_of_brokers: bool = False
    again: tuple[Phase, ...] = ()
    only_reopening: bool = False


@value
class Step:
    """One line of a plan. ``name`` is unique. ``node``: the node that the step is about; None for the cluster.

    ``successor``: Kafka's controller that `Act.START` starts instead of ``node``. ``before`` and ``after``: the gates
    of the two checks. ``together``: the brokers of a rack that may be down at the same time; then `decisions` gives
    the gates after each of them.
    """

    name: str
    rules: PhaseRules
    acts: tuple[Act, ...]
    node: Node | None = None
    successor: Node | None = None
    before: tuple[Gate, ...] = ()
    after: tuple[Gate, ...] = ()
    together: tuple[Node, ...] = ()

    @property
    def phase(self) -> Phase:
        return self.rules.phase

    @property
    def mode(self) -> FileMode | None:
        """The mode of the node's file after `Act.EDIT`."""
        return self.rules.mode

    @property
    def job(self) -> Job | None:
        return self.rules.job
