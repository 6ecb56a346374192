"""BrokerHeartbeat: fencing, unfencing and controlled shutdown of brokers, and log directories that went offline.

The state of a broker is not stored. It follows from the image (fenced) and the session (shutting down). Source: Kafka's
``ReplicationControlManager.processBrokerHeartbeat`` and the handlers that it calls, ``BrokerControlState``,
``BrokerHeartbeatManager.calculateNextBrokerState``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final

from migrator.controller.brokers_view import check_broker_epoch
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.errands import coming, leaving, losing, next_records
from migrator.controller.sessions import LEAVING, BrokerSession, Errand, Sessions
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.records.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnfenceBrokerRecord,
)
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel
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
    """A row of the table of broker states. None matches both values of a fact."""

    state: BrokerControlState
    wants_fence: bool | None
    wants_shutdown: bool | None
    caught_up: bool | None
    leads: bool | None
    others_passed: bool | None
    next_state: BrokerControlState

    def matches(self, state: BrokerControlState, facts: HeartbeatFacts) -> bool:
        """Whether the row applies to these facts."""
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
    return next(row.next_state for row in TRANSITIONS if row.matches(state, facts))


UNFENCE, ENTER_SHUTDOWN = -1, 1


@value
class HeartbeatRequest:
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[Uuid, ...] = ()


@value
class HeartbeatResponse:
    is_caught_up: bool
    state: BrokerControlState

    @property
    def is_fenced(self) -> bool:
        """Whether the broker is fenced after the records are written."""
        return self.state.is_fenced

    @property
    def should_shut_down(self) -> bool:
        """Whether the broker may stop now."""
        return self.state is BrokerControlState.SHUTDOWN_NOW


def heartbeat(image: MetadataImage, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Answer a heartbeat.

    While a transaction is open nothing changes: the copy may be aborted, and records among its own with it.

    :raises RefusedError: STALE_BROKER_EPOCH.
    """
    registration = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    session = context.sessions.get(request.broker_id) or BrokerSession(registration.epoch, context.now_ms)
    caught_up = request.metadata_offset >= registration.epoch
    state = _current_state(registration, session)
    if context.transaction_open:
        return _answer(request, HeartbeatResponse(caught_up, state), ())
    errand = context.sessions.errand_of(request.broker_id)
    if errand is not None and errand.leaves:
        return _answer(request, HeartbeatResponse(caught_up, state), ())
    lowest = context.sessions.lowest_active_offset(image)
    facts = HeartbeatFacts(
        wants_fence=request.want_fence,
        wants_shutdown=request.want_shut_down,
        caught_up=caught_up,
        leads=bool(context.index.led_by(request.broker_id)),
        others_passed=lowest is None or session.shutdown_offset <= lowest,
    )
    following = next_state(state, facts)
    records: Iterator[MetadataRecord] = iter(())
    offline = _directories_offline(image, context, registration, request.offline_log_dirs)
    going_on, errand = errand, None
    if following is not state:
        following, errand = _enter(context, registration, state, following)
        records = chain(_first(image, registration, following, errand), next_records(image, context, errand))
    elif offline is not None and going_on is None and not offline.is_last:
        errand, records = offline, next_records(image, context, offline)
    if offline is not None and offline.is_last:  # otherwise the next heartbeat names the directories again
        records = chain(records, next_records(image, context, offline))
    return _answer(request, HeartbeatResponse(caught_up, following), records, errand)


def _answer(
    request: HeartbeatRequest,
    response: HeartbeatResponse,
    records: Iterable[MetadataRecord],
    errand: Errand | None = None,
) -> Decision[HeartbeatResponse]:
    goes_on = errand is not None and not errand.is_last

    def note(sessions: Sessions, end_offset: int, _now_ms: int) -> None:
        sessions.reported(request.broker_id, request.metadata_offset)
        if response.state is BrokerControlState.CONTROLLED_SHUTDOWN:
            sessions.begin_shutdown(request.broker_id, LEAVING if goes_on else end_offset)
        if errand is not None and goes_on:
            errand.advance()
            sessions.begin_errand(errand)
        elif errand is not None:  # an earlier errand for the broker must not continue
            sessions.end_errand(errand, end_offset)

    return Decision(response, records, atomic=False, note=note)


def _enter(
    context: Context, registration: BrokerRegistration, state: BrokerControlState, following: BrokerControlState
) -> tuple[BrokerControlState, Errand]:
    """The errand for the next state, and the state after its first decision. A broker with more partitions than one
    decision takes is fenced, or told to stop, with the last decision."""
    if following is BrokerControlState.UNFENCED:
        return following, coming(context, registration)
    errand = leaving(context, registration, fences=following.is_fenced)
    if errand.is_last or not following.is_fenced or state is BrokerControlState.FENCED:
        return following, errand
    if state is BrokerControlState.UNFENCED and following is BrokerControlState.SHUTDOWN_NOW:
        errand.fences = False
        return BrokerControlState.CONTROLLED_SHUTDOWN, errand
    return state, errand


def _first(
    image: MetadataImage, registration: BrokerRegistration, state: BrokerControlState, errand: Errand
) -> Iterator[MetadataRecord]:
    """The change of the registration that must come before the changes of partitions."""
    broker_id, epoch = registration.broker_id, registration.epoch
    if not errand.leaves:
        if supports(image, MinLevel.REGISTRATION_CHANGE):
            yield BrokerRegistrationChangeRecord(broker_id, epoch, fenced=UNFENCE)
        else:
            yield UnfenceBrokerRecord(broker_id, epoch)
    elif (
        state is BrokerControlState.CONTROLLED_SHUTDOWN
        and supports(image, MinLevel.CONTROLLED_SHUTDOWN_STATE)
        and not registration.in_controlled_shutdown
    ):
        yield BrokerRegistrationChangeRecord(broker_id, epoch, in_controlled_shutdown=ENTER_SHUTDOWN)


def _directories_offline(
    image: MetadataImage, context: Context, registration: BrokerRegistration, offline: tuple[Uuid, ...]
) -> Errand | None:
    """The errand for log directories that failed; the broker goes on with its others."""
    lost = [directory for directory in registration.log_dirs if directory in offline]
    if not lost or not supports(image, MinLevel.DIRECTORY_ASSIGNMENT):
        return None
    return losing(context, registration, lost)


def _current_state(registration: BrokerRegistration, session: BrokerSession) -> BrokerControlState:
    if session.shutdown_offset >= 0:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.FENCED if registration.fenced else BrokerControlState.UNFENCED
