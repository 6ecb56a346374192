"""The executor on an event loop, with the model ZooKeeper and an in-memory log for its ports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from migrator.clock import monotonic_ms
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.migration.copying.compare import compare
from migrator.migration.copying.reading import Copy, decode_all
from migrator.migration.copying.worker import (
    CompareTask,
    CopyTask,
    DecodeTask,
    Message,
    OnProgress,
    Task,
    WorkerFailedError,
    ignore,
)
from migrator.migration.executor import MigrationExecutor, News, Options
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.finish import FinishInputs
from migrator.migration.machine.guards import MarkEvidence
from migrator.migration.machine.progress import Working, WorkPhase
from migrator.migration.machine.readiness import ControllerSignals
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import Identity
from migrator.migration.translate.target import Target
from migrator.migration.write_behind.audit import FAMILIES
from migrator.raft.messages import EpochOffset
from migrator.records.batch import iter_batches
from migrator.records.metadata import (
    AbortTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import ZERO_UUID
from migrator.zookeeper.clusters import NoClusterError
from migrator.zookeeper.leadership import ClaimView, read_view
from migrator.zookeeper.ops import MultiOutcome, Op, Unknown
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.builders import CLUSTER_ID
from tests.migration.support.images import PASSWORDS, comparable, empty_cluster, image_from
from tests.patience import PATIENCE_SECONDS

LEVEL = 19
EPOCH = 5


class FakeZooKeeper:
    """One session on a model; answers to multis come at once, but for one that writes ``loses``: that gets lost."""

    def __init__(self, model: ModelZooKeeper) -> None:
        self.model = model
        self.loses = ""

    @property
    def reader(self) -> ModelZooKeeper:
        return self.model

    def view(self) -> ClaimView:
        return read_view(self.model.read)

    def no_cluster(self) -> NoClusterError:
        return NoClusterError("the model", ())

    def submit(self, ops: Sequence[Op]) -> Future[MultiOutcome]:
        future: Future[MultiOutcome] = Future()
        outcome = self.model.multi(ops)
        if any(op.path == self.loses for op in ops):
            outcome, self.loses = Unknown("the connection broke"), ""
        future.set_result(outcome)
        return future

    def forbidden(self) -> tuple[str, ...]:
        return ()

    def wake_brokers(self) -> bool:
        return True


class FakeController:
    """A log of one voter: what is appended is committed."""

    def __init__(self) -> None:
        self.loader = ImageLoader()
        self.executor: MigrationExecutor | None = None
        self.epochs: list[int] = []

    @property
    def image(self) -> MetadataImage:
        return self.loader.published

    def write(self, records: Sequence[MetadataRecord]) -> int:
        self.loader.append(len(self.epochs), EPOCH, 1, records)
        self.epochs += [EPOCH] * len(records)
        self.loader.apply()
        delta = self.loader.commit(len(self.epochs))
        if delta is not None and self.executor is not None:
            self.executor.published(delta)
        return len(self.epochs) - 1

    async def append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        return self.write(records)

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        for batch in iter_batches(batches):
            self.write([record for record, _ in batch.records()])
        return len(self.epochs) - 1

    async def abort_open(self, epoch: int, reason: str) -> int | None:
        return None if self.loader.transaction_start is None else self.write([AbortTransactionRecord(reason)])

    async def committed(self, offset: int) -> None:
        await asyncio.sleep(0)

    def crc_at(self, offset: int) -> int | None:
        return 1_000_000 + offset if offset < len(self.epochs) else None

    async def evidence(self, mark: MigrationState) -> MarkEvidence:
        offset = mark.kraft_metadata_offset
        return MarkEvidence(self.epochs[offset], self.crc_at(offset)) if offset < len(self.epochs) else MarkEvidence()

    async def signals(self) -> ControllerSignals:
        return ControllerSignals({3001: True}, alive_ms={1: monotonic_ms()})

    async def finish_inputs(self) -> FinishInputs:
        return FinishInputs({3001: False}, ())

    def hand_over(self, successor: int) -> None:
        raise AssertionError


class FakeBrokers:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.reached = EpochOffset(-1, -1)

    async def take_over(self, zk_epoch: int) -> None:
        self.told.append(f"take over {zk_epoch}")

    async def send_full(self, zk_epoch: int) -> bool:
        self.told.append(f"full {zk_epoch}")
        return True

    def written(self, at: EpochOffset) -> None:
        self.reached = at

    async def stop(self) -> None:
        self.told.append("stop")


class Rig:
    def __init__(self, directory: Path) -> None:
        self.model = empty_cluster()
        load_cluster(self.model)
        self.controller = FakeController()
        self.controller.write(FIRST_RECORDS)
        self.brokers = FakeBrokers()
        self.failures: list[BaseException] = []
        self.transitions: list[ef.JournalTransition] = []
        self.copies_to_fail = 0
        self.moved = asyncio.Event()
        self.options = Options(Identity(3001, CLUSTER_ID), directory, PASSWORDS, batch_records=2, max_deletes=10)
        self.zookeeper = FakeZooKeeper(self.model)
        self.executor = self.new_process()

    def new_process(self) -> MigrationExecutor:
        """On the same ZooKeeper and log; it hears of what is published from now on."""
        self.executor = self.controller.executor = MigrationExecutor(
            self.options,
            self.controller,
            self.brokers,
            self.zookeeper,
            self.start,
            on_transition=self.told,
            on_failure=self.failures.append,
        )
        return self.executor

    def foreign_writes(self) -> tuple[str, ...]:
        audit = self.executor._writes._audit
        assert audit is not None
        return audit.foreign(self.model.read([*FAMILIES, paths.topic("t"), paths.topic_config("t")]))

    def told(self, effect: News) -> None:
        if isinstance(effect, ef.JournalTransition):
            self.transitions.append(effect)
        self.moved.set()

    @asynccontextmanager
    async def start(self, task: Task) -> AsyncIterator[Any]:
        yield FakeWorker(self, task)

    def lead(self, record: ZkMigrationState = ZkMigrationState.PRE_MIGRATION, *, enabled: bool = True) -> None:
        self.executor.lead(ev.BecameLeader(EPOCH, record, enabled=enabled))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self.moved.clear()
                await asyncio.wait([asyncio.create_task(self.moved.wait())], timeout=0.02)
        assert not self.failures

    async def until_state(self, state: State) -> None:
        await self.until(lambda: self.executor.coordinator.state is state)

    def equal(self) -> bool:
        return comparable(image_from(self.model)) == comparable(self.controller.image)


class FakeWorker:
    def __init__(self, rig: Rig, task: Task) -> None:
        self.rig = rig
        self.task = task

    async def messages(self, on_progress: OnProgress = ignore) -> AsyncIterator[Message]:
        on_progress(Working(WorkPhase.LOAD))
        for message in self.results():
            await asyncio.sleep(0)
            yield message
            if self.rig.copies_to_fail and isinstance(self.task, CopyTask):
                self.rig.copies_to_fail -= 1
                raise WorkerFailedError("killed by signal 9")

    def results(self) -> Any:
        model = self.rig.model
        match self.task:
            case DecodeTask():
                return decode_all(model, passwords=PASSWORDS, random=random.Random(1))
            case CopyTask(level, batch_records):
                return Copy(
                    model,
                    passwords=PASSWORDS,
                    random=random.Random(1),
                    level=level,
                    batch_records=batch_records,
                    now_ms=lambda: 1,
                ).run()
            case CompareTask(_, at, zk_epoch, max_deletes):
                image = self.rig.controller.image
                assert image.provenance.offset >= at.offset
                target = Target(image, passwords=PASSWORDS, controller_epoch=zk_epoch)
                return compare(model, target, max_deletes)


FIRST_RECORDS: list[MetadataRecord] = [
    FeatureLevelRecord("metadata.version", LEVEL),
    ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION),
    RegisterBrokerRecord(1, True, ZERO_UUID, 3, (), (FeatureRange("metadata.version", LEVEL, LEVEL),), None),
    RegisterControllerRecord(3001, ZERO_UUID, True, (), ()),
]
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAB8Q","partitions":{"0":[1]}}'
STATE = b'{"version":1,"leader":1,"leader_epoch":2,"controller_epoch":3,"isr":[1]}'


def load_cluster(model: ModelZooKeeper) -> None:
    model.load(
        {
            paths.CLUSTER_ID: b'{"version":"1","id":"%s"}' % CLUSTER_ID.encode(),
            paths.CONTROLLER_EPOCH: b"3",
            paths.topic("t"): TOPIC,
            paths.topic_config("t"): b'{"version":1,"config":{"retention.ms":"5"}}',
            paths.partition_state("t", 0): STATE,
            f"{paths.BROKER_IDS}/1": encode_broker(BrokerRegistrationZnode(5, (), None, -1, -1, 0)),
        }
    )
    model.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, 0)))
