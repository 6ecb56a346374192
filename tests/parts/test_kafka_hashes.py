"""Kafka's jars run only if each one is the file whose SHA-256 this program, or its user, has written down."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli import drill, rehearse
from migrator.errors import ExitCode, OperatorError
from migrator.parts import kafka_jars
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.kafka_jars import LIST, read_hashes
from migrator.parts.processes import free_port

JARS = {"kafka-clients-1.2.3.jar": b"clients", "kafka_2.13-1.2.3.jar": b"server", "zookeeper-1.0.jar": b"zookeeper"}
CLIENTS, SERVER, ZOOKEEPER = JARS


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Release 1.2.3 in a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return filled(kafka_jars.cache_directory() / "1.2.3")


def filled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, content in JARS.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def release(tmp_path: Path, folder: Path) -> KafkaRelease:
    """As a user has it who has written its hashes down."""
    hashes = tmp_path / "hashes"
    hashes.write_text("# by ``sha256sum``\n" + "".join(f"{sha256(JARS[name])}  1.2.3/{name}\n" for name in JARS))
    return KafkaRelease("1.2.3", hashes=hashes)


def refusal(release: KafkaRelease) -> OperatorError:
    with pytest.raises(OperatorError) as refused:
        release.fetch()
    return refused.value


def test_jars_that_are_as_written_down_are_taken(folder: Path, release: KafkaRelease) -> None:
    (folder / "notes").write_text("not on the class path")
    assert release.fetch().jars == folder


@pytest.mark.parametrize("name", JARS)
@pytest.mark.parametrize("bit", [1, 128])
def test_one_bit_in_the_cache_is_found_and_the_file_named(
    folder: Path, release: KafkaRelease, name: str, bit: int
) -> None:
    changed = bytes([JARS[name][0] ^ bit]) + JARS[name][1:]
    (folder / name).write_bytes(changed)
    said = refusal(release)
    assert f"{name} has the SHA-256 {sha256(changed)}, expected was {sha256(JARS[name])}" in said.what
    assert "nothing of them was run" in said.what
    assert said.where == str(folder)
    assert "Then delete it" in said.remedy
    assert all(other not in said.what for other in JARS.keys() - {name})


def test_a_jar_too_many_or_too_few_is_found(folder: Path, release: KafkaRelease) -> None:
    """Java would load classes from any jar there."""
    (folder / ZOOKEEPER).unlink()
    (folder / "a.jar").write_bytes(b"")
    said = refusal(release).what
    assert f"{ZOOKEEPER} is missing" in said
    assert "a.jar is not a file of this release" in said


def test_a_folder_of_strange_jars_is_refused_in_few_words(folder: Path, release: KafkaRelease) -> None:
    for number in range(100):
        (folder / f"{number:03}.jar").write_bytes(b"")
    said = refusal(release).what
    assert "002.jar" in said
    assert said.endswith("and 97 more")


def test_what_is_fetched_is_compared_before_it_is_kept(
    folder: Path, release: KafkaRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrieve(_version: str, work: Path, _target: Path, _tell: object) -> None:
        (filled(work / "jars") / SERVER).write_bytes(b"another")

    for jar in folder.iterdir():
        jar.unlink()
    folder.rmdir()
    monkeypatch.setattr(kafka_jars, "_retrieve", retrieve)
    said = refusal(release)
    assert f"{SERVER} has the SHA-256 {sha256(b'another')}, expected was {sha256(b'server')}" in said.what
    assert "Nothing was kept" in said.remedy
    assert [left.name for left in folder.parent.iterdir()] == ["1.2.3.lock"]


def test_a_release_that_nobody_has_written_down_is_refused_with_the_way_out(
    folder: Path, tmp_path: Path, release: KafkaRelease
) -> None:
    assert release.fetch().jars == folder
    with pytest.raises(OperatorError, match=r"the SHA-256 of the jars of Kafka 1\.2\.3 is not known") as refused:
        KafkaRelease("1.2.3")
    assert "--kafka-hashes" in refused.value.remedy
    assert "3.9.1" in refused.value.remedy
    with pytest.raises(OperatorError, match=r"Kafka 3\.9\.1 is not known"):
        KafkaRelease("3.9.1", hashes=tmp_path / "hashes")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "line 2 is no SHA-256 of a jar"),
        ("d41d8cd98f00b204e9800998ecf8427e  1.2.3/a.jar", "line 2 is no SHA-256"),
        (f"{'0' * 64}  1.2.3/../a.jar", "line 2 is no SHA-256"),
        (f"{'0' * 64}  a.jar", "line 2 is no SHA-256"),
        (f"{'0' * 64}  1.2.3/{CLIENTS}", "line 2 gives kafka-clients-1.2.3.jar a second SHA-256"),
        ("ü", "cannot be read"),
    ],
)
def test_a_file_of_hashes_that_is_none_is_refused(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "hashes"
    file.write_text(f"{sha256(b'clients')} *1.2.3/{CLIENTS}\n{line}\n", encoding="utf-8")
    with pytest.raises(OperatorError, match=said) as refused:
        KafkaRelease("1.2.3", hashes=file)
    assert refused.value.where == str(file)


@pytest.mark.parametrize(
    ("command", "options"),
    [(drill.command, []), (rehearse.command, ["--no-spark", "--zookeeper", "127.0.0.1:1"])],
    ids=["drill", "rehearse"],
)
def test_a_command_ends_where_it_would_do_without_a_release_that_cannot_be_fetched(
    command: object, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would go on without it: with light brokers, or with a check that was not made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    filled(kafka_jars.cache_directory() / "3.9.1")
    done = CliRunner().invoke(command, options)  # type: ignore[arg-type]
    assert isinstance(done.exception, OperatorError)
    assert "these are not the jars of Apache Kafka 3.9.1" in str(done.exception)


def test_the_list_has_whole_releases(kafka_391: StockKafka) -> None:
    """`kafka_391` is one that was fetched, and compared with the list."""
    listed = read_hashes()
    assert listed["3.9.1"].keys() == {jar.name for jar in kafka_391.jars.glob("*.jar")}
    for version, jars in listed.items():
        assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar", f"kafka-tools-{version}.jar"} <= set(jars)
    assert len(listed) == 17


def test_a_machine_without_the_resolver_does_without_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the program was installed without its extra [verify]: a rehearsal says what it did not check."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(kafka_jars.NotFetchedError, match="pyspark is not installed"):
        KafkaRelease("3.9.1").fetch()


def test_an_empty_file_of_hashes_is_refused_as_empty(tmp_path: Path) -> None:
    """It is what a shell leaves when the command that was to fill it has failed."""
    file = tmp_path / "hashes"
    file.touch()
    with pytest.raises(OperatorError, match="has no line with a jar") as refused:
        KafkaRelease("1.2.3", hashes=file)
    assert refused.value.where == str(file)


@pytest.mark.parametrize("typed", [[], ["-h"], ["3.9"], ["3.9.1", "../../x"]], ids=str)
def test_the_command_that_makes_the_list_says_what_it_takes(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kafka_jars.main(typed) == ExitCode.REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "three numbers" in shown.err


@pytest.mark.lane("test-all")
def test_the_command_that_makes_the_list_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does it speak of a cache: it never reads one."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={free_port()}")
    assert kafka_jars.main(["3.9.1"]) == ExitCode.REFUSED
    said = capsys.readouterr().err
    assert said.startswith("the resolver: Apache Kafka 3.9.1 could not be fetched from Maven Central")
    assert "copy this folder" not in said


@pytest.mark.lane("test-long")  # fetches a whole release
def test_the_command_that_makes_the_list_prints_what_stands_there() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "migrator.parts.kafka_jars", "3.9.1"], capture_output=True, text=True, check=True
    )
    assert set(printed.stdout.splitlines()) == {line for line in LIST.read_text().splitlines() if "  3.9.1/" in line}
