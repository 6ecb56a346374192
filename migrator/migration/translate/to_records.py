"""ZooKeeper -> metadata records, in the order of Kafka's own copy, topics in chunks.

Unlike stock controllers, it invents no value and skips no fault: a znode that does not decode is a `ZnodeError` with
path and remedy. Source: ``ZkMigrationClient.readAllMetadata``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING

from migrator.image.model import ConfigResource, ScramKey
from migrator.image.security import scram_record
from migrator.migration.translate import names, source
from migrator.migration.translate.source import TopicReading, TopicZnodes
from migrator.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from migrator.records.primitives import MAX_STRING_BYTES
from migrator.records.uuid import ZERO_UUID, Uuid, random_uuid
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import decode_acls, parse_acl_path
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.entities import user_config
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import PartitionState, decode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder, is_password_config
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids
from migrator.zookeeper.znodes.topics import TopicAssignment, decode_topic

if TYPE_CHECKING:
    from random import Random


NO_BROKER_EPOCH = -1
NO_TOPIC_ID = "the topic has no topic id"
TOPIC_ID_REMEDY = (
    "If the topic has had an id (an old tool may have removed it), write that topic_id into the znode again: it is in "
    "partition.metadata of each replica, and with another one the brokers cannot use their logs. A new one is for "
    "topics that never had one: restart the controller broker with inter.broker.protocol.version 2.8 or later"
)

_LONG_REMEDY = "Shorten it with kafka-configs; long certificates go into a file, whose name is the config"
_LONG_NAME_REMEDY = (
    "Delete it with the tool that made it (kafka-acls, kafka-configs, kafka-delegation-tokens), and use a shorter name"
)
_SHOWN_OF_A_NAME = 40
_SAME_ID_REMEDY = (
    "No broker gives two topics one id, so somebody has copied this znode: delete the topic that is the copy, with a "
    "ZooKeeper client if no broker has a log of it"
)

_AT_MOST = f"the metadata log holds {MAX_STRING_BYTES:,} at most"

OnFault = Callable[[ZnodeError], None]
"""Called with the fault of each znode that does not decode. If it returns, the entity is left out and reading goes
on."""

KnownPartitions = Callable[[Znode], tuple[int, ...] | None]
"""Partition ids of a topic by its znode, if they are known, so that the znode need not be decoded; otherwise None."""


def stop(fault: ZnodeError) -> None:
    """The `OnFault` of a copy: the first fault ends it."""
    raise fault


class RecordReader:
    """Turns the znodes of a source into records.

    :param random: makes the ids of ACLs, which ZooKeeper does not have.
    """

    def __init__(
        self, zookeeper: ZkSource, *, passwords: PasswordEncoder, random: Random, on_fault: OnFault = stop
    ) -> None:
        self._source = zookeeper
        self._passwords = passwords
        self._random = random
        self._on_fault = on_fault
        self._name_of: dict[Uuid, str] = {}

    def all_records(self) -> Iterator[list[MetadataRecord]]:
        """Everything, in Kafka's order: one list for each topic, then one for each family.

        :raises ZnodeError: unless ``on_fault`` takes it.
        """
        for reading in self.topics():
            yield self.topic_records(reading)
        yield from self.other_records()

    def other_records(self) -> Iterator[list[MetadataRecord]]:
        """Everything except topics, one list for each family; errors as in `all_records`."""
        families = (self._broker_configs, self._client_configs, self._producer_ids, self._acls, self._tokens)
        for family in families:
            yield list(family())

    def topics(self, known: KnownPartitions = lambda _: None) -> Iterator[TopicReading]:
        """All topics except those with a pending deletion; a topic that disappears meanwhile is left out."""
        deleted = set(source.names_below(self._source, paths.DELETE_TOPICS))
        listed = (name for name in source.names_below(self._source, paths.TOPICS) if name not in deleted)
        assignments: dict[str, TopicAssignment | None] = {}

        def partitions(name: str, topic: Znode | None) -> tuple[int, ...]:
            if topic is None:
                return ()
            ids, assignment = known(topic), None
            if ids is None:
                assignment = self._assignment(topic)
                if assignment is None:
                    return ()
                ids = tuple(sorted(assignment.partitions))
            assignments[name] = assignment
            return ids

        for znodes in source.read_topics(self._source, listed, partitions):
            if znodes.name in assignments:
                yield TopicReading(znodes, assignments.pop(znodes.name))

    def topic_records(self, reading: TopicReading) -> list[MetadataRecord]:
        """The records of a topic, its configs and its partitions; errors as in `all_records`."""
        znodes = reading.znodes
        assignment = reading.assignment or self._assignment(znodes.topic)
        if assignment is None:
            return []
        topic_id = assignment.topic_id or ZERO_UUID
        records: list[MetadataRecord] = [TopicRecord(znodes.name, topic_id)]
        try:
            self._check_id(znodes, topic_id)
            if znodes.config is not None:
                records += self._config_records(znodes.config, names.topic_resource(znodes.name))
            _check_texts(paths.topic(znodes.name), records)
            records += _partition_records(znodes, assignment)
        except ZnodeError as fault:
            self._on_fault(fault)
            return []
        return records

    def _check_id(self, znodes: TopicZnodes, topic_id: Uuid) -> None:
        """Check that the id is new: no image holds two topics with one id."""
        other = self._name_of.setdefault(topic_id, znodes.name)
        if other != znodes.name:
            raise ZnodeError(
                paths.topic(znodes.name), f"the topic has the topic id of topic {other!r}", _SAME_ID_REMEDY
            )

    def _assignment(self, topic: Znode | None) -> TopicAssignment | None:
        if topic is None:
            return None
        try:
            assignment = decode_topic(topic.path, topic.data)
        except ZnodeError as fault:
            self._on_fault(fault)
            return None
        if assignment.topic_id in {None, ZERO_UUID}:
            self._on_fault(ZnodeError(topic.path, NO_TOPIC_ID, TOPIC_ID_REMEDY))
            return None
        return assignment

    def _config_records(self, znode: Znode, resource: ConfigResource) -> Iterator[ConfigRecord]:
        for key, text in decode_config(znode.path, znode.data).items():
            plain = self._passwords.decode(znode.path, key, text) if is_password_config(key) else text
            if (size := _bytes_of(plain)) > MAX_STRING_BYTES:
                fault = f"config {_shown(key)} has {size:,} bytes, and {_AT_MOST}"
                raise ZnodeError(znode.path, fault, _LONG_REMEDY)
            yield ConfigRecord(resource.resource_type, resource.name, key, plain)

    def _each(
        self, listed: list[str], translate: Callable[[Znode], Iterator[MetadataRecord]]
    ) -> Iterator[MetadataRecord]:
        for znode in source.read_existing(self._source, listed):
            yield from self._checked(znode.path, partial(translate, znode))

    def _checked(self, path: str, translate: Callable[[], Iterable[MetadataRecord]]) -> list[MetadataRecord]:
        try:
            records = list(translate())
            _check_texts(path, records)
        except ZnodeError as fault:
            self._on_fault(fault)
            return []
        return records

    def _broker_configs(self) -> Iterator[MetadataRecord]:
        def records(entity: str, znodes: list[Znode]) -> Iterable[MetadataRecord]:
            resource = names.broker_resource(paths.name_of(entity))
            return next(filter(None, (list(self._config_records(znode, resource)) for znode in znodes)), ())

        return self._configs(source.broker_configs(self._source), records)

    def _client_configs(self) -> Iterator[MetadataRecord]:
        return self._configs(source.client_configs(self._source), _client_records)

    def _configs(
        self, listed: list[str], translate: Callable[[str, list[Znode]], Iterable[MetadataRecord]]
    ) -> Iterator[MetadataRecord]:
        entities = source.config_names(listed, self._on_fault)
        for entity, znodes in source.config_znodes(self._source, entities):
            yield from self._checked(znodes[0].path if znodes else "", partial(translate, entity, znodes))

    def _producer_ids(self) -> Iterator[MetadataRecord]:
        return self._each([paths.PRODUCER_IDS], _producer_id_records)

    def _acls(self) -> Iterator[MetadataRecord]:
        return self._each(source.acl_resources(self._source), self._acl_records)

    def _tokens(self) -> Iterator[MetadataRecord]:
        return self._each(source.tokens(self._source), _token_records)

    def _acl_records(self, znode: Znode) -> Iterator[MetadataRecord]:
        pattern = parse_acl_path(znode.path)
        if pattern is None:
            return
        for entry in sorted(decode_acls(znode.path, znode.data), key=repr):
            yield AccessControlEntryRecord(
                id=random_uuid(self._random),
                resource_type=int(pattern.resource_type),
                resource_name=pattern.name,
                pattern_type=int(pattern.pattern_type),
                principal=entry.principal,
                host=entry.host,
                operation=int(entry.operation),
                permission_type=int(entry.permission),
            )


def _check_texts(path: str, records: list[MetadataRecord]) -> None:
    """Check the length of texts: no reader of the log accepts longer ones, so no writer does.

    :raises ZnodeError: a text is too long. It quotes no secret: secrets are bytes, except values of configs, which are
        checked before.
    """
    for text in _texts(tuple(records)):
        if (size := _bytes_of(text)) > MAX_STRING_BYTES:
            raise ZnodeError(path, f"the name {_shown(text)} has {size:,} bytes, and {_AT_MOST}", _LONG_NAME_REMEDY)


def _texts(thing: object) -> Iterator[str]:
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, tuple | list | frozenset):
        for each in thing:
            yield from _texts(each)
    elif is_dataclass(thing):
        for field in fields(thing):
            yield from _texts(getattr(thing, field.name))


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_OF_A_NAME else f"{text[:_SHOWN_OF_A_NAME]!r}..."


def _partition_records(znodes: TopicZnodes, assignment: TopicAssignment) -> Iterator[PartitionRecord]:
    """The records of partitions. A partition without a state is led by its first replica, with all replicas in sync, as
    in Kafka."""
    topic_id = assignment.topic_id or ZERO_UUID
    replicas, adding, removing = assignment.partitions, assignment.adding, assignment.removing
    for partition, znode in znodes.states.items():
        assigned = replicas[partition]
        if znode is None:
            state, epoch = PartitionState(assigned[0], 0, 0, assigned), 0
        else:
            state, epoch = decode_partition_state(znode.path, znode.data), znode.stat.version
        yield PartitionRecord(
            partition,
            topic_id,
            assigned,
            state.isr,
            removing.get(partition, ()),
            adding.get(partition, ()),
            state.leader,
            1 if state.recovering else 0,
            state.leader_epoch,
            epoch,
        )


def _client_records(name: str, znodes: list[Znode]) -> Iterator[MetadataRecord]:
    entity = names.quota_entities(name)
    user = user_config(name, source.held(znodes))
    if user.credentials:
        if len(entity) != 1 or entity[0].entity_type != names.USER or entity[0].entity_name is None:
            remedy = "Delete the credential with a ZooKeeper client"
            raise ZnodeError(paths.config(name), "only a single user can have SCRAM credentials", remedy)
        for mechanism, credential in user.credentials.items():
            yield scram_record(ScramKey(int(mechanism), entity[0].entity_name), credential)
    for key, quota in user.quotas.items():
        yield ClientQuotaRecord(entity, key, quota, remove=False)


def _producer_id_records(znode: Znode) -> Iterator[MetadataRecord]:
    block = decode_producer_ids(znode.path, znode.data)
    if block is not None:
        yield ProducerIdsRecord(block.broker, NO_BROKER_EPOCH, block.next_id)


def _token_records(znode: Znode) -> Iterator[MetadataRecord]:
    token = decode_token(znode.path, znode.data)
    if token is not None:
        yield token
