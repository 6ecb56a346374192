"""Moves the voters to the target, one step after the other, while this node is the active controller.

It keeps no state that matters: voters and target are in the log, from which the next leader continues. After each step
it waits for the commit, or for the end of its leadership.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.controller.decision import RefusedError
from migrator.controller.migration_gate import Operation
from migrator.controller.quorum_target import ONE_BY_ONE, RESOURCE, cleared_record, cleared_target, target_of
from migrator.image.model import ControllerRegistration, ImageDelta, MetadataImage
from migrator.node.core import NodeCore
from migrator.node.metadata import NotLeadingError
from migrator.observe.journal import Journal
from migrator.raft.membership import TIMED_OUT, TRY_AGAIN
from migrator.raft.planner import (
    Add,
    ClearTarget,
    Idle,
    LetAnotherLead,
    PlannerView,
    Remove,
    RemoveSelf,
    Replica,
    Step,
    Target,
    Wait,
    described,
    outlook,
    plan,
    seen,
)
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter, Refusal, RemoveVoter, UpdateVoter, VoterChange, VotersNotChangedError
from migrator.raft.voter_set import DYNAMIC_VERSION, ReplicaKey
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.metadata import MetadataRecord, ZkMigrationState
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.voters import VoterAnswer

log = logging.getLogger(__name__)

REASSIGNMENT = TaskKind("voter-reassignment", OnError.RESTART)
LOOK_SECONDS = 0.1
"""The time between two looks while the plan waits."""
LASTING_MS = 1_000
"""The wait after which the journal gets its reason."""
JOURNAL_KIND = "voters"
CHANGED = Refusal(ErrorCode.request_timed_out, "The voters or the target have changed since the step was planned.")
RESTING = f"The plan rests during a migration, and goes on after it. {ONE_BY_ONE}"

Ask = Callable[[int], Awaitable[VoterAnswer | None]]
"""Asks a controller, at the address with which it has registered, what it says of itself; None without an answer in
time."""


@value
class ReassignmentStatus:
    """``steps``: the remaining steps; ``waiting_for``: the condition that the first one needs.
    Only the leader knows both."""

    target: Target | None
    replicas: tuple[Replica, ...]
    steps: tuple[Step, ...]
    waiting_for: Wait | None


class VoterReassignment:
    """Leads the voters to their target, step by step; one object per node.

    :param listener: the name of the listener between voters.
    :param ask: asks controllers that may become voters, or lead after this one.
    """

    def __init__(
        self,
        settings: Settings,
        core: NodeCore,
        journal: Journal,
        ask: Ask,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._journal = journal
        self._ask = ask
        self._listener = core.addresses.listener
        self._fetch_timeout_ms = settings.controller_quorum_fetch_timeout_ms
        self._election_timeout_ms = settings.controller_quorum_election_timeout_ms
        self._node_id = settings.node_id
        self._supervisor = Supervisor(on_failure)
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._last_step_ms = monotonic_ms()
        self._wait: Wait | None = None
        self._wait_began_ms = 0
        self._is_wait_noted = True
        self._answers: dict[int, VoterAnswer | None] = {}
        core.leadership.listeners.append(self)
        core.metadata.subscribers.append(self._published)

    def became_active(self, epoch: int, image: MetadataImage) -> None:
        """Go on with the target in the log (see `LeaderListener`)."""
        del image
        self._last_step_ms = monotonic_ms()
        self._task = self._supervisor.keep(REASSIGNMENT, partial(self._run, epoch))

    def lost_leadership(self, epoch: int) -> None:
        """Forget everything: the next leader begins with the log (see `LeaderListener`)."""
        del epoch
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._note_wait(None)

    async def close(self) -> None:
        """Stop."""
        await self._supervisor.close()

    def _published(self, delta: ImageDelta) -> None:
        if RESOURCE in delta.changes.configs:
            self._changed.set()

    async def _run(self, epoch: int) -> None:
        with contextlib.suppress(NotLeadingError):
            while True:
                self._changed.clear()
                if target_of(self._core.metadata.published) is None:
                    self._note_wait(None)
                    await self._changed.wait()
                    self._last_step_ms = monotonic_ms()
                if not await self._act(epoch, await self._look()):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await self._changed.wait()

    # Reading the state

    async def status(self) -> ReassignmentStatus:
        """The status for descriptions of the quorum, on any node."""
        target = target_of(self._core.metadata.published)
        if self._core.quorum.role is not Role.LEADER:
            return ReassignmentStatus(target, (), (), None)
        view = await self._look()
        if target is None:
            return ReassignmentStatus(target, view.replicas, (), None)
        first = plan(view)
        waiting_for = first if isinstance(first, Wait) else self._wait
        return ReassignmentStatus(target, view.replicas, outlook(view), waiting_for)

    def replicas(self) -> list[Replica]:
        """The other nodes that fetch, or have fetched, from this leader; none on other nodes."""
        now, info = monotonic_ms(), self._core.quorum.status()
        return [
            seen(row, now, self._fetch_timeout_ms, self._election_timeout_ms)
            for row in (*info.voters, *info.observers)
            if row.replica_id != self._node_id
        ]

    @property
    def is_moving(self) -> bool:
        """Whether this node is the active controller and there is a target."""
        return self._core.controller.epoch is not None and target_of(self._core.metadata.published) is not None

    @property
    def idle_ms(self) -> int:
        """Milliseconds since the last step of a plan; 0 when none runs."""
        return monotonic_ms() - self._last_step_ms if self.is_moving else 0

    async def _look(self) -> PlannerView:
        """Ask the controllers, and then read everything else: during the questions a voter may fall silent, and a step
        that counted it as live would leave too few."""
        await self._ask_all(self._whom_to_ask())
        return self._view()

    def _view(self) -> PlannerView:
        """The facts of now, with the last answers.

        :raises NotLeadingError: this node knows no voters.
        """
        core, quorum, image = self._core, self._core.quorum, self._core.metadata.published
        voters, target, replicas = quorum.membership.voters, target_of(image), self.replicas()
        if voters is None:
            raise NotLeadingError("no voter set is in force")
        wanted = {replica.node_id for replica in target or ()}
        own = ReplicaKey(self._node_id, core.addresses.directory_id)
        ready = (self._with_obstacle(it) if it.key.node_id in wanted - voters.ids else it for it in replicas)
        return PlannerView(
            own=own,
            is_leader=quorum.role is Role.LEADER,
            voters=voters,
            target=target,
            replicas=(Replica(own, core.storage.log.end_offset(), is_live=True, is_caught_up=True), *ready),
            ours=frozenset(node for node, answer in self._answers.items() if answer is not None and answer.is_ours),
            hold=self._hold(),
        )

    def _whom_to_ask(self) -> set[int]:
        voters, target = self._core.quorum.membership.voters, target_of(self._core.metadata.published)
        wanted = {replica.node_id for replica in target or ()} | (frozenset() if voters is None else voters.ids)
        return {it.key.node_id for it in self.replicas() if it.is_live} & wanted

    async def _ask_all(self, nodes: set[int]) -> None:
        """Ask all nodes at the addresses that other nodes would use. No answer is cached."""
        ordered = sorted(nodes)
        answers = await asyncio.gather(*map(self._ask, ordered))
        known = {node: answer for node, answer in self._answers.items() if answer is not None}
        self._answers = {**known, **dict(zip(ordered, answers, strict=True))}

    def _with_obstacle(self, replica: Replica) -> Replica:
        obstacle = self._obstacle(replica.key.node_id)
        return Replica(replica.key, replica.end_offset, replica.is_live, replica.is_caught_up, obstacle)

    def _obstacle(self, node_id: int) -> str:
        found = self._registration(node_id)
        if found is None:
            return "it has not registered as a controller"
        can = _kraft_versions(found)
        if not can.min_supported_version <= DYNAMIC_VERSION <= can.max_supported_version:
            return f"it supports kraft.version {can.min_supported_version} to {can.max_supported_version} only"
        at = next((at for at in found.listeners if at.name == self._listener), None)
        if at is None:
            return f"it has registered no listener {self._listener}, which the voters reach each other by"
        if self._answers.get(node_id) is None:
            return f"it does not answer at {at.host}:{at.port}, where the voters would look for it"
        return ""

    def _registration(self, node_id: int) -> ControllerRegistration | None:
        return self._core.metadata.published.cluster.controllers.get(node_id)

    def _own_voter(self) -> DynamicVoter | None:
        voters = self._core.quorum.membership.voters
        return None if voters is None else voters.find(self._node_id)

    def _hold(self) -> str | None:
        metadata, voter = self._core.metadata, self._own_voter()
        if target_of(metadata.image) != target_of(metadata.published):
            return "A new target is not committed yet."
        if metadata.published.features.zk_migration_state in {
            ZkMigrationState.PRE_MIGRATION,
            ZkMigrationState.MIGRATION,
        }:
            return RESTING
        if voter is None:
            return "This leader is no voter any more, and leaves once that is committed."
        refusal = self._core.quorum.why_not(UpdateVoter(voter))
        if refusal is None or refusal.lacking_records:
            return None  # records that the next step lacks are appended when it is refused
        return _waiting(refusal)

    # Acting

    async def _act(self, epoch: int, view: PlannerView) -> bool:
        """Perform the next step. Returns whether there was one."""
        step = plan(view)
        if isinstance(step, Idle | Wait):
            self._note_wait(step if isinstance(step, Wait) else None)
            return False
        try:
            await self._perform(epoch, view, step)
        except VotersNotChangedError as error:
            self._note_wait(Wait(_waiting(error.refusal), "Wait: the leader tries again."))
            await self._core.voter_changes.fill(error.refusal)
            return False
        except RefusedError as error:
            if error.error.code is ErrorCode.not_controller:
                raise NotLeadingError(str(error)) from error
            raise
        return True

    async def _perform(self, epoch: int, view: PlannerView, step: Step) -> None:
        quorum, target = self._core.quorum, view.target or ()
        match step:
            case Add(key):
                await self._change(step, AddVoter(self._voter(key)))
            case Remove(key):
                await self._change(step, RemoveVoter(key))
            case LetAnotherLead(successor):
                self._begin(step)
                quorum.resign(epoch, successor)
            case RemoveSelf():
                await self._leave(view, step)
            case ClearTarget():
                self._begin(step)
                await self._core.controller.write(
                    Operation.REASSIGN_VOTERS, lambda image, _: cleared_target(image, target), epoch=epoch
                )

    async def _leave(self, view: PlannerView, step: RemoveSelf) -> None:
        """Remove this leader. The target is cleared first if no remaining voter could clear it. The core resigns once
        the removal is committed."""
        await self._change(step, RemoveVoter(view.own), (cleared_record(),) if step.is_last_of_ours else ())

    async def _change(self, step: Step, change: VoterChange, first: Sequence[MetadataRecord] = ()) -> None:
        """Perform a change; returns when it is committed."""
        look = partial(self._begin_if_still_next, step, change)
        await self._core.metadata.committed_up_to(await self._core.controller.change_voters(change, look, first=first))

    def _begin_if_still_next(self, step: Step, change: VoterChange) -> None:
        """Check the step again when it is its turn to append: meanwhile a voter may have fallen silent, or changed.

        :raises VotersNotChangedError: another step would be due now, or the leader refuses it.
        """
        refusal = self._core.quorum.why_not(change) or (CHANGED if plan(self._view()) != step else None)
        if refusal is not None:
            raise VotersNotChangedError(refusal)
        self._begin(step)

    def _voter(self, key: ReplicaKey) -> DynamicVoter:
        found = self._registration(key.node_id)
        listeners = () if found is None else found.listeners
        endpoints = tuple(VoterEndpoint(at.name, at.host, at.port) for at in listeners)
        versions = KRaftVersionRange(0, 0) if found is None else _kraft_versions(found)
        return DynamicVoter(key.node_id, key.directory_id, endpoints, versions)

    def _begin(self, step: Step) -> None:
        """Put the step into the journal before it happens, because afterwards this node may no longer lead."""
        self._note_wait(None)
        self._last_step_ms = monotonic_ms()
        text = described(step)
        log.info("Reassignment of voters: %s", text)
        self._journal.note(wall_ms(), JOURNAL_KIND, f"Reassignment of voters: {text}")

    def _note_wait(self, wait: Wait | None) -> None:
        now = monotonic_ms()
        if wait is None or self._wait is None or wait.reason != self._wait.reason:
            self._wait, self._wait_began_ms, self._is_wait_noted = wait, now, wait is None
        elif not self._is_wait_noted and now - self._wait_began_ms >= LASTING_MS:
            self._is_wait_noted = True
            log.warning("Reassignment of voters: %s %s", wait.reason, wait.remedy)
            self._journal.note(
                wall_ms(), JOURNAL_KIND, f"Reassignment of voters waits: {wait.reason}", remedy=wait.remedy
            )


def _waiting(refusal: Refusal) -> str:
    """The reason of a refusal, as a whole sentence."""
    waiting = refusal.message.removeprefix(TIMED_OUT).removesuffix(TRY_AGAIN)
    return waiting[:1].upper() + waiting[1:]


def _kraft_versions(registration: ControllerRegistration) -> KRaftVersionRange:
    found: Mapping[str, tuple[int, int]] = {
        feature.name: (feature.min_version, feature.max_version) for feature in registration.features
    }
    return KRaftVersionRange(*found.get("kraft.version", (0, 0)))
