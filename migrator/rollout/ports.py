"""What a rollout needs of the world: who touches nodes, who looks, who keeps others out, what time it is.

Decisions are pure and know only the values below. `apply` drives it through the four protocols; tests put a model
cluster behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.observe.status import ImagesStatus
from migrator.rollout.nodes import Node, Role
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from migrator.values import value

if TYPE_CHECKING:
    from pathlib import Path  # its name only: this is pure


class ExecutorError(OperatorError):
    """A node could not be touched. Whether the action took effect is open: it is looked at."""

    output: Output | None = None
    """What the command of the action printed. It may hold anything: it is for a file that only this user reads."""


class UnreachableError(ExecutorError):
    """The host cannot be reached, or the connection broke (exit code 255 of ssh)."""


class PlaceAwayError(UnreachableError):
    """What comes back by itself, such as a pod, does not come back; says its name."""


class NotRegularError(ExecutorError):
    """Something is there, and it is no regular file: a directory, for one."""


class FileChangedError(ExecutorError):
    """The file is not what it was when the step was planned; nothing was written. ``node`` and ``digest``: whose file
    it is, and what is there now."""

    node = ""
    digest: str | None = None


@value
class Output:
    """Of a command that ran to its end; ``text`` is its standard output, ``errors`` the other stream, both bounded.
    They may hold anything: they are shown, never kept."""

    exit_code: int
    text: str
    errors: str = ""


class Executor(Protocol):
    """Touches nodes. Every call is bounded in time and output, and raises `ExecutorError` (host, what, remedy).

    Contents of files go by standard input and output only, never as arguments. Each action may be repeated: to stop
    what is stopped and to start what runs succeeds.
    """

    async def read(self, node: Node, path: str) -> bytes | None:
        """A file of the node's host; None: there is no such file.

        :raises NotRegularError: it is a directory, or a device.
        """

    async def fetch(self, node: Node, path: str, file: Path, *, seconds: float) -> bool:
        """Bring a large file of the node's host here, whole or not at all; False: there is no such file. It may grow
        meanwhile: it comes as it was at the beginning.

        :param seconds: its bound.
        :raises StorageError: this machine's disk refuses.
        """

    async def write(self, node: Node, path: str, content: bytes, *, expected: str | None, backup: str) -> None:
        """Replace a file, whole or not at all; mode and owner stay.

        :param expected: SHA-256 (hex) that the file must have now, checked in the same command; None: there is none.
        :param backup: where the old content is kept, unless something lies there already; "" for no backup.
        :raises FileChangedError: the file has another digest.
        """

    async def copy(self, node: Node, path: str, content: bytes) -> None:
        """Write a new file, as the user of the service and for nobody else; never through a link."""

    async def stop(self, node: Node) -> None:
        """Stop its process in good order; it has ended when this returns."""

    async def start(self, node: Node) -> None:
        """Start its process; whether it serves is for the observer to see."""

    async def restart(self, node: Node) -> None:
        """One command that does both, where `stops_and_starts` is False (a StatefulSet starts again what ends)."""

    def stops_and_starts(self, node: Node) -> bool:
        """Whether `stop` and `start` exist apart from one another for this node."""

    async def incarnation(self, node: Node) -> str | None:
        """Names the process that runs, and changes with each start (pid and start time, systemd's InvocationID, pod
        uid); None: none runs."""

    async def log_of(self, node: Node) -> Output | None:
        """The last lines that its process has printed; None: no command tells them."""

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        """Run a command on the node's host to its end. The words hold no secret."""


class BrokerMode(Enum):
    """How a broker runs."""

    ZOOKEEPER = "ZooKeeper"
    MIGRATING = "migration"
    KRAFT = "KRaft"


@value
class BrokerSeen:
    """``mode`` is None for a broker that is registered nowhere. ``registration`` changes with each start that registers
    (czxid of its znode, KRaft broker epoch), so a restart that only pretends is found. ``serving``: registered, with
    heartbeats, not fenced. ``release``, ``settings`` (in force, without secrets) and ``rack`` as far as can be seen.
    ``kraft_in_log``: the quorum has it registered in KRaft mode, fenced or not. ``age_ms``: how long its znode has been
    there at least, by ZooKeeper's clock.
    ``file``: what stood in its property file as it started, of the keys that a rollout changes; None for a value that
    it does not show. ``file`` is None where nobody could look, and ``hidden`` says why. ``dynamic_map``: its
    ``listener.security.protocol.map``, if that is set dynamically and counts more than the file's."""

    broker_id: int
    mode: BrokerMode | None
    registration: str = ""
    serving: bool = False
    release: str = ""
    settings: Mapping[str, str] | None = None
    rack: str = ""
    file: Mapping[str, str | None] | None = None
    hidden: str = ""
    kraft_in_log: bool = False
    age_ms: int = 0
    dynamic_map: str = ""

    @property
    def may_migrate(self) -> bool:
        """Whether it is registered in ZooKeeper, and nobody can say how it runs: with a quorum that is stopped, or that
        does not take it, a broker in migration mode is registered there only, too."""
        return self.mode is BrokerMode.ZOOKEEPER and self.settings is None


