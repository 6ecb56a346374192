"""The parts of a controller that the executor of a migration needs, as protocols: log and quorum, brokers, ZooKeeper.

`migrator.node.migration` implements them on a real node, and tests on models. So this room imports no part of the node.
Methods that block are called on threads, and say so; the others are called on the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from migrator.errors import OperatorError
from migrator.image.model import ImageDelta, MetadataImage
from migrator.migration.copying.transaction import TransactionLog
from migrator.migration.copying.worker import LoadAhead, Message, OnProgress, Task, ignore
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
        """The checksum of the batch in our log that holds this offset; None if the log no longer holds it."""

    async def evidence(self, mark: MigrationState) -> MarkEvidence:
        """The log's evidence about a mark that says copied, and about the controller that wrote it."""

    async def committed(self, offset: int) -> None:
        """Wait until the offset is committed. Raises a `MigratorError` when leadership is lost first."""

    async def abort_open(self, epoch: int, reason: str) -> int | None:
        """Append AbortTransaction if the log, applied or not, ends within a transaction. Returns its offset, None when
        no transaction is open."""

    async def signals(self) -> ControllerSignals:
        """ZkMigrationReady of every voter, and the brokers without heartbeats."""

    async def finish_inputs(self) -> FinishInputs:
        """The facts for the rules of the end (`finish`)."""

    def hand_over(self, successor: int) -> None:
        """Resign in favour of that voter."""


class BrokersPort(Protocol):
    """The RPCs to brokers in ZooKeeper mode."""

    async def take_over(self, zk_epoch: int) -> None:
        """Open the channels and queue the first, partial state."""

    async def send_full(self, zk_epoch: int) -> bool:
        """Queue the full state, behind the first, partial one. False when the claim is gone and nothing is queued."""

    def written(self, at: EpochOffset) -> None:
        """ZooKeeper holds everything up to ``at``: LeaderAndIsr of new topics may be sent."""

    async def stop(self) -> None:
        """Stop sending."""


class ReadPort(Protocol):
    """A session that only reads. All methods block, and are called in a thread."""

    @property
    def reader(self) -> ZkSource:
        """The reader of everything except the three znodes of the claim."""

    def view(self) -> ClaimView:
        """Read the three znodes of the claim, not older than the call. Raises a `MigratorError`."""

    def no_cluster(self) -> OperatorError:
        """The error for a missing /cluster/id, after a search in other chroots. Raises a `MigratorError`."""


class ZooKeeperPort(ReadPort, Protocol):
    """One session that writes, too. `wake_brokers` and `forbidden` block."""

    def submit(self, ops: Sequence[Op]) -> Future[MultiOutcome]:
        """Start one multi, on any thread. The outcome may be `Unknown`."""

    def forbidden(self) -> tuple[str, ...]:
        """Rights in ZooKeeper that our identity lacks, in sentences. Changes nothing. Raises a `MigratorError`."""

    def wake_brokers(self) -> bool:
        """Make brokers elect: create /controller with broker id -1 and delete it. False when a broker has been
        elected."""


class RunningWorker(Protocol):
    def messages(self, on_progress: OnProgress = ignore) -> AsyncIterator[Message]:
        """Yield the worker's messages until it ends. Raises a `MigratorError` when it fails."""


StartWorker = Callable[[Task], AbstractAsyncContextManager[RunningWorker]]


class MigratedCluster(Protocol):
    """The part of the migrated cluster that a migration needs."""

    @property
    def zookeeper(self) -> ZooKeeperPort:
        """The session that reads and writes ZooKeeper."""

    @property
    def brokers(self) -> BrokersPort:
        """The port that sends requests to brokers in ZooKeeper mode."""

    @property
    def start_worker(self) -> StartWorker:
        """The function that starts worker processes."""

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper answers."""

    @property
    def hosts(self) -> str:
        """ZooKeeper's connection string; "" when there is none."""

    @property
    def away(self) -> tuple[str, str]:
        """The known reason why ZooKeeper does not answer, and the remedy."""

    def cluster_id(self) -> str:
        """Read ``/cluster/id``; blocks.

        :raises OperatorError: ZooKeeper does not answer, or holds no cluster.
        """

    def start(self, on_connection: Callable[[SessionState], None]) -> None:
        """Connect, and connect again whenever the connection is lost. The listener is called on another thread."""

    def follow(self, load: LoadAhead) -> None:
        """This node may lead later: have its next worker load this image in advance."""

    def lead(self) -> None:
        """This node leads, so workers are needed soon."""

    def leave(self) -> None:
        """This node no longer leads."""

    @property
    def troubles(self) -> Mapping[int, str]:
        """The faults of brokers in ZooKeeper mode that run and cannot be reached, or refuse requests, by id."""

    def publish(self, delta: ImageDelta) -> None:
        """Take a committed image while this node leads."""

    async def close(self) -> None:
        """Stop everything. The changes in ZooKeeper stay."""
