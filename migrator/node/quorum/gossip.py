"""Exchanges gRPC addresses between our own nodes (AdvertiseBroker and DiscoverBrokers of KIP-642).

It concerns addresses only: the log has the voters, and this node's allow-list has the permitted callers. While the
voters are configured (kraft.version 0), their addresses are configured, too, and no node is asked.
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


class GossipTransport(Protocol):
    """The transport of gossip."""

    async def advertise(self, peer: int, own: NodeAddress, timeout: float) -> None:
        """Send our address to a peer.

        :raises TransportError: no answer.
        """

    async def discover(self, peer: int, known: Sequence[NodeAddress], timeout: float) -> Sequence[NodeAddress]:
        """Send a peer the addresses of other nodes, and return those that it knows.

        :raises TransportError: no answer.
        """


class Gossip:
    """The addresses of our nodes. For each node, the entry of the highest leader epoch counts, and within it that of
    the newest boot."""

    def __init__(self, settings: Settings, addresses: Addresses) -> None:
        self._addresses = addresses
        self._principals = settings.grpc_voter_principals
        self._configured = {voter.voter_id: (voter.host, voter.port) for voter in settings.grpc_voters}
        self._heard: dict[int, NodeAddress] = {}
        self._own: NodeAddress | None = None
        self._woken = asyncio.Event()
        self.news_listeners: list[Callable[[], None]] = []
        """Called when a node has a new address."""
        if settings.migrator_grpc_listener:
            host, port = parse_host_port(settings.migrator_grpc_listener)
            host = machine().host_name() if host in EVERYWHERE else host
            host, port = self._configured.get(settings.node_id, (host, port))
            self._own = NodeAddress(settings.node_id, host, port, boot_ms=wall_ms())

    def own(self) -> NodeAddress | None:
        """Our own entry, with the epoch that we know; None when this node has no gRPC address."""
        return None if self._own is None else replace(self._own, leader_epoch=self._addresses.epoch)

    def heard(self) -> tuple[NodeAddress, ...]:
        """The newest entry of each other node."""
        return tuple(self._heard.values())

    def known(self) -> tuple[NodeAddress, ...]:
        """The entries that we send to a peer that asks."""
        own = self.own()
        return self.heard() if own is None else (own, *self.heard())

    def hear(self, known: Sequence[NodeAddress]) -> None:
        """Keep newer entries, of nodes that we are allowed to call."""
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
        """Raise our boot time above an old entry of ours that another node takes for newer, because the clock here was
        set back since."""
        own = self.own()
        is_newer = own is not None and held.leader_epoch == own.leader_epoch and held.boot_ms >= own.boot_ms
        if is_newer and self._own is not None and _place(held) != _place(self._own):
            self._own = replace(self._own, boot_ms=held.boot_ms + 1)

    def _is_plausible(self, address: NodeAddress, latest_ms: int) -> bool:
        """Whether an entry is plausible: one from the far future would always win. The allow-list bounds the number of
        entries."""
        return (
            address.node_id in self._principals.values()
            and is_address(address.host, address.port)
            and 0 <= address.boot_ms <= latest_ms
            and 0 <= address.leader_epoch < EPOCH_LIMIT
        )

    def find(self, node_id: int) -> PeerAddress | None:
        """The address of a node's gRPC server, and how it has to prove its identity; None when unknown."""
        principals = names_of(self._principals, (node_id,))
        heard = None if self._addresses.has_fixed_voters else self._heard.get(node_id)
        at = self._configured.get(node_id) if heard is None else _place(heard)
        return None if at is None or not principals else PeerAddress(host_port(*at), principals)

    def knows(self, node_id: int) -> bool:
        """Whether the address of a node's gRPC server is known."""
        return self.find(node_id) is not None

    def wake(self) -> None:
        """Ask all peers again at once: this node may have news, or look for a node."""
        self._woken.set()

    async def run(self, peers: GossipTransport) -> None:
        """Exchange addresses with all reachable peers until cancelled."""
        while True:
            self._woken.clear()
            await self.ask_around(peers)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await self._woken.wait()

    async def ask_around(self, peers: GossipTransport) -> None:
        """Ask all peers once."""
        if not self._addresses.has_fixed_voters:
            others = {*self._configured, *self._heard} - {self._addresses.node_id}
            await asyncio.gather(*(self._exchange(peers, node_id) for node_id in sorted(others)))

    async def _exchange(self, peers: GossipTransport, node_id: int) -> None:
        """Ask a peer for its addresses, and send it our address unless the peer already has that."""
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
