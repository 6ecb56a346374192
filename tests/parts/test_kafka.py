"""Stock Kafka is fetched once and runs; without a network it says what is missing."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.parts import kafka_jars
from migrator.parts.java import ARCHIVES, Jvm, archive_of, java_environment
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import StillRunningError, free_port, run_to_end
from tests.parts.support.kafka_tools import SHELL_ATTEMPTS, dump_log, metadata_shell
from tests.patience import PATIENCE_SECONDS

CLUSTER_ID = "XkYOzJkUQQ-rHVYhnWGvTg"


def test_offline_says_what_and_what_to_do_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nowhere = f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={free_port()}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    with pytest.raises(OperatorError, match=r"Apache Kafka 3\.9\.1 is not in the cache") as caught:
        KafkaRelease("3.9.1").fetch()
    assert "Connect this machine" in caught.value.remedy
    assert [file.name for file in kafka_jars.cache_directory().iterdir()] == ["3.9.1.lock"]


@pytest.mark.parametrize("version", ["3.9", "1.0", "", "../../../tmp", "3.9.1\n", "\u0663.9.1"])
def test_a_release_without_three_numbers_does_not_exist(version: str) -> None:
    with pytest.raises(OperatorError, match="there is no Kafka") as error:
        KafkaRelease(version)
    assert "3.9.2" in error.value.remedy


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (":: UNRESOLVED DEPENDENCIES ::\n:: kafka-tools;3.9.1: not found\n", "kafka-tools;3.9.1: not found$"),
        ("a\n" * 50 + ":: UNRESOLVED DEPENDENCIES ::\n\tServer access error\n" * 9, "says: Server access error$"),
        ("Error: no space left\n::::\n", "says: Error: no space left$"),
    ],
)
def test_what_the_resolver_says_is_told_in_few_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, message: str
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit 1\n")
    java.chmod(0o700)
    monkeypatch.setattr(kafka_jars, "find_java", lambda: java)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(kafka_jars.NotFetchedError, match="is not in the cache") as error:
        KafkaRelease("3.9.1").fetch()
    assert re.search(message, error.value.what)


def fetch_into(cache: str, order: str) -> None:
    """Run in a process of its own: a fetch whose resolver only notes that it ran."""

    def retrieve(version: str, work: Path, _target: Path, _tell: object) -> None:
        with Path(order).open("a") as notes:
            notes.write("fetched\n")
        (work / "jars").mkdir()
        (work / "jars" / f"kafka-{version}.jar").write_bytes(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache)
        patch.setattr(kafka_jars, "_retrieve", retrieve)
        kafka_jars.fetch_jars("1.2.3", {"kafka-1.2.3.jar": hashlib.sha256(b"").hexdigest()})


def test_concurrent_fetches_fetch_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    notes = tmp_path / "notes"
    workers = [context.Process(target=fetch_into, args=(str(tmp_path), str(notes))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert notes.read_text() == "fetched\n"
    assert (tmp_path / "kraft-migrator/kafka/1.2.3/kafka-1.2.3.jar").exists()


def test_an_interrupted_fetch_leaves_no_half_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_version: str, work: Path, _target: Path, _tell: object) -> None:
        (work / "jars").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kafka_jars, "_retrieve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kafka_jars.fetch_jars("1.2.3", {})
    assert not (kafka_jars.cache_directory() / "1.2.3").exists()


@pytest.mark.lane("test-all")
def test_a_stock_controller_formats_runs_and_leaves_a_log_that_the_tools_read(
    kafka_391: StockKafka, tmp_path: Path
) -> None:
    port = free_port()
    node = kafka_391.node(
        "controller",
        tmp_path / "controller",
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        },
    )
    node.format(CLUSTER_ID, release_version="3.9-IV0")
    with node:
        pass
    segment = tmp_path / "controller/data/__cluster_metadata-0/00000000000000000000.log"
    assert "FEATURE_LEVEL_RECORD" in dump_log(kafka_391, segment, directory=tmp_path)
    assert "metadataVersion" in metadata_shell(kafka_391, segment, "ls", "/image/features", directory=tmp_path)


def test_a_relative_directory_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = StockKafka("3.9.1", tmp_path).command("kafka.Kafka", directory=Path("drill"), jvm=Jvm())
    assert f"-Dlog4j.configuration={(tmp_path / 'drill' / 'log4j.properties').as_uri()}" in words


@pytest.mark.lane("test-all")
def test_java_finds_archived_classes(kafka_391: StockKafka, tmp_path: Path) -> None:
    jvm = Jvm(flags=(*Jvm().flags, "-Xlog:class+load"))
    command = kafka_391.command("kafka.tools.StorageTool", "random-uuid", directory=tmp_path, jvm=jvm)
    said = run_to_end("StorageTool", command, timeout_seconds=PATIENCE_SECONDS, env=java_environment())
    assert "org.apache.kafka.common.Uuid source: shared objects file" in said


def test_an_archive_of_classes_belongs_to_its_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    archive = archive_of(str(jar))
    assert archive == archive_of(str(jar))
    os.utime(jar, (0, 0))
    assert archive != archive_of(str(jar))
    monkeypatch.delenv(ARCHIVES)
    assert archive_of(str(jar)) is None


@pytest.mark.lane("test-all")
def test_a_tool_that_fails_says_why(kafka_391: StockKafka, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="StorageTool ended with exit code"):
        kafka_391.format(tmp_path / "missing.properties", CLUSTER_ID)


class HangingKafka(StockKafka):
    """Its tools do not end the first few times."""

    def __init__(self, directory: Path, hangs: int) -> None:
        super().__init__("3.9.1", directory)
        self.hangs = hangs

    def tool(self, main_class: str, *arguments: str, directory: Path, timeout_seconds: float = 0.0) -> str:
        self.hangs -= 1
        if self.hangs >= 0:
            raise StillRunningError(f"{main_class} still runs after {timeout_seconds:.0f} s")
        return " ".join(arguments)


@pytest.mark.lane("test-all")
def test_a_metadata_shell_that_hangs_is_run_again_and_not_for_ever(tmp_path: Path) -> None:
    segment = tmp_path / "a.log"
    answer = metadata_shell(HangingKafka(tmp_path, SHELL_ATTEMPTS - 1), segment, "ls", directory=tmp_path)
    assert answer == f"--snapshot {segment} ls"
    with pytest.raises(StillRunningError, match="MetadataShell still runs"):
        metadata_shell(HangingKafka(tmp_path, SHELL_ATTEMPTS), segment, "ls", directory=tmp_path)
