"""One reading of ZooKeeper for the checks: the znodes that a copy reads, and others.

`gather` makes one `ZooKeeperReading` and takes its facts. Topics and other entities are translated as by the copy, so a
znode that stops a copy is found here. Nothing is written. Facts that may come from a change during the reading (stray
partitions, orphan configs) are looked at twice. `look_at_spellings` finds configs whose znodes Kafka's own tools would
name or write differently; its texts say which content counts, because brokers and tools may each see another znode of
one entity (docs/adr/0036-entities-and-spellings.md).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from migrator.config.key_lists import TOPIC_DEFAULTS
from migrator.config.keys import PROTOCOLS
from migrator.errors import OperatorError
from migrator.image.tracked import Interner
from migrator.migration.copying.permissions import entities, wanted
from migrator.migration.examination import read_standing
from migrator.migration.machine.guards import Standing
from migrator.migration.translate import source
from migrator.migration.translate.to_records import NO_TOPIC_ID, RecordReader
from migrator.preflight.census import Tally, TopicCensus, sample_of
from migrator.preflight.checks.broker_threads import thread_counts
from migrator.preflight.evidence import Sample, SpellingFacts, TopicFacts, Trouble, ZooKeeperFacts
from migrator.preflight.permissions import look_at_permissions
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.clusters import no_cluster
from migrator.zookeeper.leadership import ClaimView, read_view
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import ROOTS
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, decode_broker
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.entities import canonical
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.quotas import brokers_parse
from migrator.zookeeper.znodes.scram import MECHANISM_NAMES
from migrator.zookeeper.znodes.topics import decode_topic

_Part = Callable[[str], bool]


def _is_credential(key: str) -> bool:
    return key in MECHANISM_NAMES


def _is_other(key: str) -> bool:
    return key not in MECHANISM_NAMES


@dataclass
class _Tallies:
    several: Tally = field(default_factory=Tally)
    alone: Tally = field(default_factory=Tally)
    ignored: Tally = field(default_factory=Tally)
    unparsed: Tally = field(default_factory=Tally)


def look_at_spellings(reader: ZkSource, broker_configs: list[str], client_configs: list[str]) -> SpellingFacts:
    """Look at the configs. One that does not decode, or whose name stands for nothing, is left to the translation to
    records.

    :raises MigratorError: ZooKeeper cannot be read.
    """
    tallies = _Tallies()
    for path in client_configs:
        _ignored_client(path, tallies)
    entities = source.config_names([*broker_configs, *client_configs], lambda _: None)
    for entity, znodes in source.config_znodes(reader, entities):
        held = dict(_decoded(znodes))
        names = list(held)
        if len(names) > 1:
            tallies.several.add(f"{' and '.join(map(paths.config, names))} ({_effective_parts(entity, held)})")
        elif names not in ([], [entity]):
            tallies.alone.add(f"{paths.config(names[0])} ({paths.name_of(entity)!r} in Kafka's spelling)")
        for name, config in held.items():
            if name != entity and _is_user(entity) and any(map(_is_other, config)):
                tallies.ignored.add(paths.config(name))
            for key in (key for key, text in config.items() if not brokers_parse(key, text)):
                tallies.unparsed.add(f"{paths.config(name)} {key}")
    return SpellingFacts(*(each.sample() for each in vars(tallies).values()))


def _ignored_client(path: str, tallies: _Tallies) -> None:
    """Note a client's config below a user's znode with an unusual name."""
    name = source.config_name(path)
    if "/clients/" in name:
        with contextlib.suppress(ZnodeError):
            if canonical(name).split("/")[1] != name.split("/")[1]:
                tallies.ignored.add(path)


def _decoded(znodes: Iterable[Znode]) -> Iterator[tuple[str, dict[str, str]]]:
    for znode in znodes:
        with contextlib.suppress(ZnodeError):
            yield source.config_name(znode.path), decode_config(znode.path, znode.data)


def _effective_parts(entity: str, held: dict[str, dict[str, str]]) -> str:
    """Tell for each part of the content which znode counts: the first one that has this part."""
    parts: list[tuple[str, _Part]] = [("quotas", _is_other), ("credentials", _is_credential)]
    if entity.startswith("brokers/"):
        parts = [("configs", _is_other)]
    said = []
    for part, belongs in parts:
        names = [entity] if _is_user(entity) and part == "quotas" else list(held)
        found = next((name for name in names if any(map(belongs, held.get(name, {})))), None)
        if found is not None:
            said.append(f"the {part} of {paths.name_of(found)} count")
    return ", ".join(said) or "none says anything"


def _is_user(entity: str) -> bool:
    return entity.startswith("users/") and "/clients/" not in entity


FAULTS_MAX = 100
"""The most znodes that do not decode and are named; the others are counted."""
PROGRESS_SECONDS = 2.0
SEQUENCE = "/brokers/seqid"
CHILD_BYTES = 4
"""Bytes of a name in a list of children, in addition to the name itself."""

KNOWN_CHILDREN = {
    "/": {
        *("admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch", "delegation_token"),
        *("feature", "isr_change_notification", "kafka-acl", "kafka-acl-changes", "kafka-acl-extended"),
        *("kafka-acl-extended-changes", "latest_producer_id_block", "log_dir_event_notification", "migration"),
        *("zookeeper", paths.name_of(paths.ROLLOUT), paths.name_of(paths.DRILL)),
    },
    "/admin": {"delete_topics", "preferred_replica_election", "reassign_partitions"},
    "/brokers": {"ids", "seqid", "topics"},
    "/config": {"brokers", "changes", "clients", "ips", "topics", "users"},
    "/delegation_token": {"token_changes", "tokens"},
    **{root: set(paths.ACL_RESOURCE_TYPES) for root in ROOTS.values()},
    "/kafka-acl-extended": {"prefixed"},
}
"""Znodes of Kafka up to 3.9 and of this program, by their parent."""

Tell = Callable[[str], None]


class Surveyor:
    """A source that notes sizes, and access control lists with children; it passes everything on."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.refused: dict[str, None] = {}
        """Paths that our identity may not read, in order."""
        self.largest = ("", 0)
        self.longest_list = ("", 0)
        self._reader = BulkReader(session, on_refused=self._refuse)

    def read(self, wanted: Iterable[str]) -> Iterator[Znode | None]:
        """See `BulkReader`."""
        for znode in self._reader.read(wanted):
            if znode is not None and znode.stat.data_length > self.largest[1]:
                self.largest = (znode.path, znode.stat.data_length)
            yield znode

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """See `BulkReader`."""
        listed = list(wanted)
        for path, names in zip(listed, self._reader.children(listed), strict=True):
            size = sum(len(name.encode()) + CHILD_BYTES for name in names or ())
            if size > self.longest_list[1]:
                self.longest_list = (path, size)
            yield names

    def _refuse(self, path: str) -> None:
        self.refused[path] = None

    def names(self, path: str) -> list[str]:
        """The names below a path; none when the path is missing or refused."""
        return source.names_below(self, path)


