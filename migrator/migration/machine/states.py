"""The states of a migration: one row for each state. `transitions` says which state follows another.

A migration moves the metadata of a cluster from ZooKeeper into the log of this quorum, while brokers keep running. Only
the active controller goes through these states. Before the copy it only reads: it *examines* who controls the cluster,
*waits* for controllers and brokers, and *decodes* all of ZooKeeper. Then it writes: it *claims* ``/controller``,
*copies* everything in one transaction, and *commits* it. From then on the log is the truth, and ZooKeeper follows: the
controller *reconciles* ZooKeeper with the log, *informs* the brokers, and *dual-writes* until the operator turns the
migration off. Then it *finishes*. A later leader that knows which changes its predecessor may not have written
*compares* instead: a worker compares all of ZooKeeper while changes are written.

A finished migration can be *reopened*. The log says so first. Then the leader claims, and reconciles all of ZooKeeper,
and begins again until that is done. Only when ZooKeeper holds everything does it *admit* brokers in ZooKeeper mode,
again in the log first: such a broker takes the settings of its topics from ZooKeeper when it starts.

Nothing here survives a crash. Each new leader starts from the `ZkMigrationStateRecord` in the log (KIP-866) and from
what ZooKeeper holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from migrator.errors import OperatorError
from migrator.observe.status import Force
from migrator.records.metadata import ZkMigrationState
from migrator.values import value

POLL_MS = 500
SLOW_POLL_MS = 10 * POLL_MS


class State(Enum):
    """The work of the active controller; the value is how operators read it."""

    INACTIVE = "inactive"
    NOTHING_TO_MIGRATE = "nothing to migrate"
    TURNED_OFF = "turned off"
    EXAMINING = "examining ZooKeeper"
    REFUSED = "refused"
    RELEASING = "releasing a claim"
    AWAITING_ELECTION = "awaiting a ZooKeeper controller"
    WAITING_FOR_CONTROLLERS = "waiting for controllers"
    WAITING_FOR_BROKERS = "waiting for brokers"
    DECODING = "decoding"
    PAUSED = "paused"
    CLAIMING = "claiming"
    COPYING = "copying"
    COMMITTING = "committing the copy"
    ABORTING = "aborting the copy"
    RECONCILING = "reconciling"
    HOLDING = "holding deletes"
    COMPARING = "comparing beside the writes"
    INFORMING_BROKERS = "informing brokers"
    DUAL_WRITING = "dual-writing"
    FINISHING = "finishing"
    STEPPING_DOWN = "stepping down"
    COMPLETING = "completing"
    FINISHED = "finished"
    REOPENING = "reopening"
    ADMITTING = "admitting ZooKeeper brokers"

    @property
    def properties(self) -> Properties:
        """This state's row in `PROPERTIES`."""
        return PROPERTIES[self]


class PublicState(Enum):
    """The state in metrics, status and journal; the number is the value of the gauge."""

    MIGRATION_INELIGIBLE = ("MigrationIneligible", 0)
    MIGRATE_ZK_DATA = ("MigrateZkData", 1)
    DUAL_WRITE = ("DualWrite", 2)
    FINISHED = ("Finished", 3)

    @property
    def label(self) -> str:
        """The name that operators see."""
        return self.value[0]

    @property
    def number(self) -> int:
        """The value of the gauge."""
        return self.value[1]


class PaceRule(Enum):
    """The rule for when a state without a fixed time repeats its work if no event comes."""

    BACK_OFF = "the wait doubles with each attempt, from 0.1 s to 10 s"
    AUDIT = "every migrator.audit.interval.ms"


class Writes(Enum):
    """The writes to ZooKeeper that a state may make."""

    NOTHING = "nothing"
    CLAIM = "/controller, /controller_epoch and /migration, to take the claim or to give it back"
    DIFFERENCES = "what a comparison of all of ZooKeeper with the log has found"
    CHANGES = "every change of the log, as it is committed"


