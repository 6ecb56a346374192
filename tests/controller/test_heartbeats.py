"""BrokerHeartbeat. Cases of Kafka's BrokerHeartbeatManagerTest and ReplicationControlManagerTest."""

from __future__ import annotations

from itertools import product

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.heartbeats import TRANSITIONS, BrokerControlState, HeartbeatFacts
from migrator.controller.replica_directories import AssignDirectoriesRequest, ReplicaDirectory, assign_directories
from migrator.controller.schedule import fence_silent_broker
from migrator.controller.sessions import Sessions
from migrator.records.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
)
from tests.controller.support.leading_controller import SESSION_MS, LeadingController, some_uuid


def test_every_state_and_fact_has_exactly_one_transition() -> None:
    states = [state for state in BrokerControlState if state is not BrokerControlState.SHUTDOWN_NOW]
    for state, facts in product(states, product((False, True), repeat=5)):
        rows = [row for row in TRANSITIONS if row.matches(state, HeartbeatFacts(*facts))]
        assert len(rows) == 1, (state, facts, rows)


def test_unfences_when_caught_up_with_its_registration() -> None:
    controller = LeadingController()
    epoch = controller.register(1)
    early = controller.beat(1, metadata_offset=epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    assert controller.beat(1, metadata_offset=epoch, want_fence=True).is_fenced
    done = controller.beat(1, metadata_offset=epoch)
    assert (done.is_caught_up, done.is_fenced) == (True, False)
    assert controller.history[-1] == BrokerRegistrationChangeRecord(1, epoch, fenced=-1)
    assert not controller.image.cluster.brokers[1].fenced


@pytest.mark.parametrize("epoch_step", [-1, 1])
def test_heartbeat_with_another_epoch(epoch_step: int) -> None:
    controller = LeadingController()
    epoch = controller.register(1)
    with pytest.raises(RefusedError) as refusal:
        controller.beat(1, broker_epoch=epoch + epoch_step)
    assert refusal.value.error.code is ErrorCode.stale_broker_epoch


def test_old_levels_fence_with_their_own_records() -> None:
    controller = LeadingController(level=5)
    epoch = controller.register(1)
    controller.beat(1)
    controller.beat(1, want_fence=True)
    assert controller.history[-2:] == [UnfenceBrokerRecord(1, epoch), FenceBrokerRecord(1, epoch)]


def test_fencing_elects_new_leaders_and_the_last_member_stays() -> None:
    controller = LeadingController()
    controller.start([1, 2, 3])
    controller.create("t", (1, 2, 3), (2, 1), (1,))
    controller.beat(1, want_fence=True)
    found = [(controller.partition("t", n).leader, controller.partition("t", n).isr) for n in range(3)]
    assert found == [(2, (2, 3)), (2, (2,)), (NO_LEADER, (1,))]
    assert isinstance(controller.history[-1], BrokerRegistrationChangeRecord), "the fence comes last"


def test_unfencing_elects_leaders_for_partitions_without() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1,), (1, 2))
    controller.beat(1, want_fence=True)
    epoch = controller.partition("t").leader_epoch
    controller.beat(1)
    assert (controller.partition("t").leader, controller.partition("t").leader_epoch) == (1, epoch + 1)
    assert controller.partition("t", 1).leader == 2


def test_controlled_shutdown_waits_until_others_have_seen_it() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2))
    first = controller.beat(1, want_shut_down=True)
    assert first.state is BrokerControlState.CONTROLLED_SHUTDOWN
    entered = controller.next_offset - 1
    assert controller.partition("t").leader == 2
    assert controller.beat(1, want_shut_down=True).state is BrokerControlState.CONTROLLED_SHUTDOWN
    controller.beat(2, metadata_offset=entered - 1)
    assert not controller.beat(1, want_shut_down=True).should_shut_down
    controller.beat(2, metadata_offset=entered)
    done = controller.beat(1, want_shut_down=True)
    assert done.should_shut_down
    assert done.is_fenced
    assert controller.image.cluster.brokers[1].fenced


def test_controlled_shutdown_of_a_broker_that_leads_nothing_is_immediate() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (2, 1))
    assert controller.beat(1, want_shut_down=True).should_shut_down
    assert controller.partition("t").isr == (2,)


def test_last_replica_stays_in_controlled_shutdown() -> None:
    """Its partition has no other leader; it is leaderless, so nothing keeps the broker."""
    controller = LeadingController()
    controller.start([1])
    controller.create("t", (1,))
    assert controller.beat(1, want_shut_down=True).state is BrokerControlState.CONTROLLED_SHUTDOWN
    assert controller.partition("t").leader == NO_LEADER
    assert controller.beat(1, want_shut_down=True).should_shut_down


