"""Archives in an object store: versitygw, a server of the S3 protocol, with what a stock migration left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.drill.kafka.cluster import until
from migrator.errors import ExitCode
from migrator.parts.processes import ChildProcess, free_port, probe
from tests.golden.stock import STOCK_391
from tests.patience import PATIENCE_SECONDS
from tests.peers.support import go
from tests.verify.support.stock_pair import stock_metadata, stock_property_file
from tests.verify.zookeeper.support.writer import write_snapshot

pytestmark = pytest.mark.lane("test-long")
MODULE = Path(__file__).parents[1] / "testdata" / "versitygw"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
SECRET = "of-this-run"
TORN = 100
"""Bytes of the segment's end that are missing in `torn`."""


class Store:
    """A running store with one bucket, whose objects are the files below ``bucket``."""

    def __init__(self, directory: Path, program: Path) -> None:
        self.bucket = directory / "root" / "archive"
        self.bucket.mkdir(parents=True)
        self.port = free_port()
        self.properties = stock_property_file(directory, "nowhere:1")
        argv = [str(program), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.bucket.parent)]
        login = os.environ | {"ROOT_ACCESS_KEY": "us", "ROOT_SECRET_KEY": SECRET}
        self.process = ChildProcess("versitygw", argv, output=directory / "store.log", env=login)

    def migrator(self, *words: str, secret: str = SECRET, port: int | None = None) -> subprocess.CompletedProcess[str]:
        """A command that reads the store."""
        access = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": "us",
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [sys.executable, "-m", "migrator", *words, "-c", str(self.properties)]
        return subprocess.run(
            command, env=os.environ | access, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )

    def verify(self, metadata: str, zookeeper: str = "zookeeper", **how: Any) -> tuple[int, str]:
        """The exit code, and what was said; ``how``: as for `migrator`."""
        sides = ("--zookeeper-files", f"s3://archive/{zookeeper}", "--metadata", f"s3://archive/{metadata}")
        done = self.migrator("verify", "--json", *sides, **how)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    found = go.find_go()
    if found is None:
        pytest.skip("Go is not installed")
    directory = tmp_path_factory.mktemp("store")
    made = Store(directory, go.build(found, MODULE, PACKAGE, directory / "versitygw"))
    with made.process:
        until("the store accepts connections", lambda: probe(made.port) is True)
        write_snapshot(made.bucket / "zookeeper", STOCK_391.after)
        for name in ("metadata", "torn"):
            (made.bucket / name).mkdir()
            segment = stock_metadata(made.bucket / name)
        segment.write_bytes(segment.read_bytes()[:-TORN])
        shutil.copytree(made.bucket / "zookeeper", made.bucket / "damaged")
        (snapshot,) = (made.bucket / "damaged").glob("**/snapshot.*")
        content = bytearray(snapshot.read_bytes())
        content[len(content) // 2] ^= 1
        snapshot.write_bytes(content)
        yield made


def test_both_sides_are_compared_and_asked(store: Store) -> None:
    code, said = store.verify("metadata")
    assert code == ExitCode.OK, said
    assert '"verdict": "equal"' in said or '"verdict":"equal"' in said
    sql = "SELECT count(*) AS missing FROM zookeeper LEFT ANTI JOIN kraft USING (kind, entity, field)"
    asked = store.migrator(
        "ask",
        "--sql",
        sql,
        "--zookeeper-files",
        "s3://archive/zookeeper",
        "--metadata",
        "s3://archive/metadata",
        "--json",
    )
    assert asked.returncode == ExitCode.OK, asked.stderr
    assert json.loads(asked.stdout) == {"missing": 0}


def test_what_cannot_be_read_is_no_verdict(store: Store) -> None:
    """A cut segment and a damaged snapshot with file and position; a place that is not there; a wrong login; no
    server."""
    segment = f"s3://archive/torn/__cluster_metadata-0/{0:020d}.log"
    for found, named in (
        (store.verify("torn"), (segment, "(at byte ")),
        (store.verify("metadata", "damaged"), ("s3://archive/damaged/", "checksum")),
        (store.verify("absent"), ("s3://archive/absent", "there is no such directory")),
        (store.verify("metadata", secret="another"), ("s3://archive/zookeeper", "ACCESS_DENIED")),
        (store.verify("metadata", port=free_port()), ("s3://archive/zookeeper", "NETWORK_CONNECTION")),
    ):
        code, said = found
        assert code == ExitCode.REFUSED, said
        assert all(words in said for words in named), said
