"""All facts that the checks judge, gathered before the first check runs.

`gather` makes one `Evidence`, and the checks only read it. A source that could not be read is in ``unknown`` with the
reason. The property files in it hold secrets; every value that is meant for people hides them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.config.checks import Problem
from migrator.config.endpoints import Listener, VoterAddress
from migrator.config.keys import KEYS, names_of
from migrator.config.open_doors import OpenDoor
from migrator.config.reading import is_on, is_set, number_of, text_of
from migrator.config.settings import Settings
from migrator.log.meta_properties import MetaProperties
from migrator.migration.machine.guards import Standing
from migrator.preflight.lost_states import Lost, Partition, Reported
from migrator.values import value
from migrator.wire.identity import ListenerAuthentication, ShownIdentity
from migrator.zookeeper.request_size import JUTE_MAXBUFFER
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode

EXAMPLES_MAX = 5
DEFAULT_JUTE_MAXBUFFER = JUTE_MAXBUFFER
"""Bytes; the default of ZooKeeper's servers and clients."""
HIDDEN = "[hidden]"


@value
class UnknownFact:
    """A fact that could not be read, so that nothing can be said about it."""

    where: str
    what: str
    remedy: str


@value
class Trouble:
    """A fault in something that could be read: a znode that does not decode, or a refused setting."""

    where: str
    what: str
    remedy: str


@value
class Sample:
    """The number of some things, and the names of the first few."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = f" and {self.count - len(self.examples):,} more" if self.count > len(self.examples) else ""
        return ", ".join(self.examples) + more


@dataclass(frozen=True)
class PropertyFile:
    """A Kafka property file. ``values``: its keys, placeholders resolved; it has secrets, too. ``hidden``: by key,
    placeholders that cannot be resolved here. ``not_examined``: the keys in ``hidden`` that were not looked up, because
    the file may belong to another host; no check says anything about them."""

    path: str
    values: Mapping[str, str] = field(repr=False)
    hidden: Mapping[str, Trouble] = field(default_factory=dict)
    not_examined: frozenset[str] = frozenset()

    def get(self, key: str) -> str:
        """The value in force: of the key, of a synonym, Kafka's default; else ""."""
        return text_of(self.values, key)

    def sets(self, key: str) -> bool:
        return any(name in self.hidden for name in names_of(key)) or is_set(self.values, key)

    def is_on(self, key: str) -> bool:
        """Whether the value of a boolean key is true."""
        return is_on(self.values, key)

    def number(self, key: str) -> int | None:
        """The value of a whole-number key; None when it is no number for Kafka, or cannot be resolved here."""
        return None if key in self.hidden else number_of(self.values, key)

    def shown(self, key: str) -> str:
        """The value in a form for people, without secrets."""
        text = self.get(key)
        secret = key not in KEYS or KEYS[key].kind == "password"
        return HIDDEN if text and secret else text or "(not set)"

    def at(self, key: str) -> str:
        """File and key, as messages name them."""
        return f"{self.path}: {key}"


@value
class DirectoryFacts:
    """A metadata directory, or the place where it will be. ``level``: the finalized metadata.version; None unknown.
    ``log_state``: the migration state in its log; None without a log. ``of_root``: it belongs to root. ``changeable``:
    directories on the way in which every user may replace it by another one. ``readable``: every user may enter it."""

    path: str
    identity: MetaProperties | None = None
    in_use: bool = False
    level: int | None = None
    log_state: str | None = None
    free_bytes: int | None = None
    writable: bool = True
    exists: bool = False
    of_root: bool = False
    changeable: tuple[str, ...] = ()
    readable: bool = False


