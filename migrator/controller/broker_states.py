"""The states of a broker, from fenced to running to shut down, with the transitions as a table.

The state is not stored. It follows from the image (fenced) and the session (shutting down). Source: Kafka's
``BrokerControlState`` and ``BrokerHeartbeatManager.calculateNextBrokerState``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from migrator.values import value


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """Whether a broker in this state is fenced in the image."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


@value
class HeartbeatFacts:
    """The facts that decide the next state. ``others_passed``: every active broker has read the records of this one's
    controlled shutdown, so no broker takes it for a leader any more."""

    wants_fence: bool
    wants_shutdown: bool
    caught_up: bool
    leads: bool
    others_passed: bool


@value
class Transition:
    """A row of the table. None matches both values of a fact."""

    state: BrokerControlState
    wants_fence: bool | None
    wants_shutdown: bool | None
    caught_up: bool | None
    leads: bool | None
    others_passed: bool | None
    next_state: BrokerControlState

    def matches(self, state: BrokerControlState, facts: HeartbeatFacts) -> bool:
        """Whether the row applies."""
        return self.state is state and all(
            wanted is None or wanted is given
            for wanted, given in (
                (self.wants_fence, facts.wants_fence),
                (self.wants_shutdown, facts.wants_shutdown),
                (self.caught_up, facts.caught_up),
                (self.leads, facts.leads),
                (self.others_passed, facts.others_passed),
            )
        )


_F, _U = BrokerControlState.FENCED, BrokerControlState.UNFENCED
_C, _S = BrokerControlState.CONTROLLED_SHUTDOWN, BrokerControlState.SHUTDOWN_NOW

TRANSITIONS: Final[tuple[Transition, ...]] = (
    # state, wants fence, wants shutdown, caught up, leads, others passed -> next
    Transition(_F, None, True, None, None, None, _S),
    Transition(_F, True, False, None, None, None, _F),
    Transition(_F, False, False, False, None, None, _F),
    Transition(_F, False, False, True, None, None, _U),
    Transition(_U, True, True, None, None, None, _S),
    Transition(_U, True, False, None, None, None, _F),
    Transition(_U, False, True, None, True, None, _C),
    Transition(_U, False, True, None, False, None, _S),
    Transition(_U, False, False, None, None, None, _U),
    Transition(_C, None, None, None, True, None, _C),
    Transition(_C, None, None, None, False, False, _C),
    Transition(_C, None, None, None, False, True, _S),
)
"""Every state and combination of facts has exactly one row."""


def next_state(state: BrokerControlState, facts: HeartbeatFacts) -> BrokerControlState:
    """The state after a heartbeat."""
    return next(row.next_state for row in TRANSITIONS if row.matches(state, facts))
