"""Input that is damaged, cut, unknown or out of reach: an error that names file and offset, never a verdict."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from migrator.errors import ExitCode, OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.records.batch import build_batch, iter_headers
from migrator.verify.kraft.entities import Placed
from migrator.verify.kraft.files import end_of_log, read_image
from migrator.verify.kraft.splits import divided, records_of
from migrator.verify.verdict import VerifyRequest
from migrator.verify.verify import compare_sides
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.golden.stock import STOCK_391
from tests.patience import PATIENCE_SECONDS

SEGMENT = f"{0:020d}.log"
LOG = STOCK_391.log.read_bytes()
HEADERS = list(iter_headers(LOG))
END = HEADERS[-1].next_offset
NOBODY = 65534


@pytest.fixture
def log(public: Path) -> Path:
    """The log folder of a metadata directory that everybody may read."""
    folder = public / DIRECTORY_NAME
    folder.mkdir()
    shutil.copy(STOCK_391.log, folder / SEGMENT)
    return folder


def rewrite(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def cut(size: int) -> Callable[[Path], None]:
    return lambda log: rewrite(log / SEGMENT, lambda content: content.__delitem__(slice(size, None)))


def flip(position: int) -> Callable[[Path], None]:
    def change(content: bytearray) -> None:
        content[position] ^= 1

    return lambda log: rewrite(log / SEGMENT, change)


def append(value: bytes) -> Callable[[Path], None]:
    batch = build_batch([value], timestamp_ms=0, base_offset=END, leader_epoch=HEADERS[-1].leader_epoch)
    return lambda log: rewrite(log / SEGMENT, lambda content: content.extend(batch))


def split_and_lose_the_middle(log: Path) -> None:
    """Three segments of which the second is gone."""
    position = sum(header.size for header in HEADERS[:3])
    rest = position + HEADERS[3].size
    (log / SEGMENT).write_bytes(LOG[:position])
    (log / f"{HEADERS[4].base_offset:020d}.log").write_bytes(LOG[rest:])


def lose_the_beginning(log: Path) -> None:
    """Segments that start behind offset 0, and no snapshot."""
    (log / SEGMENT).unlink()
    position = sum(header.size for header in HEADERS[:3])
    (log / f"{HEADERS[3].base_offset:020d}.log").write_bytes(LOG[position:])


def cut_segment_in_the_middle(log: Path) -> None:
    """Half a batch at the end of a segment that is not the last one."""
    position = sum(header.size for header in HEADERS[:3])
    (log / SEGMENT).write_bytes(LOG[: position - 5])
    (log / f"{HEADERS[3].base_offset:020d}.log").write_bytes(LOG[position:])


LAST = HEADERS[-1]
CHECKPOINT = f"{END:020d}-{LAST.leader_epoch:010d}.checkpoint"
OTHERS_CHECKPOINT = f"{END:020d}-{LAST.leader_epoch + 4:010d}.checkpoint"


def checkpoint(change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        shutil.copy(STOCK_391.checkpoint, log / CHECKPOINT)
        (log / CHECKPOINT).chmod(0o644)
        rewrite(log / CHECKPOINT, change)

    return damage


def with_checkpoint(before: Callable[[Path], None], name: str = CHECKPOINT) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        before(log)
        shutil.copy(STOCK_391.checkpoint, log / name)

    return damage


def add_a_segment_of_another_log(log: Path) -> None:
    """It begins at an offset that the first segment holds, too."""
    (log / f"{HEADERS[3].base_offset:020d}.log").write_bytes(LOG[sum(header.size for header in HEADERS[:3]) :])


def drop_footer(content: bytearray) -> None:
    footer = list(iter_headers(bytes(content)))[-1]
    del content[-footer.size :]


def add_before_the_footer(value: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        *_, last, footer = iter_headers(bytes(content))
        end = len(content) - footer.size
        batch = build_batch([value], timestamp_ms=0, base_offset=last.next_offset, leader_epoch=last.leader_epoch)
        content[end : end + 8] = (last.next_offset + 1).to_bytes(8, "big")  # no checksum covers the offset
        content[end:end] = batch

    return change


def flip_at_half(content: bytearray) -> None:
    content[len(content) // 2] ^= 1


def in_parts(directory: Path) -> list[Placed]:
    """The sources that Spark's tasks read."""
    return [placed for split in divided(directory, 3) for placed in records_of(split, b"salt")]