class EncryptedPasswords(PasswordEncoder):
    """Notes encrypted values, and those that do not decrypt; gives only their length. Without a secret it only
    counts."""

    def __init__(self, encoder: PasswordEncoder) -> None:
        super().__init__(None, os.urandom)
        self._encoder = encoder
        self.encrypted = Tally()
        self.faults: list[Trouble] = []

    def decode(self, path: str, key: str, text: str) -> str:
        """Gives as many characters as the password has bytes, enough to check that the log can hold it. Raises
        nothing."""
        self.encrypted.add(f"{path} {key}")
        if self._encoder.has_secret:
            try:
                return "*" * len(self._encoder.decode(path, key, text).encode("utf-8", "surrogatepass"))
            except ZnodeError as fault:
                self.faults.append(_trouble(fault))
        return ""


def read_brokers(reader: ZkSource, on_fault: Callable[[ZnodeError], None]) -> dict[int, BrokerRegistrationZnode]:
    """Every broker that is registered.

    :param on_fault: is called with each registration that does not decode; that broker is left out.
    :raises MigratorError: ZooKeeper cannot be read.
    """
    ids = [int(name) for name in source.names_below(reader, paths.BROKER_IDS) if name.isdecimal()]
    found = {}
    for broker_id, znode in zip(ids, reader.read(map(paths.broker, ids)), strict=True):
        try:
            if znode is not None:
                found[broker_id] = decode_broker(znode.path, znode.data)
        except ZnodeError as fault:
            on_fault(fault)
    return found


