"""The target of a reassignment of voters (KIP-642): the wanted voters, kept in the image.

It is a configuration of a resource type that stock controllers keep in their snapshots, but accept from no client. So
the next leader of this program finds it, even if a stock controller led in between. `migrator.raft.planner` plans the
steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.given_up import QUORUM, recovered_of
from migrator.image.model import MetadataImage
from migrator.raft.planner import Target
from migrator.raft.voter_set import DYNAMIC_VERSION, ReplicaKey, VoterSet
from migrator.records.metadata import ConfigRecord, ZkMigrationState
from migrator.records.uuid import ZERO_UUID, is_reserved, uuid_from_text
from migrator.values import value

RESOURCE: Final = QUORUM
KEY: Final = "target.voters"
ONE_BY_ONE: Final = (
    "A single voter can be replaced: use Kafka's kafka-metadata-quorum.sh, first add-controller, then "
    "remove-controller. See 'During a migration' in docs/quorum.md."
)
VOTERS_MAX: Final = 99
"""The most voters of a target. No real quorum is that large: each further voter makes every write slower."""
IDS_END: Final = 2**31
PAIR: Final = 2


class TargetOrder(Enum):
    """The kind of order: exactly these voters, these in addition, all without these, or no target any more."""

    TO = "to"
    ADD = "add"
    REMOVE = "remove"
    CANCEL = "cancel"


@value
class TargetRequest:
    """``replicas`` is empty for `TargetOrder.CANCEL`.

    ``voters``: those in force; ``live``: the replicas that fetch from the leader now.
    """

    order: TargetOrder
    replicas: Target
    voters: VoterSet
    live: frozenset[ReplicaKey]


@value
class TargetAnswer:
    """``replaced``: the earlier target, if there was another one. ``warnings`` are whole sentences."""

    target: Target | None
    replaced: Target | None = None
    warnings: tuple[str, ...] = ()


def parse_target(text: str) -> Target:
    """Voters from ``4,5,6`` or ``4@<directory id>,...``, in the order of their ids.

    :raises RefusedError: INVALID_REQUEST.
    """
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        raise _invalid("The target is empty. Name the controllers that shall vote, such as 4,5,6.")
    return checked(_replica(part) for part in parts)


def checked(replicas: Iterable[ReplicaKey]) -> Target:
    """A target in the order of its ids.

    :raises RefusedError: INVALID_REQUEST.
    """
    target = tuple(sorted(replicas, key=lambda replica: replica.node_id))
    ids = [replica.node_id for replica in target]
    twice = sorted({node_id for node_id in ids if ids.count(node_id) > 1})
    if not target:
        raise _invalid("The target is empty. A quorum needs at least one voter.")
    if len(target) > VOTERS_MAX:
        raise _invalid(
            f"The target names {len(target)} voters. More than {VOTERS_MAX} are not taken; 3 or 5 are usual."
        )
    if twice:
        raise _invalid(f"The target names controller {twice[0]} twice. Name each controller once.")
    if not 0 <= ids[0] <= ids[-1] < IDS_END:
        raise _invalid("The id of a controller is a number from 0 to 2147483647.")
    return target


def _replica(text: str) -> ReplicaKey:
    node_id, at, directory = text.partition("@")
    try:
        directory_id = uuid_from_text(directory) if at else ZERO_UUID
    except ValueError:
        raise _invalid(
            f"{directory!r} is not a directory id. It is in meta.properties of the controller, as directory.id."
        ) from None
    if not (node_id.isascii() and node_id.isdecimal()) or len(node_id) > len(str(IDS_END)):
        raise _invalid(f"{text!r} is not the id of a controller. Name them such as 4,5,6, or 4@<directory id>,5,6.")
    if at and is_reserved(directory_id):
        raise _invalid(f"{directory!r} is a reserved directory id, which no controller has.")
    return ReplicaKey(int(node_id), directory_id)


def target_text(target: Iterable[ReplicaKey]) -> str:
    """The form that `parse_target` reads."""
    return ",".join(map(str, target))


def target_of(image: MetadataImage) -> Target | None:
    """The target in the image; None without one, or when its form is not this program's."""
    text = image.configs.get(RESOURCE, {}).get(KEY)
    try:
        return None if text is None else parse_target(text)
    except RefusedError:
        return None


