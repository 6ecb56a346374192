"""BrokerHeartbeat. Cases of Kafka's BrokerHeartbeatManagerTest and ReplicationControlManagerTest."""

from __future__ import annotations

from itertools import product

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.broker_states import TRANSITIONS, BrokerControlState, HeartbeatFacts
from migrator.controller.decision import RefusedError
from migrator.controller.periodic import fence_silent_broker
from migrator.controller.replica_directories import AssignDirectoriesRequest, ReplicaDirectory, assign_directories
from migrator.records.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
from tests.controller.world import SESSION_MS, World, some_uuid


def test_every_state_and_fact_has_exactly_one_transition() -> None:
    states = [state for state in BrokerControlState if state is not BrokerControlState.SHUTDOWN_NOW]
    for state, facts in product(states, product((False, True), repeat=5)):
        rows = [row for row in TRANSITIONS if row.matches(state, HeartbeatFacts(*facts))]
        assert len(rows) == 1, (state, facts, rows)


def test_unfences_when_caught_up_with_its_registration() -> None:
    world = World()
    epoch = world.register(1)
    early = world.beat(1, metadata_offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    assert world.beat(1, metadata_offset=epoch, want_fence=True).is_fenced
    done = world.beat(1, metadata_offset=epoch)
    assert (done.is_caught_up, done.is_fenced) == (True, False)
    assert world.history[-1] == BrokerRegistrationChangeRecord(1, epoch, fenced=-1)
    assert not world.image.cluster.brokers[1].fenced


@pytest.mark.parametrize("epoch_step", [-1, 1])
def test_heartbeat_with_another_epoch(epoch_step: int) -> None:
    world = World()
    epoch = world.register(1)
    with pytest.raises(RefusedError) as refusal:
        world.beat(1, broker_epoch=epoch + epoch_step)
    assert refusal.value.error.code is ErrorCode.stale_broker_epoch


def test_old_levels_fence_with_their_own_records() -> None:
    world = World(level=5)
    epoch = world.register(1)
    world.beat(1)
    world.beat(1, want_fence=True)
    assert world.history[-2:] == [UnfenceBrokerRecord(1, epoch), FenceBrokerRecord(1, epoch)]


def test_fencing_elects_new_leaders_and_the_last_member_stays() -> None:
    world = World()
    world.start([1, 2, 3])
    world.create("t", (1, 2, 3), (2, 1), (1,))
    world.beat(1, want_fence=True)
    found = [(world.partition("t", n).leader, world.partition("t", n).isr) for n in range(3)]
    assert found == [(2, (2, 3)), (2, (2,)), (NO_LEADER, (1,))]
    assert isinstance(world.history[-1], BrokerRegistrationChangeRecord), "the fence comes last"


def test_unfencing_elects_leaders_for_partitions_without() -> None:
    world = World()
    world.start([1, 2])
    world.create("t", (1,), (1, 2))
    world.beat(1, want_fence=True)
    epoch = world.partition("t").leader_epoch
    world.beat(1)
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, epoch + 1)
    assert world.partition("t", 1).leader == 2


def test_controlled_shutdown_waits_until_others_have_seen_it() -> None:
    world = World()
    world.start([1, 2])
    world.create("t", (1, 2))
    first = world.beat(1, want_shut_down=True)
    assert first.state is BrokerControlState.CONTROLLED_SHUTDOWN
    entered = world.next_offset - 1
    assert world.partition("t").leader == 2
    assert world.beat(1, want_shut_down=True).state is BrokerControlState.CONTROLLED_SHUTDOWN
    world.beat(2, metadata_offset=entered - 1)
    assert not world.beat(1, want_shut_down=True).should_shut_down
    world.beat(2, metadata_offset=entered)
    done = world.beat(1, want_shut_down=True)
    assert done.should_shut_down
    assert done.is_fenced
    assert world.image.cluster.brokers[1].fenced


