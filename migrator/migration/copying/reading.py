"""Reads ZooKeeper for the copy: the first reading only decodes; the copy itself has a second look at what changed.

Both are generators over any `ZkSource`, so that a worker process can stream them: memory is bounded by one batch and,
of each topic, its name, id, partition ids, config keys and mzxids. What changed between the readings is found by mzxid
and read again into the same transaction, removals included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

from migrator.image.tracked import Interner
from migrator.migration.machine.progress import WorkPhase
from migrator.migration.machine.readiness import Gap
from migrator.migration.translate.source import TopicReading
from migrator.migration.translate.to_records import RecordReader
from migrator.records.batch import build_batch, split_values
from migrator.records.codec import encoder
from migrator.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ConfigResourceType,
    DelegationTokenRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value
from migrator.zookeeper.leadership import read_view
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.passwords import PasswordEncoder

MAX_FAULTS = 1_000
"""How many znodes that do not decode are named; further ones are only counted."""
PROGRESS_RECORDS = 20_000


@value
class Decoded:
    """Progress of the first reading. Counts are cumulative, ``faults`` are those since the message before; ``done`` is
    set in the last message."""

    records: int
    faults: tuple[Gap, ...] = ()
    faults_in_all: int = 0
    done: bool = False


@value
class CopyBatch:
    """One or more whole record batches from offset 0, which the leader gives offsets and epoch
    (`records.batch.restamp`)."""

    data: bytes
    records: int


@value
class CopyEnd:
    """The end of the copy. The versions of the claim were read last of all. ``read_again``: how many entities changed
    between the two readings."""

    records: int
    read_again: int
    epoch_version: int
    controller_version: int


def ignore(_phase: WorkPhase) -> None:
    """Do nothing: the default for a source that need not catch up."""


def decode_all(
    zookeeper: ZkSource,
    *,
    passwords: PasswordEncoder,
    random: Random,
    more_faults: Callable[[], Iterable[ZnodeError]] = lambda: (),
) -> Iterator[Decoded]:
    """Read and decode everything, write nothing.

    :param more_faults: called at the end; it yields the other faults that prevent a copy.
    """
    faults: list[Gap] = []
    counted = 0

    def on_fault(fault: ZnodeError) -> None:
        nonlocal counted
        counted += 1
        if counted <= MAX_FAULTS:
            faults.append(Gap(fault.where, fault.what, fault.remedy))

    reader = RecordReader(zookeeper, passwords=passwords, random=random, on_fault=on_fault)
    records = reported = 0
    for some in reader.all_records():
        records += len(some)
        if records - reported >= PROGRESS_RECORDS:
            reported = records
            yield Decoded(records, tuple(faults), counted)
            faults.clear()
    for fault in more_faults():
        on_fault(fault)
    yield Decoded(records, tuple(faults), counted, done=True)


class Copy:
    """One copy. `run` yields `CopyBatch` es and ends with `CopyEnd`.

    :param level: the finalized metadata.version, which decides the record versions.
    :param batch_records: the fewest records of a batch (``migrator.copy.batch.records``).
    :param now_ms: gives the append time of a batch.
    """

    def __init__(
        self,
        zookeeper: ZkSource,
        *,
        passwords: PasswordEncoder,
        random: Random,
        level: int,
        batch_records: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._source = zookeeper
        self._reader = RecordReader(zookeeper, passwords=passwords, random=random)
        self._encode = encoder(level)
        self._batch_records = batch_records
        self._now_ms = now_ms
        self._topics: dict[str, _Seen] = {}
        self._intern = Interner()
        self._others: dict[object, MetadataRecord] = {}
        self._records = 0
        self._read_again = 0

    def run(self, before: Callable[[WorkPhase], None] = ignore) -> Iterator[CopyBatch | CopyEnd]:
        """Read everything, read again what changed, and read the versions of the claim.

        :param before: called ahead of each reading, which must see all earlier writes.
        :raises ZnodeError: when a znode no longer decodes.
        """
        before(WorkPhase.COPY)
        yield from self._batches(self._first_reading())
        before(WorkPhase.LOOK_AGAIN)
        yield from self._batches(self._second_look())
        before(WorkPhase.LOOK_AGAIN)
        view = read_view(self._source.read)
        yield CopyEnd(self._records, self._read_again, view.epoch_version, view.controller_version)

    def _first_reading(self) -> Iterator[list[MetadataRecord]]:
        for reading in self._reader.topics():
            records = self._reader.topic_records(reading)
            self._topics[reading.znodes.name] = self._seen(reading, records)
            yield records
        for family in self._reader.other_records():
            self._others |= {_key(record): record for record in family}
            yield family

    def _second_look(self) -> Iterator[list[MetadataRecord]]:
        """Read again what changed. A changed topic is removed and recorded anew; no reader sees the transaction before
        its end."""
        gone = dict(self._topics)
        for reading in self._reader.topics(self._unchanged):
            before = gone.pop(reading.znodes.name, None)
            if before is not None and before.zxids == reading.znodes.zxids:
                continue
            self._read_again += 1
            removal = [] if before is None else before.removal(reading.znodes.name)
            yield removal + self._reader.topic_records(reading)
        self._read_again += len(gone)
        for name, seen in gone.items():
            yield seen.removal(name)
        yield list(self._changed_others())

    def _seen(self, reading: TopicReading, records: list[MetadataRecord]) -> _Seen:
        topic_id = ZERO_UUID if reading.assignment is None else reading.assignment.topic_id or ZERO_UUID
        keys = tuple([record.name for record in records if isinstance(record, ConfigRecord)])
        return _Seen(topic_id, self._intern(tuple(reading.znodes.states)), self._intern(keys), reading.znodes.zxids)

    def _unchanged(self, topic: Znode) -> tuple[int, ...] | None:
        seen = self._topics.get(paths.name_of(topic.path))
        return seen.partitions if seen is not None and seen.zxids[0] == topic.stat.mzxid else None

    def _changed_others(self) -> Iterator[MetadataRecord]:
        gone = dict(self._others)
        for family in self._reader.other_records():
            for record in family:
                before = gone.pop(_key(record), None)
                if before is not None and _same(before, record):
                    continue
                self._read_again += 1
                yield record
        self._read_again += len(gone)
        for record in gone.values():
            yield from _removal(record)

    def _batches(self, parts: Iterable[list[MetadataRecord]]) -> Iterator[CopyBatch]:
        values: list[bytes] = []
        for part in parts:
            values += map(self._encode, part)
            if len(values) >= self._batch_records:
                yield self._batch(values)
                values = []
        if values:
            yield self._batch(values)

    def _batch(self, values: list[bytes]) -> CopyBatch:
        self._records += len(values)
        groups = split_values(values, records_max=len(values))
        now_ms = self._now_ms()
        batches, offset = [], 0
        for group in groups:
            batches.append(build_batch(group, timestamp_ms=now_ms, base_offset=offset))
            offset += len(group)
        return CopyBatch(b"".join(batches), len(values))


@value
class _Seen:
    """A fingerprint that shows a change of a topic without decoding it again."""

    topic_id: Uuid
    partitions: tuple[int, ...]
    config_keys: tuple[str, ...]
    zxids: tuple[int, ...]

    def removal(self, name: str) -> list[MetadataRecord]:
        """The records that take back what was recorded of the topic. Configs are removed one by one: Kafka's brokers
        replay the transaction at once, and then a RemoveTopicRecord does not remove configs from the same
        transaction."""
        topic = ConfigResourceType.TOPIC
        configs: list[MetadataRecord] = [ConfigRecord(topic, name, key, None) for key in self.config_keys]
        return [*configs, RemoveTopicRecord(self.topic_id)]


def _key(record: MetadataRecord) -> object:
    """The key of a record: equal for two readings of the same znode."""
    match record:
        case ConfigRecord():
            return ConfigRecord, record.resource_type, record.resource_name, record.name
        case ClientQuotaRecord():
            return ClientQuotaRecord, frozenset(record.entity), record.key
        case UserScramCredentialRecord():
            return UserScramCredentialRecord, record.name, record.mechanism
        case ProducerIdsRecord():
            return ProducerIdsRecord
        case AccessControlEntryRecord():
            return _entry(record)
        case DelegationTokenRecord():
            return DelegationTokenRecord, record.token_id
    raise ValueError(f"no record of a copy outside topics: {type(record).__name__}")


def _entry(record: AccessControlEntryRecord) -> tuple[object, ...]:
    """The key of an access control entry is its content; its id is random in each reading."""
    return (
        AccessControlEntryRecord,
        (record.resource_type, record.resource_name, record.pattern_type),
        (record.principal, record.host, record.operation, record.permission_type),
    )


def _same(before: MetadataRecord, after: MetadataRecord) -> bool:
    return isinstance(after, AccessControlEntryRecord) or before == after


def _removal(record: MetadataRecord) -> Iterator[MetadataRecord]:
    match record:
        case ConfigRecord():
            yield ConfigRecord(record.resource_type, record.resource_name, record.name, None)
        case ClientQuotaRecord():
            yield ClientQuotaRecord(record.entity, record.key, record.value, remove=True)
        case UserScramCredentialRecord():
            yield RemoveUserScramCredentialRecord(record.name, record.mechanism)
        case AccessControlEntryRecord():
            yield RemoveAccessControlEntryRecord(record.id)
        case DelegationTokenRecord():
            yield RemoveDelegationTokenRecord(record.token_id)
