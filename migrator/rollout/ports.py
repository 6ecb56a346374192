"""The four ports of a rollout to the world: executor (touches nodes), observer, lock and clock; and the values seen.

Decisions are pure and use only the values. `apply` works through the four protocols; tests put a model cluster behind
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.observe.status import ImagesStatus
from migrator.rollout.nodes import Node, NodeKind
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from migrator.values import value

if TYPE_CHECKING:
    from pathlib import Path  # its name only: this is pure


class ExecutorError(OperatorError):
    """A node could not be touched. The action may have taken effect or not; the caller looks."""

    output: Output | None = None
    """The output of the action's command. It may contain secrets, so it goes only to a file that this user alone can
    read."""


class HostUnreachableError(ExecutorError):
    """The host cannot be reached, or the connection broke (exit code 255 of ssh)."""


class PlaceAwayError(HostUnreachableError):
    """The place where commands of a node run, such as a pod, should come back by itself, but does not. Has its name."""


class NotRegularError(ExecutorError):
    """The path exists, but is not a regular file: a directory, for example."""


class FileChangedError(ExecutorError):
    """The file is not as it was when the step was planned; nothing was written. ``node``: whose file it is. ``digest``:
    the file's digest now."""

    node = ""
    digest: str | None = None


@value
class Output:
    """The output of a command that has ended: ``text`` is its standard output, ``errors`` its standard error, both
    bounded. They may contain secrets: they are shown, but not kept."""

    exit_code: int
    text: str
    errors: str = ""


LOOP = 3
"""A process that something else has restarted so many times, while a gate waits for it, restarts in a loop. A broker
that was killed may fail once or twice, until its old session in ZooKeeper has ended."""


@value
class PlaceSeen:
    """``said``: the place and its state, such as "the pod kafka-1 of the namespace data is Failed (Evicted)".
    ``loops``: its process is started again and again."""

    said: str
    loops: bool = False


@value
class Trial:
    """The result of trying the commands of a node without an effect. ``faults``: what would fail. ``untried``:
    actions whose commands the inventory words, so that nobody knows how to try them."""

    faults: tuple[ExecutorError, ...] = ()
    untried: tuple[str, ...] = ()


class Executor(Protocol):
    """Touches nodes. Every call is bounded in time and output, and raises `ExecutorError` (host, what happened,
    remedy).

    File contents travel by standard input and output only, never as arguments. Each action may be repeated: to stop a
    stopped process, or to start a running one, succeeds.
    """

    async def read(self, node: Node, path: str) -> bytes | None:
        """A file of the node's host; None when there is no such file.

        :raises NotRegularError: it is a directory or a device.
        """

    async def fetch(self, node: Node, path: str, file: Path, *, seconds: float) -> bool:
        """Bring a large file of the node's host here, completely or not at all. Of a file that grows meanwhile, the
        bytes that it had at the beginning arrive.

        :param seconds: the time limit.
        :returns: False when there is no such file.
        :raises StorageError: this machine's disk refuses.
        """

    async def write(self, node: Node, path: str, content: bytes, *, expected: str | None, backup: str) -> None:
        """Replace a file, completely or not at all; its mode and owner stay.

        :param expected: SHA-256 (hex) that the file must have now, checked in the same command; None: the file must not
            exist.
        :param backup: where the old content is kept, unless a file is there already; "" for no backup.
        :raises FileChangedError: the file has another digest.
        """

    async def copy(self, node: Node, path: str, content: bytes) -> None:
        """Write a new file that only the user of the service can read; never through a link."""

    async def stop(self, node: Node) -> None:
        """Stop the node's process by a clean shutdown. The process has ended when this returns."""

    async def start(self, node: Node) -> None:
        """Start the node's process. Whether it serves is seen by the observer."""

    async def restart(self, node: Node) -> None:
        """Stop and start by one command, where `stops_and_starts` is False (a StatefulSet starts a pod again after its
        end)."""

    def stops_and_starts(self, node: Node) -> bool:
        """Whether this node has separate commands to stop and to start."""

    async def incarnation(self, node: Node) -> str | None:
        """A name of the running process that changes with each start (pid and start time, systemd's InvocationID, pod
        uid); None when no process runs."""

    async def log_of(self, node: Node) -> Output | None:
        """The last lines that the process has printed; None when no command gives them."""

    async def place_of(self, node: Node) -> PlaceSeen | None:
        """The fault of the place that the node runs in, such as its pod; None without a fault or a place."""

    async def trial(self, node: Node) -> Trial:
        """Try to read and to write the node's property file, and the rights to stop and start its process, without an
        effect: the new file is written beside the old one, compared with it, and removed. Raises nothing."""

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        """Run a command on the node's host to its end. The words hold no secret."""


class BrokerMode(Enum):
    """The mode in which a broker runs."""

    ZOOKEEPER = "ZooKeeper"
    MIGRATING = "migration"
    KRAFT = "KRaft"


