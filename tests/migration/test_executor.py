"""The executor, with the model ZooKeeper and an in-memory log for its ports: a whole migration on an event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.clock import monotonic_ms
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.migration.copying.compare import compare
from migrator.migration.copying.reading import Copy, CopyEnd, decode_all
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
from migrator.migration.machine.progress import Phase, Working
from migrator.migration.machine.readiness import ControllerSignals
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import STALL_MS, Identity
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.migration.write_behind.audit import FAMILIES
from migrator.raft.messages import EpochOffset
from migrator.records.batch import iter_batches
from migrator.records.metadata import (
    AbortTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveUserScramCredentialRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import ZERO_UUID
from migrator.zookeeper.clusters import NoClusterError
from migrator.zookeeper.leadership import ClaimView, read_view
from migrator.zookeeper.ops import MultiOutcome, Op, Unknown
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.configs import encode_config
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.builders import CLUSTER_ID
from tests.migration.support.images import PASSWORDS, comparable, empty_cluster, image_from

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
        async with asyncio.timeout(20):
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
        on_progress(Working(Phase.LOAD))
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


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.executor.close()


async def test_a_cluster_is_copied_claimed_and_dual_written(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    assert rig.controller.image.features.zk_migration_state is ZkMigrationState.MIGRATION
    assert rig.equal()
    assert rig.brokers.told == ["take over 4", "full 4"]
    rig.controller.write([ConfigRecord(4, "", "log.cleaner.threads", "2")])
    await rig.until(rig.equal)
    await rig.until(lambda: rig.brokers.reached.offset == len(rig.controller.epochs) - 1)
    assert [transition.after for transition in rig.transitions][-4:] == [
        State.COMMITTING,
        State.RECONCILING,
        State.INFORMING_BROKERS,
        State.DUAL_WRITING,
    ]


async def test_a_copy_waits_for_the_heartbeats_of_a_broker_whose_session_expired_meanwhile(rig: Rig) -> None:
    start, znode = rig.start, f"{paths.BROKER_IDS}/1"

    @asynccontextmanager
    async def meanwhile(task: Task) -> AsyncIterator[Any]:
        async with start(task) as worker:
            yield worker
        if isinstance(task, CopyTask):
            found = rig.model.get(znode)
            assert found is not None
            rig.model.delete(znode)
            rig.model.create(znode, found.data or b"")

    rig.executor._start_worker = meanwhile
    rig.lead()
    await rig.until(
        lambda: "copied, and not yet committed: broker 1" in rig.executor.coordinator.status(0).situation.why
    )
    assert rig.executor.coordinator.state is State.COPYING
    await rig.until_state(State.DUAL_WRITING)
    assert rig.equal()


async def test_a_credential_that_is_revoked_is_in_no_znode_of_its_user_any_more(rig: Rig) -> None:
    """The comparison, in its process, tells the writes which znodes there are."""
    raw, canonical = "/config/users/svc@X", "/config/users/svc%40X"
    text = "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"
    rig.model.create(raw, encode_config({"SCRAM-SHA-256": text}))
    rig.model.create(canonical, encode_config({"SCRAM-SHA-256": text}))
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    assert {rig.model.dump_versions()[path] for path in (raw, canonical)} == {0}
    rig.controller.write([RemoveUserScramCredentialRecord("svc@X", 1)])
    await rig.until(lambda: all(rig.model.dump()[path] == encode_config({}) for path in (raw, canonical)))
    assert rig.foreign_writes() == ()


async def test_a_copy_whose_worker_dies_leaves_nothing_and_gives_the_claim_back(rig: Rig) -> None:
    rig.copies_to_fail = 1
    rig.lead()
    await rig.until_state(State.AWAITING_ELECTION)
    assert rig.model.get(paths.CONTROLLER) is None
    assert not rig.controller.image.topics.by_id
    assert rig.controller.loader.transaction_start is None
    rig.model.set(paths.CONTROLLER_EPOCH, b"5")
    rig.model.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, 0)))
    await rig.until_state(State.DUAL_WRITING)
    assert rig.equal()


async def test_a_znode_that_does_not_decode_keeps_zookeeper_untouched(rig: Rig) -> None:
    rig.model.set(paths.topic_config("t"), b"not json")
    before = rig.model.dump_versions()
    rig.lead()
    await rig.until(lambda: paths.topic_config("t") in str(rig.executor.coordinator.status(0).situation))
    assert rig.executor.coordinator.state is State.DECODING
    assert rig.model.dump_versions() == before


async def test_a_takeover_repairs_what_was_changed_behind_the_last_leader(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    rig.executor.feed(ev.LostLeadership(EPOCH))
    rig.model.set(paths.topic_config("t"), b'{"version":1,"config":{"retention.ms":"6"}}')
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    assert list(reconcile(rig.model, Target(rig.controller.image, passwords=PASSWORDS, controller_epoch=5))) == []
    assert rig.brokers.told == ["take over 4", "full 4", "stop", "take over 5", "full 5"]


async def test_a_new_process_that_finds_both_sides_equal_has_seen_no_foreign_write(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    await rig.until(lambda: rig.brokers.reached.offset == len(rig.controller.epochs) - 1)
    await rig.executor.close()
    rig.new_process().lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    assert rig.foreign_writes() == ()
    rig.model.set(paths.topic_config("t"), b'{"version":1,"config":{"retention.ms":"6"}}')
    assert rig.foreign_writes() == (paths.topic_config("t"),)


async def test_what_a_leader_in_between_wrote_is_not_foreign(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    first = rig.executor
    first.feed(ev.LostLeadership(EPOCH))
    rig.new_process().lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    rig.controller.write([ConfigRecord(2, "t", "retention.ms", "7")])
    await rig.until(lambda: rig.brokers.reached.offset == len(rig.controller.epochs) - 1)
    await rig.executor.close()
    rig.executor = rig.controller.executor = first
    first.lead(ev.BecameLeader(EPOCH + 2, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    assert rig.foreign_writes() == ()


async def test_a_write_of_a_takeover_whose_answer_was_lost_is_not_foreign(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    rig.executor.feed(ev.LostLeadership(EPOCH))
    rig.model.set(paths.topic_config("t"), b'{"version":1,"config":{"retention.ms":"6"}}')
    rig.zookeeper.loses = paths.topic_config("t")
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    assert rig.zookeeper.loses == ""
    assert rig.foreign_writes() == ()


async def test_the_end_is_written_once_everybody_agrees(rig: Rig) -> None:
    rig.lead(ZkMigrationState.MIGRATION, enabled=False)
    await rig.until_state(State.FINISHED)
    assert rig.controller.image.features.zk_migration_state is ZkMigrationState.POST_MIGRATION


async def test_a_worker_that_is_given_up_has_ended_before_the_next_begins(rig: Rig) -> None:
    began, ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    living: list[str] = []

    class Hung:
        async def messages(self, on_progress: OnProgress = ignore) -> AsyncIterator[Message]:
            await asyncio.Event().wait()
            yield CopyEnd(0, 0, 0, 0)

    @asynccontextmanager
    async def start(task: Task) -> AsyncIterator[Any]:
        assert not living, "two workers at a time"
        living.append(type(task).__name__)
        began.set()
        try:
            yield FakeWorker(rig, task) if ending.is_set() else Hung()
        finally:
            ending.set()
            await may_end.wait()
            living.clear()

    rig.executor._start_worker = start
    rig.lead()
    await asyncio.wait_for(began.wait(), 20)
    began.clear()
    rig.executor.feed(ev.LostLeadership(EPOCH))
    await asyncio.wait_for(ending.wait(), 20)
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.PRE_MIGRATION, enabled=True))
    await rig.until_state(State.DECODING)
    await asyncio.sleep(0)
    assert not began.is_set()
    may_end.set()
    await asyncio.wait_for(began.wait(), 20)
    assert not rig.failures


async def test_the_last_look_before_the_claim_reads_brokers_and_heartbeats(rig: Rig) -> None:
    """Broker 2 comes up without the flag as soon as everything is decoded."""
    start, came = rig.start, list[int]()

    @asynccontextmanager
    async def meanwhile(task: Task) -> AsyncIterator[Any]:
        async with start(task) as worker:
            yield worker
        if isinstance(task, DecodeTask) and not came:
            came.append(2)
            rig.model.create(f"{paths.BROKER_IDS}/2", encode_broker(BrokerRegistrationZnode(5, (), None, -1, -1, 0)))

    rig.executor._start_worker = meanwhile
    rig.lead()
    await rig.until(lambda: "broker 2" in str(rig.executor.coordinator.status(0).situation))
    await rig.until_state(State.WAITING_FOR_BROKERS)
    controller = rig.model.get(paths.CONTROLLER)
    assert controller is not None
    assert b'"brokerid":1' in (controller.data or b"")
    rig.model.delete(f"{paths.BROKER_IDS}/2")
    await rig.until_state(State.DUAL_WRITING)


async def test_a_full_state_that_takes_longer_than_the_patience_is_planned_once_and_answers_who_asked_last(
    rig: Rig,
) -> None:
    planned = asyncio.Event()
    told = rig.brokers.send_full

    async def slowly(zk_epoch: int) -> bool:
        queued = await told(zk_epoch)
        await planned.wait()
        return queued

    rig.brokers.send_full = slowly  # type: ignore[method-assign]
    rig.lead()
    await rig.until_state(State.INFORMING_BROKERS)
    memory = rig.executor.coordinator._driver._memory
    await rig.until(lambda: "full 4" in rig.brokers.told)
    memory.progress_ms -= STALL_MS
    before = memory.ticket
    await rig.until(lambda: memory.ticket != before)
    planned.set()
    await rig.until_state(State.DUAL_WRITING)
    assert rig.brokers.told.count("full 4") == 1