@dataclass(frozen=True)
class ControllerFile:
    """One controller by its property file. A part of the settings that does not parse is empty."""

    file: PropertyFile
    settings: Settings
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    unreadable: tuple[Trouble, ...]
    """Key stores, login modules and the like that only Java can read."""
    unusable: tuple[Trouble, ...]
    """Files of the metrics endpoint that keep the process from starting."""
    voters: tuple[VoterAddress, ...]
    protocols: Mapping[str, str]
    listeners: tuple[Listener, ...]
    directory: DirectoryFacts
    open_doors: tuple[OpenDoor, ...] = ()
    shown: ShownIdentity | None = None
    """The principal that it shows other controllers; None when its security cannot be used."""
    authentication: ListenerAuthentication | None = None
    """The authentication of its controller listener; None when its security cannot be used."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def node_id(self) -> int:
        return self.settings.node_id

    @property
    def who(self) -> str:
        return f"controller {self.node_id}"


@dataclass(frozen=True)
class BrokerFile:
    """One broker by its property file. ``broker_id``: None when the file leaves it to be generated. ``level``: that of
    its inter.broker.protocol.version; None when unset or unknown."""

    file: PropertyFile
    broker_id: int | None
    level: int | None
    voters: tuple[VoterAddress, ...] | None
    identities: tuple[tuple[str, MetaProperties], ...]
    """Its log directories on this machine."""
    old_logs: tuple[str, ...]
    """Metadata logs of an earlier attempt in these directories."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def who(self) -> str:
        return f"broker {'?' if self.broker_id is None else self.broker_id}"


@value
class Endurance:
    """Tolerance of a group of equal partitions. ``without_a_rack``: the fewest replicas that are left without one of
    their racks; a broker without a rack counts as a separate rack. ``min_isr``: the topic's own
    ``min.insync.replicas``; 0 if it goes by its brokers' default."""

    replicas: int
    without_a_rack: int
    min_isr: int


@value
class TopicFacts:
    """The facts about all topics but those with a pending deletion. Bytes are those of one full request to a broker."""

    topics: int = 0
    partitions: int = 0
    moving: Sample = Sample()
    lost: tuple[Lost, ...] = ()
    """The first partitions without a state; ``without_state`` counts all."""
    without_state: Sample = Sample()
    without_leader: Sample = Sample()
    inconsistent: Sample = Sample()
    """Partitions whose leader or in-sync replicas are not among the replicas."""
    newer_epochs: Sample = Sample()
    """States with a controller epoch above ``/controller_epoch``."""
    replicas: Mapping[int, int] = field(default_factory=dict)
    """The number of replicas of each broker."""
    leader_and_isr_bytes: Mapping[int, int] = field(default_factory=dict)
    update_metadata_bytes: int = 0
    endurance: Mapping[Endurance, Sample] = field(default_factory=dict)
    """All partitions."""


@value
class SpellingFacts:
    """Configs whose znodes Kafka's tools would name or write differently, each with a text about it."""

    several: Sample = Sample()
    """Entities with several znodes."""
    alone: Sample = Sample()
    """Entities whose only znode has an unusual name."""
    ignored: Sample = Sample()
    """Quotas that brokers ignore."""
    unparsed: Sample = Sample()
    """Path and key of quotas that keep brokers from starting."""


@value
class PermissionFacts:
    """The permissions of our ZooKeeper identity. ``owners``: the access control lists of some znodes, as text."""

    probed: int = 0
    refused: tuple[Trouble, ...] = ()
    """Writes that ZooKeeper would refuse."""
    identity: tuple[str, ...] = ()
    """Our identity as ZooKeeper sees it, where it says so (3.7 and later)."""
    owners: Mapping[str, str] = field(default_factory=dict)


