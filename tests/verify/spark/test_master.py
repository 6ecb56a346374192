"""A standalone Spark cluster from pyspark's jars, whose workers' Python has no such package; and the archive."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import migrator
from migrator.errors import ExitCode, OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.java import Jvm, find_java, java_command, pyspark_jars
from migrator.parts.processes import ChildProcess, free_port
from migrator.verify.spark.session import reach
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.verify import verify_in
from tests.golden.stock import STOCK_391
from tests.patience import PATIENCE_SECONDS
from tests.verify.zookeeper.support.writer import write_snapshot

pytestmark = pytest.mark.lane("test-all")
WORKERS = 2
COMPILED = ("crc32c", "cryptography", "immutables", "orjson", "pyarrow")
"""Packages that a worker's Python needs, besides those that are sent along."""
NEEDED_BY_THOSE = ("_cffi_backend", "cffi", "numpy")
"""The requirements of the compiled packages."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The remains of a stock migration: ZooKeeper's files, a metadata log, a property file with the secrets."""
    directory = tmp_path_factory.mktemp("sources")
    write_snapshot(directory / "zookeeper", STOCK_391.after)
    log = directory / "metadata" / DIRECTORY_NAME
    log.mkdir(parents=True)
    shutil.copy(STOCK_391.log, log / f"{0:020d}.log")
    (directory / "controller.properties").write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.quorum.voters=3000@localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:9093\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nzookeeper.connect=nowhere:1\n"
        + "".join(f"{key}={text}\n" for key, text in STOCK_391.settings().items() if key != "cluster.id")
    )
    return directory


def request_for(files: Path, **more: object) -> VerifyRequest:
    return VerifyRequest(
        None,
        str(files / "metadata"),
        str(files / "controller.properties"),
        zookeeper_files=(str(files / "zookeeper"),),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def workers_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the compiled packages and nothing else."""
    directory = tmp_path_factory.mktemp("venv")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=PATIENCE_SECONDS
    )
    (site,) = directory.glob("lib/python*/site-packages")
    ours = Path(pyspark.__file__).parents[1]
    for name in (*COMPILED, *NEEDED_BY_THOSE):
        for pattern in (name, f"{name}.*so", f"{name}.libs", f"{name}-*.dist-info"):
            for source in ours.glob(pattern):
                (site / source.name).symlink_to(source)
    return directory / "bin" / "python"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[ChildProcess]]]:
    """``spark://...`` of a master, and its two workers."""
    directory = tmp_path_factory.mktemp("spark")
    (core,) = pyspark_jars().glob("spark-core_*.jar")
    settings = {
        "SPARK_HOME": str(pyspark_jars().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").partition("-")[0],
        "JAVA_HOME": str(find_java().resolve().parents[1]),
    }
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"} | settings

    def start(name: str, *arguments: str) -> ChildProcess:
        command = java_command(
            str(pyspark_jars() / "*"),
            f"org.apache.spark.deploy.{arguments[0]}",
            *arguments[1:],
            jvm=Jvm(heap="192m"),
            properties={"spark.master.rest.enabled": "false", "spark.ui.enabled": "false"},
        )
        output = directory / f"{name}.log"
        process = ChildProcess(name, command, output=output, env=environment, cwd=directory)
        stack.callback(process.stop)
        return process

    with ExitStack() as stack:
        process = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = re.compile(r"spark://127\.0\.0\.1:[1-9]\d*")
        process.wait_until(
            lambda: address.search(process.output_text()) is not None, "the master", timeout_seconds=PATIENCE_SECONDS
        )
        url = address.findall(process.output_text())[0]
        options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m")
        workers = [
            start(f"worker-{number}", "worker.Worker", *options, "--work-dir", str(directory / f"work-{number}"), url)
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.wait_until(
                lambda worker=worker: "Successfully registered" in worker.output_text(),  # type: ignore[misc]
                "the worker",
                timeout_seconds=PATIENCE_SECONDS,
            )
        yield url, workers


MIGRATOR = (str(Path(sys.executable).with_name("migrator")), "verify", "--json")
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def sources_of(files: Path) -> list[str]:
    return [
        *("--zookeeper-files", str(files / "zookeeper"), "--metadata", str(files / "metadata")),
        *("-c", str(files / "controller.properties")),
    ]


def submitted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The result of the command under `spark-submit`."""
    environment = os.environ | {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(find_java().resolve().parents[1]),
    }
    command = [SUBMIT, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment
    )


PROGRAM = """\
import json, sys
from pyspark.sql import SparkSession
from migrator.verify.verdict import VerifyRequest
from migrator.verify.verify import verify

settings, metadata, config, zookeeper = sys.argv[1:]
builder = SparkSession.builder
for key, text in json.loads(settings).items():
    builder = builder.config(key, text)
spark = builder.getOrCreate()
for _ in range(2):
    verdict = verify(VerifyRequest(None, metadata, config, zookeeper_files=(zookeeper,)))
assert spark.range(3).count() == 3, "the session of the program was ended"
print(json.dumps(verdict.to_json()))
"""
"""A notebook: it has a session, compares twice, and goes on with the session."""


def program_on(
    settings: Mapping[str, str], files: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The output of `PROGRAM` in a session with these settings."""
    return subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM, json.dumps({"spark.sql.shuffle.partitions": "4", **settings})),
            *(str(files / name) for name in ("metadata", "controller.properties", "zookeeper")),
        ],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=os.environ | environment,
    )  # fmt: skip


