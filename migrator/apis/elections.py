"""ElectLeaders and reassignments of partitions (APIs 43, 45, 46).

`registry` lists these functions. They translate between kio's messages and `migrator.controller`. From kraft.version 1
on a reassignment of the metadata partition is an order about the voters (KIP-642): the quorum has no replicas but its
voters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.call import Call, error_fields
from migrator.controller.context import Context
from migrator.controller.decision import NO_ERROR, ApiError, Decision, RefusedError
from migrator.controller.elections import PREFERRED, ElectionResult, ElectLeadersRequest, elect_leaders
from migrator.controller.quorum_target import TargetOrder, TargetRequest, checked, set_target, target_of
from migrator.controller.reassignments import (
    RunningReassignment,
    WantedAssignment,
    alter_reassignments,
    list_reassignments,
)
from migrator.image.model import MetadataImage
from migrator.raft.voter_set import DYNAMIC_VERSION, ReplicaKey, VoterSet
from migrator.wire.raft_codec import METADATA_TOPIC

VOTERS: Final = (METADATA_TOPIC, 0)
"""The partition whose replicas are the voters."""


def leader_election(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """ElectLeaders 0-2; version 0 has preferred elections only."""
    body = call.body
    partitions = None
    if body.topic_partitions is not None:
        partitions = tuple((topic.topic, tuple(topic.partitions)) for topic in body.topic_partitions)
    request = ElectLeadersRequest(getattr(body, "election_type", PREFERRED), partitions)
    decision = elect_leaders(image, request, context)
    names = image.topics.ids if partitions is None else ()
    return decision.answering(_election_response(call, decision.response, ErrorCode.none, names))


def refuse_leader_election(call: Call, error: ApiError) -> Any:
    """ElectLeaders refused as a whole."""
    results = (
        ElectionResult(topic.topic, number, error)
        for topic in call.body.topic_partitions or ()
        for number in topic.partitions
    )
    return _election_response(call, results, error.code)


def reassignment(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """AlterPartitionReassignments 0. On the metadata partition of a dynamic quorum it is an order about the voters: the
    replicas are the target, and an empty list cancels it (KIP-642)."""
    wanted = tuple(
        WantedAssignment(topic.name, row.partition_index, None if row.replicas is None else tuple(row.replicas))
        for topic in call.body.topics
        for row in topic.partitions
    )
    voters = [each for each in wanted if _is_about_voters(each, context)]
    target = _voters_reassigned(image, voters, context)
    decision = alter_reassignments(image, tuple(each for each in wanted if each not in voters), context)
    others = (result.error for result in decision.response)
    errors = (target.response if each in voters else next(others) for each in wanted)
    answer = call.respond(error_message=None, responses=_reassignment_rows(call.body, errors))
    return Decision(answer, (*target.records, *decision.records))


def _is_about_voters(wanted: WantedAssignment, context: Context) -> bool:
    return (wanted.topic, wanted.partition) == VOTERS and context.kraft_version >= DYNAMIC_VERSION


def _voters_reassigned(image: MetadataImage, wanted: list[WantedAssignment], context: Context) -> Decision[ApiError]:
    if not wanted:
        return Decision(NO_ERROR)
    if len(wanted) > 1:
        return Decision(ApiError(ErrorCode.invalid_request, "The metadata partition is named more than once."))
    replicas = wanted[0].replicas
    order = TargetOrder.CANCEL if replicas is None else TargetOrder.TO
    try:
        target = checked(map(ReplicaKey, replicas or ())) if order is TargetOrder.TO else ()
        found = set_target(image, TargetRequest(order, target, VoterSet(()), frozenset()), context)
    except RefusedError as refusal:
        return Decision(refusal.error)
    is_idle = order is TargetOrder.CANCEL and not found.records
    return found.answering(ApiError(ErrorCode.no_reassignment_in_progress) if is_idle else NO_ERROR)


def moves_replicas(call: Call) -> bool:
    """Whether an AlterPartitionReassignments request does more than cancel reassignments."""
    return any(row.replicas is not None for topic in call.body.topics for row in topic.partitions)


def refuse_reassignment(call: Call, error: ApiError) -> Any:
    """AlterPartitionReassignments refused as a whole."""
    return call.respond(**error_fields(error), responses=_reassignment_rows(call.body, repeat(error)))


def running_reassignments(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """ListPartitionReassignments 0."""
    topics = None
    if call.body.topics is not None:
        topics = tuple((topic.name, tuple(topic.partition_indexes)) for topic in call.body.topics)
    found: dict[str, list[RunningReassignment]] = {}
    for running in (*list_reassignments(image, context.index, topics), *_voters_on_the_way(image, context, topics)):
        found.setdefault(running.topic, []).append(running)
    answered = tuple(
        {
            "name": name,
            "partitions": tuple(
                {
                    "partition_index": running.partition,
                    "replicas": running.replicas,
                    "adding_replicas": running.adding,
                    "removing_replicas": running.removing,
                }
                for running in rows
            ),
        }
        for name, rows in found.items()
    )
    return Decision(call.respond(error_message=None, topics=answered))


def _election_response(
    call: Call, results: Iterable[ElectionResult], code: ErrorCode, topics: Iterable[str] = ()
) -> Any:
    """``topics`` always have a row, as in Kafka when a request asks for all partitions."""
    by_topic: dict[str, list[Mapping[str, Any]]] = {name: [] for name in topics}
    for result in results:
        row = {"partition_id": result.partition, **error_fields(result.error)}
        by_topic.setdefault(result.topic, []).append(row)
    answered = tuple({"topic": topic, "partition_result": tuple(rows)} for topic, rows in by_topic.items())
    return call.respond(error_code=code, replica_election_results=answered)


def _reassignment_rows(body: Any, errors: Iterator[ApiError]) -> tuple[Mapping[str, Any], ...]:
    """One row for each partition of the request, in its order."""
    return tuple(
        {
            "name": topic.name,
            "partitions": tuple(
                {"partition_index": row.partition_index, **error_fields(next(errors))} for row in topic.partitions
            ),
        }
        for topic in body.topics
    )


def _voters_on_the_way(
    image: MetadataImage, context: Context, topics: tuple[tuple[str, tuple[int, ...]], ...] | None
) -> Iterator[RunningReassignment]:
    """The row of the metadata partition while a target is set: its replicas are the voters in force."""
    target = target_of(image)
    is_asked = topics is None or any(name == VOTERS[0] and VOTERS[1] in partitions for name, partitions in topics)
    if target is None or not is_asked:
        return
    wanted = {replica.node_id for replica in target}
    yield RunningReassignment(
        *VOTERS,
        replicas=tuple(sorted(context.voters)),
        adding=tuple(sorted(wanted - context.voters)),
        removing=tuple(sorted(context.voters - wanted)),
    )