@value
class BrokerSeen:
    """``mode``: None for a broker that is not registered. ``registration``: changes with each start that registers
    (czxid of its znode, KRaft broker epoch), so a command that only pretends to restart is found. ``serving``:
    registered, with heartbeats, not fenced. ``release``, ``settings`` (in force, without secrets) and ``rack``: if they
    can be seen. ``kraft_in_log``: the quorum has it registered in KRaft mode, fenced or not. ``age_ms``: for how long
    its znode exists at least, by ZooKeeper's clock. ``file``: the values that its property file had when it started, of
    the keys that a rollout changes; a value is None when the broker does not show it. ``file`` is None when it could
    not be read; ``hidden`` then says why. ``dynamic_map``: its ``listener.security.protocol.map`` when that is set
    dynamically, which overrides the file."""

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
        """Whether it is registered in ZooKeeper in a mode that cannot be told: a broker in migration mode is registered
        only there, too, while the quorum is stopped or refuses it."""
        return self.mode is BrokerMode.ZOOKEEPER and self.settings is None


@value
class Placement:
    """Partitions that have the same replicas, in the same state. ``names``: of the first ones. ``led``: they have a
    leader. ``replicas`` and ``in_sync`` are ids of brokers."""

    replicas: frozenset[int]
    in_sync: frozenset[int]
    min_isr: int
    led: bool
    count: int
    names: tuple[str, ...] = ()


@value
class Some:
    """A set of partitions: how many, and a few names for messages."""

    count: int = 0
    names: tuple[str, ...] = ()


@value
class PartitionsSeen:
    """``placements``: of the partitions with a problem; of all partitions when ``placed``. ``topics``: how many topics
    the broker has shown; -1 when all are seen."""

    offline: Some = Some()
    under_replicated: Some = Some()
    under_min_isr: Some = Some()
    reassigning: Some = Some()
    placements: tuple[Placement, ...] = ()
    placed: bool = False
    topics: int = -1


@value
class MigrationSeen:
    """``state``: the label of a `PublicState`; "" unknown. ``write_behind_lag``: records; -1 unknown.
    ``foreign_writes``: paths. ``problems``: what the migration waits for, as the leader's status says. ``finishing``:
    the migration is off at the leader, and the leader asks every other controller whether it is off there, too.
    ``keeps_up``: the leader was seen to write committed changes to ZooKeeper and to the brokers in ZooKeeper mode; a
    leader of Kafka's may be some seconds late. ``images``: which controllers have the same metadata as the leader, by
    its own status. ``behind_ms``: how long the oldest record that is not in ZooKeeper has waited; -1 unknown.
    ``reopened``: when and why the migration was reopened after its end; "" if it was not. ``versions``: that versions
    of partition states are not raised yet, as the leader's status says; ``versions_left``: how many sets that takes;
    -1 unknown."""

    state: str = ""
    write_behind_lag: int = -1
    foreign_writes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    finishing: bool = False
    keeps_up: bool = False
    images: ImagesStatus | None = None
    behind_ms: int = -1
    reopened: str = ""
    versions: str = ""
    versions_left: int = 0