class _Port:
    """The part of a session that `read_standing` uses."""

    def __init__(self, session: ZooKeeperSession, reader: Surveyor) -> None:
        self._session = session
        self._reader = reader

    @property
    def reader(self) -> Surveyor:
        return self._reader

    def view(self) -> ClaimView:
        return read_view(self._reader.read)

    def no_cluster(self) -> OperatorError:
        return no_cluster(self._session)


class ZooKeeperReading:
    def __init__(self, session: ZooKeeperSession, encoder: PasswordEncoder, tell: Tell) -> None:
        self._session = session
        self._source = Surveyor(session)
        self._passwords = EncryptedPasswords(encoder)
        self._tell = tell
        self._faults: list[Trouble] = []
        self._faulty = Tally()
        self._without_id, self._stray = Tally(), Tally()
        self._intern = Interner()

    def facts(self) -> ZooKeeperFacts:
        """Read everything.

        :raises NoClusterError: there is no cluster.
        :raises MigratorError: ZooKeeper does not answer any more, or refuses us altogether.
        """
        version = self._session.server_version()
        port = _Port(self._session, self._source)
        standing = read_standing(port)
        match standing.fault:
            case ZnodeError() as fault:
                self._on_fault(fault)
            case OperatorError() as fault:
                raise fault
        brokers = read_brokers(self._source, self._on_fault)
        racks = {broker_id: broker.rack or "" for broker_id, broker in brokers.items()}
        records, topics = self._topics(standing, racks)
        if read_standing(port).view.epoch != standing.view.epoch:  # a controller was elected meanwhile
            topics = replace(topics, newer_epochs=Sample())
        self._tell("reading configurations, ACLs and tokens")
        reader = self._records()
        records += sum(map(len, reader.other_records()))
        listed = entities(self._source)
        self._tell("asking ZooKeeper for our rights")
        permissions = look_at_permissions(self._session, wanted(self._source, listed), version)
        stamps = {paths.broker(broker_id): broker.timestamp_ms for broker_id, broker in brokers.items()}
        controller = standing.view.controller
        if controller is not None:
            stamps[paths.CONTROLLER] = controller.timestamp_ms
        dynamic = self._dynamic_configs()
        newest = max(stamps, key=lambda path: stamps[path], default="")
        return ZooKeeperFacts(
            hosts=self._session.options.hosts,
            version=version,
            standing=standing,
            null_migration=self._is_there(paths.MIGRATION, lambda data: not data),
            empty_producer_ids=self._is_there(paths.PRODUCER_IDS, lambda data: data == b""),
            brokers=brokers,
            configured_brokers=frozenset(
                int(name) for name in self._source.names(paths.BROKER_CONFIGS) if name.isdecimal()
            ),
            thread_counts={name: thread_counts(config) for name, config in dynamic.items()},
            dynamic_maps={
                name: config[PROTOCOLS]
                for name, config in dynamic.items()
                if config.get(PROTOCOLS) and name != paths.DEFAULT_ENTITY
            },
            dynamic_defaults={
                name: {key: text for key, text in config.items() if key in TOPIC_DEFAULTS}
                for name, config in dynamic.items()
            },
            ids_generated=any(znode is not None and znode.stat.version > 0 for znode in self._source.read([SEQUENCE])),
            records=records,
            faults=tuple(self._faults),
            faults_in_all=self._faulty.count,
            without_id=self._without_id.sample(),
            undecodable_passwords=tuple(self._passwords.faults),
            encrypted=self._passwords.encrypted.sample(),
            topics=topics,
            stray_partitions=self._stray.sample(),
            deletions=sample_of(self._source.names(paths.DELETE_TOPICS)),
            orders=tuple(path for path in paths.OLD_ORDERS if self._is_there(path, bool)),
            unexpected=sample_of(self._unexpected()),
            orphan_configs=sample_of(self._orphans(listed)),
            spellings=look_at_spellings(self._source, listed["broker configs"], listed["client configs"]),
            nested_acls=self._nested_acls(listed["acls"]),
            acl_resources=len(listed["acls"]),
            tokens=sample_of(map(paths.name_of, listed["tokens"])),
            unreadable=sample_of(self._source.refused),
            largest=self._source.largest,
            longest_list=self._source.longest_list,
            permissions=permissions,
            newest_stamp=(newest, stamps.get(newest, 0)),
        )

    def _records(self) -> RecordReader:
        return RecordReader(self._source, passwords=self._passwords, random=Random(0), on_fault=self._on_fault)

    def _topics(self, standing: Standing, racks: Mapping[int, str]) -> tuple[int, TopicFacts]:
        """Count the records of all topics, and take their census."""
        census = TopicCensus(standing.view.epoch, racks)
        reader = self._records()
        records, next_word = 0, time.monotonic() + PROGRESS_SECONDS
        assigned: dict[str, tuple[int, ...]] = {}
        for reading in reader.topics():
            translated = reader.topic_records(reading)
            census.add(reading, translated)
            records += len(translated)
            assigned[reading.znodes.name] = self._intern(tuple(reading.znodes.states))
            if time.monotonic() > next_word:
                next_word = time.monotonic() + PROGRESS_SECONDS
                self._tell(f"reading topics: {records:,} records so far")
        for path in self._strays(assigned):
            self._stray.add(path)
        return records, census.facts()

    def _strays(self, assigned: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
        """Partitions with a znode that are in no assignment. They are looked at twice, because partitions may be added
        meanwhile."""
        found = [
            (topic, name)
            for topic, names in zip(assigned, self._source.children(map(paths.partitions, assigned)), strict=True)
            for name in names or ()
            if not name.isdecimal() or int(name) not in assigned[topic]
        ]
        again = self._source.read(paths.topic(topic) for topic, _ in found)
        for (topic, name), znode in zip(found, again, strict=True):
            if znode is not None and name not in _partition_names(znode):
                yield f"{paths.partitions(topic)}/{name}"

    def _dynamic_configs(self) -> dict[str, Mapping[str, str]]:
        """Dynamic configs. One that does not decode is left out; the translation to records reports it."""
        found: dict[str, Mapping[str, str]] = {}
        names = self._source.names(paths.BROKER_CONFIGS)
        configs = self._source.read(f"{paths.BROKER_CONFIGS}/{name}" for name in names)
        for name, znode in zip(names, configs, strict=True):
            with contextlib.suppress(ZnodeError):
                if znode is not None:
                    found[name] = decode_config(znode.path, znode.data)
        return found

    def _on_fault(self, fault: ZnodeError) -> None:
        if fault.what == NO_TOPIC_ID:
            self._without_id.add(fault.where)
            return
        self._faulty.add(fault.where)
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(_trouble(fault))

    def _is_there(self, path: str, is_so: Callable[[bytes | None], bool]) -> bool:
        return any(znode is not None and is_so(znode.data) for znode in self._source.read([path]))

    def _unexpected(self) -> Iterator[str]:
        for parent, listed in zip(KNOWN_CHILDREN, self._source.children(KNOWN_CHILDREN), strict=True):
            for name in sorted(set(listed or ()) - KNOWN_CHILDREN[parent]):
                yield f"{'' if parent == '/' else parent}/{name}"

    def _orphans(self, listed: dict[str, list[str]]) -> Iterator[str]:
        """Find configs without a topic. Each is read twice, because topics may come and go meanwhile."""
        topics = {paths.name_of(path) for path in listed["topics"]}
        names = [name for path in listed["topic configs"] if (name := paths.name_of(path)) not in topics]
        read = self._source.read
        for topic, config in zip(read(map(paths.topic, names)), read(map(paths.topic_config, names)), strict=True):
            if topic is None and config is not None:
                yield config.path

    def _nested_acls(self, resources: list[str]) -> Sample:
        return sample_of(
            znode.path for znode in self._source.read(resources) if znode is not None and znode.stat.children_count
        )


def _partition_names(znode: Znode) -> set[str]:
    """The partition ids of a topic's assignment, as names of znodes; empty when it does not decode."""
    try:
        return set(map(str, decode_topic(znode.path, znode.data).partitions))
    except ZnodeError:
        return set()


def _trouble(fault: ZnodeError) -> Trouble:
    return Trouble(fault.where, fault.what, fault.remedy)
