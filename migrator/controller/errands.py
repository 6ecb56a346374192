"""What the partitions of a broker need that goes or comes, over as many decisions as it takes.

Stock decides all of it at once, and nobody is answered meanwhile: at two million partitions that takes seconds. Here an
`Errand` puts the partitions down when it begins. Each decision takes the next ones and looks at each anew, in the image
of its day, so that nothing is changed twice. They stay the next ones until their records are appended, so that none is
forgotten. Errands are soft state: the next leader finds the broker as the log has it, and begins again.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.partition_change import leader_and_isr_changes
from migrator.controller.sessions import Errand, Sessions
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.records.metadata import BrokerRegistrationChangeRecord, FenceBrokerRecord, MetadataRecord
from migrator.records.versions import MinLevel

FENCE = 1


def leaving(context: Context, registration: BrokerRegistration, *, fences: bool) -> Errand:
    """The broker leaves every ISR and leads nothing any more. The last member of an ISR stays in it, without a leader.

    :param fences: the broker is fenced at the end. That comes last: a leader that comes later and finds it unfenced
        begins again.
    """
    return Errand(registration, context.index.in_sync(registration.broker_id), leaves=True, fences=fences)


def coming(context: Context, registration: BrokerRegistration) -> Errand:
    """The broker may lead what has no leader."""
    return Errand(registration, context.index.leaderless, leaves=False, fences=False)


def next_records(image: MetadataImage, context: Context, errand: Errand) -> Iterator[MetadataRecord]:
    """The records of the next partitions; behind the last ones, those that end the errand."""
    broker_id = errand.broker_id
    without, also = (broker_id, None) if errand.leaves else (None, broker_id)
    yield from leader_and_isr_changes(image, context, errand.part, without=without, also=also)
    if errand.is_last and errand.fences:
        yield _fenced(image, errand)


def go_on(image: MetadataImage, context: Context, errand: Errand) -> Decision[None]:
    """The next decision of an errand."""
    registration = image.cluster.brokers.get(errand.broker_id)
    if registration is None or registration.epoch != errand.epoch or registration.fenced:
        return Decision(None, note=lambda sessions, end, _: sessions.end_errand(errand, end))
    if errand.is_last and errand.leaves:
        errand.add_new(context.index.in_sync(errand.broker_id))  # a topic made meanwhile must not be forgotten
    is_last, records = errand.is_last, tuple(next_records(image, context, errand))

    def note(sessions: Sessions, end_offset: int, _now_ms: int) -> None:
        if is_last:
            sessions.end_errand(errand, end_offset)
        else:
            errand.advance()

    return Decision(None, records, note=note)


def _fenced(image: MetadataImage, errand: Errand) -> MetadataRecord:
    if supports(image, MinLevel.REGISTRATION_CHANGE):
        return BrokerRegistrationChangeRecord(errand.broker_id, errand.epoch, fenced=FENCE)
    return FenceBrokerRecord(errand.broker_id, errand.epoch)
