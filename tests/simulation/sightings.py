"""The signs of the leader in one life of a node, seen from outside, in both simulations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.config import RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.departure import REFUSALS_MIN, SPACING_MS
from migrator.raft.events import Failure
from migrator.raft.messages import (
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.raft.states import Role
from tests.simulation import invariants as rules
from tests.simulation.invariants import Violation, check

ANSWERS = (ev.ResponseReceived, ev.RequestFailed)


class Sightings:
    """
    :param now: when the process began, on its clock.
    :param count: notes that something worth testing happened.
    """

    def __init__(self, config: RaftConfig, now: int, count: Callable[[str], None]) -> None:
        self._timeout_ms = config.fetch_timeout_ms
        self._answer_ms = config.request_timeout_ms
        self._asked: dict[int, tuple[int, int]] = {}
        """The fetch from a leader that is not answered, and when it was sent."""
        self._count = count
        self._now = now
        self._heard_at: float = now
        self._leader: tuple[int, int | None] = (-1, None)
        self._role = Role.UNATTACHED
        self._is_early = False
        self._early_at = -math.inf
        self._ended_epoch = -1
        self.is_new = True
        """Whether the core has taken a step since this was set to False: only a step changes its state."""
        self._answered()

    def _begin(self, leader: tuple[int, int | None]) -> None:
        self._leader = leader
        self._heard_at = self._now
        self._answered()

    def _answered(self) -> None:
        self._has_lost = self._goes_on = False
        self._refusals = self._refused_at = 0

    def before(self, raft: RaftNode, event: ev.Event, now: int) -> None:
        """The core is about to hear this."""
        self.is_new = True
        self._now = max(self._now, now)
        log = raft._quorum.log
        check(rules.voters_are_in_the_log, log.membership().offset, log.end_offset())
        if isinstance(event, ANSWERS):
            asked = self._asked.get(event.peer)
            if asked is not None and asked[0] == event.correlation:
                del self._asked[event.peer]
        if self._leader[0] < 0:
            self._leader = raft.epoch, raft.leader_id  # as it was at boot
            if raft.role is not Role.FOLLOWER:
                self._heard_at = -math.inf  # it may know the leader's name from its disk, but waits for nobody
        elif self._leader != (raft.epoch, raft.leader_id):
            self._begin((raft.epoch, raft.leader_id))
        self._role = raft.role
        if isinstance(event, ev.RequestReceived):
            if isinstance(event.request, EndQuorumEpochRequest):
                self._ended_epoch = max(self._ended_epoch, event.request.leader_epoch)
        elif isinstance(event, ANSWERS) and event.peer == raft.leader_id:
            known = raft._quorum.peers._peers.get(event.peer)
            if known is not None and known.correlation == event.correlation:
                self._leader_answers(event.response) if isinstance(event, ev.ResponseReceived) else self._fails(event)

    def _leader_answers(self, response: RaftResponse) -> None:
        self._answered()
        if not isinstance(response, FetchResponse) or response.error != ErrorCode.none:
            return
        if response.diverging is None and response.snapshot_id is None:
            self._heard_at = self._now

    def _fails(self, event: ev.RequestFailed) -> None:
        is_apart = not self._refusals or self._now - self._refused_at >= SPACING_MS
        if event.how is Failure.CONNECTION_LOST:
            self._has_lost, self._refusals = True, 0
        elif event.how is Failure.REFUSED and self._has_lost and is_apart:
            self._refusals, self._refused_at = self._refusals + 1, self._now

    def after(self, event: ev.Event, effects: Iterable[fx.Effect]) -> None:
        """The core's answers, where each effect is not told by itself."""
        for effect in effects:
            if isinstance(effect, fx.RoleChanged):
                self.role_changed(effect)
            elif isinstance(effect, fx.Send):
                self.sent(effect)
            elif isinstance(effect, fx.InstallSnapshot):
                self.begins_anew()
            elif isinstance(effect, fx.Reply) and _is_pre_vote(event):
                self.promises(effect.response)

    def sent(self, effect: fx.Send) -> None:
        """
        :raises Violation: a fetch from its leader is under way already.
        """
        if effect.peer != self._leader[1] or not isinstance(effect.request, FetchRequest | FetchSnapshotRequest):
            return
        asked = self._asked.get(effect.peer)
        check(rules.one_fetch_at_a_time, asked is None or self._now - asked[1] >= self._answer_ms)
        self._asked[effect.peer] = effect.correlation, self._now

    def begins_anew(self) -> None:
        """It expects no answer any more: it has another role, or another log."""
        self._asked.clear()

    def role_changed(self, effect: fx.RoleChanged) -> None:
        """An effect of the step says so.

        :raises Violation: a follower stands for election without a reason.
        """
        self.begins_anew()
        role = effect.role
        if role is Role.FOLLOWER and self._leader != (effect.epoch, effect.leader_id):
            self._begin((effect.epoch, effect.leader_id))
        elif role is Role.FOLLOWER and self._role is Role.UNATTACHED:
            self._heard_at = self._now  # somebody names the leader that it knew: now it waits for that one
        if self._role is Role.FOLLOWER and role in {Role.PROSPECTIVE, Role.CANDIDATE}:
            self._is_early = self._misses_leader()
            if self._is_early:
                self._asks_early()
        elif role is Role.CANDIDATE and self._is_early:
            self._count("early elections")
        self._role = role
        self._is_early &= role is Role.PROSPECTIVE

    def _asks_early(self) -> None:
        """Questions without an answer of the leader between them belong to one early election."""
        self._count("early questions")
        if not self._goes_on:
            check(rules.one_early_election_in_a_fetch_time_out, self._now - self._early_at, self._timeout_ms)
            self._early_at, self._goes_on = self._now, True

    def promises(self, response: Any) -> None:
        """The node answers a pre-vote.

        :raises Violation: its vote could be had without a reason.
        """
        is_promise = isinstance(response, VoteResponse) and response.vote_granted
        if is_promise and self._role is Role.FOLLOWER and self._misses_leader():
            self._count("promises before the time-out")

    def _misses_leader(self) -> bool:
        """:returns: whether it does before the time-out."""
        is_over = self._ended_epoch == self._leader[0] or self._now - self._heard_at >= self._timeout_ms
        is_evident = self._has_lost and self._refusals >= REFUSALS_MIN
        check(rules.leader_is_missed_for_a_reason, is_over, is_evident)
        return not is_over


def follow(raft: RaftNode, count: Callable[[str], None], broken: list[Violation]) -> Sightings:
    """A rule that breaks within its step is told when the step is over."""
    original = raft.step
    sightings = Sightings(raft._quorum.config, raft._quorum.now, count)

    def step(event: ev.Event, now_ms: int) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        try:
            sightings.before(raft, event, now_ms)
            effects = original(event, now_ms)
            sightings.after(event, effects)
        except Violation as violation:
            broken.append(violation)
        return effects

    raft.step = step  # type: ignore[method-assign]
    return sightings


def _is_pre_vote(event: ev.Event) -> bool:
    if not isinstance(event, ev.RequestReceived) or not isinstance(event.request, VoteRequest):
        return False
    return event.request.pre_vote