def test_controlled_shutdown_of_a_broker_that_leads_nothing_is_immediate() -> None:
    world = World()
    world.start([1, 2])
    world.create("t", (2, 1))
    assert world.beat(1, want_shut_down=True).should_shut_down
    assert world.partition("t").isr == (2,)


def test_last_replica_stays_in_controlled_shutdown() -> None:
    """Its partition has no other leader; it is leaderless, so nothing keeps the broker."""
    world = World()
    world.start([1])
    world.create("t", (1,))
    assert world.beat(1, want_shut_down=True).state is BrokerControlState.CONTROLLED_SHUTDOWN
    assert world.partition("t").leader == NO_LEADER
    assert world.beat(1, want_shut_down=True).should_shut_down


def test_silent_brokers_are_fenced_one_at_a_time_longest_silence_first() -> None:
    world = World()
    world.start([1, 2])
    world.now_ms += 100
    world.beat(1)
    assert world.sessions.next_check_ms(world.image, world.now_ms) == 1000 + SESSION_MS + 1
    world.now_ms = 1000 + SESSION_MS
    assert fence_silent_broker(world.image, world.context()).response is None
    world.now_ms += 101
    assert world.commit(fence_silent_broker(world.image, world.context())) == 2
    assert world.commit(fence_silent_broker(world.image, world.context())) == 1
    assert world.commit(fence_silent_broker(world.image, world.context())) is None
    assert world.sessions.next_check_ms(world.image, world.now_ms) is None


def test_a_new_leader_gives_everyone_a_fresh_session() -> None:
    world = World()
    world.start([1])
    world.now_ms += 10 * SESSION_MS
    world.sessions.follow(world.image, [1], world.now_ms)
    assert fence_silent_broker(world.image, world.context()).response == 1
    fresh = World()
    fresh.now_ms = world.now_ms
    fresh.sessions.follow(world.image, world.image.cluster.brokers, fresh.now_ms)
    assert fresh.sessions.stalest(world.image, fresh.now_ms) is None


def test_only_a_heartbeat_to_this_leader_within_the_time_out_ends_silence() -> None:
    world = World()
    world.start([1, 2])
    assert world.sessions.silent(world.image, world.now_ms) == frozenset()
    world.now_ms += SESSION_MS
    world.beat(1)
    assert world.sessions.silent(world.image, world.now_ms + 1) == {2}
    next_leader = World()
    next_leader.sessions.follow(world.image, world.image.cluster.brokers, world.now_ms)
    assert next_leader.sessions.silent(world.image, world.now_ms) == {1, 2}


def test_offline_directories_shrink_the_isr_of_their_replicas_only() -> None:
    world = World()
    world.start([2])
    directories = (some_uuid(1), some_uuid(2))
    world.start([1], log_dirs=directories)
    world.create("t", (1, 2), (1, 2))
    topic_id = world.image.topics.ids["t"]
    epoch = world.image.cluster.brokers[1].epoch
    request = AssignDirectoriesRequest(1, epoch, tuple(ReplicaDirectory(directories[n], topic_id, n) for n in range(2)))
    world.decide(assign_directories, request)
    world.beat(1, offline_log_dirs=(directories[0],))
    assert world.partition("t", 0).isr == (2,)
    assert world.partition("t", 1).isr == (1, 2)
    assert world.image.cluster.brokers[1].log_dirs == (directories[1],)
    written = world.next_offset
    world.beat(1, offline_log_dirs=(directories[0],))
    assert world.next_offset == written, "the same news again changes nothing"


def test_an_open_transaction_lets_heartbeats_change_nothing() -> None:
    world = World()
    world.register(1)
    world.transaction_open = True
    written = world.next_offset
    answer = world.beat(1)
    assert (answer.is_caught_up, answer.is_fenced) == (True, True)
    assert world.next_offset == written
    world.transaction_open = False
    assert not world.beat(1).is_fenced
