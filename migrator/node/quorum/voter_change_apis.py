"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (APIs 80, 81, 82, KIP-853), with the refusals of Kafka's leader.

This file checks what the request alone shows, in the order of ``KafkaRaftClient`` of Kafka 3.9; `VoterChanges` does the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call
from migrator.controller.decision import NO_ERROR, ApiError
from migrator.controller.quorum_target import why_not_beside
from migrator.node.quorum.addresses import Addresses, is_address
from migrator.node.quorum.runner import QuorumRunner
from migrator.node.quorum.voter_changes import VoterChanges
from migrator.raft.planner import Target
from migrator.raft.states import Role
from migrator.raft.telling import Asker
from migrator.raft.voter_changes import Refusal, VotersNotChangedError
from migrator.raft.voter_set import STATIC_RANGE, ReplicaKey
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.schemas import ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER

_NAMES: Final = {ADD_RAFT_VOTER: "Add", REMOVE_RAFT_VOTER: "Remove", UPDATE_RAFT_VOTER: "Update"}
VOTER_CHANGE_APIS: Final = frozenset({ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER})


class VoterChangeApis:
    """Answers these requests, on any node.

    :param target: the target of a reassignment of the voters; None without one.
    """

    def __init__(
        self,
        cluster_id: str,
        quorum: QuorumRunner,
        addresses: Addresses,
        changes: VoterChanges,
        target: Callable[[], Target | None],
    ) -> None:
        self._cluster_id = cluster_id
        self._target = target
        self._quorum = quorum
        self._addresses = addresses
        self._changes = changes

    async def __call__(self, call: Call) -> Any:
        """Answer a request to change the voters with kio's response in the version of the request."""
        error = next(self._faults(call.key, call.body), NO_ERROR)
        if not error.is_failure:
            try:
                await self._change(call.key, call.body)
            except VotersNotChangedError as refused:
                error = ApiError(refused.refusal.error, refused.refusal.message)
        return call.respond(error_code=error.code, error_message=error.message, current_leader=self._leader(call.body))

    def _leader(self, body: Any) -> dict[str, Any]:
        """The leader, if the voter may know it. UpdateRaftVoter comes from the voter itself, and only its answer
        has a field for a leader."""
        directory = ZERO_UUID if body.voter_directory_id is None else Uuid(body.voter_directory_id.bytes)
        named = getattr(body, "current_leader_epoch", -1)
        leader_id, epoch = self._quorum.disclosed_leader(Asker(body.voter_id, directory, named))
        at = self._addresses.find(leader_id)
        place = {} if at is None else {"host": at.host, "port": at.port}
        return {"leader_id": leader_id, "leader_epoch": epoch, **place}

    async def _change(self, key: int, body: Any) -> None:
        look = partial(self._check, key, body)
        if key == REMOVE_RAFT_VOTER:
            await self._changes.remove(ReplicaKey(body.voter_id, Uuid(body.voter_directory_id.bytes)), look)
        elif key == ADD_RAFT_VOTER:
            await self._changes.add(_voter(body, STATIC_RANGE), look)
        else:
            versions = body.k_raft_version_feature
            supported = KRaftVersionRange(versions.min_supported_version, versions.max_supported_version)
            await self._changes.update(_voter(body, supported), look)

    def _check(self, key: int, body: Any) -> None:
        """Check again when it is the change's turn: the epoch or the target may have changed.

        :raises VotersNotChangedError: one of them has changed.
        """
        error = next(self._faults(key, body), NO_ERROR)
        if error.is_failure:
            raise VotersNotChangedError(Refusal(error.code, error.message or ""))

    def _faults(self, key: int, body: Any) -> Iterator[ApiError]:
        if body.cluster_id not in (None, self._cluster_id):
            yield ApiError(
                ErrorCode.inconsistent_cluster_id,
                f'The given id "{body.cluster_id}" doesn\'t match the cluster id "{self._cluster_id}"',
            )
        epoch = self._quorum.epoch
        named = getattr(body, "current_leader_epoch", epoch)
        if named != epoch:
            yield ApiError(ErrorCode.fenced_leader_epoch if named < epoch else ErrorCode.unknown_leader_epoch)
        if self._quorum.role is not Role.LEADER:
            yield ApiError(ErrorCode.not_leader_or_follower)
        if body.voter_id < 0 or body.voter_directory_id is None:
            yield ApiError(ErrorCode.invalid_request, f"{_NAMES[key]} voter request didn't include a valid voter")
        if hasattr(body, "listeners"):
            at = self._addresses.default_of(_voter(body, STATIC_RANGE))
            if at is None:
                listener = self._addresses.listener
                yield ApiError(
                    ErrorCode.invalid_request,
                    f"{_NAMES[key]} voter request didn't include the endpoint for the default listener "
                    f"ListenerName({listener})",
                )
            elif not is_address(at.host, at.port):
                yield ApiError(ErrorCode.invalid_request, f"Nobody can be at {at.host}:{at.port}.")
        versions = getattr(body, "k_raft_version_feature", None)
        if versions is not None and not 0 <= versions.min_supported_version <= versions.max_supported_version:
            yield ApiError(ErrorCode.invalid_request)
        if why := self._why_not_now(key, body):
            yield ApiError(ErrorCode.invalid_request, why)

    def _why_not_now(self, key: int, body: Any) -> str:
        """Why the change contradicts the target that is set. Kafka has no targets."""
        if key == UPDATE_RAFT_VOTER:
            return ""
        replica = ReplicaKey(body.voter_id, Uuid(body.voter_directory_id.bytes))
        return why_not_beside(self._target(), replica, joins=key == ADD_RAFT_VOTER)


def _voter(body: Any, versions: KRaftVersionRange) -> DynamicVoter:
    """The voter of a request that names listeners."""
    directory = Uuid(body.voter_directory_id.bytes)
    endpoints = {each.name.upper(): VoterEndpoint(each.name.upper(), each.host, each.port) for each in body.listeners}
    return DynamicVoter(body.voter_id, directory, tuple(endpoints.values()), versions)
