"""What the voters have promised: one vote an epoch, and that what counts as committed is on the disks of a majority."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from migrator.log.quorum_state import FILE_NAME, decode_quorum_state
from migrator.log.segment import Segment
from migrator.log.snapshots import PART_SUFFIX, snapshot_name
from migrator.raft.messages import EpochOffset
from migrator.raft.quorum import Quorum
from migrator.raft.states import Candidate, Leader, Prospective, RoleState, Unattached
from migrator.raft.voter_set import Membership
from tests.simulation.whole.breach import check

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller
    from tests.simulation.whole.watch import Shadow


class Promises:
    """Of all controllers, for as long as their disks last."""

    def __init__(self) -> None:
        self._votes: dict[int, dict[int, int]] = {}
        """By controller and epoch."""
        self._states: dict[int, RoleState] = {}
        self._memberships: dict[int, Membership] = {}
        self._replaced: set[int] = set()
        """Whose disk was replaced after it had told what it holds."""
        self._finishing: dict[int, EpochOffset | None] = {}
        """By controller: the snapshot whose last part has come."""
        self._last_seen: dict[int, Membership] = {}

    def disk_replaced(self, controller: Controller) -> None:
        self._votes.pop(controller.node_id, None)
        self._replaced.add(controller.node_id)

    def look(self, controller: Controller, shadow: Shadow) -> None:
        """After each step of its consensus."""
        self._check_vote(controller, shadow)
        self._check_change(controller, shadow)
        finishing = shadow.raft.finishing
        if finishing is not self._finishing.get(controller.node_id):
            self._finishing[controller.node_id] = finishing
            _check_arrival(controller, shadow.raft)

    def _check_change(self, controller: Controller, shadow: Shadow) -> None:
        """A leader changes the voters once the change before it is committed, with a record of its own epoch (Raft's
        thesis, 4.1; Ongaro, July 2015)."""
        state, membership = shadow.raft.state, shadow.core.storage.log.membership()
        before = self._last_seen.get(controller.node_id, membership)
        self._last_seen[controller.node_id] = membership
        if (
            before is membership
            or before.voters == membership.voters
            or not isinstance(state, Leader)
            or membership.offset < state.start_offset  # it got that one as a follower
        ):
            return
        needed, committed = max(before.offset, state.start_offset), state.high_watermark or 0
        what = (
            f"{controller.name} changes voters at {membership.offset}: {needed} is not committed, {committed} ends that"
        )
        check("voters_change_after_the_last_change_is_committed", committed > needed, what)

    def _check_vote(self, controller: Controller, shadow: Shadow) -> None:
        state = shadow.core.quorum._core._quorum.state
        if self._states.get(controller.node_id) is state:
            return
        self._states[controller.node_id] = state
        voted = state.voted_id if isinstance(state, Unattached | Prospective) else None
        if isinstance(state, Candidate):
            voted = controller.node_id
        if voted is None or controller.machine is None or controller.machine.was_refused:  # then nobody hears of it
            return
        epoch = shadow.core.quorum.epoch
        durable = controller.durable_content(FILE_NAME)
        noted = None if durable is None else decode_quorum_state(durable)[0]
        is_durable = noted is not None and (noted.epoch > epoch or (noted.epoch, noted.voted_id) == (epoch, voted))
        check("a_vote_is_durable_when_it_is_told", is_durable, f"{controller.name}: {voted} in {epoch}, disk: {noted}")
        before = self._votes.setdefault(controller.node_id, {}).setdefault(epoch, voted)
        what = f"{controller.name} votes for {before} and for {voted} in epoch {epoch}"
        check("one_vote_an_epoch", before == voted, what)

    def check_disks(self, leader: Controller, shadows: dict[int, Shadow], high_watermark: int) -> None:
        """What a leader counts as committed may be lacking on the disks of a minority of the voters."""
        world, core = leader.world, shadows[leader.node_id].core
        _check_epoch(leader.name, shadows[leader.node_id])
        membership = core.quorum._core._quorum.membership
        is_known = self._memberships.get(leader.node_id) is membership
        self._memberships[leader.node_id] = membership
        if not is_known or core.storage.log.membership() is not membership or world.watch.refused:
            return  # the voters change now
        voters = core.quorum.membership.voters
        ends = {
            voter.voter_id: durable_end(world.controllers[voter.voter_id], shadows[voter.voter_id])
            for voter in (voters.voters if voters is not None else ())
            if voter.voter_id in shadows and voter.voter_id not in self._replaced  # who is down may have it
        }
        late = {node_id: end for node_id, end in ends.items() if end < high_watermark}
        count = len(voters.voters) if voters is not None else 0
        check(
            "what_is_committed_is_on_the_disks_of_a_majority",
            not late or count - len(late) > count // 2,
            f"{leader.name} commits up to {high_watermark}, on the disks of {late} ends the log",
        )


def _check_arrival(controller: Controller, raft: Quorum) -> None:
    """The last part of a snapshot has come from the leader, and nothing has looked at the file yet."""
    if raft.finishing is None or raft.leader_id is None:
        return
    leader, name = controller.world.controllers[raft.leader_id], snapshot_name(raft.finishing)
    came = [file.data for path, file in controller.disk.files() if name in path.name and PART_SUFFIX in path.name]
    sent = [file.data for path, file in leader.disk.files() if name in path.name and PART_SUFFIX not in path.name]
    what = f"{controller.name} has another {name} than {leader.name}, which sent it"
    check("a_snapshot_arrives_as_it_was_sent", not came or not sent or sent[0] in came, what)


def _check_epoch(name: str, shadow: Shadow) -> None:
    """A leader commits records of older epochs only together with one of its own epoch (Raft 5.4.2)."""
    state, epoch = shadow.raft.state, shadow.raft.epoch
    if isinstance(state, Leader) and state.high_watermark is not None:
        found = shadow.core.storage.log.epoch_at(state.high_watermark - 1)
        what = f"{name} leads in epoch {epoch} and commits up to a record of epoch {found}"
        check("a_leader_commits_with_a_record_of_its_own_epoch", found in {epoch, None}, what)


def durable_end(controller: Controller, shadow: Shadow) -> int:
    """Where the log would end after a power cut now, at least."""
    for segment in shadow.core.storage.log._segments:
        found = controller.disk.directory(segment.path.parent)
        file = controller.disk.file(segment.path)
        if found.durable.get(segment.path.name) is not file:
            return segment.base_offset
        size = file.durable_size
        if size < segment.size:
            return controller.in_process(partial(_offset_at, segment, size))
    return shadow.core.storage.log.end_offset()


def _offset_at(segment: Segment, size: int) -> int:
    """The first offset of the batch that reaches beyond a size."""
    index = bisect_right(segment._positions, size) - 1
    for position, header in segment._headers(segment._positions[index] if index >= 0 else 0):
        if position + header.size > size:
            return header.base_offset
    return segment.next_offset