def test_silent_brokers_are_fenced_one_at_a_time_longest_silence_first() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    controller.now_ms += 100
    controller.beat(1)
    assert controller.sessions.next_check_ms(controller.image, controller.now_ms) == 1000 + SESSION_MS + 1
    controller.now_ms = 1000 + SESSION_MS
    assert fence_silent_broker(controller.image, controller.context()).response is None
    controller.now_ms += 101
    assert controller.commit(fence_silent_broker(controller.image, controller.context())) == 2
    assert controller.commit(fence_silent_broker(controller.image, controller.context())) == 1
    assert controller.commit(fence_silent_broker(controller.image, controller.context())) is None
    assert controller.sessions.next_check_ms(controller.image, controller.now_ms) is None


def test_a_new_leader_gives_everyone_a_fresh_session() -> None:
    controller = LeadingController()
    controller.start([1])
    controller.now_ms += 10 * SESSION_MS
    controller.sessions.follow(controller.image, [1], controller.now_ms)
    assert fence_silent_broker(controller.image, controller.context()).response == 1
    fresh = LeadingController()
    fresh.now_ms = controller.now_ms
    fresh.sessions.follow(controller.image, controller.image.cluster.brokers, fresh.now_ms)
    assert fresh.sessions.stalest(controller.image, fresh.now_ms) is None


def test_only_a_heartbeat_to_this_leader_within_the_time_out_ends_silence() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    assert controller.sessions.silent(controller.image, controller.now_ms) == frozenset()
    controller.now_ms += SESSION_MS
    controller.beat(1)
    assert controller.sessions.silent(controller.image, controller.now_ms + 1) == {2}
    next_leader = LeadingController()
    next_leader.sessions.follow(controller.image, controller.image.cluster.brokers, controller.now_ms)
    assert next_leader.sessions.silent(controller.image, controller.now_ms) == {1, 2}


def test_offline_directories_shrink_the_isr_of_their_replicas_only() -> None:
    controller = LeadingController()
    controller.start([2])
    directories = (some_uuid(1), some_uuid(2))
    controller.start([1], log_dirs=directories)
    controller.create("t", (1, 2), (1, 2))
    topic_id = controller.image.topics.ids["t"]
    epoch = controller.image.cluster.brokers[1].epoch
    request = AssignDirectoriesRequest(1, epoch, tuple(ReplicaDirectory(directories[n], topic_id, n) for n in range(2)))
    controller.decide(assign_directories, request)
    controller.beat(1, offline_log_dirs=(directories[0],))
    assert controller.partition("t", 0).isr == (2,)
    assert controller.partition("t", 1).isr == (1, 2)
    assert controller.image.cluster.brokers[1].log_dirs == (directories[1],)
    written = controller.next_offset
    controller.beat(1, offline_log_dirs=(directories[0],))
    assert controller.next_offset == written, "the same news again changes nothing"


def test_an_open_transaction_lets_heartbeats_change_nothing() -> None:
    controller = LeadingController()
    controller.register(1)
    controller.transaction_open = True
    written = controller.next_offset
    answer = controller.beat(1)
    assert (answer.is_caught_up, answer.is_fenced) == (True, True)
    assert controller.next_offset == written
    controller.transaction_open = False
    assert not controller.beat(1).is_fenced


def test_a_process_lived_for_sure_at_what_it_sent_before_its_last_heartbeat() -> None:
    """That may have waited in the network while the process ended; it was sent after the answer to the one before."""
    controller = LeadingController()
    controller.register(1)
    registered = controller.now_ms
    assert controller.sessions.alive_ms == {}
    controller.now_ms += 5
    controller.beat(1)
    assert controller.sessions.alive_ms == {1: registered}
    controller.now_ms += 5
    controller.transaction_open = True
    controller.beat(1)
    assert controller.sessions.alive_ms == {1: registered + 5}, "also during the copy"
    controller.transaction_open = False
    controller.now_ms += 2 * SESSION_MS
    epoch = controller.register(1, incarnation=2)
    assert controller.sessions.alive_ms == {}
    next_leader = Sessions(SESSION_MS)
    next_leader.begin(controller.image, 1_000)
    next_leader.heard(1, epoch, 2_000)
    assert next_leader.alive_ms == {}, "it was heard of once only"
    next_leader.heard(1, epoch, 3_000)
    assert next_leader.alive_ms == {1: 2_000}
