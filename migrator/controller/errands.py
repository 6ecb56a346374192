"""Changes the partitions of a broker that leaves or arrives, over several decisions.

Stock Kafka changes all of them in one decision, and answers no request meanwhile: seconds for two million partitions.
Here an `Errand` notes the partitions when it begins. Each decision takes the next ones and checks each in the present
image, so that none is changed twice. They stay the next ones until their records are appended, so that none is
forgotten. Errands are soft state: the next leader finds the broker's state in the log, and begins again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from migrator.controller.brokers_view import directory_of
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision
from migrator.controller.index import TopicPartition
from migrator.controller.partition_change import leader_and_isr_changes, present
from migrator.controller.sessions import Errand, Sessions
from migrator.image.model import BrokerRegistration, MetadataImage, PartitionRegistration
from migrator.records.metadata import BrokerRegistrationChangeRecord, FenceBrokerRecord, MetadataRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import MinLevel

FENCE = 1


def leaving(context: Context, registration: BrokerRegistration, *, fences: bool) -> Errand:
    """The errand that removes the broker from every ISR and leadership. The last member of an ISR stays in it, and the
    partition has no leader.

    :param fences: whether the broker is fenced at the end. That record comes last: a later leader that finds the broker
        unfenced begins again.
    """
    return Errand(registration, context.index.in_sync(registration.broker_id), leaves=True, fences=fences)


def coming(context: Context, registration: BrokerRegistration) -> Errand:
    """The errand that lets the broker lead partitions without a leader."""
    return Errand(registration, context.index.leaderless)


def losing(context: Context, registration: BrokerRegistration, lost: Collection[Uuid]) -> Errand:
    """The errand that removes the broker from the ISR of its replicas in offline log directories. The record that
    removes the directories from its registration comes last: until then each heartbeat that names them begins the
    errand again, also at a later leader."""
    return Errand(registration, context.index.in_sync(registration.broker_id), lost=lost)


def next_records(image: MetadataImage, context: Context, errand: Errand) -> Iterator[MetadataRecord]:
    """The records of the next partitions, and after the last ones those that end the errand."""
    broker_id = errand.broker_id
    without, also = (broker_id, None) if errand.leaves or errand.lost else (None, broker_id)
    part: Iterable[TopicPartition] = errand.part
    if errand.lost:
        found = present(image, errand.part)
        part = [where for where, _, partition in found if _directory(partition, broker_id) in errand.lost]
    yield from leader_and_isr_changes(image, context, part, without=without, also=also)
    if errand.is_last and errand.fences:
        yield _fenced(image, errand)
    if errand.is_last and errand.lost:
        named = image.cluster.brokers[broker_id].log_dirs
        online = tuple(directory for directory in named if directory not in errand.lost)
        yield BrokerRegistrationChangeRecord(broker_id, errand.epoch, log_dirs=online)


def go_on(image: MetadataImage, context: Context, errand: Errand) -> Decision[None]:
    registration = image.cluster.brokers.get(errand.broker_id)
    if registration is None or registration.epoch != errand.epoch or registration.fenced:
        return Decision(None, note=lambda sessions, end, _: sessions.end_errand(errand, end))
    if errand.is_last and (errand.leaves or errand.lost):
        errand.add_new(context.index.in_sync(errand.broker_id))  # partitions that were created meanwhile
    is_last, records = errand.is_last, tuple(next_records(image, context, errand))

    def note(sessions: Sessions, end_offset: int, _now_ms: int) -> None:
        if is_last:
            sessions.end_errand(errand, end_offset)
        else:
            errand.advance()

    return Decision(None, records, note=note)


def _directory(partition: PartitionRegistration, broker_id: int) -> Uuid | None:
    return directory_of(partition, broker_id) if broker_id in partition.replicas else None


def _fenced(image: MetadataImage, errand: Errand) -> MetadataRecord:
    if supports(image, MinLevel.REGISTRATION_CHANGE):
        return BrokerRegistrationChangeRecord(errand.broker_id, errand.epoch, fenced=FENCE)
    return FenceBrokerRecord(errand.broker_id, errand.epoch)
