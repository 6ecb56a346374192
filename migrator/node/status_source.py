"""Serves operators: the status of this node, its changes, the journal, and orders.

The operator's gRPC service (`migrator.rpc.operator_service`) calls `NodeStatusSource` on the event loop. Every node
answers the questions about itself; only the active controller takes orders, and other nodes refuse them with the
leader's name. A status is made from the present state and never changes it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.image.model import BrokerRegistration
from migrator.migration.machine.states import State, public_state
from migrator.node.core import NodeCore
from migrator.node.loading import Loading
from migrator.node.migration.status import MigrationInsight
from migrator.node.refused_brokers import RefusedRegistration, with_refusals
from migrator.node.rollout_lock import RolloutLockKeeper
from migrator.node.way_back import WayBackKeeper
from migrator.observe.journal import Journal
from migrator.observe.leaders import whom_to_ask
from migrator.observe.printable import number_ranges
from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    Force,
    Gate,
    Goal,
    ImagesStatus,
    JournalEvent,
    LockAnswer,
    MigrationStatus,
    NodeRole,
    Orderer,
    Problem,
    QuorumStatus,
    Status,
    VerdictAnswer,
    VerdictReport,
    VoterStatus,
    silent_voters,
)
from migrator.raft.census import Word
from migrator.raft.states import Role as RaftRole
from migrator.records.versions import version_at
from migrator.values import value

REFRESH_SECONDS = 0.5
RECENT_EVENTS = 20
VERSION = importlib.metadata.version("kraft-migrator")
"""The version of the installed package, from `pyproject.toml`."""

ROLES = {
    RaftRole.LEADER: NodeRole.LEADER,
    RaftRole.FOLLOWER: NodeRole.FOLLOWER,
    RaftRole.PROSPECTIVE: NodeRole.PROSPECTIVE,
    RaftRole.CANDIDATE: NodeRole.CANDIDATE,
    RaftRole.UNATTACHED: NodeRole.UNATTACHED,
    RaftRole.RESIGNED: NodeRole.RESIGNED,
}


class AnsweringVoters(Protocol):
    """The voters that answer while there is no leader."""

    @property
    def answers(self) -> Mapping[int, bool]:
        """Whether each voter that was asked answered the last question."""

    @property
    def why(self) -> str:
        """Why there is no leader, as a clause; "" while the reason is unknown."""


@value
class NoRoll:
    """An `AnsweringVoters` in which no voter was asked."""

    answers: Mapping[int, bool] = field(default_factory=dict)
    why: str = ""


NO_ROLL = NoRoll()


class NodeStatusSource:
    """A `migrator.rpc.operator_service.StatusSource`.

    :param journal: gives the entries after a sequence number, oldest first.
    :param roll: the voters that answer while there is no leader.
    :param refused: gives the registrations that this node refused as the leader, by broker.
    :param notes: receives orders that do not concern the migration.
    """

    def __init__(
        self,
        settings: Settings,
        core: NodeCore,
        migration: MigrationInsight,
        journal: Callable[[int], list[JournalEvent]],
        roll: AnsweringVoters = NO_ROLL,
        refused: Callable[[], Mapping[int, RefusedRegistration]] = dict,
        notes: Journal | None = None,
    ) -> None:
        self._settings = settings
        self._core = core
        self._migration = migration
        self._journal = journal
        self._roll = roll
        self._refused = refused
        self._lock = RolloutLockKeeper(settings.node_id, core, notes)
        self._way_back = WayBackKeeper(core, notes)

    def status(self) -> Status:
        """The status now (see `StatusSource`)."""
        migration = self._migration
        image = self._core.metadata.published
        is_blank = image.provenance.offset < 0
        return Status(
            cluster_id=self._core.cluster_id,
            node_id=self._settings.node_id,
            version=VERSION,
            time_ms=wall_ms(),
            quorum=self._quorum(),
            migration=self._migration_status(),
            brokers=self._brokers(),
            problems=(
                *self._quorum_problems(),
                *with_refusals(migration.problems(), self._refused(), leads=self._core.controller.epoch is not None),
            ),
            write_behind=migration.write_behind_status(),
            claim=migration.claim_status(),
            metadata_version="" if is_blank else version_at(image.features.metadata_version).name,
            recent_events=tuple(self._journal(-1)[-RECENT_EVENTS:]),
            formatted_version=self._core.formatted_version,
            is_blank=is_blank,
            images=self._core.image_comparison.status,
        )

    def _quorum_problems(self) -> tuple[Problem, ...]:
        quorum = self._core.quorum
        seen = quorum.status()
        voters = self._core.addresses.voter_ids
        leaderless = None if seen.has_leader else _leaderless(voters, self._roll, seen.waits_for)
        own = self._settings.node_id
        refusing = quorum.refusals.problem(own, quorum.leader_id)
        given_up, other = quorum.given_up.problem(own), self._other_version()
        loading, images = _loading(own, self._core.metadata.loading), self._core.image_comparison.status
        found = (loading, leaderless, given_up, refusing, other, _disagreement(images))
        return tuple(problem for problem in found if problem is not None)

    def _other_version(self) -> Problem | None:
        """The problem of a directory that was formatted with another metadata.version than that of the first leader.
        During a migration the version cannot be changed, so nothing else explains a difference."""
        image, formatted = self._core.metadata.published, self._core.formatted_version
        finalized = version_at(image.features.metadata_version).name
        under_way = image.provenance.offset >= 0 and image.features.zk_migration_state.is_under_way
        if not under_way or formatted in ("", finalized):
            return None
        return Problem(
            f"controller {self._settings.node_id}",
            f"its directory was formatted with metadata.version {formatted}, but the first leader's with {finalized}, "
            f"which counts",
            f"If {finalized} is what you want, there is nothing to do. Otherwise stop the quorum before the copy, and "
            f"format every directory anew with the same --release-version",
            warning=True,
        )

    async def updates(self) -> AsyncIterator[Status]:
        """The status after every change; a slow reader may miss some, never the last (see `StatusSource`)."""
        last = None
        while True:
            status = self.status()
            if last is None or _without_time(status) != _without_time(last):
                last = status
                yield status
            await asyncio.sleep(REFRESH_SECONDS)

    async def journal(self, after_sequence: int, *, follow: bool) -> AsyncIterator[JournalEvent]:
        """Events after that sequence number, oldest first; then new ones as they come if ``follow``. An entry that
        waits for the disk has no number yet; it is sent again with its number."""
        told: list[JournalEvent] = []
        while True:
            waiting = [event for event in self._journal(-1) if not event.sequence]
            for event in self._journal(after_sequence):
                if event.sequence:
                    after_sequence = event.sequence
                    yield event
            for event in waiting:
                if event not in told:
                    yield event
            told = waiting
            if not follow:
                return
            await asyncio.sleep(REFRESH_SECONDS)

    async def pause(self, reason: str, by: Orderer) -> None:
        """Hold the migration before it writes to ZooKeeper (see `StatusSource`)."""
        await self._active_migration().pause(reason, by)

    async def resume(self, by: Orderer) -> None:
        """Let the migration go on (see `StatusSource`)."""
        await self._active_migration().resume(by)

    async def force(
        self, kind: Force, reason: str, by: Orderer, without: Sequence[int] = (), overrides: Sequence[str] = ()
    ) -> None:
        """Carry out the operator's order to force (see `StatusSource`)."""
        await self._active_migration().force(kind, reason, by, without, overrides)

    async def reopen(self, reason: str, by: Orderer) -> None:
        """Let a finished migration go on (see `StatusSource`)."""
        await self._active_migration().reopen(reason, by)

    async def close_way_back(self, reason: str, by: Orderer) -> None:
        """Let the controllers accept changes that close the way back (see `StatusSource`)."""
        await self._way_back.close(reason, by)

    async def gates(self, goal: Goal) -> tuple[Gate, ...]:
        """The gates before ``goal`` (see `StatusSource`)."""
        return await self._active_migration().gates(goal)

    async def report_verdict(self, report: VerdictReport, by: Orderer) -> VerdictAnswer:
        """Note the verdict of a comparison (see `StatusSource`)."""
        return self._active_migration().report_verdict(report, by)

    async def read_lock(self) -> LockAnswer:
        """The lock of a rollout (see `StatusSource`)."""
        return await self._lock.read()

    async def move_lock(self, before: str, after: str, by: Orderer) -> LockAnswer:
        """Write the lock of a rollout (see `StatusSource`)."""
        return await self._lock.move(before, after, by)

    def _active_migration(self) -> MigrationInsight:
        if self._core.controller.epoch is None:
            quorum = self._core.quorum.status()
            raise OperatorError(
                "this controller does not lead the migration",
                where=f"controller {self._settings.node_id}",
                remedy=whom_to_ask(quorum.present_leader_id, is_stock=quorum.led_by_stock),
            )
        return self._migration

    def _quorum(self) -> QuorumStatus:
        status, log = self._core.quorum.status(), self._core.storage.log
        ends = {row.replica_id: row.end_offset for row in status.voters}
        ready = self._migration.voters_ready()
        seen = {row.replica_id: row for row in status.voters}
        now_ms, answers = monotonic_ms(), {} if status.has_leader else self._roll.answers
        return QuorumStatus(
            role=ROLES[status.role],
            leader_id=-1 if status.present_leader_id is None else status.present_leader_id,
            leader_epoch=status.epoch,
            log_start_offset=log.start_offset(),
            log_end_offset=log.end_offset(),
            high_watermark=status.high_watermark,
            voters=tuple(
                VoterStatus(
                    voter,
                    at.host,
                    at.port,
                    ends.get(voter, -1),
                    ready.get(voter),
                    _age(seen[voter].heard_ms, now_ms) if voter in seen else -1,
                    answers.get(voter),
                    _age(max(seen[voter].heard_ms, seen[voter].awaited_ms), now_ms) if voter in seen else -1,
                )
                for voter, at in sorted(self._core.addresses.voters().items())
            ),
            stock_leader=status.led_by_stock,
        )

    def _migration_status(self) -> MigrationStatus:
        active = self._migration.migration_status()
        if active is not None:
            return active
        features = self._core.metadata.published.features
        return MigrationStatus(
            public_state=public_state(features.zk_migration_state).label,
            internal_state=State.INACTIVE.value,
            internal_state_age_ms=-1,
            active=False,
            paused=features.migration_hold is not None,
            reopened=features.reopened,
        )

    def _brokers(self) -> tuple[BrokerStatus, ...]:
        brokers = self._core.metadata.published.cluster.brokers
        return tuple(self._broker(brokers[broker_id]) for broker_id in sorted(brokers))

    def _broker(self, registration: BrokerRegistration) -> BrokerStatus:
        sessions, now_ms = self._core.keeper.sessions, monotonic_ms()
        session = sessions.get(registration.broker_id)
        leading = self._core.controller.epoch is not None
        silent_ms = now_ms - session.last_contact_ms if session is not None and leading else -1
        age_ms = silent_ms if session is not None and not session.presumed else -1
        silent = leading and sessions.is_silent(registration.broker_id, now_ms)
        if registration.fenced:
            state = BrokerState.OFFLINE if silent else BrokerState.FENCED
        else:
            state = BrokerState.STOPPING if registration.in_controlled_shutdown else BrokerState.RUNNING
        ages, mode = (age_ms, silent_ms), registration.is_migrating_zk_broker
        graced = leading and sessions.is_graced(registration, now_ms)
        return BrokerStatus(registration.broker_id, state, registration.epoch, mode, *ages, graced)