@pytest.mark.parametrize(
    ("damage", "file", "message"),
    [
        (cut(len(LOG) - 5), SEGMENT, r"cut after \d+ \(at byte \d+\)"),
        (cut(len(LOG) - HEADERS[-1].size + 7), SEGMENT, r"7 bytes are no batch header \(at byte \d+\)"),
        (cut_segment_in_the_middle, SEGMENT, r"cut after \d+ \(at byte \d+\)"),
        (flip(len(LOG) // 2), SEGMENT, r"the batch at offset \d+ has checksum"),
        (flip(HEADERS[0].size + 16), SEGMENT, r"magic 3 instead of 2 \(at byte \d+\)"),
        (flip(HEADERS[0].size + 7), SEGMENT, r"a batch of offset \d+ and epoch \d+ follows offset"),
        (append(b"\x01\x02\x63\x00"), SEGMENT, rf"the batch at offset {END} does not decode: .*version 99"),
        (append(b"\x01\x03\x63\x00"), SEGMENT, rf"the batch at offset {END} does not decode: .*version 99"),
        (append(b"\x01\x7f\x00\x00"), SEGMENT, rf"the batch at offset {END} does not decode: .*type 127 is unknown"),
        (append(b"\x02\x14\x00\x00"), SEGMENT, rf"the batch at offset {END} does not decode: .*frame version 2"),
        (split_and_lose_the_middle, f"{HEADERS[4].base_offset:020d}.log", r"follows offset \d+"),
        (lose_the_beginning, "", rf"begins at offset {HEADERS[3].base_offset}, and no snapshot holds what was before"),
        (checkpoint(drop_footer), CHECKPOINT, "does not end with its footer"),
        (checkpoint(bytearray.clear), CHECKPOINT, "does not end with its footer"),
        (checkpoint(flip_at_half), CHECKPOINT, "checksum"),
        (checkpoint(add_before_the_footer(b"\x01\x7f\x00\x00")), CHECKPOINT, "type 127 is unknown"),
        (checkpoint(add_before_the_footer(b"\x01\x02\x63\x00")), CHECKPOINT, "has version 99"),
        (with_checkpoint(lambda _: None, OTHERS_CHECKPOINT), SEGMENT, rf"{LAST.base_offset} is .*files of two logs"),
        (add_a_segment_of_another_log, f"{HEADERS[3].base_offset:020d}.log", r"follows offset \d+"),
        (lambda log: rewrite(log / SEGMENT, bytearray.clear), "", "the metadata log is empty"),
        (shutil.rmtree, "", "no metadata log"),
    ],
)
@pytest.mark.parametrize("read", [read_image, in_parts])
def test_a_damaged_log_is_named_with_its_place(
    log: Path, damage: Callable[[Path], None], file: str, message: str, read: Callable[[Path], object]
) -> None:
    damage(log)
    with pytest.raises(OperatorError, match=message) as raised:
        read(log.parent)
    assert raised.value.where == str(log / file if file else log)
    assert raised.value.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (lambda log: (log / SEGMENT).unlink(), "the log beside it has no segment"),
        (cut(len(LOG) - LAST.size), rf"up to offset {END}, .*ends at offset {LAST.base_offset}"),
    ],
    ids=["no log", "too short a log"],
)
def test_a_snapshot_without_its_log_is_no_side_of_a_comparison(
    log: Path, lose: Callable[[Path], None], message: str
) -> None:
    with_checkpoint(lose)(log)
    for history in (False, True):
        with pytest.raises(OperatorError, match=message) as raised:
            divided(log.parent, 1, history=history)
        assert raised.value.where == str(log / CHECKPOINT)


