"""A rehearsal of the way back after the end of a migration (ADR 58).

The whole metadata log of a controller is written to an empty ZooKeeper that this program starts for that, and released
as `migrator rollback` does it; Spark compares both sides. The cluster's own ZooKeeper is only read: what a reopening
would write there. The forecast comes from these times. The throw-away ZooKeeper holds every credential of the cluster,
so it listens on loopback and asks for a password that is new in each run.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from immutables import Map

from migrator.clock import wall_ms
from migrator.errors import ExitCode, OperatorError
from migrator.image.model import MetadataImage
from migrator.log.meta_properties import read_meta_properties
from migrator.migration.reopen_gates import gates_of_log
from migrator.migration.rollback import roll_back
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.observe.status import Gate
from migrator.parts.java import Jvm
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, ZooKeeperSasl
from migrator.records.metadata import ZkMigrationState
from migrator.rehearse.forecast import Estimate, WayBackTimes, forecast_way_back
from migrator.rehearse.report import Outcome, RehearsalCheck, counts_of, exit_code_of, judged, worst_of
from migrator.values import fields_of, value
from migrator.verify.kraft.files import end_of_log, read_image
from migrator.verify.verdict import VerifyRequest
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.kafka_tree import make_cluster
from migrator.zookeeper.leadership import ClaimPlan, plan_claim, read_view
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import Applied, MultiOutcome, Op
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from migrator.zookeeper.znodes.passwords import PasswordEncoder

USER, SECTION = "rehearsal", "Client"
SECRET_BYTES = 32
HEAP_MEGABYTES, BYTES_A_PARTITION = 512, 4_096
MULTIS_IN_FLIGHT = 8
COMPARE = "compare with the cluster's ZooKeeper"
NOT_COMPARED = RehearsalCheck(Outcome.NOT_CHECKED, "it was not asked for")


@value
class WayBackRequest:
    """``directory``: of a controller, running or not. ``config``: its property file, for Spark. ``own``: how to reach
    the cluster's ZooKeeper; None: it is not looked at. ``spark``: whether Spark compares. ``jute_maxbuffer`` in
    bytes."""

    directory: Path
    config: str
    passwords: PasswordEncoder
    node_id: int
    jute_maxbuffer: int
    own: SessionOptions | None
    spark: bool


@value
class OwnZooKeeper:
    """What a reopening would write to the cluster's ZooKeeper now: ``operations`` for so many ``entities`` that differ,
    and ``sets`` that raise versions of partition states behind dual-write."""

    entities: int
    operations: int
    sets: int


@dataclass
class WayBackReport:
    """Filled while the rehearsal runs. ``obstacles``: the gates of a reopening that the log alone shuts, or a ZooKeeper
    of another cluster. ``dropped``: paths that ZooKeeper cannot hold, with the reason. ``operations`` wrote everything.
    ``away``: why the cluster's ZooKeeper was not looked at. ``phases``: seconds by name. ``forecast``: by name."""

    cluster_id: str
    offset: int
    counts: Mapping[str, int]
    obstacles: tuple[Gate, ...] = ()
    dropped: list[str] = field(default_factory=list)
    operations: int = 0
    own: OwnZooKeeper | None = None
    away: str = "it was not asked for"
    verified: RehearsalCheck = NOT_COMPARED
    phases: dict[str, float] = field(default_factory=dict)
    forecast: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """The worst result."""
        return Outcome.BLOCKED if self.obstacles or self.dropped else worst_of(self.verified)

    @property
    def exit_code(self) -> ExitCode:
        """0 fine, 1 obstacles or differences, 2 unknown."""
        return exit_code_of(self.outcome)

    def to_json(self) -> dict[str, object]:
        return {
            "verdict": self.outcome.value,
            "cluster_id": self.cluster_id,
            "offset": self.offset,
            "counts": dict(self.counts),
            "obstacles": [{"gate": gate.name, "what": gate.what, "remedy": gate.remedy} for gate in self.obstacles],
            "dropped": self.dropped,
            "operations": self.operations,
            "own_zookeeper": self.own and fields_of(self.own),
            "own_zookeeper_away": "" if self.own else self.away,
            "verified": self.verified.to_json(),
            "seconds": {name: round(seconds, 2) for name, seconds in self.phases.items()},
            "forecast": {name: each.to_json() for name, each in self.forecast.items()},
        }


def rehearse_way_back(request: WayBackRequest, progress: Callable[[str], None]) -> WayBackReport:
    """Rehearse it. Blocks.

    :param progress: called with the name of each phase.
    :raises OperatorError: the log cannot be read or holds no finished migration, ZooKeeper does not start, or a znode
        is larger than it takes.
    """
    report: WayBackReport

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        progress(name)
        begin = time.monotonic()
        yield
        report.phases[name] = time.monotonic() - begin

    image = _finished(request.directory)
    identity = read_meta_properties(request.directory)
    report = WayBackReport(identity.cluster_id if identity else "", image.provenance.offset, counts_of(image))
    report.obstacles = tuple(gate for gate in gates_of_log(image) if not gate.open)
    if request.own is not None:
        with phase(COMPARE):
            _look(request.own, request, image, report)
        if report.own is None:
            del report.phases[COMPARE]
    with tempfile.TemporaryDirectory(prefix="migrator-way-back-") as scratch:
        place = Path(scratch)
        with _throw_away(place, report.counts["partitions"], request.jute_maxbuffer) as (server, options):
            with ZooKeeperSession(options) as session:
                make_cluster(session, report.cluster_id)
                _claim(session, request.node_id)
                with phase("write everything"):
                    report.operations = _write(session, request, image, report.dropped)
                with phase("release"):
                    released = replace(image.features, zk_migration_state=ZkMigrationState.MIGRATION)
                    nobody = replace(image.cluster, brokers=Map())
                    roll_back(session, replace(image, features=released, cluster=nobody), request.passwords)
            files = (str(server.directory / "data"),)
        if request.spark:
            with phase("verify"):
                report.verified = _verified(request, files, image)
    writing = report.phases["write everything"]
    times = WayBackTimes(
        writing / max(report.operations, 1),
        report.phases.get(COMPARE),
        report.phases["release"],
    )
    own = report.own or OwnZooKeeper(0, report.operations, 0)
    report.forecast = forecast_way_back(times, own.operations, own.sets)
    return report