def _age(then_ms: int, now_ms: int) -> int:
    """The age of an event in milliseconds; -1 if there was no such event."""
    return -1 if then_ms < 0 else max(0, now_ms - then_ms)


def _leaderless(voters: Collection[int], roll: AnsweringVoters, words: Mapping[int, Word]) -> Problem:
    """
    :param words: what the other voters say of their logs, for a controller whose directory holds no whole log.
    """
    needed = f"An election needs {len(voters) // 2 + 1} of {len(voters)} voters"
    why = f"; {roll.why}" if roll.why else ""
    silent = sorted(voter for voter in voters if roll.answers.get(voter) is False)
    names = number_ranges("controller", silent) if silent else "the controllers that do not run"
    wait = "" if silent else "Wait a few seconds, because an election may be under way. If no controller leads then, "
    remedy = f"{wait}start {names}, and check that the machines reach each other at the addresses of the voters"
    logs = sorted(voter for voter, word in words.items() if word is Word.HAS_LOG)
    if logs and not silent:
        remedy = (
            f"{wait}and no other voter has a longer log than {number_ranges('controller', logs)}, stop this controller "
            "and start it once with 'migrator controller --bootstrap -c FILE': then it votes for that log. What only "
            "the lost directories held is lost (docs/quorum.md, Wiped disks)"
        )
    return Problem(
        "quorum",
        f"no controller leads, so the migration does not continue. {needed}{why}",
        remedy[0].upper() + remedy[1:],
    )


