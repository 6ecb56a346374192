"""The answers of the quorum's gRPC service beside consensus: addresses, and digests of the image.

`migrator.rpc.quorum_service` calls `NodeQuorumView`. It reads the node's state and changes only what this node knows of
addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.gossip import Gossip
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.rpc.quorum_service import ImageDigest, NodeAddress
from migrator.wire.raft_codec import ListenerEndpoint


class DigestAt(Protocol):
    """`ImageProof.image_digest`."""

    def __call__(self, offset: int, *, replay: bool) -> ImageDigest: ...


class NodeQuorumView:
    """A `migrator.rpc.quorum_service.QuorumView`.

    :param image_digest: see `migrator.node.image_proof.ImageProof`.
    """

    def __init__(self, quorum: QuorumRunner, addresses: Addresses, gossip: Gossip, image_digest: DigestAt) -> None:
        self._image_digest = image_digest
        self._quorum = quorum
        self._addresses = addresses
        self._gossip = gossip

    def advertised(self, address: NodeAddress) -> None:
        """See `QuorumView`."""
        self._gossip.hear([address])

    def discover(self, known: Sequence[NodeAddress]) -> Sequence[NodeAddress]:
        """See `QuorumView`."""
        self._gossip.hear(known)
        return self._gossip.known()

    def image_digest(self, offset: int, *, replay: bool) -> ImageDigest:
        """See `QuorumView`."""
        return self._image_digest(offset, replay=replay)

    def leader_endpoint(self, leader_id: int) -> ListenerEndpoint | None:
        """See `QuorumView`."""
        is_dynamic = self._addresses.kraft_version >= DYNAMIC_VERSION
        return self._addresses.find(leader_id) if is_dynamic and leader_id >= 0 else None

    def told(self, leader_id: int, epoch: int, host: str, port: int) -> None:
        """See `QuorumView`."""
        self._addresses.told_by_leader(leader_id, epoch, host, port)
