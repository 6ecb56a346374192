"""The part of a controller that needs no network: log, images, consensus and decisions, put together.

`node.run_node` builds a `NodeCore` on an `OpenedDirectory` and adds servers; tests use it without servers. Calls come
in this order: `boot`, `start`, `leave`, `close`. `node` lets it stand for election with `admit`, once it is known that
this node may lead.

What always holds: the directory is locked by one process. A node stands for no election before its disk is loaded. A
failing disk or an error of a fatal task stops the process (``on_failure``).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from migrator.clock import monotonic_ms
from migrator.config.settings import Settings
from migrator.controller.activation import bootstrap_level, check_first_level
from migrator.controller.delegation_tokens import secret_key
from migrator.controller.given_up import recovered_of
from migrator.controller.index import ControllerIndex
from migrator.image.model import MetadataImage
from migrator.log.bootstrap import bootstrap_records, read_bootstrap
from migrator.log.formatting import open_formatted
from migrator.log.lock import DirectoryLock
from migrator.log.meta_properties import MetaProperties
from migrator.log.metadata_log import LogLimits, MetadataLog
from migrator.log.quorum_state import FILE_NAME as QUORUM_STATE
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.recovery_file import RecoveryEntry, RecoveryFile, recovered
from migrator.machine import machine
from migrator.node.active import ActiveController, Admit, Check, IndexKeeper
from migrator.node.image_proof import Ask, ImageComparison, ImageProof
from migrator.node.leadership import Leadership
from migrator.node.metadata import MetadataRuntime, NotLeadingError
from migrator.node.periodic import PeriodicTasks
from migrator.node.quorum.addresses import Addresses
from migrator.node.quorum.ballot import AskVoter, Ballot
from migrator.node.quorum.runner import QuorumRunner
from migrator.node.quorum.storage import NodeStorage
from migrator.node.quorum.voter_changes import VoterChanges
from migrator.node.snapshotter import Snapshotter
from migrator.observe.loop_health import TurnGauge
from migrator.raft.config import RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.refused import Recovered, merged
from migrator.raft.states import NEVER_ELECTED, ElectionState
from migrator.raft.transport import RaftTransport
from migrator.records.metadata import FeatureLevelRecord, MetadataRecord, NoOpRecord
from migrator.records.uuid import ZERO_UUID
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, version_at
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.wire.listener_settings import controller_security

log = logging.getLogger(__name__)

SNAPSHOTS = TaskKind("snapshots", OnError.RESTART)
"""Without snapshots the log grows, which is no emergency; a failing disk is an `OperatorError`, and stops the
process."""
BALLOT = TaskKind("ballot", OnError.RESTART)
IMAGE_PROOF = TaskKind("image-proof", OnError.RESTART)
IMAGE_COMPARISON = TaskKind("image-comparison", OnError.RESTART)

WAITS_EMPTY = (
    "The metadata directory does not hold a whole log, and migrator.quorum.require.bootstrap is true: this controller "
    "neither votes nor stands for election before it has fetched the log from a leader, or every other voter says that "
    "its directory is empty, too. If the quorum is new, and voters are missing, start a majority of its controllers "
    "with 'migrator controller --bootstrap'"
)


async def admit_everything() -> None:
    """The default of ``admit``: no bound on ZooKeeper's lag, because there is no ZooKeeper."""


def check_nothing(_image: MetadataImage, _index: ControllerIndex, _records: Sequence[MetadataRecord]) -> None:
    """The default of ``check``: no bound on the size of znodes."""


async def no_answer(_voter: int, _seconds: float) -> None:
    """The default of ``ask_voter``: no voter answers."""


