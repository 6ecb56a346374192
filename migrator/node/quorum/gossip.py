"""gRPC addresses of our own nodes, told from one to the other (AdvertiseBroker and DiscoverBrokers of KIP-642).

Addresses only: who votes is in the log, and who may call is in this node's allow-list. While the voters are configured
(kraft.version 0), so are their addresses, and nobody is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from migrator.clock import wall_ms
from migrator.config.endpoints import parse_host_port
from migrator.config.principals import names_of
from migrator.config.settings import Settings
from migrator.machine import machine
from migrator.node.quorum.addresses import Addresses, is_address
from migrator.raft.config import EPOCH_LIMIT
from migrator.raft.transport import TransportError
from migrator.rpc.channel import host_port
from migrator.rpc.quorum_service import NodeAddress
from migrator.rpc.raft_transport import PeerAddress

log = logging.getLogger(__name__)

CLOCKS_DIFFER_MS = 24 * 3600 * 1000
PERIOD_SECONDS = 5.0
REQUEST_SECONDS = 5.0
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what a listener may be bound to, and nobody can connect to


class Peers(Protocol):
    """What gossip goes through."""

    async def advertise(self, peer: int, own: NodeAddress, timeout: float) -> None:
        """Tell a peer where we are.

        :raises TransportError: no answer.
        """

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> Sequence[NodeAddress]:
        """Tell a peer what we have heard of others, learn what it knows.

        :raises TransportError: no answer.
        """


class Gossip:
    """Of each node, the word of the highest leader epoch counts, within it that of the newest boot."""

    def __init__(self, settings: Settings, addresses: Addresses) -> None:
        self._addresses = addresses
        self._principals = settings.grpc_voter_principals
        self._configured = {voter.voter_id: (voter.host, voter.port) for voter in settings.grpc_voters}
        self._heard: dict[int, NodeAddress] = {}
        self._own: NodeAddress | None = None
        self._woken = asyncio.Event()
        self.news_listeners: list[Callable[[], None]] = []
        """Told when a node is known to be elsewhere than before."""
        if settings.migrator_grpc_listener:
            host, port = parse_host_port(settings.migrator_grpc_listener)
            host = machine().host_name() if host in EVERYWHERE else host
            host, port = self._configured.get(settings.node_id, (host, port))
            self._own = NodeAddress(settings.node_id, host, port, boot_ms=wall_ms())

    def own(self) -> NodeAddress | None:
        """Our own word, which is as new as the epoch that we know; None: nobody can reach us."""
        return None if self._own is None else replace(self._own, leader_epoch=self._addresses.epoch)

    def heard(self) -> tuple[NodeAddress, ...]:
        """The newest word of each other node."""
        return tuple(self._heard.values())

    def known(self) -> tuple[NodeAddress, ...]:
        """What we tell who asks."""
        own = self.own()
        return self.heard() if own is None else (own, *self.heard())

    def hear(self, known: Sequence[NodeAddress]) -> None:
        """Keep what is newer, of nodes that may have our calls."""
        latest_ms = wall_ms() + CLOCKS_DIFFER_MS
        before = {node_id: _place(address) for node_id, address in self._heard.items()}
        for address in known:
            held = self._heard.get(address.node_id)
            if not self._is_plausible(address, latest_ms) or (held is not None and _age(held) >= _age(address)):
                continue
            if address.node_id == self._addresses.node_id:
                self._outlive(address)
            else:
                self._heard[address.node_id] = address
        if before != {node_id: _place(address) for node_id, address in self._heard.items()}:
            for listener in self.news_listeners:
                listener()

    def _outlive(self, held: NodeAddress) -> None:
        """Somebody holds an earlier place of ours for a newer one, because the clock here has been set back since."""
        own = self.own()
        is_newer = own is not None and held.leader_epoch == own.leader_epoch and held.boot_ms >= own.boot_ms
        if is_newer and self._own is not None and _place(held) != _place(self._own):
            self._own = replace(self._own, boot_ms=held.boot_ms + 1)

    def _is_plausible(self, address: NodeAddress, latest_ms: int) -> bool:
        """One from the end of time would win always; the allow-list bounds how many there are."""
        return (
            address.node_id in self._principals.values()
            and is_address(address.host, address.port)
            and 0 <= address.boot_ms <= latest_ms
            and 0 <= address.leader_epoch < EPOCH_LIMIT
        )

    def find(self, node_id: int) -> PeerAddress | None:
        """Where a node's gRPC server is, and how it has to prove who it is; None: nobody knows."""
        principals = names_of(self._principals, (node_id,))
        heard = None if self._addresses.has_fixed_voters else self._heard.get(node_id)
        at = self._configured.get(node_id) if heard is None else _place(heard)
        return None if at is None or not principals else PeerAddress(host_port(*at), principals)

    def knows(self, node_id: int) -> bool:
        """Whether anybody has said where a node's gRPC server is."""
        return self.find(node_id) is not None

    def wake(self) -> None:
        """Ask around again at once: there may be something new to tell, or somebody to look for."""
        self._woken.set()

    async def run(self, peers: Peers) -> None:
        """Until cancelled: tell everybody whom we can reach what we know, learn what they know."""
        while True:
            self._woken.clear()
            await self.ask_around(peers)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await self._woken.wait()

    async def ask_around(self, peers: Peers) -> None:
        """One round."""
        if not self._addresses.has_fixed_voters:
            others = {*self._configured, *self._heard} - {self._addresses.node_id}
            await asyncio.gather(*(self._exchange(peers, node_id) for node_id in sorted(others)))

    async def _exchange(self, peers: Peers, node_id: int) -> None:
        """Ask a peer, and tell it where we are unless it knows."""
        try:
            known = await peers.discover(node_id, self.heard(), REQUEST_SECONDS)
            self.hear(known)
            own = self.own()
            if own is not None and own not in known:
                await peers.advertise(node_id, own, REQUEST_SECONDS)
        except TransportError as error:
            log.debug("No addresses from node %d: %s", node_id, error)


def _age(address: NodeAddress) -> tuple[int, int]:
    return address.leader_epoch, address.boot_ms


def _place(address: NodeAddress) -> tuple[str, int]:
    return address.host, address.port
