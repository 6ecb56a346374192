"""The ports of `migrator.migration` on a real node: log and quorum, ZooKeeper, brokers; and the migration that uses
them.

`node.run_node` makes one `MigrationRuntime` and starts it; `Leadership` tells it of each leadership. Blocking calls to
ZooKeeper run on threads. Only the active controller writes to ZooKeeper and sends RPCs to brokers, after it has taken
the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.image.model import ImageDelta, MetadataImage
from migrator.migration.broker_rpcs.messenger import BrokerMessenger
from migrator.migration.copying.permissions import forbidden_to
from migrator.migration.examination import read_present
from migrator.migration.executor import MigrationExecutor, News, Options
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.finish import FinishInputs, zk_mode_brokers
from migrator.migration.machine.guards import MarkEvidence
from migrator.migration.machine.readiness import ControllerSignals
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import Identity
from migrator.migration.ports import MigratedCluster
from migrator.migration.translate.source import names_below
from migrator.migration.write_behind.lag import Lag, at_of, has_effect
from migrator.migration.write_behind.multis import limits_of
from migrator.node.core import NodeCore
from migrator.node.migration.address import check_address
from migrator.node.migration.away import keep_telling
from migrator.node.migration.behind import Debt, tell_of_write
from migrator.node.migration.kafka_log import KafkaLog
from migrator.node.migration.mark_proofs import MarkProofs
from migrator.node.migration.pause import PauseOrder
from migrator.node.migration.reopening import ReopenOrder
from migrator.node.migration.standby import LOOK_SECONDS, Standby
from migrator.node.migration.verdicts import Verdicts
from migrator.observe.journal import Journal
from migrator.observe.status import SILENT_MS
from migrator.observe.write_times import WriteTimes
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MetadataRecord, ZkMigrationState
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.wire.legacy.messages import SendingController
from migrator.wire.voters import VoterSignals, ready, stock
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.clusters import no_cluster
from migrator.zookeeper.leadership import ClaimView
from migrator.zookeeper.ops import MultiOutcome, Op
from migrator.zookeeper.password_encoder import password_encoder
from migrator.zookeeper.session import SessionState, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import MigrationState

log = logging.getLogger(__name__)

READ_RETRY_SECONDS = 2.0
"""How many seconds one small read is repeated after lost connections. The executor repeats it afterwards."""
COMPARES = frozenset({State.RECONCILING, State.COMPARING})
"""The states in which all of ZooKeeper is compared with the log."""

CONNECTION_NEWS = TaskKind("zookeeper-connection-news", OnError.STOP)
ZOOKEEPER_AWAY = TaskKind("zookeeper-away", OnError.RESTART)
STANDBY = TaskKind("standby", OnError.RESTART)
ADDRESS = TaskKind("zookeeper-address", OnError.DROP)


class NodeController:
    """The log and the quorum of a real node: a `ControllerPort`, which says what each method does."""

    def __init__(
        self, settings: Settings, core: NodeCore, voters: VoterSignals, verdicts: Verdicts, proofs: MarkProofs
    ) -> None:
        self._settings = settings
        self._core = core
        self._voters = voters
        self._verdicts = verdicts
        self._proofs = proofs

    @property
    def image(self) -> MetadataImage:
        return self._core.metadata.published

    async def append(self, epoch: int, records: Sequence[MetadataRecord]) -> int:
        return await self._core.controller.append(epoch, records)

    async def append_encoded(self, epoch: int, batches: bytes) -> int:
        return await self._core.controller.append_encoded(epoch, batches)

    async def committed(self, offset: int) -> None:
        """Wait until the offset is committed and the image published, so that the next step sees its records."""
        await self._core.metadata.stable(offset)

    async def abort_open(self, epoch: int, reason: str) -> int | None:
        return await self._core.controller.abort_open(epoch, reason)

    def crc_at(self, offset: int) -> int | None:
        return self._proofs.crc_at(offset)

    async def evidence(self, mark: MigrationState) -> MarkEvidence:
        return await self._proofs.evidence(mark)

    async def signals(self) -> ControllerSignals:
        answers = await self._voters.ask()
        sessions, now_ms = self._core.keeper.sessions, monotonic_ms()
        return ControllerSignals(
            ready(answers),
            stock(answers),
            sessions.silent(self.image, now_ms),
            sessions.asking(now_ms),
            sessions.rivals(now_ms),
            sessions.alive_ms,
        )

    async def finish_inputs(self) -> FinishInputs:
        answers = await self._voters.ask()
        best = sorted(self._core.quorum.status().voters, key=lambda row: -row.end_offset)
        images = self._core.image_comparison.status
        return FinishInputs(
            migrating=ready(answers),
            zk_brokers=zk_mode_brokers(self.image.cluster),
            caught_up=tuple(row.replica_id for row in best if row.replica_id != self._settings.node_id),
            verified=self._verdicts.cover(self._core.controller.epoch)
            if self._settings.migrator_finish_require_verify
            else None,
            fetching=fetching(self._core),
            different=frozenset(() if images is None else images.different),
        )

    def hand_over(self, successor: int) -> None:
        self._core.quorum.resign(self._core.quorum.epoch, successor)


def fetching(core: NodeCore) -> frozenset[int]:
    """The voters that have fetched from this leader within the last seconds."""
    now_ms = monotonic_ms()
    rows = core.quorum.status().voters
    return frozenset(row.replica_id for row in rows if row.heard_ms >= 0 and now_ms - row.heard_ms < SILENT_MS)


class NodeZooKeeper:
    """One real session: a `ZooKeeperPort`, which says what each method does."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._claimer = Claimer(session)
        self._writer = ConditionalWriter(session)
        self.reader = BulkReader(session, retry_seconds=READ_RETRY_SECONDS)

    def view(self) -> ClaimView:
        return self._claimer.view()

    def no_cluster(self) -> OperatorError:
        return no_cluster(self._session)

    def submit(self, ops: Sequence[Op]) -> Future[MultiOutcome]:
        return self._writer.submit(ops)

    def forbidden(self) -> tuple[str, ...]:
        return tuple(f"{fault.where}: {fault.what}" for fault in forbidden_to(self._session, self.reader))

    def wake_brokers(self) -> bool:
        return self._claimer.wake_brokers()

    def topics_with_config(self) -> frozenset[str]:
        """Names below ``/config/topics``. Brokers read the configuration of a topic there when they create its log.

        :raises OperatorError: ZooKeeper does not answer.
        """
        return frozenset(names_below(self.reader, paths.TOPIC_CONFIGS))