def _loading(node_id: int, loading: Loading | None) -> Problem | None:
    if loading is None:
        return None
    return Problem(
        f"controller {node_id}",
        "it makes the index of its metadata" if loading.is_read else f"it still loads its metadata: {loading} are read",
        "Wait. Meanwhile this controller votes and fetches, and does not stand for election",
        warning=True,
    )


def _disagreement(images: ImagesStatus | None) -> Problem | None:
    if images is None or not images.different:
        return None
    return Problem(
        "quorum",
        f"{images.disagreement}. Nobody knows yet which of them is wrong",
        "Each of them compares its metadata with its own log now, which may take minutes. The one that is wrong stops, "
        "and reads its log when it is started again. Do not end the migration before the controllers agree. If none "
        "stops, keep copies of their metadata directories, and restart one controller after the other",
    )


def _without_time(status: Status) -> tuple[object, ...]:
    """The status without ages, to compare two statuses: a changed age is no news, but a node that falls silent is."""
    brokers = tuple(
        (broker.broker_id, broker.state, broker.epoch, broker.in_zookeeper_mode) for broker in status.brokers
    )
    migration, quorum = status.migration, status.quorum
    return (
        replace(quorum, voters=tuple(replace(voter, heard_ms_ago=0, silent_ms=0) for voter in quorum.voters)),
        silent_voters(status),
        (migration.public_state, migration.internal_state, migration.active, migration.paused),
        brokers,
        status.problems,
        status.write_behind,
        status.claim,
        status.recent_events,
        None if status.images is None else status.images.different,
    )
