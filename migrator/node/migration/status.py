"""The status of a running migration for operators, their orders, and the gates before the end and before a rollback.

`status_source` asks `MigrationInsight` for the operator's gRPC service, and `metrics` for figures. Status and gates are
computed from the driver and the image when they are asked for. An order is in the journal before it is carried out; an
order to pause, resume or reopen is committed when its call returns. An operator can override only a fact that `status`
showed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from migrator.clock import monotonic_ms
from migrator.config.keys import FLAG
from migrator.errors import MigratorError, OperatorError
from migrator.image.model import ClusterImage, MetadataImage
from migrator.migration.machine import events as ev
from migrator.migration.machine.finish import VerdictContext, without, zk_mode_brokers
from migrator.migration.machine.interpret import UNREACHABLE
from migrator.migration.machine.left_out import vanished
from migrator.migration.machine.readiness import Gap, Severity
from migrator.migration.machine.states import OVERRIDES, PublicState, State, check_forceable, check_shown
from migrator.migration.machine.volatile_state import DriverStatus, held
from migrator.migration.reopen_gates import ReopenFacts, reopen_gates
from migrator.migration.write_behind.core import WriteBehind
from migrator.node.core import NodeCore
from migrator.node.migration.behind import LARGE_WRITE_REMEDY, SET_ASIDE_REMEDY, drain
from migrator.node.migration.farewell import Farewell
from migrator.node.migration.left_out import LeavingOut
from migrator.node.migration.runtime import MigrationRuntime
from migrator.node.migration.write_gate import WriteGate
from migrator.observe.printable import number_of
from migrator.observe.status import (
    UNKNOWN_LAG,
    ClaimStatus,
    Force,
    Gate,
    Goal,
    MigrationStatus,
    Orderer,
    Problem,
    VerdictAnswer,
    VerdictReport,
    WriteBehindStatus,
    versions_said,
)
from migrator.observe.write_times import WriteTimes
from migrator.records.metadata import MigrationHold, ZkMigrationState
from migrator.wire.voters import VoterSignals, outdated, ready, stock

NOT_TOLD_REMEDY = (
    "The controller informs the other brokers, and tries this one again. Check the log of this "
    "broker, the host and port that it advertises for the listener between brokers, and the certificates or "
    "passwords of that listener. A restart of the broker starts the connection anew"
)


FOLLOWERS = ("migration", "ZooKeeper")
"""The parts whose problems keep ZooKeeper from following the log."""


class MigrationInsight:
    """The migration of this node, for status and orders. It runs only on the active controller."""

    def __init__(self, core: NodeCore, runtime: MigrationRuntime, gate: WriteGate, signals: VoterSignals) -> None:
        self._core = core
        self._runtime = runtime
        self._gate = gate
        self._signals = signals
        self._led = False
        self._leaving_out = LeavingOut(core, runtime, signals)

    @property
    def driver(self) -> DriverStatus:
        """The driver's own view of itself."""
        return self._runtime.executor.coordinator.status(monotonic_ms())

    @property
    def write_times(self) -> WriteTimes:
        """How long writes to ZooKeeper took."""
        return self._runtime.write_times

    @property
    def blocked_ms(self) -> int:
        """How long writes have waited for ZooKeeper."""
        return self._gate.blocked_ms

    @property
    def broker_troubles(self) -> Mapping[int, str]:
        """The faults of brokers in ZooKeeper mode that cannot be reached."""
        return self._runtime.broker_troubles

    async def drain(self, seconds: float) -> OperatorError | None:
        """Let ZooKeeper catch up before a leader leaves. Returns what is missing at the end."""
        runtime = self._runtime
        self._led = runtime.must_follow
        missing = await drain(
            runtime.executor.coordinator, lambda: runtime.lag, lambda: runtime.missing_when_deposed, seconds
        )
        self._led = self._led and runtime.must_follow
        return missing

    def farewell(self, missing: OperatorError | None) -> Farewell:
        """The last log line, once the leadership is given up.

        :param missing: the result of `drain`.
        """
        runtime, leader = self._runtime, self._core.quorum.leader_id
        metadata = self._core.metadata
        since = runtime.missing_when_deposed if missing is None else None
        return Farewell(
            metadata.published.features.zk_migration_state if metadata.has_reached_high_watermark else None,
            turned_off=runtime.turned_off,
            led=self._led,
            lacks="" if missing is None else missing.what,
            lacks_since="" if since is None else since.what,
            leader=None if leader == runtime.node_id else leader,
        )

    def migration_status(self) -> MigrationStatus | None:
        """The migration as the leader sees it; None if this node is not the active controller."""
        status = self.driver
        if status.state is State.INACTIVE:
            return None
        return MigrationStatus(
            status.public.label,
            status.state.value,
            status.age_ms,
            active=True,
            paused=status.paused,
            overridable=status.situation.overridable,
            reopened=self._core.metadata.published.features.reopened,
        )

    def problems(self) -> tuple[Problem, ...]:
        """The reasons why the migration does not go on."""
        status = self.driver
        hold = self._core.metadata.published.features.migration_hold
        if status.state.properties.at_rest:
            return () if hold is None else (_held(hold),)
        waits_for_operator = _waits_for_operator(status)
        found = []
        if status.situation.remedy or status.state is not State.DUAL_WRITING:
            why, remedy = status.situation.why, status.situation.remedy
            found.append(Problem("migration", why, remedy, warning=not waits_for_operator))
        readiness = status.readiness
        if readiness is not None and status.public is PublicState.MIGRATION_INELIGIBLE:
            if status.state in (State.WAITING_FOR_CONTROLLERS, State.WAITING_FOR_BROKERS):
                found = [_problem(gap) for gap in (*readiness.controllers, *readiness.brokers)] or found
            found += [_problem(gap) for gap in readiness.warnings]
        away = not status.zookeeper_connected and status.state.properties.needs_zookeeper
        if away and status.situation.why.startswith(UNREACHABLE):
            found = []  # reported below, as it is now
        found += [
            Problem(f"broker {broker_id}", what, NOT_TOLD_REMEDY, warning=True)
            for broker_id, what in self._runtime.broker_troubles.items()
        ]
        found += [_problem(gap) for gap in (*status.strays, *map(vanished, self.vanished_brokers))]
        if hold is not None and status.state is not State.PAUSED:
            found.append(_held(hold))
        if away:
            why, remedy = self._runtime.zookeeper_away
            found.append(Problem("ZooKeeper", f"it is out of reach: {why}", remedy))
        unanswered = self._write_behind.unanswered
        if unanswered is not None:
            found.append(Problem("ZooKeeper", str(unanswered), LARGE_WRITE_REMEDY))
        found += [Problem(item.entity, str(item), SET_ASIDE_REMEDY) for item in self._write_behind.set_aside]
        return tuple(found)

    def write_behind_status(self) -> WriteBehindStatus | None:
        """How far ZooKeeper is behind; None while nothing is written to it."""
        lag = self._runtime.lag
        if lag is None:
            return None
        records = UNKNOWN_LAG if lag.records is None else lag.records
        reached = self._write_behind.reached.offset
        missing, seconds = self._write_behind.versions_missing(monotonic_ms()), UNKNOWN_LAG
        if missing.seconds is not None and self.compared:
            seconds = missing.seconds
        sets = missing.sets if self.compared else UNKNOWN_LAG
        return WriteBehindStatus(records, lag.age_ms, self._gate.blocked_ms, reached, sets, seconds)

    @property
    def compared(self) -> bool:
        """Whether this leader has compared all of ZooKeeper with the log."""
        return self._write_behind.compared

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Paths that are too large for ZooKeeper, and therefore missing there."""
        return tuple(item.path for item in self._write_behind.set_aside)

    @property
    def _write_behind(self) -> WriteBehind:
        return self._runtime.executor.coordinator.write_behind

    def claim_status(self) -> ClaimStatus | None:
        """The claim that this node holds."""
        claim = self._write_behind.claim
        if claim is None:
            return None
        return ClaimStatus(claim.zk_epoch, claim.epoch_version, claim.migration_version)

    def voters_ready(self) -> dict[int, bool | None]:
        """ZkMigrationReady of each voter as last heard."""
        return ready(self._signals.last)

    async def gates(self, goal: Goal) -> tuple[Gate, ...]:
        """The gates before a goal."""
        image = self._core.metadata.published
        match goal:
            case Goal.FINISH:
                return finish_gates(self, image)
            case Goal.ROLLBACK:
                return rollback_gates(self, image)
            case Goal.REOPEN:
                return reopen_gates(await self._reopen_facts())

    async def _reopen_facts(self) -> ReopenFacts:
        answers = await self._signals.ask()
        image, standing, running, away = self._core.metadata.published, None, frozenset[int](), ""
        forbidden = tuple[str, ...]()
        too_large = frozenset(await asyncio.to_thread(self._gate.too_large, image))
        try:
            standing = await self._runtime.executor.standing()
            running = await self._runtime.in_zookeeper()
            forbidden = await self._runtime.forbidden()
        except MigratorError as error:
            away = str(error)
        return ReopenFacts(
            self._core.cluster_id,
            image,
            self.driver.public,
            ready(answers),
            stock(answers),
            standing,
            running,
            outdated(answers),
            too_large,
            forbidden,
            away,
        )

    async def pause(self, reason: str, by: Orderer) -> None:
        """Hold the migration before it writes to ZooKeeper; errors as `PauseOrder.give`."""
        await self._runtime.pause_order.give(reason, by)

    async def resume(self, by: Orderer) -> None:
        """Let the migration go on; errors as `PauseOrder.take_back`."""
        await self._runtime.pause_order.take_back(by)

    async def force(
        self, kind: Force, reason: str, by: Orderer, without: Sequence[int] = (), overrides: Sequence[str] = ()
    ) -> None:
        """Override a fact that the migration waits for now and that the operator was shown; nothing else can be forced.

        :raises OperatorError: the migration does not wait for it, or the order has no reason; or as in
            `LeavingOut.order`.
        """
        driver = self.driver
        if not reason:
            raise OperatorError("the journal needs a reason", where=f"force {kind}", remedy="Give --reason")
        check_forceable(kind, driver.state)
        if kind is Force.FINISH:
            await self._leaving_out.order(without, reason, by)
            return
        if kind in OVERRIDES:
            check_shown(kind, driver.situation.overridable, overrides)
            shown = "; ".join(driver.situation.overridable)
            self._runtime.note("force", reason, what=kind.value, overrides=shown, **by.details)
        else:
            self._runtime.note("force", reason, what=kind.value, **by.details)
        self._runtime.executor.feed(ev.OperatorForce(kind, overrides=frozenset(overrides)))

    async def reopen(self, reason: str, by: Orderer) -> None:
        """Let a finished migration go on; errors as `ReopenOrder.give`."""
        await self._runtime.reopen_order.give(reason, by, lambda: self.gates(Goal.REOPEN))

    def report_verdict(self, report: VerdictReport, by: Orderer) -> VerdictAnswer:
        """Note the verdict of a comparison."""
        epoch = self._core.controller.epoch
        standing = VerdictContext(
            self._core.cluster_id,
            -1 if epoch is None else epoch,
            self.driver.state,
            self._core.storage.log.epoch_at(report.offset) if report.offset >= 0 else None,
        )
        answer = self._runtime.verdicts.take(report, standing)
        found = "equal" if report.equal else f"{report.differences} differences"
        self._runtime.note(
            "verdict",
            f"verify found {found}; {answer.sentence}",
            offset=str(report.offset),
            zxid=f"{report.zxid:#x}",
            **by.details,
        )
        return answer

    @property
    def vanished_brokers(self) -> tuple[int, ...]:
        """Brokers in ZooKeeper mode that alone delay the end, and that are silent both here and in ZooKeeper."""
        left = zk_mode_brokers(self._core.metadata.published.cluster)
        running = self.driver.running
        gone = running is not None and all(i not in running and self._leaving_out.is_silent(i) for i in left)
        return left if gone else ()

    @property
    def verified(self) -> bool | None:
        """Whether a verdict allows the end of the migration; None when none is required."""
        return self._runtime.verified

    @property
    def last_verdict(self) -> int:
        """1 equal, 0 different, -1 when this leader has no verdict."""
        return self._runtime.last_verdict


def finish_gates(view: MigrationInsight, image: MetadataImage) -> tuple[Gate, ...]:
    """The gates before POST_MIGRATION."""
    brokers = zk_mode_brokers(image.cluster)
    verdict = Gate(
        "verdict",
        bool(view.verified),
        "a comparison that found both sides equal after ZooKeeper was last written",
        "Run 'migrator verify -c FILE --report' when every controller has the migration turned off",
    )
    return (
        *(() if view.verified is None or image.features.migration_reopening is not None else (verdict,)),
        Gate(
            "state",
            view.driver.public in (PublicState.DUAL_WRITE, PublicState.FINISHED),
            _where(view.driver),
            "Only a migration in DualWrite can be finished",
        ),
        Gate(
            "brokers",
            not brokers,
            f"brokers in ZooKeeper mode: {', '.join(map(str, brokers)) or 'none'}",
            "Restart them in KRaft mode" + "".join(f". {without(f'broker {i}', i)}" for i in view.vanished_brokers),
        ),
        *running_gate(view.driver.public, image.cluster),
        *_voters_gate(view.driver),
        _lag_gate(view),
    )


def running_gate(public: PublicState, cluster: ClusterImage) -> tuple[Gate, ...]:
    """The gate of stopped brokers in KRaft mode: the controllers do not wait for them, but the operator should."""
    if public is PublicState.FINISHED:
        return ()
    found = sorted(cluster.brokers.items())
    down = [i for i, broker in found if broker.fenced and not broker.is_migrating_zk_broker]
    return (
        Gate(
            "running",
            not down,
            f"brokers that do not serve: {', '.join(map(str, down)) or 'none'}",
            "Start them, and wait until they serve. What is gone for good: 'migrator quorum unregister -c FILE --id N'",
        ),
    )


def _voters_gate(status: DriverStatus) -> tuple[Gate, ...]:
    """The gate of the voters. Only a leader that finishes knows for which voters it waits."""
    if status.state is not State.FINISHING:
        return ()
    why, remedy = status.situation.why, status.situation.remedy
    return (Gate("controllers", not remedy, why, remedy.rstrip(".")),)


def rollback_gates(view: MigrationInsight, image: MetadataImage) -> tuple[Gate, ...]:
    """The gates before a rollback to a ZooKeeper controller."""
    kraft = tuple(
        sorted(i for i, registration in image.cluster.brokers.items() if not registration.is_migrating_zk_broker)
    )
    return (
        Gate(
            "state",
            view.driver.public is not PublicState.FINISHED,
            _where(view.driver),
            "Reopen the migration first: 'migrator gates reopen' says what stands against it",
        ),
        Gate(
            "brokers",
            not kraft,
            f"brokers in KRaft mode: {', '.join(map(str, kraft)) or 'none'}",
            "Restart them in ZooKeeper mode with the migration enabled",
        ),
        _written_gate(view, image),
        _versions_gate(view),
        Gate(
            "sizes",
            not view.set_aside,
            f"too large for ZooKeeper, and not in it: {', '.join(view.set_aside) or 'nothing'}",
            "A rollback would lose these changes. Make the entities smaller; 'migrator status' shows how",
        ),
    )


def _waits_for_operator(status: DriverStatus) -> bool:
    return bool(status.situation.remedy) and status.state is not State.DUAL_WRITING


def _where(status: DriverStatus) -> str:
    """The state in words. For a state that ends without an operator, the public name is enough."""
    doing = f" ({status.state.value})" if _waits_for_operator(status) else ""
    return f"the migration is in {status.public.label}{doing}"


def _held(hold: MigrationHold) -> Problem:
    situation = held(hold)
    return Problem("migration", situation.why, situation.remedy, warning=True)


def _written_gate(view: MigrationInsight, image: MetadataImage) -> Gate:
    """The gate of ZooKeeper's content: a rollback needs a ZooKeeper that holds everything, and a leader whose flag is
    off does not write to it."""
    if image.features.zk_migration_state is ZkMigrationState.MIGRATION and view.write_behind_status() is None:
        return Gate(
            "lag",
            open=False,
            what="the migration is turned off on the leading controller, so changes are not written to ZooKeeper",
            remedy=f"Set {FLAG}=true and zookeeper.connect on the controllers, restart them, and wait for DualWrite",
        )
    return _lag_gate(view)


def _versions_gate(view: MigrationInsight) -> Gate:
    """The gate of versions: a ZooKeeper controller sends them as partition epochs, brokers skip old ones (ADR 60)."""
    behind = view.write_behind_status()
    said = "" if behind is None else versions_said(behind)
    return Gate(
        "versions",
        not said,
        said or "every partition state has the version that brokers know",
        "Wait; the leader raises them. 'migrator rollback' raises what is left, while the cluster has no controller",
    )


def _lag_gate(view: MigrationInsight) -> Gate:
    behind = view.write_behind_status()
    lag = 0 if behind is None else behind.lag_records
    is_open = lag == 0 and (behind is None or view.compared)
    what = f"ZooKeeper is {number_of(lag, 'record')} behind"
    if lag == UNKNOWN_LAG:
        what = "it is not known yet how far ZooKeeper is behind"
    elif not is_open and not lag:
        what = "all of ZooKeeper has to be compared with the log first"
    remedy = "Wait until ZooKeeper has caught up"
    if not is_open:
        stands = next((it for it in view.problems() if it.who in FOLLOWERS and not it.warning and it.remedy), None)
        if stands is not None:  # waiting does not help
            what, remedy = f"{what}. {stands.who}: {stands.what.rstrip('.')}", stands.remedy.rstrip(".")
    return Gate("lag", is_open, what, remedy)


def _problem(gap: Gap) -> Problem:
    return Problem(gap.who, gap.reason, gap.remedy, warning=gap.severity is Severity.WARNING)
