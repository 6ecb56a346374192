"""The parts of a look for which no gate waits: nodes that are gone for good, and partitions that were unhealthy before.
Pure.

`gatekeeper` judges gates by the look that these functions return; the opening notes the baseline. The gate that asks
whether a broker may stop gets no excuse. A node that is called gone, and serves, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from migrator.errors import OperatorError
from migrator.rollout.gates.placements import counted
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.ports import GateKind, Observation, PartitionsSeen, Placement

Baseline = Mapping[str, frozenset[int]]
"""The brokers whose replicas were out of sync before the rollout, by partition."""
BASELINE_MAX = 100
"""The most partitions of a baseline. More mean that a broker is catching up, which will pass."""
TAKE_IN = "Take it in with 'migrator rollout resume --with-node {}'"


def excused(seen: Observation, gone: Sequence[Node], baseline: Baseline) -> Observation:
    """A look without the nodes that are gone for good, as if partitions had no replicas on them; and without the
    replicas of the baseline, while their broker serves. A replica on a broker that does not serve is a new problem."""
    if not gone and not baseline:
        return seen
    away = [node for node in gone if not seen.serves(node)]  # a node that serves again counts like any other
    brokers = frozenset(node.node_id for node in away if node.role is NodeKind.BROKER)
    voters = frozenset(node.node_id for node in away if node.role is NodeKind.CONTROLLER)
    quorum, partitions, migration = seen.quorum, seen.partitions, seen.migration
    if migration is not None and migration.images is not None:
        migration = replace(migration, images=migration.images.without(voters))
    if quorum is not None:
        kept = {voter: each for voter, each in quorum.voters.items() if voter not in voters}
        quorum = replace(quorum, voters=kept)
    if partitions is not None:
        serving = frozenset(broker for broker, each in (seen.brokers or {}).items() if each.serving)
        partitions = _without(partitions, brokers, {name: old & serving for name, old in baseline.items()})
    return replace(
        seen,
        brokers=None if seen.brokers is None else {k: each for k, each in seen.brokers.items() if k not in brokers},
        quorum=quorum,
        partitions=partitions,
        migration=migration,
    )


def as_judged(gate: GateKind, seen: Observation, gone: Sequence[Node], baseline: Baseline) -> Observation:
    """The look by which a gate is judged. A replica that is out of sync, or on a node that is gone, cannot take over;
    so the gate whether a broker may stop gets no excuses."""
    return seen if gate is GateKind.MAY_STOP else excused(seen, gone, baseline)


def baseline_of(seen: Observation) -> dict[str, frozenset[int]]:
    """The partitions with replicas out of sync on brokers that serve; empty if there are too many."""
    if seen.partitions is None or seen.brokers is None:
        return {}
    serving = frozenset(broker for broker, each in seen.brokers.items() if each.serving)
    found = {
        name: _missing(each)
        for each in seen.partitions.placements
        if each.led and _missing(each) and _missing(each) <= serving
        for name in each.names
    }
    return found if len(found) <= BASELINE_MAX else {}


def healed(baseline: Baseline, seen: Observation) -> dict[str, frozenset[int]]:
    """The brokers of a baseline whose replicas are in sync again, by partition. Empty while the look does not show all
    partitions."""
    short = [each for each in (() if seen.partitions is None else seen.partitions.placements) if _missing(each)]
    if seen.partitions is None or any(each.count > len(each.names) for each in short):
        return {}
    missing = {name: _missing(each) for each in short for name in each.names}
    found = {name: old - missing.get(name, frozenset()) for name, old in baseline.items()}
    return {name: brokers for name, brokers in found.items() if brokers}


def by_brokers(replicas: Baseline) -> dict[frozenset[int], list[str]]:
    """The partitions grouped by brokers: each group becomes one line of the journal."""
    found: dict[frozenset[int], list[str]] = {}
    for name, brokers in replicas.items():
        found.setdefault(brokers, []).append(name)
    return found


def _missing(placement: Placement) -> frozenset[int]:
    return placement.replicas - placement.in_sync


def refuse_gone(gone: Sequence[Node], seen: Observation) -> None:
    """Refuse to leave out a node that serves. A controller is asked itself: if no controller answers, this one does not
    either. Brokers are seen through others.

    :raises OperatorError: one of these nodes serves, or this is unknown.
    """
    for node in gone:
        if node.role is NodeKind.BROKER and seen.brokers is None:
            raise OperatorError(
                f"it is unknown whether {node.name} is gone: {'; '.join(seen.unknown) or 'no look at the cluster'}",
                where="--without-node",
                remedy="Type the command again when ZooKeeper and the controllers answer",
            )
        if seen.serves(node):
            raise OperatorError(
                f"{node.name} is not gone: it answers, or is registered",
                where="--without-node",
                remedy="Leave out only what is gone for good. Stop the node first, if its host is to go",
            )


class BackAgainError(OperatorError):
    """A controller that was left out answers, and with it the migration may not end safely."""


def back_again(gone: Sequence[Node], seen: Observation) -> tuple[str, ...]:
    """Names of nodes that were left out, and serve again."""
    return tuple(node.name for node in gone if seen.serves(node))


def refuse_end_with(gone: Sequence[Node], seen: Observation) -> None:
    """:raises BackAgainError: a controller that was left out answers, and its migration is not known to be off."""
    for node in gone:
        voter = seen.voter(node)
        is_controller = node.role is NodeKind.CONTROLLER
        if is_controller and seen.serves(node) and voter is not None and voter.migration_on is not False:
            raise BackAgainError(
                f"{node.name} was left out and answers; its migration is still on, so the migration would not end",
                where=node.place,
                remedy=f"{TAKE_IN.format(node.name)}. If it is to stay out, stop it for good",
            )


def _without(partitions: PartitionsSeen, gone: frozenset[int], old: Baseline) -> PartitionsSeen:
    placements = tuple(_placements(partitions.placements, gone, old))
    if not partitions.placements or placements == partitions.placements:
        return partitions
    return counted(placements, partitions.reassigning, placed=partitions.placed)


def _placements(placements: Sequence[Placement], gone: frozenset[int], old: Baseline) -> Iterator[Placement]:
    for each in placements:
        left = each.replicas - gone
        if not left:
            continue  # all its replicas were on nodes that are gone
        missing = left - each.in_sync
        known = tuple(name for name in each.names if missing and missing <= old.get(name, frozenset()))
        if known:
            yield replace(each, replicas=left - missing, in_sync=each.in_sync - gone, count=len(known), names=known)
        if each.count > len(known):
            names = tuple(name for name in each.names if name not in known)
            yield replace(each, replicas=left, in_sync=each.in_sync - gone, count=each.count - len(known), names=names)