def verify_on(url: str, python: Path, files: Path, way: str) -> subprocess.CompletedProcess[str]:
    """A comparison, in a process of its own: one process has one Spark.

    :param way: ``migrator``, ``spark-submit`` or ``program``.
    """
    settings = {
        "spark.pyspark.python": str(python),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
    }
    if way == "program":
        java = str(find_java().resolve().parents[1])
        return program_on({"spark.master": url, **settings}, files, {"PYSPARK_PYTHON": str(python), "JAVA_HOME": java})
    if way == "spark-submit":
        settings["spark.pyspark.driver.python"] = sys.executable
    options = ["--master", url]
    for key, text in settings.items():
        options += ["--conf", f"{key}={text}"]
    if way == "spark-submit":
        return submitted(
            *options, str(Path(migrator.__file__).with_name("__main__.py")), *MIGRATOR[1:], *sources_of(files)
        )
    command = [*MIGRATOR, *options, *sources_of(files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.mark.parametrize("way", [pytest.param("spark-submit", marks=pytest.mark.lane("test-long")), "program"])
def test_a_cluster_whose_workers_lack_this_package(
    cluster: tuple[str, list[ChildProcess]], files: Path, workers_python: Path, way: str
) -> None:
    alone = [str(workers_python), "-c", "import orjson, pyarrow; import migrator"]
    found = subprocess.run(alone, cwd="/", capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert "No module named 'migrator'" in found.stderr
    url, workers = cluster
    asked = [worker.output_text().count("Asked to launch executor") for worker in workers]
    done = verify_on(url, workers_python, files, way)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["equal"]
    assert all(counts["zookeeper"] == counts["kraft"] > 0 for counts in verdict["kinds"].values())
    for before, worker in zip(asked, workers, strict=True):
        assert worker.output_text().count("Asked to launch executor") > before


def test_what_is_submitted_ends_with_the_code_of_the_command(files: Path, tmp_path: Path) -> None:
    """A defect, whose code is not the one that Python gives."""
    application = tmp_path / "application.py"
    application.write_text(
        "from migrator.cli import verify_run\nfrom migrator.cli.main import main\n"
        "verify_run.inspect = lambda *_: 1 // 0\nmain()\n"
    )
    done = submitted("--master", "local[1]", str(application), *MIGRATOR[1:], *sources_of(files))
    assert done.returncode == ExitCode.DEFECT, done.stdout + done.stderr


@pytest.fixture
def connect(tmp_path: Path, workers_python: Path) -> Iterator[str]:
    """``sc://...`` of a server of Spark Connect, whose Python lacks this package."""
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    command = [SUBMIT, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    for key, text in settings.items():
        command += ["--conf", f"{key}={text}"]
    environment = os.environ | {
        "PYSPARK_PYTHON": str(workers_python),
        "JAVA_HOME": str(find_java().resolve().parents[1]),
    }
    process = ChildProcess(
        "connect", [*command, "spark-internal"], output=tmp_path / "connect.log", env=environment, cwd=tmp_path
    )
    with process:
        port = re.compile(r"Spark Connect server started at: \S+:(\d+)")
        process.wait_until(
            lambda: port.search(process.output_text()) is not None, "the server", timeout_seconds=PATIENCE_SECONDS
        )
        yield f"sc://127.0.0.1:{port.findall(process.output_text())[0]}"


def test_a_server_of_spark_connect_serves_one_comparison_after_the_other(
    connect: str, files: Path, tmp_path: Path
) -> None:
    """The client has no Java, hence no context of Spark either. Its sessions come one after the other, or one session
    compares twice."""
    without_java = {"JAVA_HOME": str(tmp_path / "nowhere")}

    def run(metadata: Path) -> tuple[int, dict[str, Any]]:
        options = ["--zookeeper-files", str(files / "zookeeper"), "-c", str(files / "controller.properties")]
        done = subprocess.run(
            [*MIGRATOR, *options, "--metadata", str(metadata)],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
            env=os.environ | {"SPARK_REMOTE": connect} | without_java,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout)

    code, verdict = run(files / "metadata")
    assert (code, verdict.get("equal")) == (ExitCode.OK, True), verdict
    done = program_on({"spark.remote": connect}, files, without_java)
    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["equal"]
    damaged = shutil.copytree(files / "metadata", tmp_path / "damaged")
    (segment,) = damaged.rglob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    code, refused = run(damaged)
    assert (code, refused["error"]["where"]) == (ExitCode.REFUSED, str(segment))
    assert "checksum" in refused["error"]["what"]


def test_a_server_of_spark_connect_that_does_not_answer_is_named_without_the_token() -> None:
    address = f"sc://127.0.0.1:{free_port()}"
    with pytest.raises(OperatorError, match="no server of Spark Connect answers") as refused:
        reach(f"{address}/;token=secret")
    assert refused.value.where == address


@pytest.mark.parametrize("address", ["sc://h:1;token=secret", "sc://h:1/x;token=secret", "sc:///;token=secret"])
def test_an_address_that_is_none_is_refused_without_the_token(address: str) -> None:
    with pytest.raises(OperatorError, match="no address of a server of Spark Connect") as refused:
        reach(address)
    assert "secret" not in str(refused.value)


def test_what_the_workers_lack_is_named(
    cluster: tuple[str, list[ChildProcess]], files: Path, workers_python: Path
) -> None:
    missing = next(workers_python.parents[1].glob("lib/python*/site-packages/orjson"))
    target = missing.readlink()
    missing.unlink()
    try:
        done = verify_on(cluster[0], workers_python, files, "migrator")
    finally:
        missing.symlink_to(target)
    assert (done.returncode, json.loads(done.stdout).keys()) == (ExitCode.REFUSED, {"error"})
    assert "the Python of Spark's workers has no 'orjson'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_archive_holds_the_rows_and_is_compared_again(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    first = verify_in(spark, request_for(files, archive=str(archive)))
    again = verify_in(spark, VerifyRequest(None, None, archive=str(archive)))
    assert counted(first) == counted(again)
    assert first.comparison.differences == 0
    for found, name in (first.comparison.log, "metadata"), (first.comparison.files, "zookeeper"):
        (path,) = (one for one in (files / name).rglob("*") if one.is_file())
        assert found is not None
        assert found.tasks >= 2
        assert found.largest < found.size <= path.stat().st_size
        assert found.twice == 0 < found.at_driver
    assert (again.comparison.log, again.comparison.files) == (None, None)
    kept = b"".join(path.read_bytes() for path in archive.rglob("*") if path.is_file())
    rows = spark.read.parquet(str(archive / "zookeeper"))
    secrets = [row["value"] for row in rows.where("kind = 'scram' or field like '%password'").collect()]
    assert len(secrets) >= 6
    assert all(re.fullmatch(r"hmac:[0-9a-f]{64}", secret) for secret in secrets)
    assert b"stored_key" not in kept
    with pytest.raises(OperatorError, match="already exists"):
        verify_in(spark, request_for(files, archive=str(archive)))


def test_an_archive_that_is_not_there_is_no_verdict(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"could not tell: .*PATH_NOT_FOUND"):
        verify_in(spark, VerifyRequest(None, None, archive=str(tmp_path / "absent")))


def counted(verdict: Verdict) -> dict[str, tuple[int, int]]:
    return {kind: (counts.zookeeper, counts.kraft) for kind, counts in verdict.comparison.kinds.items()}
