"""A migration up to dual-write, without a quorum and without a write: from a live ZooKeeper into a directory.

It runs the code of the migration (`worker` and `transaction` in `migrator.migration.copying`) on a separate log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.model import MetadataImage
from migrator.log.errors import storage_errors
from migrator.log.files import make_directory, write_durably
from migrator.migration.copying.compare import REMOVALS, ReconcileEnd, WriteChunk
from migrator.migration.copying.reading import CopyEnd, Decoded
from migrator.migration.copying.transaction import BEGIN, append_copy, end_of_copy
from migrator.migration.copying.worker import (
    CompareTask,
    CopyTask,
    DecodeTask,
    Task,
    Tools,
    Worker,
    WorkerFailedError,
    Workers,
)
from migrator.migration.machine.readiness import Gap, Severity
from migrator.observe.printable import json_text
from migrator.parts.kafka import StockKafka
from migrator.parts.usage import PeakMemory, ProcessorMeter
from migrator.records.versions import MetadataVersion
from migrator.rehearse import stock
from migrator.rehearse.forecast import Times, forecast
from migrator.rehearse.local_log import EPOCH, LocalLog
from migrator.rehearse.read_only_zookeeper import PlannedQuorum, ReadOnlyZooKeeper, blockers, gaps
from migrator.rehearse.report import (
    EXAMPLES,
    FirstReconcile,
    Outcome,
    RehearsalCheck,
    RehearsalReport,
    counts_of,
    judged,
)
from migrator.values import value
from migrator.verify.verdict import VerifyRequest
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes.passwords import PasswordEncoder

REPORT_FILE = "report.json"
RETRY_SECONDS = 30.0
WORKER_SECONDS = 30.0
"""Time for a worker process to start."""

Progress = Callable[[str], None]
"""Is called with the name of each phase when it begins."""


@value
class RehearsalRequest:
    """The inputs of a rehearsal.

    :ivar directory: new or empty.
    :ivar version_from: where the version comes from, as text for people.
    :ivar kafka: the release that has to load the log; or, as text, why that is not checked.
    :ivar verification: how Spark compares; None: no comparison.
    :ivar broker_seconds: the time of one broker's restart; None unknown.
    :ivar max_deletes: ``migrator.reconcile.max.deletes``.
    """

    session: SessionOptions
    passwords: PasswordEncoder
    directory: Path
    quorum: PlannedQuorum
    version: MetadataVersion
    batch_records: int
    max_deletes: int
    kafka: StockKafka | str
    verification: VerifyRequest | None
    broker_seconds: float | None = None
    version_from: str = ""
    retry_seconds: float = RETRY_SECONDS


async def rehearse(request: RehearsalRequest, progress: Progress) -> RehearsalReport:
    """Rehearse, and leave log, snapshot and `REPORT_FILE` in the directory.

    :raises OperatorError: the rehearsal could not be carried out: the directory is in use, the disk refuses, ZooKeeper
        cannot be read, or Java is missing.
    """
    report = RehearsalReport(
        request.session.hosts,
        directory=str(request.directory),
        metadata_version=request.version.name,
        metadata_version_from=request.version_from,
    )
    _claim_directory(request.directory)
    meter = ProcessorMeter(())
    with PeakMemory() as memory:
        await _Rehearsal(request, report, progress).run()
    report.others_share = meter.others_share
    report.peak_memory_bytes = memory.peak_bytes
    report.disk_bytes = sum(path.stat().st_size for path in request.directory.rglob("*") if path.is_file())
    write_durably(request.directory / REPORT_FILE, json_text(report.to_json(), indent=True).encode())
    return report


def _claim_directory(directory: Path) -> None:
    with storage_errors("cannot use the directory", directory):
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise OperatorError(
                "the directory is not empty, and a rehearsal does not write into existing data",
                where=str(directory),
                remedy="Give a new directory with --out, or empty this one",
            )
    make_directory(directory)


class _Rehearsal:
    def __init__(self, request: RehearsalRequest, report: RehearsalReport, progress: Progress) -> None:
        self._request = request
        self._report = report
        self._progress = progress
        self._workers = Workers(Tools(request.session, request.passwords, request.retry_seconds))

    async def run(self) -> None:
        self._workers.prepare()
        try:
            with ZooKeeperSession(self._request.session) as session:
                await self._on(ReadOnlyZooKeeper(session, self._request.retry_seconds))
        finally:
            self._workers.close()

    async def _on(self, zookeeper: ReadOnlyZooKeeper) -> None:
        report, request = self._report, self._request
        with self._phase("examine"):
            standing, brokers = zookeeper.standing(), zookeeper.brokers()
            found = gaps(standing, brokers, request.quorum)
            zxid = zookeeper.zxid()
        report.cluster_id, report.brokers = standing.cluster_id or "", len(brokers.listeners.keys() | brokers.replicas)
        report.blockers = blockers(found)
        report.warnings = tuple(gap for gap in found if gap.severity is Severity.WARNING)
        with self._worker_phase("decode"):
            faults, in_all = await self._decode()
        report.blockers += faults
        report.blockers_in_all = len(report.blockers) - len(faults) + in_all
        if in_all or standing.cluster_id is None:
            return
        image = await self._produce(standing.cluster_id)
        self._load()
        self._verify(zookeeper, image, zxid)

    async def _decode(self) -> tuple[tuple[Gap, ...], int]:
        """The znodes that do not decode, up to a limit, and how many there are."""
        faults: list[Gap] = []
        decoded = Decoded(0)
        async with self._worker(DecodeTask(may_write=False)) as worker:
            async for message in worker.messages():
                if isinstance(message, Decoded):
                    decoded = message
                    faults += message.faults
        return tuple(faults), decoded.faults_in_all

    async def _produce(self, cluster_id: str) -> MetadataImage:
        """Write log and snapshot, and count the writes of the first reconcile."""
        request, report = self._request, self._report
        log = LocalLog.create(request.directory, cluster_id, request.quorum.node_id, request.version)
        try:
            with self._worker_phase("copy"):
                report.records = (await self._copy(log)).records
                image = log.commit()
            with self._worker_phase("compare and snapshot"):
                report.first_reconcile, _ = await asyncio.gather(self._compare(log), log.write_snapshot(image))
        finally:
            log.close()
        report.counts = counts_of(image)
        times = Times(report.phases["decode"], report.phases["copy"], report.phases["compare and snapshot"])
        report.forecast = forecast(times, report.brokers, request.broker_seconds)
        return image

    async def _copy(self, log: LocalLog) -> CopyEnd:
        await log.append(EPOCH, BEGIN)
        async with self._worker(CopyTask(self._request.version.level, self._request.batch_records)) as worker:
            end = await append_copy(log, EPOCH, worker.messages())
        await log.append(EPOCH, end_of_copy())
        return end

    async def _compare(self, log: LocalLog) -> FirstReconcile:
        writes = deletes = 0
        task = CompareTask(log.directory, log.end, -1, self._request.max_deletes)
        async with self._worker(task) as worker:
            async for message in worker.messages():
                if isinstance(message, WriteChunk):
                    removed = sum(write.effect in REMOVALS for write in message.writes)
                    writes, deletes = writes + len(message.writes) - removed, deletes + removed
                elif isinstance(message, ReconcileEnd) and message.held is not None:
                    return FirstReconcile(writes, message.held.count, held=True)
        return FirstReconcile(writes, deletes, held=False)

    def _load(self) -> None:
        """Check that a stock controller loads the log."""
        kafka = self._request.kafka
        if isinstance(kafka, str):
            self._report.kafka = RehearsalCheck(Outcome.NOT_CHECKED, kafka)
            return
        with self._phase("stock Kafka"):
            node_id, partitions = self._request.quorum.node_id, self._report.counts["partitions"]
            found = stock.check(kafka, self._request.directory, node_id, partitions)
        if found.problem:
            self._report.kafka = RehearsalCheck(
                Outcome.DIFFERENT, f"Kafka {found.version} did not load the log: {found.problem}"
            )
        else:
            self._report.kafka = RehearsalCheck(
                Outcome.FINE, f"Kafka {found.version} loaded the log, and has the same metadata"
            )

    def _verify(self, zookeeper: ReadOnlyZooKeeper, image: MetadataImage, zxid: int) -> None:
        """Check that the copy equals ZooKeeper.

        :param zxid: the newest transaction before the copy.
        """
        if self._request.verification is None:
            self._report.verified = RehearsalCheck(Outcome.NOT_CHECKED, "it was not asked for")
            return
        from migrator.verify.verify import verify  # noqa: PLC0415 - Spark is optional

        with self._phase("verify"):
            verdict = verify(self._request.verification)
            changed = zookeeper.changed_since(zxid, image) if verdict.comparison.differences else []
        some = ", ".join(changed[:EXAMPLES])
        doubt = f"A possible cause: {len(changed):,} znodes were written since the copy began ({some})"
        self._report.verified = judged(verdict, doubt if changed else "")

    @contextmanager
    def _worker_phase(self, name: str) -> Iterator[None]:
        """A phase of a worker. Its start does not count, because a controller has a worker that is already running."""
        self._workers.wait_up(WORKER_SECONDS)
        with self._phase(name):
            yield

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._progress(name)
        begin = time.monotonic()
        yield
        self._report.phases[name] = time.monotonic() - begin

    @asynccontextmanager
    async def _worker(self, task: Task) -> AsyncIterator[Worker]:
        """A worker process.

        :raises OperatorError: it fails.
        :raises InvariantViolation: it fails because of a defect of this program.
        """
        try:
            async with self._workers.worker(task) as worker:
                yield worker
        except WorkerFailedError as error:
            if error.is_defect:
                raise InvariantViolation(f"a worker: {error}") from error
            raise OperatorError(
                f"could not tell: {error}",
                where=self._request.session.hosts,
                remedy="Correct this problem and rehearse again",
            ) from error
