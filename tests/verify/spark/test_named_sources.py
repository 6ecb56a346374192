"""The sources that others read by name: their rows are those of one process, and a wrong option is refused."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from migrator.errors import OperatorError
from migrator.records.batch import iter_headers
from migrator.verify.canonical import Row
from migrator.verify.kraft.files import read_image
from migrator.verify.kraft.image_rows import other_rows, topic_rows
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.spark.failures import PackedError, operator_error
from migrator.verify.spark.metadata_source import MetadataSource
from migrator.verify.spark.sides import ZooKeeperDataSource, zookeeper_options
from tests.golden.stock import STOCK_391
from tests.verify.support.stock_pair import stock_metadata
from tests.verify.zookeeper.support.writer import write_snapshot

PAGE = Path(__file__).parents[3] / "docs/spark.md"
SALT = "5a17"
EVERY = list(iter_headers(STOCK_391.log.read_bytes()))
HEADERS = [header for header in EVERY if not header.is_control]
ENDS = [header.last_offset for header in HEADERS]
KINDS = {"topic", "partition", "acl"}


def state(directory: Path, until: int | None = None) -> list[Row]:
    """The result of one process."""
    image = read_image(directory, until)
    topics = [row for topic in image.topics.by_id.values() for row in topic_rows(topic)]
    return sorted([*topics, *other_rows(image, bytes.fromhex(SALT))])


def read(source: type[DataSource], **options: str) -> list[tuple[Any, ...]]:
    """The rows of a source's tasks, in this process."""
    reader = source({"salt": SALT, **options}).reader(StructType())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [tuple(row.values()) for batch in batches if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]


@pytest.mark.parametrize("shards", ["1", "3"])
def test_the_state_at_any_offset_is_the_loaders(tmp_path: Path, shards: str) -> None:
    stock_metadata(tmp_path)
    assert sorted(read(MetadataSource, path=str(tmp_path), shards=shards)) == state(tmp_path)
    for end in ENDS[:: len(ENDS) // 4]:
        assert sorted(read(MetadataSource, path=str(tmp_path), shards=shards, as_of=str(end))) == state(tmp_path, end)
    some = read(MetadataSource, path=str(tmp_path), shards=shards, kind=", ".join(KINDS))
    assert sorted(some) == [row for row in state(tmp_path) if row[0] in KINDS]


def test_changes_have_the_offset_and_the_time_of_their_batch(tmp_path: Path) -> None:
    stock_metadata(tmp_path)
    rows = Counter[Row]()
    times = {header.last_offset: header.max_timestamp for header in HEADERS}
    for offset, time, *leaf, old, new in read(MetadataSource, path=str(tmp_path), mode="changes"):
        assert round(time.astimezone(UTC).timestamp() * 1000) == times[offset]
        rows.subtract([(*leaf, old)] if old is not None else [])
        rows.update([(*leaf, new)] if new is not None else [])
    assert sorted((+rows).elements()) == state(tmp_path)
    assert set(rows.values()) <= {0, 1}


def test_a_time_names_the_last_offset_until_then(tmp_path: Path) -> None:
    stock_metadata(tmp_path)
    for end in ENDS[:: len(ENDS) // 4]:
        moment = next(header.max_timestamp for header in HEADERS if header.last_offset == end)
        until = next((header.base_offset - 1 for header in EVERY if header.max_timestamp > moment), ENDS[-1])
        as_of = datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")
        assert sorted(read(MetadataSource, path=str(tmp_path), as_of=as_of)) == state(tmp_path, until)


def test_zookeepers_rows_by_kind(tmp_path: Path) -> None:
    write_snapshot(tmp_path, STOCK_391.after)
    (tmp_path / "logs").mkdir()
    every = read(ZooKeeperDataSource, path=f"file://{tmp_path}:{tmp_path}/logs", chroot="")
    timed = tmp_path / "at 10:00"
    write_snapshot(timed, STOCK_391.after)
    options = zookeeper_options(Sources(zookeeper_files=(str(timed), f"{tmp_path}/logs"), chroot=""))
    assert sorted(read(ZooKeeperDataSource, **options)) == sorted(every)
    for kinds in KINDS, {"scram", "quota"}:
        some = read(ZooKeeperDataSource, path=str(tmp_path), chroot="", kind=",".join(kinds))
        assert sorted(some) == sorted(row for row in every if row[0] in kinds) != []


@pytest.mark.lane("test-all")
def test_spark_reads_them_by_name_as_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    metadata, data = tmp_path / "metadata", tmp_path / "data"
    metadata.mkdir()
    stock_metadata(metadata)
    write_snapshot(data, STOCK_391.after)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    named: dict[str, Any] = {"spark": spark}
    code = code.replace("/var/lib/kafka/metadata", str(metadata)).replace("/var/lib/zookeeper", str(data))
    exec(code, named)  # noqa: S102 - the page of this repository
    missing = "SELECT * FROM zookeeper LEFT ANTI JOIN kraft USING (kind, entity, field)"
    assert spark.sql(missing).collect() == []
    assert named["kraft"].count() == len(state(metadata))
    (last,) = named["changes"].agg({"offset": "max"}).collect()
    assert last[0] in ENDS


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (MetadataSource, {"asof": "1"}, "does not know the option 'asof'"),
        (MetadataSource, {"kind": "topic,acls"}, "does not know the kind 'acls'"),
        (MetadataSource, {"mode": "change"}, "there is no mode 'change'"),
        (MetadataSource, {"as_of": "-1"}, "'-1' is not an offset, and no time"),
        (MetadataSource, {"as_of": "2026-11-21T06:18:14"}, "is not an offset, and no time with its zone"),
        (MetadataSource, {"as_of": "2001-01-01T00:00:00Z"}, "begins after this time"),
        (MetadataSource, {"as_of": str(ENDS[-1] + 100)}, f"the log ends with offset {ENDS[-1]}"),
        (MetadataSource, {"shards": "some"}, "option 'shards' is not valid"),
        (
            MetadataSource,
            {"path": "hdfs://host/metadata"},
            "hdfs://host/metadata: could not tell: this place cannot be read",
        ),
        *(
            (MetadataSource, {"path": path}, f"{path}: could not tell: this place cannot be read")
            for path in ("s3://", "s3:///metadata", "s3://archive:9000/metadata")
        ),
        (ZooKeeperDataSource, {"as_of": "last"}, "'last' is no zxid"),
        (ZooKeeperDataSource, {"shards": "0"}, "option 'shards' is not valid"),
        (ZooKeeperDataSource, {"salt": "pepper"}, "option 'salt' is not valid"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, source: type[DataSource], options: dict[str, str], said: str
) -> None:
    stock_metadata(tmp_path)
    with pytest.raises(PackedError) as raised:
        read(source, **{"path": str(tmp_path), **options})
    error = operator_error(raised.value)
    assert isinstance(error, OperatorError)
    assert said in str(error)


@pytest.mark.parametrize(
    "address", ["store:9000", "us:password@store:9000", "HTTPS://us:password@store", "ftp://store"]
)
def test_an_address_of_a_store_that_is_none_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    with pytest.raises(OperatorError, match="the address of the store is not a scheme") as raised:
        place("s3://archive/metadata").is_dir()
    assert "store:9000" not in str(raised.value)
    assert "password" not in str(raised.value)