@value
class Properties:
    """The properties of a state."""

    sentence: str
    """The work of the state in words for operators, when the event that led to it gives no better sentence."""
    public: PublicState
    """The state that metrics, status and journal show, if the record in the log allows it (`public_state`)."""
    pace: int | PaceRule = PaceRule.BACK_OFF
    """Milliseconds after which the state does its work again."""
    writes: Writes = Writes.NOTHING
    """The writes to ZooKeeper that the state may make."""
    forceable: frozenset[Force] = frozenset()
    """The orders that an operator may give in this state. In other states they have no effect."""
    has_worker: bool = False
    """Whether a worker process does the work. Status shows its progress, and a silent worker is killed."""
    takes_verdicts: bool = False
    """Whether no controller writes to ZooKeeper until the end of the migration, so that a result of `migrator verify`
    stays true."""
    waits_for_person: bool = False
    """Whether only an operator can end this state. A controller that stops in it does not wait for ZooKeeper."""
    turned_off: bool = False
    """Whether the leader's migration flag is off: it has no session with ZooKeeper and never dual-writes."""
    at_rest: bool = False
    """Whether the state waits for nothing: it has no timer, and answers are dropped."""

    @property
    def needs_zookeeper(self) -> bool:
        """Whether a ZooKeeper that is out of reach is a problem."""
        return not self.turned_off and not self.at_rest

    @property
    def writes_behind(self) -> bool:
        """Whether the write-behind and the channels to the brokers are open."""
        return self.writes in {Writes.DIFFERENCES, Writes.CHANGES}


PROPERTIES: Mapping[State, Properties] = {
    State.INACTIVE: Properties(
        "this node does not lead",
        PublicState.MIGRATION_INELIGIBLE,
        at_rest=True,
    ),
    State.NOTHING_TO_MIGRATE: Properties(
        "this cluster was created in KRaft mode: there is nothing to migrate",
        PublicState.MIGRATION_INELIGIBLE,
        at_rest=True,
    ),
    State.TURNED_OFF: Properties(
        "the migration has not begun, and is turned off on this controller",
        PublicState.MIGRATION_INELIGIBLE,
        pace=POLL_MS,
        turned_off=True,
    ),
    State.EXAMINING: Properties(
        "reads who controls the cluster",
        PublicState.MIGRATION_INELIGIBLE,
    ),
    State.REFUSED: Properties(
        "a guard refuses",
        PublicState.MIGRATION_INELIGIBLE,
        forceable=frozenset({Force.RECLAIM}),
        waits_for_person=True,
    ),
    State.RELEASING: Properties(
        "gives a claim back to ZooKeeper",
        PublicState.MIGRATE_ZK_DATA,
        writes=Writes.CLAIM,
    ),
    State.AWAITING_ELECTION: Properties(
        "waits until a ZooKeeper broker takes /controller",
        PublicState.MIGRATION_INELIGIBLE,
        pace=POLL_MS,
        writes=Writes.CLAIM,
    ),
    State.WAITING_FOR_CONTROLLERS: Properties(
        "asks every controller whether it is ready",
        PublicState.MIGRATION_INELIGIBLE,
        pace=POLL_MS,
    ),
    State.WAITING_FOR_BROKERS: Properties(
        "asks which brokers are ready",
        PublicState.MIGRATION_INELIGIBLE,
        pace=POLL_MS,
    ),
    State.DECODING: Properties(
        "reads and decodes all of ZooKeeper, nothing is written",
        PublicState.MIGRATION_INELIGIBLE,
        has_worker=True,
    ),
    State.PAUSED: Properties(
        "paused by the operator",
        PublicState.MIGRATION_INELIGIBLE,
        pace=SLOW_POLL_MS,
        waits_for_person=True,
    ),
    State.CLAIMING: Properties(
        "takes /controller",
        PublicState.MIGRATE_ZK_DATA,
        writes=Writes.CLAIM,
    ),
    State.COPYING: Properties(
        "copies ZooKeeper into one metadata transaction",
        PublicState.MIGRATE_ZK_DATA,
        pace=POLL_MS,
        has_worker=True,
    ),
    State.COMMITTING: Properties(
        "waits for a majority of the controllers to hold the copy",
        PublicState.MIGRATE_ZK_DATA,
    ),
    State.ABORTING: Properties(
        "aborts the transaction of the copy",
        PublicState.MIGRATE_ZK_DATA,
    ),
    State.RECONCILING: Properties(
        "compares all of ZooKeeper with the log and writes what differs",
        PublicState.DUAL_WRITE,
        writes=Writes.DIFFERENCES,
        has_worker=True,
    ),
    State.HOLDING: Properties(
        "holds deletes until the operator allows them",
        PublicState.DUAL_WRITE,
        writes=Writes.DIFFERENCES,
        forceable=frozenset({Force.DELETES, Force.RECONCILE}),
        waits_for_person=True,
    ),
    State.COMPARING: Properties(
        "writes every change, and compares all of ZooKeeper with the log meanwhile",
        PublicState.DUAL_WRITE,
        writes=Writes.CHANGES,
        has_worker=True,
    ),
    State.INFORMING_BROKERS: Properties(
        "sends every broker the full state",
        PublicState.DUAL_WRITE,
        writes=Writes.CHANGES,
    ),
    State.DUAL_WRITING: Properties(
        "every change goes to the log, to ZooKeeper and to the brokers",
        PublicState.DUAL_WRITE,
        pace=PaceRule.AUDIT,
        writes=Writes.CHANGES,
        forceable=frozenset({Force.RECONCILE, Force.FINISH}),
    ),
    State.FINISHING: Properties(
        "asks every controller whether its migration is turned off",
        PublicState.DUAL_WRITE,
        pace=POLL_MS,
        forceable=frozenset({Force.FINISH}),
        takes_verdicts=True,
        turned_off=True,
    ),
    State.STEPPING_DOWN: Properties(
        "hands the leadership over to a controller that has the migration on",
        PublicState.MIGRATION_INELIGIBLE,
        pace=SLOW_POLL_MS,
        takes_verdicts=True,
        turned_off=True,
    ),
    State.COMPLETING: Properties(
        "writes the end of the migration into the log",
        PublicState.DUAL_WRITE,
        turned_off=True,
    ),
    State.FINISHED: Properties(
        "the migration is finished",
        PublicState.FINISHED,
        at_rest=True,
    ),
    State.REOPENING: Properties(
        "writes into the log that the migration goes on",
        PublicState.FINISHED,
    ),
    State.ADMITTING: Properties(
        "writes every change, and into the log that ZooKeeper holds everything again",
        PublicState.DUAL_WRITE,
        writes=Writes.CHANGES,
    ),
}