def _finished(directory: Path) -> MetadataImage:
    image = read_image(directory)
    if image.features.zk_migration_state is not ZkMigrationState.POST_MIGRATION:
        raise OperatorError(
            "the log holds no finished migration",
            where=str(directory),
            remedy="'migrator status' says where the migration is. Before its end, 'migrator gates rollback' says what "
            "the way back needs",
        )
    return image


@contextmanager
def _throw_away(
    place: Path, partitions: int, jute_maxbuffer: int
) -> Iterator[tuple[EmbeddedZooKeeper, SessionOptions]]:
    """An empty ZooKeeper that serves nobody else."""
    password = secrets.token_hex(SECRET_BYTES)
    heap = f"{HEAP_MEGABYTES + (partitions * BYTES_A_PARTITION >> 20)}m"
    sasl = ZooKeeperSasl({USER: password})
    options = ZooKeeperOptions(jvm=Jvm(heap=heap), sasl=sasl, jute_maxbuffer=jute_maxbuffer)
    login = place / "client.jaas"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    login.write_text(f'{SECTION} {{\n    {module} required username="{USER}" password="{password}";\n}};\n')
    with EmbeddedZooKeeper(place / "zookeeper", options=options) as server:
        yield server, SessionOptions(server.hosts, jaas=JaasEntry(str(login), SECTION))


def _claim(session: ZooKeeperSession, node_id: int) -> None:
    plan = plan_claim(read_view(BulkReader(session).read), controller_id=node_id, kraft_epoch=1, now_ms=wall_ms())
    if isinstance(plan, ClaimPlan):
        _applied(ConditionalWriter(session).write(plan.ops))


def _write(session: ZooKeeperSession, request: WayBackRequest, image: MetadataImage, dropped: list[str]) -> int:
    """Write all of the image, each partition state until its version is the partition epoch; returns how many
    operations that took."""
    writer, under_way, count = ConditionalWriter(session), deque[Future[MultiOutcome]](), 0
    target = Target(
        image,
        passwords=request.passwords,
        controller_epoch=1,
        report=lambda path, why: dropped.append(f"{path}: {why}"),
    )
    writes: Iterable[Op] = (op for write in reconcile(BulkReader(session), target) for op in write.ops)
    for part in split_ops(writes, jute_maxbuffer=request.jute_maxbuffer):
        under_way.append(writer.submit(part))
        count += len(part)
        while len(under_way) > MULTIS_IN_FLIGHT:
            _applied(under_way.popleft().result())
    while under_way:
        _applied(under_way.popleft().result())
    return count


def _applied(outcome: MultiOutcome) -> None:
    if not isinstance(outcome, Applied):
        raise OperatorError(
            f"could not tell: the throw-away ZooKeeper did not take a write: {outcome}",
            where="rehearse --way-back",
            remedy="Look at the memory and the load of this machine, and rehearse again",
        )


def _look(own: SessionOptions, request: WayBackRequest, image: MetadataImage, report: WayBackReport) -> None:
    """Count what a reopening would write to the cluster's ZooKeeper, and write nothing."""
    try:
        with ZooKeeperSession(own) as session:
            (znode,) = BulkReader(session).read([paths.CLUSTER_ID])
            found = report.cluster_id if znode is None else decode_cluster_id(znode.path, znode.data)
            if report.cluster_id not in {found, ""}:
                report.away = f"{paths.CLUSTER_ID} is {found}, and the log is of cluster {report.cluster_id}"
                remedy = "Correct zookeeper.connect, or --zookeeper"
                report.obstacles += (Gate("zookeeper", open=False, what=report.away, remedy=remedy),)
                return
            epoch = read_view(BulkReader(session).read).epoch or 0
            behind = dict[str, int]()
            target = Target(image, passwords=request.passwords, controller_epoch=epoch, behind=behind)
            entities = operations = 0
            for write in reconcile(BulkReader(session), target):
                entities, operations = entities + 1, operations + len(write.ops)
            report.own = OwnZooKeeper(entities, operations, sum(behind.values()))
    except OperatorError as error:
        report.away = str(error)


def _verified(request: WayBackRequest, files: tuple[str, ...], image: MetadataImage) -> RehearsalCheck:
    from migrator.verify.verify import verify  # noqa: PLC0415 - Spark is optional

    verdict = verify(VerifyRequest(None, str(request.directory), request.config, zookeeper_files=files, chroot=""))
    end = end_of_log(request.directory) - 1
    doubt = f"The log has grown meanwhile, from offset {image.provenance.offset} to {end}"
    return judged(verdict, doubt if end > image.provenance.offset else "")