@value
class Placement:
    """Partitions that have the same replicas, in the same state; ``names`` of the first ones. ``led``: they have a
    leader. ``replicas`` and ``in_sync`` are ids of brokers."""

    replicas: frozenset[int]
    in_sync: frozenset[int]
    min_isr: int
    led: bool
    count: int
    names: tuple[str, ...] = ()


@value
class Some:
    """Partitions that something is said of: how many, and the names of a few for people."""

    count: int = 0
    names: tuple[str, ...] = ()


@value
class PartitionsSeen:
    """``placements``: of partitions that are not well; of all, where ``placed``. ``topics``: how many a broker has
    shown, -1 where all are seen."""

    offline: Some = Some()
    under_replicated: Some = Some()
    under_min_isr: Some = Some()
    reassigning: Some = Some()
    placements: tuple[Placement, ...] = ()
    placed: bool = False
    topics: int = -1


@value
class MigrationSeen:
    """``state`` is the label of a `PublicState`, "" while nobody knows. ``write_behind_lag``: records, -1 unknown.
    ``foreign_writes``: paths. ``problems``: what the migration waits for, as its status says. ``finishing``: the leader
    has it off, and asks every other controller whether it has, too. ``keeps_up``: the leader is seen to tell ZooKeeper
    and the brokers beside it what is committed; one of Kafka's, at most some seconds later. ``images``: whose
    metadata are those of the leader, as it says. ``behind_ms``: how long the oldest record that ZooKeeper lacks has
    waited, -1 unknown."""

    state: str = ""
    write_behind_lag: int = -1
    foreign_writes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    finishing: bool = False
    keeps_up: bool = False
    images: ImagesStatus | None = None
    behind_ms: int = -1