class OpenedDirectory:
    """A formatted metadata directory, locked and recovered, with the election state in it."""

    def __init__(self, settings: Settings) -> None:
        """
        :raises OperatorError: the directory is not formatted, in use, another node's, or damaged.
        """
        directory: Path = settings.metadata_directory
        self.identity: MetaProperties
        self._lock: DirectoryLock
        self.identity, self._lock = open_formatted(directory, settings.node_id, random=machine().random())
        limits = LogLimits(settings.metadata_log_segment_bytes, settings.metadata_log_segment_ms)
        metadata_log = MetadataLog.open(directory, limits)
        static_voters = [voter.voter_id for voter in settings.voters]
        self.election = QuorumStateFile(metadata_log.directory, static_voters, metadata_log)
        self.storage = NodeStorage(metadata_log, self.election)
        self._recovery_file = RecoveryFile(metadata_log.directory)
        self.recoveries = self._recovery_file.read()
        begun = [entry for entry in self.recoveries if entry.counts(metadata_log)]
        if len(begun) < len(self.recoveries):
            self.write_recoveries(begun)  # the next use of the log goes on from the log, and not from such an entry
        bootstrap = read_bootstrap(directory)
        self.bootstrap = bootstrap_records(version_at(LATEST_SUPPORTED)) if bootstrap is None else bootstrap
        self.formatted_version = _version_of(self.bootstrap)
        recovery = metadata_log.recovery
        if recovery.cut_bytes:
            where, reason = metadata_log.directory, recovery.cut_reason
            log.warning(
                "%s: %d bytes after the last complete batch were incomplete and have been removed: %s",
                where,
                recovery.cut_bytes,
                reason,
            )

    def recovered(self) -> Recovered:
        """The recoveries of a lost majority, as the file beside the log has them."""
        return recovered(self.recoveries, self.storage.log)

    def stored_election(self) -> ElectionState:
        """The election state in the file; without the file, as if this node had never voted, as in Kafka.

        Some operators of Kafka delete the file at each start, so this is no warning. But a node that has lost the file
        may vote twice in an epoch; the log line helps to find such a cause.
        """
        stored = self.election.read()
        epoch = self.storage.log.last_epoch()
        if stored is None and epoch > 0:
            log.info(
                "%s: there is no file %s beside a log that knows epoch %d. This controller does not know its last vote "
                "and starts as one that has never voted. If nobody deleted the file, look for lost files on this disk",
                self.storage.directory,
                QUORUM_STATE,
                epoch,
            )
        return stored or NEVER_ELECTED

    def write_recoveries(self, entries: Iterable[RecoveryEntry]) -> None:
        """Replace the content of the file; durable on return."""
        self.recoveries = tuple(entries)
        self._recovery_file.write(self.recoveries)

    def close(self) -> None:
        """Close the files and release the lock."""
        self.storage.close()
        self._lock.close()


