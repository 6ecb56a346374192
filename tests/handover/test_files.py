"""The stock property file, what a directory tells, and the operator's commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from migrator.config.load import load_settings, settings_from
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.execute import OperatorCommands
from migrator.handover.files import StockFile, format_empty, look_into
from migrator.handover.plan import MetadataDirectory
from migrator.image.model import MetadataImage
from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.lock import DirectoryLock
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import ChildProcess
from migrator.records import metadata as m
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.versions import parse_version
from migrator.rollout.target_release import TOWARDS_BROKERS, parse_target
from migrator.verify.kraft.files import read_image
from tests.patience import PATIENCE_SECONDS

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
OURS = """\
# Controllers of cluster blue.
process.roles=controller
node.id=1
controller.quorum.voters=1@localhost:9093
controller.listener.names = CONTROLLER
listeners=CONTROLLER://localhost:9093
zookeeper.connect=zk1:2181,\\
    zk2:2181
zookeeper.metadata.migration.enable=false
delegation.token.master.key=secret
migrator.grpc.listener : 127.0.0.1:7000
control.plane.listener.name=X
inter.broker.listener.name=INSIDE
security.inter.broker.protocol=SASL_SSL
log.dirs=DIRECTORY
"""

LEFT_OUT = ("migrator.", "zookeeper.", "    zk2", *TOWARDS_BROKERS)


def ours(folder: Path) -> Path:
    path = folder / "controller.properties"
    path.write_text(OURS.replace("DIRECTORY", str(folder / "data")))
    path.chmod(0o600)
    return path


def test_every_byte_that_is_kept_is_as_it_was(tmp_path: Path) -> None:
    path = ours(tmp_path)
    extra = b"# \xe4 \xc3\xa4\nssl.key.password=\xe4\xc3\x85\n"
    path.write_bytes(path.read_bytes() + extra)
    path = path.rename(tmp_path / "größe.properties")
    stock = StockFile(path, parse_target("3.9"))
    stock.check()
    stock.write()
    assert stock.is_written
    assert stock.path.read_bytes().endswith(extra)


def test_a_file_that_somebody_else_has_written_there_is_kept(tmp_path: Path) -> None:
    stock = StockFile(ours(tmp_path), parse_target("3.9"))
    stock.path.write_bytes(b"# \xe4\nmetric.reporters=com.example.Mine\n")
    stock.path.chmod(0o600)
    stock.write()
    stock.ours.write_text(stock.ours.read_text() + "num.io.threads=8\n")
    stock.write()
    assert stock.is_written
    kept = tmp_path / "controller.stock.properties.before-handover"
    assert kept.read_bytes() == b"# \xe4\nmetric.reporters=com.example.Mine\n"
    assert kept.stat().st_mode & 0o777 == 0o600


def settings(folder: Path) -> Settings:
    keys = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://localhost:9093",
        "log.dirs": str(folder),
    }
    return settings_from(keys, "test")[0]


def test_the_stock_file_is_ours_without_what_is_not_kafkas(tmp_path: Path) -> None:
    file = StockFile(ours(tmp_path), parse_target("3.9.1"))
    assert not StockFile(file.ours, parse_target("3.9.1")).is_written
    file.write()
    assert file.is_written
    assert file.path == tmp_path / "controller.stock.properties"
    assert file.path.stat().st_mode & 0o777 == 0o600, "it holds the same secrets"
    assert "migrator.grpc.listener" in file.dropped
    lines = file.path.read_text().splitlines()
    kept = [line for line in OURS.splitlines() if not line.startswith(LEFT_OUT)]
    assert [line for line in lines[1:] if line] == [*kept[:-1], f"log.dirs={tmp_path / 'data'}"]
    load_settings(file.path)
    file.ours.write_text(file.ours.read_text() + "num.network.threads=2\n")
    assert not file.is_written, "a change since has to be taken over"


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
def test_kafka_reads_the_stock_file(release: str, tmp_path: Path) -> None:
    """Our file has the keys of a migration, and one of them stops a stock controller at its start."""
    path = ours(tmp_path)
    path.write_text(path.read_text().replace("delegation.token.master", "delegation.token.secret"))
    file = StockFile(path, parse_target(release))
    file.check()
    file.write()
    kafka = KafkaRelease(release).fetch()
    assert "Formatting" in kafka.format(file.path, CLUSTER_ID)


@pytest.mark.lane("test-all")
def test_kafka_refuses_our_own_file(tmp_path: Path, kafka_391: StockKafka) -> None:
    with pytest.raises(OperatorError, match="ControlPlaneListener"):
        kafka_391.format(ours(tmp_path), CLUSTER_ID)


def test_what_4_no_longer_knows(tmp_path: Path) -> None:
    file = StockFile(ours(tmp_path), parse_target("4.1.0"))
    assert "control.plane.listener.name" in file.dropped
    with pytest.raises(OperatorError, match=r"delegation\.token\.master\.key.*Rename it"):
        file.check()
    StockFile(file.ours, parse_target("3.9.1")).check()


def written(directory: Path, state: m.ZkMigrationState) -> None:
    """A formatted directory whose log says how far the migration is."""
    version = parse_version("3.9")
    format_directories(FormatPlan((directory,), directory, CLUSTER_ID, 1, version), random=Random(1), now_ms=0)
    log = MetadataLog.open(directory)
    records: list[m.MetadataRecord] = [
        m.FeatureLevelRecord("metadata.version", version.level),
        m.ZkMigrationStateRecord(state),
    ]
    log.append(build_batch(encode_all(records, version.level), timestamp_ms=0, base_offset=0, leader_epoch=1))
    log.sync()
    log.close()


@pytest.mark.parametrize(
    ("state", "finished"),
    [
        (m.ZkMigrationState.PRE_MIGRATION, False),
        (m.ZkMigrationState.MIGRATION, False),
        (m.ZkMigrationState.POST_MIGRATION, True),
        (m.ZkMigrationState.NONE, True),
    ],
)
async def test_what_a_directory_says(tmp_path: Path, state: m.ZkMigrationState, finished: bool) -> None:
    assert await look_into(settings(tmp_path / "none"), None) == MetadataDirectory()
    written(tmp_path, state)
    found = await look_into(settings(tmp_path), None)
    assert found == MetadataDirectory(formatted=True, holds_log=True, finished=finished, level=21)


async def test_a_part_of_a_log_is_no_log(tmp_path: Path) -> None:
    """A stock controller would vote with it; the other voters must have everything before it starts."""
    written(tmp_path, m.ZkMigrationState.POST_MIGRATION)
    EmptyMark(tmp_path / DIRECTORY_NAME).write(EmptyReason.UNKNOWN)
    assert await look_into(settings(tmp_path), None) == MetadataDirectory(formatted=True)


async def test_a_log_without_metadata_is_no_log(tmp_path: Path) -> None:
    """A stock controller that was stopped before its first fetch leaves it."""
    format_empty(settings(tmp_path), CLUSTER_ID, "3.9-IV0")
    MetadataLog.open(tmp_path).close()
    assert await look_into(settings(tmp_path), None) == MetadataDirectory(formatted=True)


@contextmanager
def in_use(directory: Path) -> Iterator[ChildProcess]:
    """Another process holds the directory's lock."""
    hold = "from migrator.log.lock import DirectoryLock as L; from pathlib import Path; import sys, time"
    script = f"{hold}; lock = L(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    with ChildProcess("holder", [sys.executable, "-c", script, str(directory)], output=directory / "out") as holder:
        holder.wait_for_output("held", timeout_seconds=PATIENCE_SECONDS)
        yield holder


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_what_was_read_while_a_process_started_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """The process takes the directory during the look, and changes the files that are being read."""
    written(tmp_path, m.ZkMigrationState.POST_MIGRATION)
    with ExitStack() as holders:

        def read_late(directory: Path) -> MetadataImage:
            holders.enter_context(in_use(directory))
            if is_damaged:
                next((directory / DIRECTORY_NAME).glob("*.log")).write_bytes(bytes(100))
            return read_image(directory)

        monkeypatch.setattr("migrator.handover.files.read_image", read_late)
        assert await look_into(settings(tmp_path), None) == MetadataDirectory(in_use=True)