@value
class Observation:
    """What the cluster says at one time. ``unknown``: what could not be looked at, one sentence each.

    ``controller_broker``: the broker that is the ZooKeeper controller. ``quorum_claims``: ZooKeeper says that it is the
    quorum. ``cluster_id``, and the ``metadata_version`` of the quorum, are "" while nobody says.
    ``partitions`` is None while nobody can be asked.
    """

    cluster_id: str = ""
    brokers: Mapping[int, BrokerSeen] | None = None
    partitions: PartitionsSeen | None = None
    quorum: QuorumSeen | None = None
    migration: MigrationSeen | None = None
    controller_broker: int | None = None
    quorum_claims: bool = False
    zookeeper_answers: bool = False
    metadata_version: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether the migration is seen to be over: nobody writes to ZooKeeper any more."""
        return self.migration is not None and self.migration.state == PublicState.FINISHED.label

    @property
    def is_led(self) -> bool:
        """Whether a voter leads."""
        return self.quorum is not None and self.quorum.leader_id is not None

    @property
    def has_data(self) -> bool:
        """Whether a quorum has committed something: a voter with an empty directory could vote that away."""
        return self.is_led or self.quorum_claims or (self.migration is not None and bool(self.migration.state))

    @property
    def may_be_dual_writing(self) -> bool:
        """Whether both sides are written, or nobody can say that they are not: the quorum may have what ZooKeeper
        lacks."""
        if self.migration is not None and self.migration.state:
            return self.migration.state == PublicState.DUAL_WRITE.label
        unknown = self.quorum is not None or self.quorum_claims or not self.zookeeper_answers
        return unknown and self.controller_broker is None

    def broker(self, node: Node | None) -> BrokerSeen | None:
        """What is seen of a broker; None of what is registered nowhere, or cannot be seen."""
        return None if node is None or self.brokers is None else self.brokers.get(node.node_id)

    def voter(self, node: Node | None) -> ControllerSeen | None:
        """What is seen of a voter, if somebody names it one."""
        return None if node is None or self.quorum is None else self.quorum.voters.get(node.node_id)

    def serves(self, node: Node) -> bool:
        """Whether a broker is seen to be registered, or a voter to answer."""
        broker, voter = self.broker(node), self.voter(node)
        if node.role is Role.BROKER:
            return broker is not None and broker.mode is not None
        return voter is not None and voter.program is not None

    def is_down(self, node: Node | None) -> bool:
        """Whether a broker is registered nowhere: then its restart harms nobody, and no gate holds it up."""
        is_broker = node is not None and node.role is Role.BROKER
        return node is not None and is_broker and self.brokers is not None and not self.serves(node)

    def is_silent(self, node: Node | None) -> bool:
        """Whether a node is seen not to serve: a broker that is registered nowhere, a voter without answer."""
        voter = self.voter(node)
        is_broker = node is not None and node.role is Role.BROKER
        return self.is_down(node) if is_broker else voter is not None and voter.program is None


class Observer(Protocol):
    """Looks at the cluster; changes nothing."""

    async def observe(self, *, partitions: bool = True) -> Observation:
        """Everything that can be seen now. What cannot is named in it: this raises nothing, and is bounded in time.

        :param partitions: False: not how partitions are, which takes long on a large cluster.
        """

    async def close(self) -> None:
        """End sessions and channels."""


class GateKind(Enum):
    """What a gate waits for, before and after a step. `gates.judge` says of each gate whether it is open."""

    PARTITIONS_HEALTHY = "no partition is offline, under-replicated or being reassigned"
    MAY_STOP = "no partition gets worse by a stop of these brokers together than by one of them"
    QUORUM_HEALTHY = "a controller leads, and every voter has every committed record"
    OTHERS_CAUGHT_UP = "every other voter has every committed record"
    VOTERS_SETTLED = "no reassignment of the voters is under way"
    BROKER_GONE = "the broker has left ZooKeeper and the quorum"
    BROKER_BACK = "the broker serves again, in the mode, release and settings that are expected"
    CONTROLLER_BACK = "the controller answers again, and has every committed record"
    BROKERS_IN_MODE = "every broker serves in this mode"
    NONE_IN_KRAFT = "the quorum has no broker registered in KRaft mode"
    MIGRATION_STATE = "every controller is in this state of the migration"
    NOT_FINISHED = "the migration is not finished"
    WRITE_BEHIND_IDLE = "ZooKeeper has everything that the quorum has committed"
    LEADER_KEEPS_UP = "in dual-write, the leader writes to ZooKeeper, and is at most some seconds behind"
    BOTH_WRITTEN = "in dual-write, ZooKeeper is in reach and gets every change"
    IMAGES_AGREE = "no controller is known to have other metadata than the leader"
    FINISHING = "the leader wants to end the migration"
    NO_FOREIGN_WRITES = "nobody else writes to ZooKeeper"
    ZOOKEEPER_CONTROLLER = "a broker is the ZooKeeper controller"
    BROKERS_SEEN = "ZooKeeper and the quorum say which brokers are registered"
    VOTER_SEEN = "the controller says whether it has the migration on"
    ZOOKEEPER_SEEN = "ZooKeeper says who has the cluster"


@value
class Gate:
    """A condition, for one node where it is about one: open or shut.

    ``nodes``: the brokers of one group, of MAY_STOP, and of PARTITIONS_HEALTHY where only replicas elsewhere count; of
    BROKERS_IN_MODE, those that have to be there.
    ``mode`` of BROKER_BACK and BROKERS_IN_MODE. ``before``: what was seen of the broker before its restart.
    ``file`` of BROKER_BACK: its property file, of the keys that a rollout changes; None where nobody has read it.
    ``migration_on`` and ``program`` of CONTROLLER_BACK, None where they do not matter; ``program`` of
    WRITE_BEHIND_IDLE, too, because Kafka's controllers do not say all, and of QUORUM_HEALTHY and OTHERS_CAUGHT_UP: what
    the voters are until the migration is over. ``state``: the label of a `PublicState` that must be reached; a later
    one is right, too.
    """

    kind: GateKind
    node: Node | None = None
    mode: BrokerMode | None = None
    before: BrokerSeen | None = None
    file: Mapping[str, str] | None = None
    program: ControllerProgram | None = None
    migration_on: bool | None = None
    state: str = ""
    nodes: tuple[Node, ...] = ()


@value
class Shut:
    """Why a gate is shut: who, what, and what to do about it. ``for_ever``: nothing that may still happen opens it."""

    who: str
    what: str
    remedy: str
    for_ever: bool = False


@value
class LockHolder:
    """``rollout``: its id, which its journal has too. ``since_ms``: of the wall clock."""

    rollout: str
    owner: str
    host: str
    since_ms: int


class LockedError(OperatorError):
    """Somebody else holds the lock; says who, where and since when."""


class Lock(Protocol):
    """One rollout a cluster. It outlives its holder: whoever has the same rollout id takes it up again."""

    async def acquire(self, rollout: str) -> None:
        """
        :raises LockedError: another rollout holds it.
        """

    async def check(self, rollout: str) -> None:
        """Before each action.

        :raises OperatorError: it is no longer this rollout's, or nobody can tell.
        """

    async def release(self, rollout: str) -> None:
        """Give it back; nothing happens when it is another's."""

    async def leave_quorum(self, rollout: str) -> None:
        """Before Kafka's controllers take over: give it back in the quorum, which is no place for it any more.

        :raises OperatorError: it is there, and cannot be given back.
        """

    async def is_local(self) -> bool:
        """Whether only this host knows of it.

        :raises OperatorError: nobody can tell.
        """

    async def holder(self) -> LockHolder | None:
        """Who has it."""

    async def break_open(self, rollout: str) -> LockHolder | None:
        """Take it from this rollout, on purpose, wherever it has it; gives who has it still."""


class Clock(Protocol):
    """Time: of the day for the journal, and one that never jumps for time-outs."""

    def wall_ms(self) -> int:
        """Since 1970."""

    def monotonic_ms(self) -> int:
        """Means nothing to another process."""

    def since_boot_ms(self) -> int:
        """Goes on while the machine sleeps: for how old something is. Means nothing to another process."""

    async def sleep(self, seconds: float) -> None:
        """Let that time pass."""