class NodeCore:
    """Built once; `start`, then `leave` and `close`.

    :param transport: the transport to the other voters.
    :param ask_voter: asks a candidate what it is, before it gets a vote while a migration is under way.
    :param on_failure: called when this node has to stop.
    :param addresses: the addresses of the other nodes, when the transport shares them.
    :param ask_image: asks a voter for the digest of its metadata; None when controllers have no gRPC.
    :param has_address: whether any address of a voter is known; by default, whether ``addresses`` has one.
    """

    def __init__(
        self,
        settings: Settings,
        directory: OpenedDirectory,
        transport: RaftTransport,
        *,
        on_failure: Callable[[BaseException], None],
        admit: Admit = admit_everything,
        check: Check = check_nothing,
        ask_voter: AskVoter = no_answer,
        addresses: Addresses | None = None,
        has_address: Callable[[int], bool] | None = None,
        random: Random | None = None,
        ask_image: Ask | None = None,
    ) -> None:
        self._directory = directory
        self._migrates = settings.zookeeper_metadata_migration_enable
        self.addresses = addresses = addresses or node_addresses(settings, directory)
        self._supervisor = Supervisor(on_failure)
        self.cluster_id = directory.identity.cluster_id
        self.formatted_version = directory.formatted_version
        self.storage = storage = directory.storage
        keeper = IndexKeeper(settings.broker_session_timeout_ms, secret_key(settings))
        self.keeper = keeper
        self.gauge = TurnGauge()
        self.metadata = MetadataRuntime(
            storage.snapshot,
            storage.some_batches,
            storage.log.end_offset,
            on_step=keeper.follow,
            on_leap=keeper.leap,
            on_replace=keeper.replace,
            on_failure=on_failure,
            gauge=self.gauge,
        )
        self.snapshotter = Snapshotter(settings, storage, self.metadata)
        self.leadership = Leadership(self.metadata, directory.bootstrap, self.snapshotter.appended, on_failure)
        self.is_admitted = True
        """False until it is known that this node may lead; before that it stands for no election (`admit`)."""
        self._ballot = ballot = Ballot(
            settings,
            lambda: self.metadata.image,
            ask_voter,
            lambda: addresses.voter_ids,
            knows_image=self._knows_image,
        )
        began_empty = storage.mark_if_empty()
        core = RaftNode(
            replace(
                raft_config(settings, directory.identity),
                must_fetch_first=began_empty,
                takes_part_empty=not settings.migrator_quorum_require_bootstrap,
                may_grant_vote=ballot.may_grant,
                may_stand=self._may_stand,
                recovered=self._recovered,
                has_address=has_address or addresses.knows,
                bootstrap=addresses.bootstrap_ids,
            ),
            storage.log,
            directory.stored_election(),
            random or machine().random(),
            monotonic_ms(),
        )
        if core.status(monotonic_ms()).waits_for:
            log.warning("%s", WAITS_EMPTY)
        addresses.follow(lambda: (core.epoch, core.leader_id), lambda: self.metadata.image.cluster.controllers)
        self.leadership.membership_listeners.append(addresses.membership_changed)
        self.quorum = QuorumRunner(
            core,
            storage,
            transport,
            self.leadership,
            request_timeout_ms=settings.controller_quorum_request_timeout_ms,
            before_vote=ballot.consult,
            on_failure=on_failure,
            gauge=self.gauge,
        )
        self.controller = ActiveController(
            settings,
            self.cluster_id,
            self.quorum,
            self.metadata,
            keeper,
            storage.log.end_offset,
            admit,
            check,
            addresses,
        )
        self.voter_changes = VoterChanges(
            self.quorum,
            self.controller.change_voters,
            addresses,
            self._append_no_ops,
            self.metadata.committed_up_to,
            partial(controller_security, settings),
            ask_voter,
            lambda: self.metadata.image.features.zk_migration_state.is_under_way,
            settings.controller_quorum_request_timeout_ms / 1000,
        )
        self.leadership.attach(self.controller, PeriodicTasks(settings, self.controller))
        self.image_proof = ImageProof(settings.node_id, self.metadata, storage)
        self.image_comparison = ImageComparison(
            settings.node_id,
            self.image_proof,
            self.controller,
            lambda: addresses.voter_ids,
            storage.log.end_offset,
            ask_image,
        )

    async def _append_no_ops(self, count: int) -> None:
        epoch = self.controller.epoch
        if epoch is not None:
            with contextlib.suppress(NotLeadingError):
                await self.controller.append(epoch, (NoOpRecord(),) * count)

    def _recovered(self) -> Recovered:
        """The recoveries in the file and in the log; of the log, only the applied part."""
        known = merged([self._directory.recovered(), recovered_of(self.metadata.image)])
        is_read = self.metadata.is_caught_up
        read_epoch = self.storage.log.last_epoch() if is_read else self.metadata.image.provenance.epoch
        return Recovered(known.refused, known.epoch, known.end_offset, max(known.epoch, read_epoch))

    def _may_stand(self) -> bool:
        """Whether this node may stand for election. A leader that is still reading its own disk could serve nobody."""
        return self.is_admitted and self.metadata.loading is None

    def _knows_image(self) -> bool:
        return self.is_admitted and (not self._migrates or self.metadata.loading is None)

    def boot(self) -> None:
        """Begin to load the disk; `MetadataRuntime.loaded` waits for the end.

        :raises OperatorError: the log is empty, and this node could not begin the migration if it were elected.
        """
        metadata_log = self.storage.log
        latest = metadata_log.store.latest()
        start = min(metadata_log.start_offset() if latest is None else latest.offset, metadata_log.end_offset())
        data = (batch for batch in self.storage.batches_from(start) if not batch.header.is_control)
        if self._migrates and latest is None and next(data, None) is None:
            check_first_level(bootstrap_level(self._directory.bootstrap))
        size = metadata_log.size_from(start) + (0 if latest is None else metadata_log.store.size(latest))
        self.metadata.boot(latest, start, size)

    def admit(self) -> None:
        """Let this node stand for election."""
        self.is_admitted = True
        self.quorum.look_again()

    def start(self) -> None:
        """Begin to take part in the quorum, after `boot`."""
        self._supervisor.keep(SNAPSHOTS, self.snapshotter.run)
        self._supervisor.keep(SNAPSHOTS, self.snapshotter.keep_clean)
        self._supervisor.keep(BALLOT, self._ballot.keep_asking)
        self._supervisor.keep(IMAGE_PROOF, self.image_proof.run)
        self._supervisor.keep(IMAGE_COMPARISON, self.image_comparison.run)
        self.metadata.on_known = self.quorum.look_again
        self.metadata.leader_high_watermark = lambda: self.quorum.leader_high_watermark
        self.quorum.start()

    async def leave(self, patience_seconds: float = 0.0) -> None:
        """Hand the leadership over if there is time, and stop taking part. Images can still be read."""
        if patience_seconds:
            await self.quorum.shut_down(patience_seconds)
        else:
            await self.quorum.close()
        await self._supervisor.close()
        await self.leadership.close()
        await self.metadata.close()

    async def close(self) -> None:
        """`leave`, and close the files. Nothing may be called afterwards."""
        await self.leave()
        self._directory.close()


def _version_of(bootstrap: Iterable[MetadataRecord]) -> str:
    """The metadata.version in a directory's bootstrap records, as Kafka names it; "" if there is none."""
    levels = [r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord) and r.name == FEATURE_NAME]
    return version_at(levels[-1]).name if levels else ""


def node_addresses(settings: Settings, directory: OpenedDirectory) -> Addresses:
    """The addresses of the nodes of the quorum, from the settings and the log at the start."""
    addresses = Addresses(settings, directory.identity.directory_id or ZERO_UUID, settings.bootstrap_servers)
    addresses.membership_changed(directory.storage.log.membership())
    return addresses


def raft_config(settings: Settings, identity: MetaProperties) -> RaftConfig:
    """The consensus core's configuration."""
    return RaftConfig(
        node_id=settings.node_id,
        cluster_id=identity.cluster_id,
        voters=frozenset(voter.voter_id for voter in settings.voters),
        directory_id=identity.directory_id or ZERO_UUID,
        election_timeout_ms=settings.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=settings.controller_quorum_request_timeout_ms,
        retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
        asks_for_pre_votes=bool(settings.grpc_voters),
        asks_for_pre_votes_once_dynamic=True,
    )