class NodeBrokers:
    """The messenger as a `BrokersPort`, which says what each method does."""

    def __init__(
        self, settings: Settings, core: NodeCore, zookeeper: NodeZooKeeper, messenger: BrokerMessenger
    ) -> None:
        self._node_id = settings.node_id
        self._core = core
        self._zookeeper = zookeeper
        self._messenger = messenger
        self._claims = 0
        """How many claims were taken and given up. A coroutine compares it after a wait, to see whether its claim is
        still held."""
        self._opened = asyncio.Event()
        """Whether the channels of the latest claim are open, or will not be."""

    async def take_over(self, zk_epoch: int) -> None:
        epoch = self._core.controller.epoch
        self._claims += 1
        claim = self._claims
        self._opened.clear()
        try:
            has_config = await asyncio.to_thread(self._zookeeper.topics_with_config)
        except OperatorError as error:
            log.warning("Brokers receive no LeaderAndIsr until the comparison with ZooKeeper has ended: %s", error)
            has_config = frozenset()
        start = self._core.quorum.epoch_start_offset
        held = claim == self._claims and epoch is not None and self._core.controller.epoch == epoch
        if held and epoch is not None and start is not None:
            controller = SendingController(self._node_id, zk_epoch, epoch)
            self._messenger.open(controller, self._core.metadata.published, has_config, start - 1)
        if claim == self._claims:
            self._opened.set()

    async def send_full(self, zk_epoch: int) -> bool:  # noqa: ARG002 - the channels know it since they were opened
        await self._opened.wait()
        return await self._messenger.full()

    def written(self, at: EpochOffset) -> None:
        self._messenger.reached(at.offset)

    async def stop(self) -> None:
        self._claims += 1
        self._opened.set()
        self._messenger.close()
        await self._messenger.closed()


