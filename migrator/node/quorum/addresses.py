"""The controller endpoints of the nodes of the quorum, by node id.

While the voters are configured (kraft.version 0), the endpoints are configured, too. From kraft.version 1 on they are
in the voter set in force. For the leader of the epoch, its own message counts more, and so does that of a peer which
names it: the leader may have moved since the set was written, or may be removing itself. Bootstrap servers, whose ids
are unknown, have the ids -2, -3, ... (``controller.quorum.bootstrap.servers``, as in ``KafkaRaftClient``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from migrator.config.settings import Settings
from migrator.image.model import ControllerRegistration
from migrator.raft.voter_set import DYNAMIC_VERSION, NO_MEMBERSHIP, Membership
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.listener_settings import own_endpoints, voter_endpoints
from migrator.wire.raft_codec import ListenerEndpoint

TOLD_MAX = 100
"""The most endpoints of leaders that are kept, however many peers send."""
HOST_NAME_MAX = 253
PORT_MAX = 65_535
FIRST_BOOTSTRAP_ID = -2
OWN_KRAFT_VERSIONS = KRaftVersionRange(0, 1)
"""The kraft.versions that this program supports, as in our ApiVersions."""


def is_address(host: str, port: int) -> bool:
    """Whether a node can have this address."""
    return 0 < len(host) <= HOST_NAME_MAX and 0 < port <= PORT_MAX


class Addresses:
    """Built from the settings, and updated with every change.

    :param directory_id: the directory id of this node's disk.
    :param bootstrap: ``controller.quorum.bootstrap.servers``.
    """

    def __init__(
        self, settings: Settings, directory_id: Uuid = ZERO_UUID, bootstrap: Sequence[tuple[str, int]] = ()
    ) -> None:
        self.node_id = settings.node_id
        self.listener = settings.controller_listeners[0]
        """The name of the listener on which peers are reached."""
        self.own_endpoints = own_endpoints(settings)
        """All our controller listeners, as other nodes get them."""
        self.directory_id = directory_id
        self.membership: Membership = NO_MEMBERSHIP
        """The membership in force at the end of this node's log."""
        self._configured = voter_endpoints(settings)
        self._own = next((at for at in self.own_endpoints if at.listener == self.listener), None)
        own = None if self._own is None else (self._own.host, self._own.port)
        others = [at for at in dict.fromkeys(bootstrap) if at != own]
        self._bootstrap = {
            FIRST_BOOTSTRAP_ID - number: ListenerEndpoint(self.listener, *at) for number, at in enumerate(others)
        }
        self._voters: Mapping[int, ListenerEndpoint] = self._configured
        self._told: dict[tuple[int, int], ListenerEndpoint] = {}
        """The endpoints that were sent, by epoch and leader."""
        self._leadership: Callable[[], tuple[int, int | None]] = lambda: (0, None)
        self._controllers: Callable[[], Mapping[int, ControllerRegistration]] = dict

    def follow(
        self,
        leadership: Callable[[], tuple[int, int | None]],
        controllers: Callable[[], Mapping[int, ControllerRegistration]] = dict,
    ) -> None:
        """Set where the leader and the registrations are looked up.

        :param leadership: gives this node's epoch, and the leader if it is known.
        :param controllers: gives the controllers in the image at the end of this node's log.
        """
        self._leadership = leadership
        self._controllers = controllers

    def membership_changed(self, membership: Membership) -> None:
        """Another membership is in force: a set was appended, cut or replaced by a snapshot's."""
        self.membership = membership
        if membership.voters is None:
            self._voters = self._configured
        else:
            found = {voter.voter_id: self.default_of(voter) for voter in membership.voters.voters}
            self._voters = {voter: at for voter, at in found.items() if at is not None}

    def default_of(self, voter: DynamicVoter) -> ListenerEndpoint | None:
        """The endpoint of a voter on the listener for peers."""
        named = (at for at in voter.endpoints if at.name.upper() == self.listener)
        return next((ListenerEndpoint(self.listener, at.host, at.port) for at in named), None)

    def told_by_leader(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        """The leader of an epoch has sent its own endpoint, which counts more than endpoints from others."""
        if self._is_news(leader_id, epoch, host, port):
            self._note(leader_id, epoch, host, port)

    def told_by_peer(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        """A peer has sent the endpoint of the leader of an epoch; the first one counts."""
        if self._is_news(leader_id, epoch, host, port) and (epoch, leader_id) not in self._told:
            self._note(leader_id, epoch, host, port)

    def _is_news(self, leader_id: int, epoch: int, host: str, port: int) -> bool:
        return 0 <= leader_id != self.node_id and epoch >= self._leadership()[0] and is_address(host, port)

    def _note(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        now = self._leadership()[0]
        self._told = {key: at for key, at in self._told.items() if key[0] >= now and key != (epoch, leader_id)}
        if len(self._told) >= TOLD_MAX:
            self._told.pop(next(iter(self._told)))
        self._told[epoch, leader_id] = ListenerEndpoint(self.listener, host, port)

    # Look-ups

    @property
    def epoch(self) -> int:
        """The leader epoch that this node knows."""
        return self._leadership()[0]

    @property
    def kraft_version(self) -> int:
        """0 while the voters are configured."""
        return self.membership.kraft_version

    @property
    def has_fixed_voters(self) -> bool:
        """Whether the configuration names the voters, and where they are (kraft.version 0). A node that has only
        bootstrap servers does not know its voters yet."""
        return self.kraft_version < DYNAMIC_VERSION and bool(self._configured)

    @property
    def voter_ids(self) -> frozenset[int]:
        """The voters in force: from the log, or else from the configuration."""
        voters = self.membership.voters
        return frozenset(self._configured) if voters is None else voters.ids

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """Ids of the bootstrap servers, which may be asked for the leader; without this node."""
        return tuple(self._bootstrap)

    def own(self) -> ListenerEndpoint | None:
        """The endpoint at which peers reach this node."""
        return self._own

    def voters(self) -> Mapping[int, ListenerEndpoint]:
        """The endpoints of the voters in force; without voters whose endpoint has another listener name than ours."""
        return self._voters

    def registered(self) -> Mapping[int, ListenerEndpoint]:
        """The endpoints with which controllers have registered, voters or not: other nodes find a new voter there."""
        found = ((each.controller_id, at) for each in self._controllers().values() for at in each.listeners)
        return {
            node_id: ListenerEndpoint(at.name, at.host, at.port) for node_id, at in found if at.name == self.listener
        }

    def find(self, node_id: int) -> ListenerEndpoint | None:
        """The endpoint of a node; None when unknown."""
        if node_id < 0:
            return self._bootstrap.get(node_id)
        if node_id == self.node_id:
            return self._own
        if self.membership.voters is None and node_id in self._configured:
            return self._configured[node_id]
        epoch, leader_id = self._leadership()
        told = self._told.get((epoch, node_id)) if leader_id == node_id else None
        return told or self._voters.get(node_id) or self._configured.get(node_id)

    def knows(self, node_id: int) -> bool:
        """Whether the endpoint of a node is known."""
        return self.find(node_id) is not None

    def endpoints_of(self, node_id: int) -> tuple[ListenerEndpoint, ...]:
        """All endpoints of a voter, for descriptions of the quorum."""
        voter = None if self.membership.voters is None else self.membership.voters.find(node_id)
        if voter is not None:
            return tuple(ListenerEndpoint(at.name, at.host, at.port) for at in voter.endpoints)
        at = self.find(node_id)
        return () if at is None else (at,)

    def directory_of(self, voter_id: int) -> Uuid:
        """The directory id of a voter in the log."""
        voters = self.membership.voters
        return ZERO_UUID if voters is None else voters.key(voter_id).directory_id

    def own_voter(self) -> DynamicVoter:
        """The entry that this node should have in the log as a voter."""
        endpoints = tuple(VoterEndpoint(at.listener, at.host, at.port) for at in self.own_endpoints)
        return DynamicVoter(self.node_id, self.directory_id, endpoints, OWN_KRAFT_VERSIONS)

    def own_entry_is_wrong(self) -> bool:
        """Whether the log names this node and its disk as a voter, but with other endpoints or versions (KIP-853)."""
        voters = self.membership.voters
        if self._own is None or voters is None or not voters.has(self.node_id, self.directory_id):
            return False
        named = voters.find(self.node_id)
        return (
            is_address(self._own.host, self._own.port) and named is not None and not _is_same(named, self.own_voter())
        )


def _is_same(one: DynamicVoter, other: DynamicVoter) -> bool:
    """Whether two entries are equal, regardless of order and case of their listeners."""
    return one.k_raft_version_feature == other.k_raft_version_feature and _by_name(one) == _by_name(other)


def _by_name(voter: DynamicVoter) -> dict[str, tuple[str, int]]:
    return {at.name.upper(): (at.host, at.port) for at in voter.endpoints}
