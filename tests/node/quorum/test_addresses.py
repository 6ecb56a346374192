"""Whose word counts on where a node is."""

from __future__ import annotations

import pytest

from migrator.config.load import settings_from
from migrator.node.quorum.addresses import OWN_KRAFT_VERSIONS, TOLD_MAX, Addresses
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.control import DynamicVoter, VoterEndpoint
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.raft_codec import ListenerEndpoint

OWN_DISK = Uuid(b"d" * 16)
CONFIGURED = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@one:9093,2@two:9093",
    "controller.listener.names": "CONTROLLER,OTHER",
    "listeners": "CONTROLLER://one:9093,OTHER://one:9095",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
}


def addresses(bootstrap: tuple[tuple[str, int], ...] = ()) -> Addresses:
    return Addresses(settings_from(CONFIGURED, "test")[0], OWN_DISK, bootstrap)


def at(host: str, port: int = 9093) -> ListenerEndpoint:
    return ListenerEndpoint("CONTROLLER", host, port)


def voter(voter_id: int, host: str, directory: Uuid = OWN_DISK, listener: str = "CONTROLLER") -> DynamicVoter:
    return DynamicVoter(voter_id, directory, (VoterEndpoint(listener, host, 9093),), OWN_KRAFT_VERSIONS)


def dynamic(*voters: DynamicVoter) -> Membership:
    return Membership(1, VoterSet.of(voters), 5)


def test_while_the_voters_are_configured_nobody_else_says_where_they_are() -> None:
    known = addresses()
    known.follow(lambda: (7, 2))
    known.told_by_leader(2, 7, "elsewhere", 1)
    assert known.find(2) == at("two")
    assert known.voters() == {1: at("one"), 2: at("two")}
    assert known.voter_ids == {1, 2}
    assert known.find(3) is None
    assert known.own_endpoints == (at("one"),)


def test_the_voter_set_in_force_says_where_voters_are_and_takes_its_word_back_with_its_record() -> None:
    known = addresses()
    known.membership_changed(dynamic(voter(2, "moved"), voter(3, "three")))
    assert known.voters() == {2: at("moved"), 3: at("three")}
    assert known.find(2) == at("moved")
    assert known.find(1) == at("one"), "ourselves"
    assert known.directory_of(3) == OWN_DISK
    known.membership_changed(NO_MEMBERSHIP)
    assert known.find(3) is None
    assert known.find(2) == at("two")
    assert known.directory_of(2) == ZERO_UUID


def test_the_leader_of_the_epoch_is_where_it_says_and_no_longer_than_it_leads() -> None:
    known, leadership = addresses(), (7, 2)
    known.follow(lambda: leadership)
    known.membership_changed(dynamic(voter(2, "old")))
    known.told_by_peer(2, 7, "heard", 1)
    known.told_by_peer(2, 7, "heard later", 1)
    assert known.find(2) == at("heard", 1)
    known.told_by_leader(2, 7, "itself", 2)
    known.told_by_peer(2, 7, "heard later", 1)
    assert known.find(2) == at("itself", 2)
    known.told_by_peer(4, 8, "outside the set", 3)
    assert known.find(4) is None, "it does not lead yet"
    leadership = (8, 4)
    assert known.find(4) == at("outside the set", 3)
    assert known.find(2) == at("old")
    known.told_by_leader(2, 7, "too late", 2)
    leadership = (7, 2)
    assert known.find(2) == at("itself", 2)


@pytest.mark.parametrize(
    ("leader_id", "host", "port"),
    [(1, "h", 1), (-2, "h", 1), (2, "", 1), (2, "h" * 254, 1), (2, "h", 0), (2, "h", 65536)],
)
def test_what_cannot_be_is_not_believed(leader_id: int, host: str, port: int) -> None:
    known = addresses(bootstrap=(("boot", 1),))
    known.follow(lambda: (7, leader_id))
    known.membership_changed(dynamic(voter(2, "two")))
    before = known.find(leader_id)
    known.told_by_leader(leader_id, 7, host, port)
    assert known.find(leader_id) == before


def test_what_peers_tell_is_bounded() -> None:
    known = addresses()
    leadership = (7, 5)
    known.follow(lambda: leadership)
    for epoch in range(8, 8 + 3 * TOLD_MAX):
        known.told_by_peer(6, epoch, "h", 1)
    assert len(known._told) == TOLD_MAX
    known.told_by_peer(5, 7, "leader", 1)
    assert known.find(5) == at("leader", 1)
    leadership = (400, 5)
    known.told_by_peer(5, 400, "leader", 1)
    assert len(known._told) == 1, "of epochs that are over"


def test_bootstrap_servers_have_ids_below_minus_one_and_we_do_not_ask_ourselves() -> None:
    known = addresses(bootstrap=(("one", 9093), ("boot", 9093), ("other", 9093), ("boot", 9093)))
    assert known.bootstrap_ids == (-2, -3)
    assert [known.find(server) for server in known.bootstrap_ids] == [at("boot"), at("other")]
    assert known.find(-1) is None
    assert known.find(-4) is None


def test_our_entry_is_wrong_once_we_are_elsewhere_than_the_log_says() -> None:
    known = addresses()
    assert not known.own_entry_is_wrong(), "static voters have no entry"
    known.membership_changed(dynamic(voter(1, "one"), voter(2, "two")))
    assert not known.own_entry_is_wrong()
    known.membership_changed(dynamic(voter(1, "old"), voter(2, "two")))
    assert known.own_entry_is_wrong()
    assert known.own_voter() == voter(1, "one")
    known.membership_changed(dynamic(voter(1, "old", Uuid(b"e" * 16))))
    assert not known.own_entry_is_wrong(), "another disk's entry is not ours"
    known.membership_changed(dynamic(voter(2, "old")))
    assert not known.own_entry_is_wrong()


def test_a_voter_without_our_listener_is_a_voter_that_cannot_be_reached() -> None:
    known = addresses()
    known.membership_changed(dynamic(voter(1, "one"), voter(3, "three", listener="ELSE")))
    assert known.voter_ids == {1, 3}
    assert known.find(3) is None
    assert known.endpoints_of(3) == (ListenerEndpoint("ELSE", "three", 9093),)
