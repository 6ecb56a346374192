"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (APIs 80, 81, 82, KIP-853), all refused: voters are fixed at
kraft.version 0. Which error says so depends on what else is wrong. Source: ``KafkaRaftClient``, ``AddVoterHandler``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call
from migrator.controller.decision import ApiError
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.runner import QuorumRunner
from migrator.raft.states import Role

VOTER_CHANGES: Final = frozenset({80, 81, 82})
FIXED: Final = ApiError(ErrorCode.unsupported_version, "The voters of kraft.version 0 are fixed.")


class VoterChanges:
    """Answers on any node."""

    def __init__(self, cluster_id: str, quorum: QuorumRunner, addresses: Addresses) -> None:
        self._cluster_id = cluster_id
        self._listener = addresses.listener
        self._quorum = quorum
        self._addresses = addresses

    def __call__(self, call: Call) -> Any:
        """kio's response of the request's version."""
        error = next(self._faults(call.body), FIXED)
        status = self._quorum.status()
        known = -1 if status.leader_id is None else status.leader_id
        leader: dict[str, Any] = {"leader_id": known, "leader_epoch": status.epoch}
        at = self._addresses.find(known)
        if at is not None:
            leader |= {"host": at.host, "port": at.port}
        return call.respond(error_code=error.code, error_message=error.message, current_leader=leader)

    def _faults(self, body: Any) -> Iterator[ApiError]:
        if body.cluster_id not in (None, self._cluster_id):
            yield ApiError(ErrorCode.inconsistent_cluster_id, f"This is cluster {self._cluster_id}.")
        epoch = self._quorum.status().epoch
        named = getattr(body, "current_leader_epoch", epoch)
        if named != epoch:
            yield ApiError(ErrorCode.fenced_leader_epoch if named < epoch else ErrorCode.unknown_leader_epoch)
        if self._quorum.role is not Role.LEADER:
            yield ApiError(ErrorCode.not_leader_or_follower)
        if body.voter_id < 0 or body.voter_directory_id is None:
            yield ApiError(ErrorCode.invalid_request, "The voter's id or directory is not valid.")
        listeners = getattr(body, "listeners", None)
        if listeners is not None and all(each.name != self._listener for each in listeners):
            yield ApiError(ErrorCode.invalid_request, f"The voter has no listener {self._listener}.")
        versions = getattr(body, "k_raft_version_feature", None)
        if versions is not None and not 0 <= versions.min_supported_version <= versions.max_supported_version:
            yield ApiError(ErrorCode.invalid_request)