@pytest.mark.parametrize("history", [False, True])
def test_an_offset_before_the_oldest_snapshot_is_refused(log: Path, history: bool) -> None:
    with_checkpoint(lose_the_beginning)(log)
    with pytest.raises(OperatorError, match=f"begins at offset {HEADERS[3].base_offset}, and no snapshot"):
        divided(log.parent, 1, END - 2, history=history)
    assert divided(log.parent, 1, END - 1, history=history)


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_the_parts_of_a_log_are_the_log(log: Path, count: int) -> None:
    """Each byte is in one part, and each record has the place that it has in the whole."""
    splits = divided(log.parent, count)
    assert [split.start for split in splits] == [0, *(split.end for split in splits[:-1])]
    assert splits[-1].end == len(LOG)
    assert len(splits) == min(count, len(HEADERS)) or count == 3
    orders = [placed.order for split in splits for placed in records_of(split, b"salt")]
    data = [header for header in HEADERS if not header.is_control]
    assert orders == [offset for header in data for offset in range(header.base_offset, header.next_offset)]


def test_a_batch_that_is_being_written_is_waited_for(log: Path) -> None:
    (log / SEGMENT).write_bytes(LOG[:-5])

    def go_on() -> None:
        time.sleep(0.3)  # no condition: the reader has to see half a batch for a while
        with (log / SEGMENT).open("ab") as file:
            file.write(LOG[-5:])

    writer = threading.Thread(target=go_on)
    writer.start()
    image = read_image(log.parent)
    writer.join()
    assert image.provenance.offset == HEADERS[-1].base_offset - 1, "what was there when it was read"
    assert read_image(log.parent).provenance.offset == END - 1


def test_the_end_of_a_log_is_that_of_its_last_whole_batch(log: Path) -> None:
    assert end_of_log(log.parent) == END
    cut(len(LOG) - 5)(log)
    assert end_of_log(log.parent) == HEADERS[-1].base_offset
    end = HEADERS[3].base_offset
    assert read_image(log.parent, until=end - 1).provenance.offset < end


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody who is not root, to whom permissions mean nothing."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("locked", ["segment", "folder"])
def test_what_may_not_be_read_is_named(log: Path, locked: str) -> None:
    path = log / SEGMENT if locked == "segment" else log
    path.chmod(0)
    try:
        with unprivileged(), pytest.raises(OperatorError, match=r"Permission denied.*right") as raised:
            read_image(log.parent)
    finally:
        path.chmod(0o755)
    assert raised.value.where == str(path)


def test_an_error_in_a_worker_is_the_operators_error(spark: SparkSession, log: Path, zookeeper: ZooKeeperSpace) -> None:
    flip(len(LOG) // 2)(log)
    with pytest.raises(OperatorError, match=r"could not tell: .*checksum") as raised:
        compare_sides(spark, VerifyRequest(zookeeper.hosts, str(log.parent)))
    assert raised.value.where == str(log / SEGMENT)
    assert "Traceback" not in str(raised.value)
    assert "\n" not in str(raised.value)


def error_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Why there is no verdict, as scripts read it."""
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    return error


def verify_command(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from migrator.cli.main import main; main()", "verify", *arguments]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_without_java_the_command_says_so(tmp_path: Path, log: Path) -> None:
    arguments = ["--zookeeper", "127.0.0.1:1", "--metadata", str(log.parent), "--json"]
    done = verify_command(arguments, JAVA_HOME=str(tmp_path))
    assert (done.returncode, error_of(done)["exit_code"]) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert "Java 17 or newer is needed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.lane("test-all")
def test_the_command_tells_a_damaged_log_in_one_sentence(
    log: Path, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg"), makepath=True)
    append(b"\x01\x02\x63\x00")(log)
    done = verify_command(["--zookeeper", zookeeper.hosts, "--metadata", str(log.parent), "--json"])
    assert (done.returncode, error_of(done)["exit_code"]) == (ExitCode.REFUSED, ExitCode.REFUSED), done.stderr
    assert str(log / SEGMENT) in done.stderr
    assert "version 99" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
