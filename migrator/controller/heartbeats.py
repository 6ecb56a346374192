"""BrokerHeartbeat: fencing, unfencing and controlled shutdown of brokers, and log directories that went offline.

Source: Kafka's ``ReplicationControlManager.processBrokerHeartbeat`` and the handlers that it calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from migrator.controller.broker_states import BrokerControlState, HeartbeatFacts, next_state
from migrator.controller.brokers_view import check_broker_epoch, directory_of
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.partition_change import leader_and_isr_changes
from migrator.controller.sessions import BrokerSession, Sessions
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.records.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    UnfenceBrokerRecord,
)
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel
from migrator.values import value

FENCE, UNFENCE, ENTER_SHUTDOWN = 1, -1, 1


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
        """Whether the broker is fenced once the records are written."""
        return self.state.is_fenced

    @property
    def should_shut_down(self) -> bool:
        """Whether the broker may stop now."""
        return self.state is BrokerControlState.SHUTDOWN_NOW


def heartbeat(image: MetadataImage, request: HeartbeatRequest, context: Context) -> Decision[HeartbeatResponse]:
    """Answer a heartbeat.

    While a transaction is open nothing changes: the copy may yet be aborted, and records among its own with it.

    :raises RefusedError: STALE_BROKER_EPOCH.
    """
    registration = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    session = context.sessions.get(request.broker_id) or BrokerSession(registration.epoch, context.now_ms)
    caught_up = request.metadata_offset >= registration.epoch
    state = _current_state(registration, session)
    if context.transaction_open:
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
    records = chain(
        _enter(image, context, registration, following) if following is not state else (),
        _directories_offline(image, context, registration, request.offline_log_dirs),
    )
    return _answer(request, HeartbeatResponse(caught_up, following), records)


def _answer(
    request: HeartbeatRequest, response: HeartbeatResponse, records: Iterable[MetadataRecord]
) -> Decision[HeartbeatResponse]:
    def note(sessions: Sessions, end_offset: int, now_ms: int) -> None:
        sessions.touch(request.broker_id, request.metadata_offset, now_ms)
        if response.state is BrokerControlState.CONTROLLED_SHUTDOWN:
            sessions.begin_shutdown(request.broker_id, end_offset)

    return Decision(response, records, atomic=False, note=note)


def fence(image: MetadataImage, context: Context, registration: BrokerRegistration) -> Iterator[MetadataRecord]:
    """Take a broker out of every ISR and leadership, and then fence it: a leader that comes later and finds it
    unfenced starts again."""
    broker_id = registration.broker_id
    yield from leader_and_isr_changes(image, context, context.index.in_sync(broker_id), without=broker_id)
    if supports(image, MinLevel.REGISTRATION_CHANGE):
        yield BrokerRegistrationChangeRecord(broker_id, registration.epoch, fenced=FENCE)
    else:
        yield FenceBrokerRecord(broker_id, registration.epoch)


def _unfence(image: MetadataImage, context: Context, registration: BrokerRegistration) -> Iterator[MetadataRecord]:
    broker_id = registration.broker_id
    if supports(image, MinLevel.REGISTRATION_CHANGE):
        yield BrokerRegistrationChangeRecord(broker_id, registration.epoch, fenced=UNFENCE)
    else:
        yield UnfenceBrokerRecord(broker_id, registration.epoch)
    yield from leader_and_isr_changes(image, context, context.index.leaderless, also=broker_id)


def _begin_shutdown(
    image: MetadataImage, context: Context, registration: BrokerRegistration
) -> Iterator[MetadataRecord]:
    broker_id = registration.broker_id
    if supports(image, MinLevel.CONTROLLED_SHUTDOWN_STATE) and not registration.in_controlled_shutdown:
        yield BrokerRegistrationChangeRecord(broker_id, registration.epoch, in_controlled_shutdown=ENTER_SHUTDOWN)
    yield from leader_and_isr_changes(image, context, context.index.in_sync(broker_id), without=broker_id)


def _enter(
    image: MetadataImage, context: Context, registration: BrokerRegistration, state: BrokerControlState
) -> Iterator[MetadataRecord]:
    if state is BrokerControlState.UNFENCED:
        return _unfence(image, context, registration)
    if state is BrokerControlState.CONTROLLED_SHUTDOWN:
        return _begin_shutdown(image, context, registration)
    return fence(image, context, registration)


def _directories_offline(
    image: MetadataImage, context: Context, registration: BrokerRegistration, offline: tuple[Uuid, ...]
) -> Iterator[MetadataRecord]:
    """A broker with several log directories goes on without those that failed."""
    if not supports(image, MinLevel.DIRECTORY_ASSIGNMENT):
        return
    broker_id, topics = registration.broker_id, image.topics.by_id
    lost = [directory for directory in registration.log_dirs if directory in offline]
    if not lost:
        return
    affected = (
        (topic_id, number)
        for topic_id, number in context.index.in_sync(broker_id)
        if directory_of(topics[topic_id].partitions[number], broker_id) in lost
    )
    yield from leader_and_isr_changes(image, context, affected, without=broker_id)
    online = tuple(directory for directory in registration.log_dirs if directory not in offline)
    yield BrokerRegistrationChangeRecord(broker_id, registration.epoch, log_dirs=online)


def _current_state(registration: BrokerRegistration, session: BrokerSession) -> BrokerControlState:
    if session.shutdown_offset >= 0:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.FENCED if registration.fenced else BrokerControlState.UNFENCED
