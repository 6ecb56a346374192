"""ElectLeaders: elects preferred leaders, or any live leader for partitions without one. Pure.

The API calls `elect_leaders` for operators, and `schedule` calls `elect` to rebalance. The rules of a change are those
of `partition_change`: a leader is a live member of the ISR, except in an unclean election. Source: Kafka's
``ReplicationControlManager.electLeaders``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError, decided
from migrator.controller.index import ControllerIndex, has_preferred_leader
from migrator.controller.partition_change import ChangeRules, Election, PartitionTarget
from migrator.image.model import MetadataImage
from migrator.records.metadata import NO_LEADER, MetadataRecord, PartitionChangeRecord
from migrator.values import value

PREFERRED, UNCLEAN = 0, 1
_ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}

NOT_NEEDED: Final = ApiError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")


@value
class ElectLeadersRequest:
    """``partitions``: topic names and partition numbers; None for all partitions."""

    election_type: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None = None


@value
class ElectionResult:
    topic: str
    partition: int
    error: ApiError


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, context: Context
) -> Decision[tuple[ElectionResult, ...]]:
    """Elect preferred leaders, or any live leader for partitions without one. When the request is for all partitions,
    the answer leaves out those that need no election.

    :raises RefusedError: INVALID_REQUEST for an unknown type; POLICY_VIOLATION.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise RefusedError(ErrorCode.invalid_request, f"Unknown election type {request.election_type}")
    rules = ChangeRules(image, context)
    results: list[ElectionResult] = []
    records: list[MetadataRecord] = []
    for topic, number in _asked_for(image, request, context.index):
        error, record = elect(image, rules, topic, number, election)
        if record is not None:
            records.append(record)
        if request.partitions is not None or error.code is not ErrorCode.election_not_needed:
            results.append(ElectionResult(topic, number, error))
    return decided(tuple(results), records)


def elect(
    image: MetadataImage, rules: ChangeRules, topic_name: str, number: int, election: Election
) -> tuple[ApiError, PartitionChangeRecord | None]:
    """Elect a leader for one partition. Returns an error, or the record of the election."""
    topic = image.topics.by_name(topic_name)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None:
        missing = f"topic as {topic_name}" if topic is None else f"partition as {topic_name}-{number}"
        return ApiError(ErrorCode.unknown_topic_or_partition, f"No such {missing}"), None
    wanted_leader = has_preferred_leader(partition) if election is Election.PREFERRED else partition.leader != NO_LEADER
    if wanted_leader:
        return NOT_NEEDED, None
    record = rules.change((topic.topic_id, number), partition, PartitionTarget(election=election))
    if record is None:
        if election is Election.PREFERRED:
            return ApiError(ErrorCode.preferred_leader_not_available, "The preferred leader was not available."), None
        return ApiError(
            ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."
        ), None
    return NO_ERROR, record


def _asked_for(image: MetadataImage, request: ElectLeadersRequest, index: ControllerIndex) -> Iterator[tuple[str, int]]:
    if request.partitions is not None:
        for topic, numbers in request.partitions:
            for number in numbers:
                yield topic, number
        return
    needing = index.imbalanced if request.election_type == PREFERRED else index.leaderless
    for topic_id, number in needing:
        yield image.topics.by_id[topic_id].name, number
