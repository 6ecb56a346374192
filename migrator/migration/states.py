"""The states of a migration and every transition between them, as data.

Nothing outside `TRANSITIONS` moves the driver from one state to another: `(state, trigger, finding) -> state`, where
the *trigger* is the kind of event that came in and the *finding* what the driver made of it. A triple that is not in
the table changes nothing. The states are soft: what survives a crash is only the `ZkMigrationStateRecord` in the log
(KIP-866) and what ZooKeeper holds, and each new leader starts from those two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import groupby

from migrator.records.metadata import ZkMigrationState


class State(Enum):
    """What the active controller is doing; the value is how operators read it."""

    INACTIVE = "inactive"
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
    INFORMING_BROKERS = "informing brokers"
    DUAL_WRITING = "dual-writing"
    FINISHING = "finishing"
    STEPPING_DOWN = "stepping down"
    COMPLETING = "completing"
    FINISHED = "finished"


class PublicState(Enum):
    """What metrics, status and journal show; the number is the value of the gauge."""

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


WITHOUT_ZOOKEEPER = frozenset(
    {
        State.INACTIVE,
        State.TURNED_OFF,
        State.FINISHING,
        State.STEPPING_DOWN,
        State.COMPLETING,
        State.FINISHED,
    }
)
"""States that need no ZooKeeper: a leader whose flag is off knows no others, and has no session."""

_COPIES = frozenset(
    {State.CLAIMING, State.COPYING, State.COMMITTING, State.ABORTING, State.RELEASING, State.AWAITING_ELECTION}
)


def public_state(record: ZkMigrationState, state: State = State.INACTIVE) -> PublicState:
    """The public state; a node that does not lead knows only the record of its image and leaves ``state`` out."""
    if record is ZkMigrationState.POST_MIGRATION:
        return PublicState.FINISHED
    if record is ZkMigrationState.MIGRATION:
        return PublicState.DUAL_WRITE
    return PublicState.MIGRATE_ZK_DATA if state in _COPIES else PublicState.MIGRATION_INELIGIBLE


class Trigger(Enum):
    """The kind of event that may cause a transition."""

    ELECTED = "elected"
    DEPOSED = "deposed"
    TIMER = "timer"
    ZOOKEEPER_CONNECTED = "ZooKeeper connected"
    REGISTRATIONS = "registrations changed"
    EXAMINED = "examined"
    READINESS = "readiness"
    DECODED = "decoded"
    CLAIM = "claim"
    COPY = "copy"
    COMMITTED = "committed"
    RELEASED = "released"
    RECONCILED = "reconciled"
    RPCS_SENT = "RPCs sent"
    WRITE = "write-behind"
    FORCED = "forced"
    RESUMED = "resumed"
    VOTERS = "voters asked"


class Finding(Enum):
    """What the driver makes of an event, given its soft state. `ANY`: the event needs no judgement."""

    ANY = "any"
    # of an election
    MIGRATE = "migration on, not finished"
    FINISH = "migration off, dual-writing"
    OFF = "migration off, not copied"
    ENDED = "already finished"
    NOTHING = "nothing to migrate"
    # of an examination
    CLEAR = "nothing in the way"
    STRAY_CLAIM = "a claim that nobody uses"
    MAY_CLAIM = "may claim"
    OWN_CLAIM_COPY = "claim is ours, copy"
    OWN_CLAIM_KEEP = "claim is ours, dual-write"
    REFUSE = "guard refuses"
    ELSEWHERE = "newer controller or out of reach"
    ZK_CONTROLLER = "a ZooKeeper controller is there"
    NO_CONTROLLER = "no controller yet"
    # of readiness and the first reading
    CONTROLLERS_MISSING = "controllers missing"
    BROKERS_MISSING = "brokers missing"
    READY = "all ready"
    CLEAN = "decodes"
    CLEAN_AGAIN = "decodes after faults"
    FAULTS = "does not decode"
    ON_HOLD = "paused by the operator"
    # of claims, copies and writes
    WON_COPY = "won, copy"
    WON_KEEP = "won, dual-write"
    LOST = "not won"
    DONE = "done"
    FAILED = "failed"
    HELD = "deletes held"
    FENCED = "fenced"
    STALLED = "no progress"
    # of the finish
    MAY_FINISH = "all voters signalled"
    HAND_OVER = "ZooKeeper brokers registered"
    WAIT = "not yet"


Transition = tuple[State, Trigger, Finding]

_LEADING = tuple(state for state in State if state is not State.INACTIVE)
_CLAIMED = (State.RECONCILING, State.HOLDING, State.INFORMING_BROKERS, State.DUAL_WRITING)


def _examinations(state: State) -> dict[Transition, State]:
    """`EXAMINING` and `REFUSED` leave the same ways; they are two states so that a refusal keeps its age."""
    return _but_to_itself(
        state,
        {
            (state, Trigger.EXAMINED, Finding.CLEAR): State.WAITING_FOR_CONTROLLERS,
            (state, Trigger.EXAMINED, Finding.STRAY_CLAIM): State.RELEASING,
            (state, Trigger.EXAMINED, Finding.NO_CONTROLLER): State.AWAITING_ELECTION,
            (state, Trigger.EXAMINED, Finding.CONTROLLERS_MISSING): State.WAITING_FOR_CONTROLLERS,
            (state, Trigger.EXAMINED, Finding.BROKERS_MISSING): State.WAITING_FOR_BROKERS,
            (state, Trigger.EXAMINED, Finding.MAY_CLAIM): State.CLAIMING,
            (state, Trigger.EXAMINED, Finding.OWN_CLAIM_COPY): State.COPYING,
            (state, Trigger.EXAMINED, Finding.OWN_CLAIM_KEEP): State.RECONCILING,
            (state, Trigger.EXAMINED, Finding.REFUSE): State.REFUSED,
            (state, Trigger.EXAMINED, Finding.ON_HOLD): State.PAUSED,
        },
    ) | _again(state, Trigger.TIMER, Trigger.ZOOKEEPER_CONNECTED)


def _waits(state: State) -> dict[Transition, State]:
    return _but_to_itself(
        state,
        {
            (state, Trigger.READINESS, Finding.CONTROLLERS_MISSING): State.WAITING_FOR_CONTROLLERS,
            (state, Trigger.READINESS, Finding.BROKERS_MISSING): State.WAITING_FOR_BROKERS,
            (state, Trigger.READINESS, Finding.READY): State.DECODING,
            (state, Trigger.READINESS, Finding.STRAY_CLAIM): State.EXAMINING,
        },
    ) | _again(state, Trigger.REGISTRATIONS, Trigger.ZOOKEEPER_CONNECTED, Trigger.TIMER)


def _but_to_itself(state: State, ways: dict[Transition, State]) -> dict[Transition, State]:
    """An answer that changes nothing is no transition: it would ask again at once, for as long as nothing changes."""
    return {transition: after for transition, after in ways.items() if after is not state}


def _again(state: State, *triggers: Trigger) -> dict[Transition, State]:
    """What makes a state do its work anew."""
    return {(state, trigger, Finding.ANY): state for trigger in triggers}


TRANSITIONS: Mapping[Transition, State] = {
    **{(state, Trigger.DEPOSED, Finding.ANY): State.INACTIVE for state in _LEADING},
    (State.INACTIVE, Trigger.ELECTED, Finding.MIGRATE): State.EXAMINING,
    (State.INACTIVE, Trigger.ELECTED, Finding.FINISH): State.FINISHING,
    (State.INACTIVE, Trigger.ELECTED, Finding.OFF): State.TURNED_OFF,
    (State.INACTIVE, Trigger.ELECTED, Finding.ENDED): State.FINISHED,
    (State.TURNED_OFF, Trigger.VOTERS, Finding.HAND_OVER): State.STEPPING_DOWN,
    **_again(State.TURNED_OFF, Trigger.REGISTRATIONS, Trigger.TIMER),
    **_examinations(State.EXAMINING),
    **_examinations(State.REFUSED),
    (State.REFUSED, Trigger.FORCED, Finding.ANY): State.EXAMINING,
    (State.RELEASING, Trigger.RELEASED, Finding.DONE): State.AWAITING_ELECTION,
    (State.RELEASING, Trigger.RELEASED, Finding.FAILED): State.EXAMINING,
    (State.RELEASING, Trigger.TIMER, Finding.ANY): State.EXAMINING,
    (State.AWAITING_ELECTION, Trigger.EXAMINED, Finding.ZK_CONTROLLER): State.WAITING_FOR_CONTROLLERS,
    (State.AWAITING_ELECTION, Trigger.EXAMINED, Finding.WAIT): State.WAITING_FOR_CONTROLLERS,
    (State.AWAITING_ELECTION, Trigger.EXAMINED, Finding.STRAY_CLAIM): State.EXAMINING,
    (State.AWAITING_ELECTION, Trigger.TIMER, Finding.ANY): State.AWAITING_ELECTION,
    **_waits(State.WAITING_FOR_CONTROLLERS),
    **_waits(State.WAITING_FOR_BROKERS),
    (State.DECODING, Trigger.DECODED, Finding.CLEAN): State.EXAMINING,
    (State.DECODING, Trigger.DECODED, Finding.CLEAN_AGAIN): State.WAITING_FOR_CONTROLLERS,
    (State.DECODING, Trigger.DECODED, Finding.ON_HOLD): State.PAUSED,
    (State.DECODING, Trigger.DECODED, Finding.STRAY_CLAIM): State.EXAMINING,
    (State.DECODING, Trigger.TIMER, Finding.FAULTS): State.DECODING,
    (State.DECODING, Trigger.TIMER, Finding.STALLED): State.DECODING,
    (State.PAUSED, Trigger.RESUMED, Finding.ANY): State.WAITING_FOR_CONTROLLERS,
    (State.PAUSED, Trigger.TIMER, Finding.ANY): State.PAUSED,
    (State.PAUSED, Trigger.EXAMINED, Finding.STRAY_CLAIM): State.RELEASING,
    (State.CLAIMING, Trigger.CLAIM, Finding.WON_COPY): State.COPYING,
    (State.CLAIMING, Trigger.CLAIM, Finding.WON_KEEP): State.RECONCILING,
    (State.CLAIMING, Trigger.CLAIM, Finding.LOST): State.EXAMINING,
    (State.CLAIMING, Trigger.TIMER, Finding.ANY): State.EXAMINING,
    (State.COPYING, Trigger.COPY, Finding.DONE): State.COMMITTING,
    (State.COPYING, Trigger.COPY, Finding.FAILED): State.ABORTING,
    (State.COPYING, Trigger.TIMER, Finding.STALLED): State.ABORTING,
    (State.COMMITTING, Trigger.COMMITTED, Finding.ANY): State.RECONCILING,
    (State.ABORTING, Trigger.COMMITTED, Finding.ANY): State.RELEASING,
    (State.RECONCILING, Trigger.RECONCILED, Finding.DONE): State.INFORMING_BROKERS,
    (State.RECONCILING, Trigger.RECONCILED, Finding.HELD): State.HOLDING,
    (State.RECONCILING, Trigger.TIMER, Finding.FAILED): State.RECONCILING,
    (State.RECONCILING, Trigger.TIMER, Finding.STALLED): State.RECONCILING,
    (State.HOLDING, Trigger.FORCED, Finding.ANY): State.RECONCILING,
    (State.INFORMING_BROKERS, Trigger.RPCS_SENT, Finding.ANY): State.DUAL_WRITING,
    (State.INFORMING_BROKERS, Trigger.WRITE, Finding.FAILED): State.RECONCILING,
    (State.INFORMING_BROKERS, Trigger.TIMER, Finding.ANY): State.INFORMING_BROKERS,
    (State.DUAL_WRITING, Trigger.WRITE, Finding.FAILED): State.RECONCILING,
    (State.DUAL_WRITING, Trigger.FORCED, Finding.ANY): State.RECONCILING,
    (State.DUAL_WRITING, Trigger.TIMER, Finding.ANY): State.DUAL_WRITING,
    **{(state, Trigger.WRITE, Finding.FENCED): State.EXAMINING for state in _CLAIMED},
    (State.FINISHING, Trigger.VOTERS, Finding.MAY_FINISH): State.COMPLETING,
    (State.FINISHING, Trigger.VOTERS, Finding.HAND_OVER): State.STEPPING_DOWN,
    **_again(State.FINISHING, Trigger.REGISTRATIONS, Trigger.TIMER),
    (State.STEPPING_DOWN, Trigger.TIMER, Finding.FINISH): State.FINISHING,
    (State.STEPPING_DOWN, Trigger.TIMER, Finding.OFF): State.TURNED_OFF,
    (State.COMPLETING, Trigger.COMMITTED, Finding.ANY): State.FINISHED,
}


def next_state(state: State, trigger: Trigger, finding: Finding) -> State | None:
    """The state that follows, which may be the same (its entry effects are then repeated); None: nothing happens."""
    return TRANSITIONS.get((state, trigger, finding))


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation. Losing the leadership is left out."""
    names = {state: state.name.lower() for state in State}
    lines = ["stateDiagram-v2", "    [*] --> inactive"]
    lines += [f"    {name} : {state.value}" for state, name in names.items() if name != state.value]
    edges = [
        (names[before], names[after], trigger.value if finding is Finding.ANY else f"{trigger.value}, {finding.value}")
        for (before, trigger, finding), after in TRANSITIONS.items()
        if trigger is not Trigger.DEPOSED
    ]
    edges.sort(key=lambda edge: edge[:2])
    for (before, after), group in groupby(edges, key=lambda edge: edge[:2]):
        lines.append(f"    {before} --> {after} : {' / '.join(label for _, _, label in group)}")
    return "\n".join(lines) + "\n"