async def test_a_directory_in_use_is_not_disturbed(tmp_path: Path) -> None:
    written(tmp_path, m.ZkMigrationState.POST_MIGRATION)
    with in_use(tmp_path) as holder:
        assert (await look_into(settings(tmp_path), None)).in_use
        holder.kill()
    assert not (await look_into(settings(tmp_path), None)).in_use
    with DirectoryLock(tmp_path):
        pass


async def test_an_empty_directory_is_formatted_for_this_node(tmp_path: Path) -> None:
    one = settings(tmp_path / "new")
    format_empty(one, CLUSTER_ID, "3.7-IV4")
    format_empty(one, CLUSTER_ID, "3.7-IV4")
    found = read_meta_properties(tmp_path / "new")
    assert found is not None
    assert (found.cluster_id, found.node_id) == (CLUSTER_ID, 1)
    assert await look_into(one, None) == MetadataDirectory(formatted=True)


async def test_commands_are_run_as_they_are(tmp_path: Path) -> None:
    said: list[str] = []
    script = "import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:]))"
    stop = f"{sys.executable} -c \"{script}\" '{tmp_path}/stopped {{node}}' ';' '$HOME'"
    control = OperatorCommands(stop, None, said.append)
    await control.stop(7)
    assert (tmp_path / "stopped 7").read_text() == "; $HOME"
    await control.start(7, tmp_path / "controller.stock.properties")
    assert "controller 7" in said[0]
    assert "controller.stock.properties" in said[0]


async def test_a_command_that_fails_says_how() -> None:
    failing = OperatorCommands(None, f"{sys.executable} -c \"import sys; sys.exit('no such unit')\"", print)
    with pytest.raises(OperatorError, match=r"exit code 1: no such unit"):
        await failing.start(1, Path("file"))
    with pytest.raises(OperatorError, match="cannot be run"):
        await OperatorCommands("/nowhere/stop", None, print).stop(1)
    with pytest.raises(OperatorError, match="--stop-command"):
        OperatorCommands("'", None, print)
