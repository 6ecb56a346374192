"""The executor, with the model ZooKeeper and an in-memory log for its ports: a whole migration on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.clock import monotonic_ms
from migrator.controller.rollout_lock import lock_text, move_lock
from migrator.controller.way_back import close, closed
from migrator.migration.copying.reading import CopyEnd
from migrator.migration.copying.worker import (
    CopyTask,
    DecodeTask,
    Message,
    OnProgress,
    Task,
    ignore,
)
from migrator.migration.executor import News
from migrator.migration.machine import events as ev
from migrator.migration.machine.effects import JournalTransition
from migrator.migration.machine.guards import MarkEvidence
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import STALL_MS
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.migration.write_behind.multis import Limits
from migrator.observe.status import Force
from migrator.records.metadata import (
    ConfigRecord,
    MigrationReopening,
    PartitionChangeRecord,
    RemoveUserScramCredentialRecord,
    ZkMigrationState,
)
from migrator.zookeeper.ops import MultiOutcome, Op
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from migrator.zookeeper.znodes.configs import encode_config
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.support.images import PASSWORDS
from tests.migration.support.rig import EPOCH, FakeWorker, Rig
from tests.patience import PATIENCE_SECONDS


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
    rig.executor.lead(ev.BecameLeader(EPOCH + 3, ZkMigrationState.MIGRATION, enabled=False))
    await rig.until_state(State.FINISHED)
    assert rig.controller.image.features.order_to_reopen is None


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


async def test_a_takeover_writes_at_once_and_informs_the_brokers_in_full_after_the_comparison(rig: Rig) -> None:
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    await rig.until(lambda: rig.brokers.reached.offset == len(rig.controller.epochs) - 1)
    rig.executor.feed(ev.LostLeadership(EPOCH))
    rig.controller.write([ConfigRecord(2, "t", "retention.ms", "7")])
    start, may_compare = rig.start, asyncio.Event()

    @asynccontextmanager
    async def slowly(task: Task) -> AsyncIterator[Any]:
        await may_compare.wait()
        async with start(task) as worker:
            yield worker
        rig.model.set(paths.topic_config("t"), b"{}")  # behind the comparison, and before our next write
        last = rig.controller.write([ConfigRecord(4, "1", "log.cleaner.threads", "2")])
        await rig.until(lambda: rig.brokers.reached.offset == last)

    rig.executor._start_worker = slowly
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.COMPARING)
    for text in ("7", "8"):
        await rig.until(lambda: rig.brokers.reached.offset == len(rig.controller.epochs) - 1)
        config = rig.model.get(paths.topic_config("t"))
        assert config is not None
        assert config.data == b'{"version":1,"config":{"retention.ms":"%s"}}' % text.encode()
        rig.controller.write([ConfigRecord(2, "t", "retention.ms", "8")])
    assert rig.brokers.told[-1] == "take over 5"
    may_compare.set()
    await rig.until_state(State.DUAL_WRITING)
    assert rig.brokers.told[-1] == "full 5"
    assert rig.foreign_writes() == (paths.topic_config("t"),)


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


@pytest.mark.parametrize("resumes", [False, True])
async def test_versions_are_raised_behind_dual_write_and_a_leader_that_dies_leaves_the_rest_to_the_next_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, resumes: bool
) -> None:
    """Each change of a partition raises its epoch, and nobody wrote to ZooKeeper meanwhile. One set brings the content,
    the others only the version. The next leader writes changes first, too, where it takes over without a reconcile."""
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    await rig.executor.close()
    rig.controller.executor = None
    (topic,) = rig.controller.image.topics.by_id.values()
    rig.controller.write([PartitionChangeRecord(0, topic.topic_id, leader=1)] * 40)
    epoch = rig.controller.image.topics.by_id[topic.topic_id].partitions[0].partition_epoch
    state, submit, told, begun = paths.partition_state("t", 0), rig.zookeeper.submit, rig.told, dict[State, int]()

    def version() -> int:
        return rig.model.dump_versions()[state]

    def notes(effect: News) -> None:
        if isinstance(effect, JournalTransition):
            begun[effect.after] = version()
        told(effect)

    def dies(ops: Sequence[Op]) -> Future[MultiOutcome]:
        return Future() if version() > epoch // 2 else submit(ops)

    monkeypatch.setattr(rig, "told", notes)
    monkeypatch.setattr(rig.zookeeper, "submit", dies)
    rig.options = replace(rig.options, limits=Limits(max_ops=7))
    before = version()
    rig.new_process().lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until(lambda: version() > epoch // 2)
    assert begun[State.DUAL_WRITING] == before + 1
    write_behind = rig.executor.coordinator.write_behind
    assert epoch - version() <= write_behind.versions_missing(monotonic_ms()).sets < 40
    assert write_behind.drained
    monkeypatch.setattr(rig.zookeeper, "submit", submit)
    before = version()
    if resumes:
        rig.executor.feed(ev.LostLeadership(EPOCH + 1))
        rig.controller.write([PartitionChangeRecord(0, topic.topic_id, leader=2)])
    else:
        await rig.executor.close()
        rig.new_process()
    begun.clear()
    rig.executor.lead(ev.BecameLeader(EPOCH + 2, ZkMigrationState.MIGRATION, enabled=True))
    await rig.until_state(State.DUAL_WRITING)
    assert begun[State.DUAL_WRITING] == before + resumes
    await rig.until(lambda: rig.executor.coordinator.write_behind.versions_missing(monotonic_ms()).sets == 0)
    assert version() == epoch + resumes
    assert rig.equal()


async def test_the_end_is_written_once_everybody_agrees(rig: Rig) -> None:
    rig.lead(ZkMigrationState.MIGRATION, enabled=False)
    await rig.until_state(State.FINISHED)
    assert rig.controller.image.features.zk_migration_state is ZkMigrationState.POST_MIGRATION


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "of an older release"])
async def test_a_finished_migration_is_reopened_when_the_log_has_dropped_the_batch_of_the_mark(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """The random name of the copy proves then whose mark it is; the log and ZooKeeper keep it through every state. Of a
    copy without a name, an operator has to know."""
    if not is_named:
        monkeypatch.setattr(rig.executor, "_name_of_copy", lambda: None)
    rig.lead()
    await rig.until_state(State.DUAL_WRITING)
    name = rig.controller.image.features.migration_copied_as
    assert (name is not None) is is_named
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.MIGRATION, enabled=False))
    await rig.until_state(State.FINISHED)
    (topic,) = rig.controller.image.topics.by_id
    moves = [PartitionChangeRecord(0, topic, leader=1)] * 20
    rig.controller.write([ConfigRecord(2, "t", "cleanup.policy", "compact"), *moves])
    before = rig.controller.image
    rig.controller.write([*close(rig.controller.image, "CHG-45").records, *move_lock(before, "", "mine").records])
    assert not rig.equal()

    async def compacted(_: MigrationState) -> MarkEvidence:
        return MarkEvidence(compacted=True)

    monkeypatch.setattr(rig.controller, "evidence", compacted)
    rig.executor.lead(ev.BecameLeader(EPOCH + 2, ZkMigrationState.POST_MIGRATION, enabled=True))
    rig.executor.feed(ev.OperatorReopen(MigrationReopening(3001, 1, "the auditors want it")))
    if not is_named:
        await rig.until_state(State.REFUSED)
        shown = rig.executor.coordinator.status(0).situation.overridable
        rig.executor.feed(ev.OperatorForce(Force.RECLAIM, overrides=frozenset(shown)))
    await rig.until_state(State.DUAL_WRITING)
    await rig.until(rig.equal)
    features, mark = rig.controller.image.features, rig.zookeeper.view().migration
    assert (features.zk_migration_state, features.migration_reopening) == (ZkMigrationState.MIGRATION, None)
    assert closed(rig.controller.image) == lock_text(rig.controller.image) == ""
    assert features.reopened == "1970-01-01 00:00:00 UTC: the auditors want it"
    assert mark is not None
    assert (mark.copied_as, features.migration_copied_as) == (name, name)
    assert [transition.after for transition in rig.transitions][-9 + 2 * is_named :] == [
        State.REOPENING,
        State.EXAMINING,
        *([] if is_named else [State.REFUSED, State.EXAMINING]),
        State.CLAIMING,
        State.RECONCILING,
        State.ADMITTING,
        State.INFORMING_BROKERS,
        State.DUAL_WRITING,
    ]


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
    await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
    began.clear()
    rig.executor.feed(ev.LostLeadership(EPOCH))
    await asyncio.wait_for(ending.wait(), PATIENCE_SECONDS)
    rig.executor.lead(ev.BecameLeader(EPOCH + 1, ZkMigrationState.PRE_MIGRATION, enabled=True))
    await rig.until_state(State.DECODING)
    await asyncio.sleep(0)
    assert not began.is_set()
    may_end.set()
    await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
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