def set_target(image: MetadataImage, request: TargetRequest, context: Context) -> Decision[TargetAnswer]:
    """Set, replace or clear the target. Setting the same target again makes no record.

    :raises RefusedError: INVALID_REQUEST; UNSUPPORTED_VERSION while the voters are those of the configuration.
    """
    held = target_of(image)
    if request.order is TargetOrder.CANCEL:
        is_set = KEY in image.configs.get(RESOURCE, {})
        return Decision(TargetAnswer(None, held), (_record(None),) if is_set else ())
    _check_cluster(image, context)
    target = _wanted(request, held)
    _check_nodes(image, target)
    answer = TargetAnswer(target, None if held in {None, target} else held, tuple(_warnings(target, request)))
    return Decision(answer, () if target == held else (_record(target_text(target)),))


def why_not_beside(target: Target | None, replica: ReplicaKey, *, joins: bool) -> str:
    """Why a client's single change of voters contradicts the target; empty when it does not. The plan would undo such a
    change, and this could repeat for ever.
    """
    if target is None:
        return ""
    wanted = next((each for each in target if each.node_id == replica.node_id), None)
    fits = wanted is not None and wanted.directory_id in {ZERO_UUID, replica.directory_id}
    if fits == joins:
        return ""
    what = "has no place for" if joins else "keeps"
    return (
        f"The voters are being reassigned to {target_text(target)}, which {what} controller {replica.node_id}. Wait "
        f"until the target is reached, name another one, or run 'migrator quorum cancel' first."
    )


def cleared_target(image: MetadataImage, expected: Target) -> Decision[bool]:
    """Clear the target, because the voters have reached it, unless another one has been set meanwhile."""
    is_still_set = target_of(image) == expected
    return Decision(is_still_set, (_record(None),) if is_still_set else ())


def cleared_record() -> ConfigRecord:
    """The record that clears the target, for a leader that removes itself as the last controller of this program."""
    return _record(None)


def _record(text: str | None) -> ConfigRecord:
    return ConfigRecord(RESOURCE.resource_type, RESOURCE.name, KEY, text)


def _wanted(request: TargetRequest, held: Target | None) -> Target:
    """The new target. Additions and removals are relative to the present target, or to the voters without one."""
    base = held or tuple(ReplicaKey(voter.voter_id) for voter in request.voters.voters)
    ids = {replica.node_id for replica in base}
    named = {replica.node_id for replica in request.replicas}
    match request.order:
        case TargetOrder.ADD:
            if known := sorted(named & ids):
                raise _invalid(f"Controller {known[0]} is a voter already, or is going to be one.")
            return checked((*base, *request.replicas))
        case TargetOrder.REMOVE:
            if unknown := sorted(named - ids):
                raise _invalid(f"Controller {unknown[0]} is no voter, and is not going to be one.")
            return checked(replica for replica in base if replica.node_id not in named)
        case _:
            return checked(request.replicas)


def _check_cluster(image: MetadataImage, context: Context) -> None:
    state = image.features.zk_migration_state
    if state in {ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION}:
        raise _invalid(
            "The voters cannot be changed during a migration: a stock Kafka controller that leads meanwhile could not "
            f"write the target to ZooKeeper, and would stop. {ONE_BY_ONE}"
        )
    if context.kraft_version < DYNAMIC_VERSION:
        raise RefusedError(
            ErrorCode.unsupported_version,
            "The voters of this quorum are those of controller.quorum.voters (kraft.version 0) and cannot be changed. "
            "Run 'migrator quorum upgrade' first.",
        )


def _check_nodes(image: MetadataImage, target: Target) -> None:
    cluster = image.cluster
    for replica in target:
        if replica.node_id in cluster.brokers and replica.node_id not in cluster.controllers:
            raise _invalid(f"Node {replica.node_id} is a broker. Only controllers vote.")
        if recovered_of(image).refuses(replica.node_id, replica.directory_id):
            raise _invalid(
                f"Controller {replica} was given up when the majority was lost. Empty its directory and format it "
                "again: with a new directory id it can join."
            )


def _warnings(target: Target, request: TargetRequest) -> Iterator[str]:
    live = request.live
    if {replica.node_id for replica in target} == request.voters.ids:
        yield "These controllers vote already. Nothing changes, unless one of them has a new disk."
    if len(target) == PAIR:
        yield "While one of two voters is down nobody leads; if its disk is lost nobody ever will. Use one or three."
    elif len(target) % 2 == 0:
        yield f"{len(target)} voters survive no more failures than {len(target) - 1}. Use an odd number."
    ids = {replica.node_id for replica in live}
    silent = [str(replica) for replica in target if replica not in live and not _is_any_disk(replica, ids)]
    if silent:
        yield f"These controllers do not fetch from the leader, and the plan waits for them: {', '.join(silent)}."


def _is_any_disk(replica: ReplicaKey, live_ids: set[int]) -> bool:
    return replica.directory_id == ZERO_UUID and replica.node_id in live_ids


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_request, message)
