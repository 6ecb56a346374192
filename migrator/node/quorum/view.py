"""What the quorum's gRPC service tells besides consensus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from migrator.clock import monotonic_ms, wall_ms
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.progress import ReplicaStatus
from migrator.rpc.quorum_service import NodeAddress, QuorumDescription, ReplicaProgress

CLOCKS_DIFFER_MS: Final = 24 * 3600 * 1000
HOST_NAME_MAX: Final = 253
PORT_MAX: Final = 65_535


class NodeQuorumView:
    """A `migrator.rpc.quorum_service.QuorumView`.

    :param own: this node's address.
    :param voters: whose addresses are kept; whatever else a peer names is passed over.
    """

    def __init__(self, quorum: QuorumRunner, own: NodeAddress, voters: frozenset[int]) -> None:
        self._quorum = quorum
        self._voters = voters - {own.node_id}
        self._known = {own.node_id: own}

    def describe(self) -> QuorumDescription:
        """The quorum as this node sees it (see `QuorumView`)."""
        status = self._quorum.status()
        return QuorumDescription(
            leader_id=-1 if status.leader_id is None else status.leader_id,
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            voters=tuple(map(_progress, status.voters)),
            observers=tuple(map(_progress, status.observers)),
        )

    def discover(self, known: Sequence[NodeAddress]) -> Sequence[NodeAddress]:
        """The newest address of each voter wins, by the time of its boot; one that has yet to come would win always."""
        latest = wall_ms() + CLOCKS_DIFFER_MS
        for address in known:
            if not self._is_plausible(address, latest):
                continue
            held = self._known.get(address.node_id)
            if held is None or held.boot_ms < address.boot_ms:
                self._known[address.node_id] = address
        return tuple(self._known.values())

    def _is_plausible(self, address: NodeAddress, latest_ms: int) -> bool:
        return (
            address.node_id in self._voters
            and 0 < len(address.host) <= HOST_NAME_MAX
            and 0 < address.port <= PORT_MAX
            and 0 <= address.boot_ms <= latest_ms
        )


def _progress(row: ReplicaStatus) -> ReplicaProgress:
    since_boot = wall_ms() - monotonic_ms()
    return ReplicaProgress(
        row.replica_id,
        row.end_offset,
        row.last_fetch_ms + since_boot if row.last_fetch_ms >= 0 else -1,
        row.last_caught_up_ms + since_boot if row.last_caught_up_ms >= 0 else -1,
    )
