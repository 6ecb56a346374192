"""Every transition between the states of a migration, as data: `(state, trigger, finding) -> state`.

The kind of an event is the *trigger*; what it means, given the driver's volatile state, is the *finding*. The state's
block in `TRANSITIONS` says which state follows. A pair that is not in the block changes nothing. A state that follows
itself does its work again, under a growing back-off. Nothing else changes the state.

To learn what can happen in a state, read its block. To learn what a state is, read its row in `states`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from migrator.migration.machine.states import State


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
    REOPENED = "reopened"
    VOTERS = "voters asked"


class Finding(Enum):
    """The meaning of an event, given the driver's volatile state. `ANY`: the trigger alone decides."""

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
    WON_RESUME = "won, the mark is proved"
    LOST = "not won"
    DONE = "done"
    DONE_REOPENED = "done, reopened"
    FAILED = "failed"
    HELD = "deletes held"
    FENCED = "fenced"
    STALLED = "no progress"
    # of the finish
    MAY_FINISH = "all voters signalled"
    HAND_OVER = "ZooKeeper brokers registered"
    WAIT = "not yet"


TRANSITIONS: Mapping[State, Mapping[tuple[Trigger, Finding], State]] = {
    State.INACTIVE: {
        (Trigger.ELECTED, Finding.MIGRATE): State.EXAMINING,
        (Trigger.ELECTED, Finding.FINISH): State.FINISHING,
        (Trigger.ELECTED, Finding.OFF): State.TURNED_OFF,
        (Trigger.ELECTED, Finding.ENDED): State.FINISHED,
        (Trigger.ELECTED, Finding.NOTHING): State.NOTHING_TO_MIGRATE,
    },
    State.NOTHING_TO_MIGRATE: {
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.TURNED_OFF: {
        (Trigger.VOTERS, Finding.HAND_OVER): State.STEPPING_DOWN,
        (Trigger.REGISTRATIONS, Finding.ANY): State.TURNED_OFF,
        (Trigger.TIMER, Finding.ANY): State.TURNED_OFF,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.EXAMINING: {
        (Trigger.EXAMINED, Finding.CLEAR): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.STRAY_CLAIM): State.RELEASING,
        (Trigger.EXAMINED, Finding.NO_CONTROLLER): State.AWAITING_ELECTION,
        (Trigger.EXAMINED, Finding.CONTROLLERS_MISSING): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.BROKERS_MISSING): State.WAITING_FOR_BROKERS,
        (Trigger.EXAMINED, Finding.MAY_CLAIM): State.CLAIMING,
        (Trigger.EXAMINED, Finding.OWN_CLAIM_COPY): State.COPYING,
        (Trigger.EXAMINED, Finding.OWN_CLAIM_KEEP): State.RECONCILING,
        (Trigger.EXAMINED, Finding.REFUSE): State.REFUSED,
        (Trigger.EXAMINED, Finding.ON_HOLD): State.PAUSED,
        (Trigger.TIMER, Finding.ANY): State.EXAMINING,
        (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.REFUSED: {
        # The same states follow as after `EXAMINING`. It is a separate state so that a refusal keeps its age.
        (Trigger.EXAMINED, Finding.CLEAR): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.STRAY_CLAIM): State.RELEASING,
        (Trigger.EXAMINED, Finding.NO_CONTROLLER): State.AWAITING_ELECTION,
        (Trigger.EXAMINED, Finding.CONTROLLERS_MISSING): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.BROKERS_MISSING): State.WAITING_FOR_BROKERS,
        (Trigger.EXAMINED, Finding.MAY_CLAIM): State.CLAIMING,
        (Trigger.EXAMINED, Finding.OWN_CLAIM_COPY): State.COPYING,
        (Trigger.EXAMINED, Finding.OWN_CLAIM_KEEP): State.RECONCILING,
        (Trigger.EXAMINED, Finding.ON_HOLD): State.PAUSED,
        (Trigger.TIMER, Finding.ANY): State.REFUSED,
        (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY): State.REFUSED,
        (Trigger.FORCED, Finding.ANY): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.RELEASING: {
        (Trigger.RELEASED, Finding.DONE): State.AWAITING_ELECTION,
        (Trigger.RELEASED, Finding.FAILED): State.EXAMINING,
        (Trigger.TIMER, Finding.ANY): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.AWAITING_ELECTION: {
        (Trigger.EXAMINED, Finding.ZK_CONTROLLER): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.WAIT): State.WAITING_FOR_CONTROLLERS,
        (Trigger.EXAMINED, Finding.STRAY_CLAIM): State.EXAMINING,
        (Trigger.TIMER, Finding.ANY): State.AWAITING_ELECTION,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.WAITING_FOR_CONTROLLERS: {
        (Trigger.READINESS, Finding.BROKERS_MISSING): State.WAITING_FOR_BROKERS,
        (Trigger.READINESS, Finding.READY): State.DECODING,
        (Trigger.READINESS, Finding.STRAY_CLAIM): State.EXAMINING,
        (Trigger.REGISTRATIONS, Finding.ANY): State.WAITING_FOR_CONTROLLERS,
        (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY): State.WAITING_FOR_CONTROLLERS,
        (Trigger.TIMER, Finding.ANY): State.WAITING_FOR_CONTROLLERS,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.WAITING_FOR_BROKERS: {
        (Trigger.READINESS, Finding.CONTROLLERS_MISSING): State.WAITING_FOR_CONTROLLERS,
        (Trigger.READINESS, Finding.READY): State.DECODING,
        (Trigger.READINESS, Finding.STRAY_CLAIM): State.EXAMINING,
        (Trigger.REGISTRATIONS, Finding.ANY): State.WAITING_FOR_BROKERS,
        (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY): State.WAITING_FOR_BROKERS,
        (Trigger.TIMER, Finding.ANY): State.WAITING_FOR_BROKERS,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.DECODING: {
        (Trigger.DECODED, Finding.CLEAN): State.EXAMINING,
        (Trigger.DECODED, Finding.CLEAN_AGAIN): State.WAITING_FOR_CONTROLLERS,
        (Trigger.DECODED, Finding.ON_HOLD): State.PAUSED,
        (Trigger.DECODED, Finding.STRAY_CLAIM): State.EXAMINING,
        (Trigger.TIMER, Finding.FAULTS): State.DECODING,
        (Trigger.TIMER, Finding.STALLED): State.DECODING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.PAUSED: {
        (Trigger.RESUMED, Finding.ANY): State.WAITING_FOR_CONTROLLERS,
        (Trigger.TIMER, Finding.ANY): State.PAUSED,
        (Trigger.EXAMINED, Finding.STRAY_CLAIM): State.RELEASING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.CLAIMING: {
        (Trigger.CLAIM, Finding.WON_COPY): State.COPYING,
        (Trigger.CLAIM, Finding.WON_KEEP): State.RECONCILING,
        (Trigger.CLAIM, Finding.WON_RESUME): State.COMPARING,
        (Trigger.CLAIM, Finding.LOST): State.EXAMINING,
        (Trigger.TIMER, Finding.ANY): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.COPYING: {
        (Trigger.COPY, Finding.DONE): State.COMMITTING,
        (Trigger.COPY, Finding.FAILED): State.ABORTING,
        (Trigger.TIMER, Finding.WAIT): State.COPYING,
        (Trigger.TIMER, Finding.STALLED): State.ABORTING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.COMMITTING: {
        (Trigger.COMMITTED, Finding.ANY): State.RECONCILING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.ABORTING: {
        (Trigger.COMMITTED, Finding.ANY): State.RELEASING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.RECONCILING: {
        (Trigger.RECONCILED, Finding.DONE): State.INFORMING_BROKERS,
        (Trigger.RECONCILED, Finding.DONE_REOPENED): State.ADMITTING,
        (Trigger.RECONCILED, Finding.HELD): State.HOLDING,
        (Trigger.TIMER, Finding.FAILED): State.RECONCILING,
        (Trigger.TIMER, Finding.STALLED): State.RECONCILING,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.HOLDING: {
        (Trigger.FORCED, Finding.ANY): State.RECONCILING,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.COMPARING: {
        # What the comparison cannot decide while changes are written, a reconcile decides without them.
        (Trigger.RECONCILED, Finding.DONE): State.INFORMING_BROKERS,
        (Trigger.TIMER, Finding.FAILED): State.RECONCILING,
        (Trigger.TIMER, Finding.STALLED): State.RECONCILING,
        (Trigger.WRITE, Finding.FAILED): State.RECONCILING,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.INFORMING_BROKERS: {
        (Trigger.RPCS_SENT, Finding.ANY): State.DUAL_WRITING,
        (Trigger.WRITE, Finding.FAILED): State.RECONCILING,
        (Trigger.TIMER, Finding.ANY): State.INFORMING_BROKERS,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.DUAL_WRITING: {
        (Trigger.WRITE, Finding.FAILED): State.RECONCILING,
        (Trigger.FORCED, Finding.ANY): State.RECONCILING,
        (Trigger.TIMER, Finding.ANY): State.DUAL_WRITING,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.FINISHING: {
        (Trigger.VOTERS, Finding.MAY_FINISH): State.COMPLETING,
        (Trigger.VOTERS, Finding.HAND_OVER): State.STEPPING_DOWN,
        (Trigger.REGISTRATIONS, Finding.ANY): State.FINISHING,
        (Trigger.FORCED, Finding.ANY): State.FINISHING,
        (Trigger.TIMER, Finding.ANY): State.FINISHING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.STEPPING_DOWN: {
        (Trigger.TIMER, Finding.FINISH): State.FINISHING,
        (Trigger.TIMER, Finding.OFF): State.TURNED_OFF,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.COMPLETING: {
        (Trigger.COMMITTED, Finding.ANY): State.FINISHED,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.FINISHED: {
        (Trigger.REOPENED, Finding.ANY): State.REOPENING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.REOPENING: {
        (Trigger.COMMITTED, Finding.ANY): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
    State.ADMITTING: {
        (Trigger.COMMITTED, Finding.ANY): State.INFORMING_BROKERS,
        (Trigger.WRITE, Finding.FAILED): State.RECONCILING,
        (Trigger.WRITE, Finding.FENCED): State.EXAMINING,
        (Trigger.DEPOSED, Finding.ANY): State.INACTIVE,
    },
}
"""No block leads an answer back to the same state: the state would ask again at once, as long as nothing changes. Only
timers and events from outside make a state do its work again."""


def next_state(state: State, trigger: Trigger, finding: Finding) -> State | None:
    """The state that follows. When it is the same state, its entry effects are repeated; None when nothing happens."""
    return TRANSITIONS[state].get((trigger, finding))
