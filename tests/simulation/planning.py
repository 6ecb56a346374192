"""What a node does about the voters while it leads: the plan towards a target, and changes that somebody asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from migrator.raft import events as ev
from migrator.raft import membership, planner
from migrator.raft.core import RaftNode
from migrator.raft.membership import changed
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter, Refusal, RemoveVoter, UpdateVoter, VoterChange
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.uuid import Uuid
from tests.simulation.batches import Target

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode

ASK_MS_MAX = 20
"""So long the question takes which versions a new voter supports."""


def entry(key: ReplicaKey, port: int = 9093, highest_version: int = 1) -> DynamicVoter:
    """A voter as a set lists it."""
    endpoint = VoterEndpoint("CONTROLLER", f"node{key.node_id}", port)
    return DynamicVoter(key.node_id, key.directory_id, (endpoint,), KRaftVersionRange(0, highest_version))


def keys(voters: VoterSet) -> list[ReplicaKey]:
    """The voters with their directories."""
    return [voters.key(voter.voter_id) for voter in voters.voters]


def refusing_rule(raft: RaftNode, change: VoterChange) -> str | None:
    """The name of the first rule that refuses a change."""
    books = raft._quorum
    if raft.role is not Role.LEADER or books.is_shutting_down:
        return "does not lead"
    rules = membership.BEFORE[type(change)] + membership.AFTER.get(type(change), ())
    refusing = (rule for rule in rules if rule(books, books.state, change) is not None)  # type: ignore[arg-type]
    return next((rule.__name__.strip("_").replace("_", " ") for rule in refusing), None)


class Planning:
    """Lives as long as its node's process. All that it goes by is in the log, the image and the leader's books."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.is_of_plan = False
        """Whether the change that the core hears about now is a step of the plan."""

    def turn(self) -> None:
        """One look at the plan."""
        node, raft = self.node, self.node.raft
        target = self.target()
        if raft is None or not node.controller.is_active or node.is_paused or target is None:
            return
        match planner.plan(self.view(raft, target)):
            case planner.Add(key):
                self._ask_and_change(AddVoter(entry(key)))
            case planner.Remove(key):
                self._ask_and_change(RemoveVoter(key))
            case planner.LetAnotherLead(successor):
                node.world.count("hand-overs to a successor that goes on")
                node.hear(ev.Resign(raft.epoch, successor))
            case planner.RemoveSelf(is_last):
                change = RemoveVoter(node.key)
                refusal = raft.why_not(change)
                if refusal is not None:
                    self._fill(raft, refusal)
                    return
                if is_last:
                    self.set_target(None)
                if node.raft is raft and raft.role is Role.LEADER:
                    self.is_of_plan = not is_last
                    self.change(change)
                    node.world.count("leaders that remove themselves")
            case planner.ClearTarget():
                self.set_target(None)

    def target(self) -> tuple[int, ...] | None:
        """The target that is committed, as far as this node knows."""
        return self.node.image.target

    def view(self, raft: RaftNode, target: tuple[int, ...]) -> planner.PlannerView:
        node = self.node
        now, voters = node.local_time(), node.voter_set
        status = raft.status(now)
        rows = [planner.seen(row, now, *node.timeouts) for row in (*status.voters, *status.observers)]
        probe = UpdateVoter(voters.voters[0])
        refusal = raft.why_not(probe)
        if refusal is not None:
            node.world.count(f"refused: {refusing_rule(raft, probe)}")
        ours = frozenset(node.world.nodes) if node.world.options.is_advertised else frozenset()
        return planner.PlannerView(
            own=node.key,
            is_leader=raft.role is Role.LEADER,
            voters=voters,
            target=tuple(ReplicaKey(node_id) for node_id in target),
            replicas=tuple(rows),
            ours=ours,
            hold=None if refusal is None or refusal.lacking_records else refusal.message,
        )

    def _fill(self, raft: RaftNode, refusal: Refusal) -> None:
        """Without writes, records that no caller waits for bring the log to the end of a voter's old log."""
        node = self.node
        if refusal.lacking_records and node.controller.may_write_target:
            node.world.count("plans that filled the log first")
            node.propose(raft.epoch, tuple(node.world.next_write() for _ in range(refusal.lacking_records)))

    def _ask_and_change(self, change: VoterChange) -> None:
        node = self.node
        if node.raft is None:
            return
        raft, target = node.raft, self.target()
        refusal = raft.why_not(change)
        if refusal is not None:
            self._fill(raft, refusal)
            return

        def go_on() -> None:
            if node.raft is raft and self.target() == target and not node.is_paused:
                self.is_of_plan = True
                self.change(change)

        self._later(go_on)

    def _later(self, action: Callable[[], None]) -> None:
        node, life = self.node, self.node.life
        node.world.after(node.random.uniform(0, ASK_MS_MAX), lambda: action() if node.life == life else None)

    def change(self, change: VoterChange) -> None:
        """Have the core decide. The world keeps out what would lock the quorum for ever: a disk that was lost a moment
        ago is lost for the next set too, which no leader can know yet."""
        node, raft = self.node, self.node.raft
        if raft is None or node.world.would_lock(changed(node.voter_set, change)):
            self.is_of_plan = False
            return
        rule = refusing_rule(raft, change)
        if rule is not None:
            node.world.count(f"refused: {rule}")
        node.hear(ev.ChangeVoters(change))
        self.is_of_plan = False

    def set_target(self, nodes: tuple[int, ...] | None) -> None:
        """Write the target, or that there is none."""
        node = self.node
        if node.raft is not None and node.controller.may_write_target:
            node.propose(node.raft.epoch, (Target(nodes),))

    # By hand

    def asked(self) -> None:
        """A client asks this node for a change, sensible or not; while a plan runs, only for refused changes."""
        node, random = self.node, self.node.random
        raft = node.raft
        if raft is None or node.is_paused:
            return
        known = sorted(node.world.nodes)
        key = node.world.nodes[random.choice(known)].key
        voter = random.choice(keys(node.voter_set))
        wrong = ReplicaKey(voter.node_id, Uuid(b"a disk of nobody"))
        change = random.choice(
            (
                AddVoter(entry(key)),
                AddVoter(entry(key)),
                AddVoter(entry(key, highest_version=0)),
                RemoveVoter(random.choice((voter, voter, key, wrong))),
                RemoveVoter(voter),
                UpdateVoter(entry(random.choice((voter, key, wrong)), port=random.randrange(1024, 9000))),
            )
        )
        is_refused = refusing_rule(raft, change) is not None
        if is_refused or (
            node.world.options.dynamic and self.target() is None and self._keeps_live_majority(raft, change)
        ):
            self.change(change)

    def _keeps_live_majority(self, raft: RaftNode, change: VoterChange) -> bool:
        after = changed(self.node.voter_set, change)
        view = self.view(raft, ())
        return planner._is_safe(view, after)
