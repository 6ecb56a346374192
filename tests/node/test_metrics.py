"""A controller's metrics of the migration in each state, and of brokers after an election."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.clock import monotonic_ms
from migrator.controller.sessions import Sessions
from migrator.image.model import EMPTY_IMAGE
from migrator.migration.machine.readiness import Readiness
from migrator.migration.machine.states import State, public_state
from migrator.migration.machine.volatile_state import DriverStatus, Situation
from migrator.node import metrics
from migrator.node.metrics import kafka_raft_state, migration_figures
from migrator.node.propagation import PENDING_MAX, KRaftPropagation, Pending
from migrator.node.status_source import NodeStatusSource
from migrator.observe.loop_health import LoopHealth
from migrator.observe.metrics import MigrationFigures, Reading
from migrator.observe.propagation import PROPAGATION, PropagationTimes
from migrator.observe.status import BrokerState
from migrator.raft.core import QuorumInfo
from migrator.raft.states import Role
from migrator.raft.voter_set import ReplicaKey
from migrator.records.metadata import RegisterBrokerRecord, TopicRecord, ZkMigrationState
from tests.image.support.strategies import small_uuid
from tests.migration.support.builders import broker, cluster
from tests.node.support.cluster import running, until
from tests.observe.test_metrics import READING
from tests.patience import PATIENCE_SECONDS

WAITING, COPYING, DUAL, FINISHED = 0, 1, 2, 3
PUBLIC = {
    State.EXAMINING: WAITING,
    State.REFUSED: WAITING,
    State.WAITING_FOR_CONTROLLERS: WAITING,
    State.WAITING_FOR_BROKERS: WAITING,
    State.DECODING: WAITING,
    State.PAUSED: WAITING,
    State.RELEASING: COPYING,
    State.AWAITING_ELECTION: WAITING,  # nobody copies, and perhaps no broker runs
    State.CLAIMING: COPYING,
    State.COPYING: COPYING,
    State.COMMITTING: COPYING,
    State.ABORTING: COPYING,
}
"""Before the copy is in the log; afterwards each state is DualWrite until the end."""


NOT_READY = Readiness((), (), ineligible_brokers=2, ineligible_controllers=1)


def status(state: State, record: ZkMigrationState, *, connected: bool = True) -> DriverStatus:
    return DriverStatus(
        state=state,
        public=public_state(record, state),
        epoch=5,
        age_ms=1234,
        situation=Situation(),
        zookeeper_connected=connected,
        paused=False,
        readiness=NOT_READY,
    )


def present(figures: MigrationFigures) -> list[str]:
    return [name for name, is_present in figures.internal_states.items() if is_present]


@pytest.mark.parametrize(("state", "record"), list(itertools.product(State, ZkMigrationState)), ids=str)
def test_an_active_controller_shows_its_internal_state(state: State, record: ZkMigrationState) -> None:
    figures = migration_figures(record, status(state, record), enabled=True)
    assert present(figures) == [state.value]
    expected = {
        ZkMigrationState.MIGRATION: DUAL,
        ZkMigrationState.POST_MIGRATION: FINISHED,
    }.get(record, PUBLIC.get(state, WAITING))
    assert figures.public_state == expected
    assert figures.dual_writing is (state is State.DUAL_WRITING)
    assert figures.state_age_ms == (0 if state is State.INACTIVE else 1234)
    waits = expected == WAITING
    assert (figures.ineligible_brokers, figures.ineligible_controllers) == ((2, 1) if waits else (0, 0))


@pytest.mark.parametrize("record", list(ZkMigrationState))
def test_who_does_not_lead_shows_the_record_and_counts_nobody(record: ZkMigrationState) -> None:
    figures = migration_figures(record, None, enabled=False)
    assert present(figures) == [State.INACTIVE.value]
    assert figures.public_state == public_state(record).number
    assert not figures.dual_writing
    assert not figures.enabled
    assert (figures.ineligible_brokers, figures.ineligible_controllers, figures.state_age_ms) == (0, 0, 0)


def test_dual_writing_without_zookeeper_is_not_dual_writing() -> None:
    record = ZkMigrationState.MIGRATION
    assert not migration_figures(record, status(State.DUAL_WRITING, record, connected=False), enabled=True).dual_writing


def test_a_broker_that_was_offline_is_offline_after_a_failover_too() -> None:
    """A new leader has heard of nobody; its patience with brokers that may be up does not make a dead one alive."""
    image = replace(EMPTY_IMAGE, cluster=cluster([replace(broker(1), fenced=True), broker(2)], []))
    sessions = Sessions(timeout_ms=9_000)
    sessions.begin(image, now_ms=0)
    assert sessions.is_silent(1, now_ms=1)
    assert sessions.is_valid(image.cluster.brokers[2], now_ms=1), "and nobody is fenced for it"
    sessions.heard(1, image.cluster.brokers[1].epoch, now_ms=1)
    assert not sessions.is_silent(1, now_ms=2)
    sessions.follow(image, [1], now_ms=2)
    assert not sessions.is_silent(1, now_ms=2)
    assert sessions.is_silent(1, now_ms=10_000)
    fresh = replace(image, cluster=cluster([replace(broker(1), epoch=99, fenced=True)], []))
    sessions.follow(fresh, [1], now_ms=20_000)
    assert not sessions.is_silent(1, now_ms=20_001), "a registration is a sign of life"


@pytest.mark.parametrize(
    ("role", "vote", "is_voter", "kafkas"),
    [
        (Role.LEADER, 1, True, "leader"),
        (Role.CANDIDATE, 1, True, "candidate"),
        (Role.FOLLOWER, None, True, "follower"),
        (Role.FOLLOWER, None, False, "observer"),
        (Role.UNATTACHED, None, True, "unattached"),
        (Role.UNATTACHED, 2, True, "voted"),
        (Role.PROSPECTIVE, 2, True, "voted"),
        (Role.RESIGNED, None, True, "unattached"),
    ],
)
def test_the_state_in_the_quorum_has_kafkas_name(role: Role, vote: int | None, is_voter: bool, kafkas: str) -> None:
    key = None if vote is None else ReplicaKey(vote)
    assert kafka_raft_state(QuorumInfo(role, 4, None, 0, (), (), vote=key, is_voter=is_voter)) == kafkas


async def test_each_leader_counts_once_and_a_leader_has_voted_for_itself(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as opened:
        leader = await opened.leader()
        others = [node for node in opened.nodes.values() if node is not leader]
        await until(lambda: all(node.quorum.leader_id is not None for node in others), "all to know the leader")
        assert [node.leadership.leaders_seen for node in opened.nodes.values()] == [1, 1, 1]
        status = leader.quorum.status()
        assert status.vote is not None
        assert status.vote.node_id == status.leader_id
        assert [node.quorum.status().vote for node in others] == [None, None]
        leader.quorum.resign(status.epoch)
        await until(lambda: all(node.leadership.leaders_seen > 1 for node in opened.nodes.values()), "a new leader")


async def test_while_the_loop_is_blocked_a_scrape_gets_the_last_reading_and_the_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "READING_SECONDS", 0.01)
    errors = [OSError("broken")]

    def read() -> Reading:
        if errors:
            raise errors.pop()
        return READING

    health = LoopHealth()
    health.start()
    scrape = metrics.LoopReader(read, health)
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(TimeoutError):
            thread.submit(scrape).result(PATIENCE_SECONDS)
        monkeypatch.setattr(metrics, "READING_SECONDS", PATIENCE_SECONDS)
        with pytest.raises(OSError, match="broken"):
            await asyncio.wrap_future(thread.submit(scrape))
        assert await asyncio.wrap_future(thread.submit(scrape)) == READING
        monkeypatch.setattr(metrics, "READING_SECONDS", 0.2)
        late = thread.submit(scrape).result(PATIENCE_SECONDS)  # on the loop's thread, which is blocked by this
    assert late == replace(READING, event_loop_stall_ms=late.event_loop_stall_ms)
    assert late.event_loop_stall_ms > 0
    health.stop()


async def test_status_says_offline_at_once_after_an_election(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as opened:
        leader = await opened.leader()
        no_migration: Any = None
        source = NodeStatusSource(opened.settings(1), leader, no_migration, lambda _: [])
        dead = replace(broker(1), fenced=True)
        leader.keeper.sessions.begin(replace(EMPTY_IMAGE, cluster=cluster([dead], [])), monotonic_ms())
        assert source._broker(dead).state is BrokerState.OFFLINE
        assert source._broker(dead).heartbeat_age_ms == -1
        assert source._broker(dead).silent_ms >= 0
        leader.keeper.sessions.heard(1, dead.epoch, monotonic_ms())
        assert source._broker(dead).state is BrokerState.FENCED


async def test_a_change_is_measured_until_the_last_broker_in_kraft_mode_reports_it(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as opened:
        leader = await opened.leader()
        times = PropagationTimes()
        following = KRaftPropagation(leader, times, opened.failures.append)
        both = (registered(1), registered(2))
        topic = TopicRecord("t", small_uuid(9))
        epoch = leader.controller.epoch
        assert epoch is not None
        offset = await leader.controller.append(epoch, [*both, topic])
        await leader.metadata.stable(offset)
        leader.keeper.sessions.reported(1, offset)
        following._look()
        assert len(following._pending) == 1, "broker 2 does not know it"
        leader.keeper.sessions.reported(2, offset)
        await until(lambda: not following._pending, "both to know it")
        counts = {
            sample.labels["mode"]: sample.value
            for family in times.histogram.collect()
            for sample in family.samples
            if sample.name == f"{PROPAGATION}_count"
        }
        assert counts == {"kraft": 1, "zookeeper": 0}
        following.close()


def registered(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, False, small_uuid(broker_id), broker_id, (), (), None, fenced=False)


def test_changes_beyond_the_bound_are_not_measured() -> None:
    pending = Pending()
    for offset in range(PENDING_MAX + 10):
        pending.committed(offset, now=float(offset))
    assert len(pending) == PENDING_MAX
    assert pending.known_up_to(1, now=5.0) == [5.0, 4.0]
    assert len(pending) == PENDING_MAX - 2