@value
class Observation:
    """The answers of the cluster at one time. ``unknown``: facts that could not be seen, one sentence each.

    ``controller_broker``: the broker that is the ZooKeeper controller. ``quorum_claims``: by ZooKeeper, the quorum is.
    ``cluster_id`` and the quorum's ``metadata_version`` are "" while unknown. ``partitions`` is None while no part of
    the cluster tells them.
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
        """Whether the migration is seen to be over: no part of the cluster writes to ZooKeeper any more."""
        return self.migration is not None and self.migration.state == PublicState.FINISHED.label

    @property
    def is_led(self) -> bool:
        return self.quorum is not None and self.quorum.leader_id is not None

    @property
    def has_data(self) -> bool:
        """Whether the quorum has committed records, which a voter with an empty directory could vote away."""
        return self.is_led or self.quorum_claims or (self.migration is not None and bool(self.migration.state))

    @property
    def may_be_dual_writing(self) -> bool:
        """True while both sides are written, or while this is unknown: the quorum may have records that ZooKeeper does
        not have."""
        if self.migration is not None and self.migration.state:
            return self.migration.state == PublicState.DUAL_WRITE.label
        unknown = self.quorum is not None or self.quorum_claims or not self.zookeeper_answers
        return unknown and self.controller_broker is None

    def broker(self, node: Node | None) -> BrokerSeen | None:
        """A broker as it is seen; None when it is not registered, or cannot be seen."""
        return None if node is None or self.brokers is None else self.brokers.get(node.node_id)

    def voter(self, node: Node | None) -> ControllerSeen | None:
        """A voter as it is seen; None when no controller names it as one."""
        return None if node is None or self.quorum is None else self.quorum.voters.get(node.node_id)

    def serves(self, node: Node) -> bool:
        """Whether a broker is seen to be registered, or a voter to answer."""
        broker, voter = self.broker(node), self.voter(node)
        if node.role is NodeKind.BROKER:
            return broker is not None and broker.mode is not None
        return voter is not None and voter.program is not None

    def is_down(self, node: Node | None) -> bool:
        """Whether a broker is not registered at all. Then its restart harms nothing, and no gate delays it."""
        is_broker = node is not None and node.role is NodeKind.BROKER
        return node is not None and is_broker and self.brokers is not None and not self.serves(node)

    def is_silent(self, node: Node | None) -> bool:
        """Whether a node is seen not to serve: a broker that is not registered, a voter that does not answer."""
        voter = self.voter(node)
        is_broker = node is not None and node.role is NodeKind.BROKER
        return self.is_down(node) if is_broker else voter is not None and voter.program is None


class ClusterProbe(Protocol):
    """Looks at the cluster; changes nothing."""

    async def observe(self, *, partitions: bool = True) -> Observation:
        """Everything that can be seen now. ``unknown`` names the rest: this raises nothing, and is bounded in time.

        :param partitions: False: without the state of partitions, which takes long on a large cluster.
        """

    async def close(self) -> None:
        """Close sessions and channels."""


class GateKind(Enum):
    """What a gate waits for, before or after a step. `gates.judge` says whether a gate is open."""

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
    VERSIONS_RAISED = "every partition state in ZooKeeper has the version that brokers know"
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
    """A condition that is open or shut; some are about one node.

    ``nodes``: for MAY_STOP the brokers of one group; for PARTITIONS_HEALTHY the brokers whose own replicas do not
    count; for BROKERS_IN_MODE the brokers that must be there. ``mode``: for BROKER_BACK and BROKERS_IN_MODE.
    ``before``: what was seen of the broker before its restart. ``file``: for BROKER_BACK, the values in its property
    file of the keys that a rollout changes; None when it was not read. ``migration_on``: for CONTROLLER_BACK; None when
    it does not matter. ``program``: for CONTROLLER_BACK, None when it does not matter; for WRITE_BEHIND_IDLE, because
    Kafka's controllers do not tell everything; for QUORUM_HEALTHY and OTHERS_CAUGHT_UP the program of the voters until
    the migration is over. ``state``: the label of the `PublicState` that must be reached; a later state is right, too.
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
    """Why a gate is shut: who, what, and the remedy. ``for_ever``: nothing that can still happen opens it. ``left``:
    how much is still to be done; whenever it has fallen, the wait begins anew. -1: nothing is counted."""

    who: str
    what: str
    remedy: str
    for_ever: bool = False
    left: int = -1


@value
class LockHolder:
    """``rollout``: the id of the rollout, which its journal has, too. ``since_ms``: by the wall clock. ``process``: the
    id of the process that took the lock last; 0 unknown. ``directory``: of the journal on that host; "" unknown."""

    rollout: str
    owner: str
    host: str
    since_ms: int
    process: int = 0
    directory: str = ""

    @property
    def place(self) -> str:
        """The process and the directory of the journal, for the end of a sentence; "" where both are unknown."""
        process = f"process {self.process}" if self.process else ""
        directory = f"the journal in {self.directory}" if self.directory else ""
        return "".join(f", {each}" for each in (process, directory) if each)


class LockedError(OperatorError):
    """Another rollout or process holds the lock; says who, where and since when."""


class QuorumAwayError(OperatorError):
    """The leader of our quorum cannot be asked for the lock."""


class Lock(Protocol):
    """The lock that allows one rollout for each cluster. It outlives the process that took it: a process with the same
    rollout id takes it again."""

    async def acquire(self, rollout: str) -> None:
        """
        :raises LockedError: another rollout holds it.
        """

    async def check(self, rollout: str) -> None:
        """Called before each action.

        :raises OperatorError: this rollout does not hold the lock any more, or that is unknown.
        """

    async def release(self, rollout: str) -> None:
        """Give it back; does nothing when another rollout holds it."""

    async def leave_quorum(self, rollout: str) -> None:
        """Give back the part in the quorum, before Kafka's controllers take over, which have no place for it.

        :raises OperatorError: it is there, and cannot be given back.
        """

    async def is_local(self) -> bool:
        """Whether only this host knows of the lock.

        :raises OperatorError: that is unknown.
        """

    async def holder(self) -> LockHolder | None:
        """The holder; None without one."""

    async def break_open(self, rollout: str) -> LockHolder | None:
        """Take the lock from this rollout, in every place where it has it, because the operator wants it. Returns who
        still holds the lock."""


class Clock(Protocol):
    """The time: of day for the journal, and monotonic for time-outs."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never jumps; only this process can use it."""

    def since_boot_ms(self) -> int:
        """Like `monotonic_ms`, but continues while the machine sleeps: for the age of something."""

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
