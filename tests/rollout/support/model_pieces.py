"""Pieces of a model cluster that know nothing of it: a process, the places of replicas, the words of a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

from migrator.config.sensitive import broker_type, is_sensitive
from migrator.migration.machine.states import PublicState
from migrator.rollout.gates.placements import Placements
from migrator.rollout.inventory import Inventory
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode, file_mode
from migrator.rollout.ports import BrokerMode, PartitionsSeen, Some
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from migrator.values import value

INELIGIBLE, _, DUAL_WRITE, FINISHED = (state.label for state in PublicState)


@value
class Process:
    """``mode``: as its properties say. ``shown``: what a broker tells of its settings."""

    incarnation: int
    properties: Mapping[str, str]
    mode: FileMode
    shown: Mapping[str, str | None]


def started(incarnation: int, role: NodeKind, properties: Mapping[str, str], watched: Sequence[str]) -> Process:
    found = {key: properties[key] for key in watched if key in properties}
    shown = {key: None if is_sensitive(broker_type(key)) else text for key, text in found.items()}
    return Process(incarnation, properties, file_mode(role, properties), shown)


@dataclass
class Directories:
    """Those of the controllers. Whose log one has: of each quorum that is formatted. ``given_back``: has given the
    cluster back, and does not take it again."""

    formatted: set[str] = field(default_factory=set)
    given_back: set[str] = field(default_factory=set)
    _quorum: int = 0
    _quorums: dict[str, int] = field(default_factory=dict)

    def format(self, name: str) -> None:
        """A formatted directory stays as it is."""
        if name not in self.formatted:
            self.formatted.add(name)
            self._quorums[name] = self._quorum

    def move_away(self, name: str) -> None:
        """Directories that are formatted from now on are of another quorum."""
        self.formatted.discard(name)
        self.given_back.discard(name)
        if self._quorums.pop(name, None) == self._quorum:
            self._quorum += 1

    def quorums_of(self, names: Iterable[str]) -> set[int]:
        return {self._quorums[name] for name in names if name in self._quorums}


def is_kept(path: str) -> bool:
    """Whether a file is one that a rollout keeps; its name has the rollout's id."""
    return ".before-" in path or ".rolled-back-" in path


def below(files: Iterable[tuple[str, str]], home: str, directory: str) -> list[tuple[str, str]]:
    return [key for key in files if key[0] == home and key[1].startswith(f"{directory}/")]


def without(words: Sequence[str]) -> set[int]:
    return {int(word) for before, word in pairwise(words) if before == "--without"}


def placed(inventory: Inventory, replicas: int) -> list[frozenset[int]]:
    """Partitions with their replicas in as many racks as there are, as Kafka places them."""
    racks: dict[str, list[int]] = {}
    for node in inventory.brokers.nodes:
        racks.setdefault(node.rack, []).append(node.node_id)
    groups = list(racks.values())
    if len(groups) == 1:
        ids = groups[0]
        return [frozenset((ids * 2)[start : start + min(replicas, len(ids))]) for start in range(len(ids))]
    return [
        frozenset(groups[(start + number) % len(groups)][start % len(groups[0])] for number in range(replicas))
        for start in range(len(inventory.brokers.nodes))
    ]


def partitions_seen(partitions: Sequence[frozenset[int]], away: AbstractSet[int], min_isr: int) -> PartitionsSeen:
    """The partitions while the replicas of some brokers are not in sync."""
    found = Placements(placed=True)
    for number, replicas in enumerate(partitions):
        in_sync = tuple(sorted(replicas - away))
        found.add("orders", number, min(in_sync, default=-1), tuple(sorted(replicas)), in_sync, min_isr)
    return found.seen(Some())


def wrong_modes(mode: BrokerMode | None, state: str, *, ruled: bool) -> Iterator[str]:
    """Why no broker may start in a mode.

    :param ruled: whether the quorum has the cluster.
    """
    if mode is BrokerMode.KRAFT and state not in (DUAL_WRITE, FINISHED):
        yield "KRaft mode before the copy"
    if mode is BrokerMode.ZOOKEEPER and ruled:
        yield "ZooKeeper mode while the quorum rules"
    if mode is not BrokerMode.KRAFT and state == FINISHED:
        yield "ZooKeeper after the end"


def majority_lost(node: Node, voters: AbstractSet[int], quorum: QuorumSeen) -> Iterator[str]:
    """Whether brokers in KRaft mode lose their controller as a voter stops."""
    up = {voter for voter in voters if quorum.voters[voter].program is not None}
    if node.node_id in up and 2 * (len(up) - 1) <= len(voters):
        yield f"majority lost: {node.name} stops, of {sorted(up)}"


def voter_seen(node_id: int, process: Process, *, is_stock: bool) -> ControllerSeen:
    """A running node."""
    on = process.mode is FileMode.CONTROLLER_MIGRATING
    program = ControllerProgram.STOCK if is_stock else ControllerProgram.MIGRATOR
    return ControllerSeen(node_id, program, migration_on=on, lag_records=0)