class MigrationRuntime:
    """The migration of one node; alive while the node is the active controller.

    :param cluster: ZooKeeper and the brokers in ZooKeeper mode, as this node's settings name them.
    """

    def __init__(
        self,
        settings: Settings,
        core: NodeCore,
        cluster: MigratedCluster,
        voters: VoterSignals,
        journal: Journal,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._enabled = settings.zookeeper_metadata_migration_enable
        self._core = core
        self._cluster = cluster
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._supervisor = Supervisor(on_failure)
        self._said = ""
        self._kafka_log = KafkaLog(settings.node_id)
        self.write_times = WriteTimes()
        self._reconciles_since_ms = 0
        self._debt = Debt()
        self._standby = Standby(cluster, core.storage.directory)
        self._last_effect: int | None = None
        """No record after this offset has an effect in ZooKeeper; kept up to date also while another node leads."""
        self._proofs = MarkProofs(core.storage, settings.node_id, voters.ask_one)
        self.verdicts = Verdicts()
        options = Options(
            identity=Identity(
                settings.node_id,
                core.cluster_id,
                settings.broker_rpc_listener,
                settings.migrator_audit_interval_ms,
                core.addresses.voter_ids,
            ),
            directory=core.storage.directory,
            passwords=password_encoder(settings),
            batch_records=max(
                settings.zookeeper_metadata_migration_min_batch_size, settings.migrator_copy_batch_records
            ),
            max_deletes=settings.migrator_reconcile_max_deletes,
            limits=limits_of(settings.migrator_zookeeper_jute_maxbuffer),
        )
        self.executor = MigrationExecutor(
            options,
            NodeController(settings, core, voters, self.verdicts, self._proofs),
            cluster.brokers,
            cluster.zookeeper,
            cluster.start_worker,
            on_transition=self._tell,
            on_failure=on_failure,
            on_written=self._written,
        )
        self.pause_order = PauseOrder(settings.node_id, core, self.executor, self.note)
        self.reopen_order = ReopenOrder(settings.node_id, core, self.executor, self.note)
        core.leadership.listeners.append(self)
        core.metadata.subscribers.append(self._published)
        if settings.zookeeper_metadata_migration_enable:
            core.snapshotter.needed_from = self.needed_from

    def start(self) -> None:
        """Connect to ZooKeeper, and connect again whenever the connection is lost."""
        self._cluster.start(self._connection_changed)
        if self._cluster.hosts:
            connected, why = lambda: self._cluster.connected, lambda: self._cluster.away[0]
            self._supervisor.keep(ZOOKEEPER_AWAY, partial(keep_telling, self._cluster.hosts, connected, why))
            self._supervisor.keep(STANDBY, self._stand_by)

    async def _stand_by(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._core.controller.epoch is None:
                self._standby.look(at_of(self._core.metadata.published) if self._migrated else None)

    async def close(self) -> None:
        """Stop everything. The changes in ZooKeeper stay."""
        await self._supervisor.close()
        await self.executor.close()
        await self._cluster.close()

    async def needed_from(self) -> int | None:
        """The first offset that the proof of /migration needs; None outside of dual-write."""
        if not self._migrated:
            return None
        return await self._proofs.kept_from(self._cluster.zookeeper.view, self._core.metadata.migration_base)

    def became_active(self, epoch: int, image: MetadataImage) -> None:
        """This node is the active controller now: its driver begins with this image."""
        features, base = image.features, self._core.metadata.migration_base
        self._debt.leads_again()
        self._cluster.lead()
        self._standby.leads()
        became = ev.BecameLeader(
            epoch,
            features.zk_migration_state,
            self._enabled,
            base,
            features.migration_hold,
            reopened=features.migration_reopening is not None,
        )
        self.executor.lead(became, self._last_effect)
        if self._cluster.connected:
            self.executor.feed(ev.ZooKeeperConnected())

    def lost_leadership(self, epoch: int) -> None:
        """The leadership is lost; this node remembers the changes that ZooKeeper lacks (`Debt`)."""
        if self._migrated and self._enabled:
            self._debt.led(epoch, self.executor.coordinator)
        self.executor.feed(ev.LostLeadership(epoch))
        self.reopen_order.lost_leadership()
        self._cluster.leave()

    @property
    def must_follow(self) -> bool:
        """Whether ZooKeeper has to follow this node. False before the copy, with the migration turned off, and on a
        node that is not the active controller. Any thread may call it."""
        return self._migrated and self._enabled and self._core.controller.epoch is not None

    @property
    def turned_off(self) -> bool:
        """Whether the migration is turned off on this controller."""
        return not self._enabled

    @property
    def node_id(self) -> int:
        return self._settings.node_id

    @property
    def _migrated(self) -> bool:
        """Whether the copy is complete, and the migration not finished."""
        return self._core.metadata.published.features.zk_migration_state is ZkMigrationState.MIGRATION

    @property
    def missing_when_deposed(self) -> OperatorError | None:
        """Changes that ZooKeeper lacked when this node lost the leadership; None for none, or when another node has led
        since."""
        other_leads = self._core.quorum.leader_id not in {None, self._settings.node_id}
        return self._debt.missing_when_deposed(
            other_leads=other_leads, latest_epoch=self._core.metadata.published.provenance.epoch
        )

    @property
    def lag(self) -> Lag | None:
        """The changes that ZooKeeper does not have yet; None while it need not follow the log (`must_follow`)."""
        if not self.must_follow:
            return None
        return self.executor.coordinator.write_behind.lag(monotonic_ms())

    @property
    def zookeeper_away(self) -> tuple[str, str]:
        """The known reason why ZooKeeper does not answer, and the remedy."""
        return self._cluster.away

    async def in_zookeeper(self) -> frozenset[int]:
        """Read the brokers that have a znode in ``/brokers/ids``; not older than the call. Only with the migration on.

        :raises MigratorError: ZooKeeper cannot be read.
        """
        return frozenset((await asyncio.to_thread(read_present, self._cluster.zookeeper)).born)

    async def forbidden(self) -> tuple[str, ...]:
        """Rights in ZooKeeper that our identity lacks (see `ZooKeeperPort.forbidden`). Only with the migration on."""
        return await asyncio.to_thread(self._cluster.zookeeper.forbidden)

    @property
    def broker_troubles(self) -> Mapping[int, str]:
        """The faults of brokers in ZooKeeper mode that run and cannot be reached, by id."""
        return self._cluster.troubles

    @property
    def verified(self) -> bool | None:
        """Whether a verdict allows the end of the migration; None when none is required."""
        if not self._settings.migrator_finish_require_verify:
            return None
        return self.verdicts.cover(self._core.controller.epoch)

    @property
    def last_verdict(self) -> int:
        """The value of the metric: 1 equal, 0 different, -1 when this leader has no verdict, or this node does not
        lead."""
        return self.verdicts.last(self._core.controller.epoch)

    def note(self, kind: str, text: str, **details: str) -> None:
        """Put an entry into the journal that must be there before the event happens.

        :raises OperatorError: the disk refuses.
        """
        self._journal.append(wall_ms(), kind, text, **details)

    def note_news(self, kind: str, text: str, **details: str) -> None:
        """Put news into the journal that happen in any case."""
        self._journal.note(wall_ms(), kind, text, **details)

    def _published(self, delta: ImageDelta) -> None:
        before, after = delta.before.features.zk_migration_state, delta.after.features.zk_migration_state
        if before is not after:
            self._kafka_log.replayed(before, after)
        if has_effect(delta.changes):
            self._last_effect = delta.after.provenance.offset
        elif self._last_effect is None:
            self._last_effect = delta.before.provenance.offset
        if self._core.controller.epoch is None:
            self.executor.followed(delta)
            return
        self._cluster.publish(delta)
        self.executor.published(delta)
        if delta.changes.zk_migration_state:
            hold = delta.after.features.migration_hold
            self.executor.feed(ev.OperatorResume() if hold is None else ev.OperatorPause(hold))
            self.reopen_order.published(after)

    def _connection_changed(self, state: SessionState) -> None:
        """kazoo calls this on its thread."""
        self._supervisor.call_soon_threadsafe(self._loop, CONNECTION_NEWS, self._connection, state)

    def _connection(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.executor.feed(ev.ZooKeeperConnected())
            if self._core.controller.epoch is None:
                look = check_address(self._cluster.cluster_id, self._core.cluster_id, self._cluster.hosts)
                self._supervisor.spawn(ADDRESS, look)
        else:
            self.executor.feed(ev.ZooKeeperLost(f"the connection is {state.value}"))

    def _written(self, ms: int) -> None:
        """Note the duration of a write; a reconcile's writes are part of the reconcile's duration."""
        if self.executor.coordinator.state is not State.RECONCILING:
            self.write_times.delta.note(ms)

    def _time_reconcile(self, before: State, after: State) -> None:
        """Measure a reconcile. Failed attempts count as part of the one that succeeds."""
        if after in COMPARES and before not in COMPARES:
            self._reconciles_since_ms = monotonic_ms()
        elif before in COMPARES and after is State.INFORMING_BROKERS:
            self.write_times.snapshot.note(monotonic_ms() - self._reconciles_since_ms)

    def _tell(self, effect: News) -> None:
        if isinstance(effect, ef.JournalTransition | ef.ReportSituation):
            self._tell_transition(effect)
        else:
            tell_of_write(effect, self.note_news)

    def _tell_transition(self, effect: ef.JournalTransition | ef.ReportSituation) -> None:
        if isinstance(effect, ef.ReportSituation):
            if effect.sentence != self._said:
                level = logging.INFO if self._cluster.connected or not self._cluster.hosts else logging.DEBUG
                log.log(level, "Migration: %s", effect.sentence)
            if effect.for_journal:
                self.note_news("audit", effect.sentence)
            self._said = effect.sentence
            return
        image = self._core.metadata.published
        at = EpochOffset(image.provenance.epoch, image.provenance.offset)
        self._time_reconcile(effect.before, effect.after)
        self._kafka_log.entered(effect.before, effect.after, image.features.zk_migration_state, at)
        log.info("Migration: %s -> %s: %s", effect.before.value, effect.after.value, effect.sentence)
        self._said = effect.sentence
        self.note_news(
            "transition",
            effect.sentence,
            epoch=str(effect.epoch),
            before=effect.before.value,
            after=effect.after.value,
            state=effect.public.label,
        )