@value
class ZooKeeperFacts:
    """One reading of ZooKeeper. Paths have no chroot."""

    hosts: str
    version: tuple[int, ...] | None
    standing: Standing
    null_migration: bool
    """``/migration`` exists without data."""
    empty_producer_ids: bool
    """``/latest_producer_id_block`` has data of length 0, which is not null."""
    brokers: Mapping[int, BrokerRegistrationZnode]
    configured_brokers: frozenset[int]
    thread_counts: Mapping[str, Mapping[str, int]]
    """Dynamic numbers of threads, by broker id or `paths.DEFAULT_ENTITY`, then by key."""
    dynamic_maps: Mapping[str, str]
    """Each ``listener.security.protocol.map`` that is set dynamically, by broker id."""
    dynamic_defaults: Mapping[str, Mapping[str, str]]
    """The keys of each dynamic configuration that are defaults of topics, by the name of its znode."""
    ids_generated: bool
    """``/brokers/seqid`` was counted up: some broker has a generated id."""
    records: int
    faults: tuple[Trouble, ...]
    faults_in_all: int
    without_id: Sample
    undecodable_passwords: tuple[Trouble, ...]
    encrypted: Sample
    """Path and key of each encrypted password."""
    topics: TopicFacts
    stray_partitions: Sample
    """Znodes of partitions that are in no assignment."""
    deletions: Sample
    orders: tuple[str, ...]
    """Reassignments and elections that old tools have ordered through ZooKeeper."""
    unexpected: Sample
    orphan_configs: Sample
    spellings: SpellingFacts
    nested_acls: Sample
    acl_resources: int
    tokens: Sample
    unreadable: Sample
    """Paths that our identity may not read."""
    largest: tuple[str, int]
    longest_list: tuple[str, int]
    permissions: PermissionFacts
    newest_stamp: tuple[str, int]
    """The latest time that a broker has written, and its place; milliseconds since 1970."""

    @property
    def is_migrating(self) -> bool:
        """Whether ZooKeeper shows a quorum's work: the cluster was copied, or a KRaft controller has claimed it."""
        controller = self.standing.view.controller
        return self.standing.mark.copied or (controller is not None and controller.is_kraft)


@value
class BrokerAnswer:
    """The result of asking a broker on the listener that controllers use. ``apis``: its highest version of each API;
    None when it was not reached, as ``fault`` says."""

    address: str
    apis: Mapping[int, int] | None = None
    fault: str = ""
    partitions: Mapping[Partition, Reported] = field(default_factory=dict)
    """The partitions whose state ZooKeeper has lost."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of topics that have none in ZooKeeper."""


@value
class PortFacts:
    """A port that a controller will bind on this machine. ``fault``: why it could not be bound."""

    where: str
    address: str
    fault: str = ""


@value
class MachineFacts:
    """The machine on which preflight runs."""

    now_ms: int
    ports: tuple[PortFacts, ...] = ()
    answers: Mapping[int, BrokerAnswer] = field(default_factory=dict)
    cannot_verify: Trouble | None = None
    """The reason why ``verify`` could not run here; None also if it will not be run here."""


@value
class HostFacts:
    """The facts that a rollout has found on the host of a node. ``who``: such as ``broker 1``. ``where``: the node and
    its host. ``faults``: commands of the rollout that would fail. ``untried``: actions whose commands could not be
    tried. ``directory``: where the metadata will be, with the free bytes there (None: unknown), the needed bytes, and
    whether the user of the service may write. ``unseen``: why nobody has looked there. ``later``: as ``faults``, of
    Kafka's controller that takes over in the end. ``java``: the major version of its Java, 0 for none; None where
    nobody has asked. ``needs_java``: the version that is needed."""

    who: str
    where: str
    faults: tuple[Trouble, ...] = ()
    untried: tuple[str, ...] = ()
    directory: str = ""
    free_bytes: int | None = None
    needed_bytes: int = 0
    writable: bool = True
    unseen: str = ""
    later: tuple[Trouble, ...] = ()
    java: int | None = None
    needs_java: int = 0


@dataclass(frozen=True)
class Evidence:
    controllers: tuple[ControllerFile, ...]
    brokers: tuple[BrokerFile, ...]
    refused_files: tuple[Trouble, ...]
    """Files of controllers with a value that cannot be used."""
    zookeeper: ZooKeeperFacts | None
    """The facts of ZooKeeper; None when ZooKeeper could not be read, or has no cluster."""
    machine: MachineFacts
    unknown: tuple[UnknownFact, ...]
    jute_maxbuffer: int = DEFAULT_JUTE_MAXBUFFER
    roll_by_rack: bool = False
    """Whether the brokers of a rack restart together."""
    no_cluster: Trouble | None = None
    """ZooKeeper answers, but has no cluster at this address."""
    hosts: tuple[HostFacts, ...] = ()
    """The facts of each host; empty outside a rollout."""

    @property
    def nodes(self) -> tuple[ControllerFile | BrokerFile, ...]:
        return (*self.controllers, *self.brokers)
