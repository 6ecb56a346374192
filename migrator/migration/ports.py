"""What the executor needs of the rest of a controller. The node implements these; the tests do so, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from migrator.errors import OperatorError
from migrator.image.model import ImageDelta, MetadataImage
from migrator.migration.copying.transaction import TransactionLog
from migrator.migration.copying.worker import Message, OnProgress, Task, ignore
from migrator.migration.machine.finish import FinishInputs
from migrator.migration.machine.guards import MarkEvidence
from migrator.migration.machine.readiness import ControllerSignals
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.leadership import ClaimView
from migrator.zookeeper.ops import MultiOutcome, Op, ZkSource
from migrator.zookeeper.session import SessionState
from migrator.zookeeper.znodes.migration import MigrationState


class ControllerPort(TransactionLog, Protocol):
    """The log and the quorum, as the active controller has them."""

    @property
    def image(self) -> MetadataImage:
        """The published image."""

    def crc_at(self, offset: int) -> int | None:
        """The checksum of the batch of our log that holds this offset; None if the log does not hold it any more."""

    async def evidence(self, mark: MigrationState) -> MarkEvidence:
        """What the log tells of a mark that says copied, and of whoever wrote it."""

    async def committed(self, offset: int) -> None:
        """Wait for it; raises a `MigratorError` when leadership is lost first."""

    async def abort_open(self, epoch: int, reason: str) -> int | None:
        """Append an Abort if the log, applied or not, ends within a transaction; its offset, None without one."""

    async def signals(self) -> ControllerSignals:
        """ZkMigrationReady of every voter, and the brokers that are not heard of."""

    async def finish_inputs(self) -> FinishInputs:
        """What the rules of the end ask for."""

    def hand_over(self, successor: int) -> None:
        """Resign in favour of that voter."""


class BrokersPort(Protocol):
    """The RPCs to brokers in ZooKeeper mode."""

    async def take_over(self, zk_epoch: int) -> None:
        """Open the channels and queue the first, partial state."""

    async def send_full(self, zk_epoch: int) -> bool:
        """Queue the full state, behind the first one. False: the claim is gone, and nothing is queued."""

    def written(self, at: EpochOffset) -> None:
        """ZooKeeper holds everything up to there: LeaderAndIsr of new topics may go out."""

    async def stop(self) -> None:
        """Send nothing more."""


class ReadPort(Protocol):
    """A session that is only read. All block, and are called in a thread."""

    @property
    def reader(self) -> ZkSource:
        """For everything but the three znodes of the claim."""

    def view(self) -> ClaimView:
        """Those three, not older than the call. Raises a `MigratorError`."""

    def no_cluster(self) -> OperatorError:
        """What to tell when there is no /cluster/id; looks for it elsewhere. Raises a `MigratorError`."""


class ZooKeeperPort(ReadPort, Protocol):
    """One session. `wake_brokers` blocks, too."""

    def submit(self, ops: Sequence[Op]) -> Future[MultiOutcome]:
        """Start one multi; any thread may ask. Its outcome may be that nobody knows the outcome."""

    def wake_brokers(self) -> bool:
        """Make brokers elect: create /controller with broker id -1 and delete it. False: somebody was elected."""


class RunningWorker(Protocol):
    def messages(self, on_progress: OnProgress = ignore) -> AsyncIterator[Message]:
        """What the worker sends, until it ends. Raises a `MigratorError` when it fails."""


StartWorker = Callable[[Task], AbstractAsyncContextManager[RunningWorker]]


class MigratedCluster(Protocol):
    """What a migration asks of the cluster that it migrates."""

    @property
    def zookeeper(self) -> ZooKeeperPort:
        """Reads and writes ZooKeeper."""

    @property
    def brokers(self) -> BrokersPort:
        """Tells the brokers in ZooKeeper mode."""

    @property
    def start_worker(self) -> StartWorker:
        """Gives worker processes."""

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper answers."""

    @property
    def hosts(self) -> str:
        """Where ZooKeeper is; "" where there is none."""

    @property
    def away(self) -> tuple[str, str]:
        """Why it does not, as far as anybody knows, and the remedy."""

    def cluster_id(self) -> str:
        """What ``/cluster/id`` says; blocks.

        :raises OperatorError: ZooKeeper is away, or no cluster is there.
        """

    def start(self, on_connection: Callable[[SessionState], None]) -> None:
        """Connect, now and whenever the connection was lost; the listener is called on another thread."""

    def lead(self) -> None:
        """This node leads: workers will be wanted soon."""

    def leave(self) -> None:
        """This node no longer leads."""

    @property
    def troubles(self) -> Mapping[int, str]:
        """What is wrong with brokers in ZooKeeper mode that are up and cannot be told, or do not take it, by id."""

    def publish(self, delta: ImageDelta) -> None:
        """A committed image, while this node leads."""

    async def close(self) -> None:
        """Stop everything; ZooKeeper keeps what is written."""