def public_state(record: ZkMigrationState, state: State = State.INACTIVE) -> PublicState:
    """The state for metrics, status, journal. Once the copy is committed, the log's record decides, in every state.

    A node that does not lead knows only the record of its image, and leaves ``state`` out.
    """
    if record is ZkMigrationState.POST_MIGRATION:
        return PublicState.FINISHED
    if record is ZkMigrationState.MIGRATION:
        return PublicState.DUAL_WRITE
    copies = state.properties.public is PublicState.MIGRATE_ZK_DATA
    return PublicState.MIGRATE_ZK_DATA if copies else PublicState.MIGRATION_INELIGIBLE


def forceable_in(what: Force) -> tuple[State, ...]:
    """The states in which an operator may give this order to force."""
    return tuple(state for state in State if what in state.properties.forceable)


OVERRIDES = frozenset({Force.RECLAIM, Force.DELETES})
"""Orders that override facts. Such an order names the facts that were shown to the operator."""


def check_shown(what: Force, overridable: Collection[str], shown: Collection[str]) -> None:
    """Check that an order overrides exactly the facts that were shown.

    :param overridable: the facts for which the migration is refused, or waits, now.
    :param shown: the facts that the order names.
    :raises OperatorError: the order overrides nothing, or other facts.
    """
    where = f"force {what}"
    if not overridable:
        raise OperatorError(
            "nothing was forced: an order cannot override what the migration waits for",
            where=where,
            remedy="'migrator status' shows what the migration waits for, and what to do",
        )
    if set(overridable) != set(shown):
        named = "was given for other facts" if shown else "does not say which facts it overrides"
        raise OperatorError(
            f"nothing was forced: the order {named}; these hold now: {'; '.join(overridable)}",
            where=where,
            remedy="Look at 'migrator status'. Give the order again with 'migrator force' of this release, if it still "
            "applies",
        )


def check_forceable(what: Force, state: State) -> None:
    """:raises OperatorError: the migration does not wait for that order."""
    if what not in state.properties.forceable:
        good = " or ".join(sorted(f"'{each.value}'" for each in forceable_in(what)))
        raise OperatorError(
            f"nothing was forced: the state of the migration is '{state.value}', and this order is for {good} only",
            where=f"force {what}",
            remedy="'migrator status' shows what the migration waits for",
        )
