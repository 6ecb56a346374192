"""Whose directory it is: formatting, meta.properties, quorum-state, the lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from migrator.errors import OperatorError
from migrator.log import files
from migrator.log.bootstrap import read_bootstrap
from migrator.log.errors import StorageError
from migrator.log.formatting import FormatPlan, format_directories, open_formatted
from migrator.log.lock import DirectoryLock
from migrator.log.meta_properties import MetaProperties, decode_meta_properties, read_meta_properties
from migrator.log.meta_properties import encode_meta_properties as encode
from migrator.log.quorum_state import QuorumStateFile
from migrator.raft.states import ElectionState
from migrator.records.metadata import FeatureLevelRecord
from migrator.records.uuid import is_reserved
from migrator.records.versions import parse_version
from migrator.values import value

CLUSTER = "Z29sZGVuLWNsdXN0ZXItMQ"
OTHER_CLUSTER = "Z29sZGVuLWNsdXN0ZXItMg"


@value
class Change:
    """The differences between a plan and the existing directory."""

    cluster_id: str = CLUSTER
    node_id: int = 7
    version: str = "3.9"
    ignore_formatted: bool = False


def plan(folder: Path, change: Change | None = None) -> FormatPlan:
    other = change or Change()
    version = parse_version(other.version)
    directories = (folder / "meta" / "data", folder / "second")
    return FormatPlan(
        directories, directories[0], other.cluster_id, other.node_id, version, ignore_formatted=other.ignore_formatted
    )


def formatted(folder: Path, change: Change | None = None) -> list[Path]:
    return format_directories(plan(folder, change), random=Random(1), now_ms=5)


def test_every_directory_gets_its_identity_the_metadata_directory_last(tmp_path: Path) -> None:
    done = formatted(tmp_path, Change(version="3.7-IV4"))
    assert done == [tmp_path / "second", tmp_path / "meta" / "data"]
    found = [read_meta_properties(directory) for directory in done]
    assert {(one.cluster_id, one.node_id) for one in found if one} == {(CLUSTER, 7)}
    ids = {one.directory_id for one in found if one and one.directory_id}
    assert len(ids) == 2
    assert not any(map(is_reserved, ids))
    assert read_bootstrap(done[1]) == [FeatureLevelRecord("metadata.version", 19)]
    assert read_bootstrap(done[0]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(), r"already formatted, for node 7.*--ignore-formatted"),
        (Change(cluster_id=OTHER_CLUSTER), "Choose another directory"),
        (Change(node_id=8, ignore_formatted=True), "already formatted, for node 7"),
        (Change(version="4.0"), r"cannot use metadata.version 4.0-IV3.*3.3-IV0 to 3.9-IV0"),
        (Change(version="3.2"), "cannot use"),
    ],
)
def test_what_is_there_is_never_overwritten(tmp_path: Path, change: Change, message: str) -> None:
    formatted(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OperatorError, match=message):
        formatted(tmp_path, change)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_formatting_again_is_harmless_when_asked_for(tmp_path: Path) -> None:
    formatted(tmp_path)
    (tmp_path / "second" / "meta.properties").unlink()
    again = formatted(tmp_path, Change(ignore_formatted=True))
    assert again == [tmp_path / "second"]


def test_a_log_without_identity_is_not_given_one(tmp_path: Path) -> None:
    (tmp_path / "meta" / "data" / "__cluster_metadata-0").mkdir(parents=True)
    with pytest.raises(OperatorError, match="there is a metadata log but no meta"):
        formatted(tmp_path)
    assert not (tmp_path / "second" / "meta.properties").exists()


def test_opening_checks_whose_it_is(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"not formatted.*migrator format"):
        open_formatted(tmp_path / "nowhere", 7, random=Random(1))
    _, directory = formatted(tmp_path)
    found, lock = open_formatted(directory, 7, random=Random(1), cluster_ids=[CLUSTER])
    lock.close()
    assert found.cluster_id == CLUSTER
    for node, clusters in ((8, [CLUSTER]), (7, [OTHER_CLUSTER])):
        with pytest.raises(OperatorError, match=f"belongs to node 7 of cluster {CLUSTER}"):
            open_formatted(directory, node, random=Random(1), cluster_ids=clusters)


def test_an_id_beyond_ascii_is_written_and_read_as_java_does(tmp_path: Path) -> None:
    properties = MetaProperties("größe=1", 7)
    assert b"cluster.id=gr\\u00f6\\u00dfe\\=1\n" in encode(properties)
    (tmp_path / "meta.properties").write_bytes(encode(properties) + b"# \xe4\n")
    assert read_meta_properties(tmp_path) == properties


def test_a_missing_directory_id_is_added_at_boot(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(f"version=0\nbroker.id=7\ncluster.id={CLUSTER}\n")
    found, lock = open_formatted(tmp_path, 7, random=Random(1))
    lock.close()
    assert found.directory_id is not None
    assert read_meta_properties(tmp_path) == found
    assert "version=1\n" in (tmp_path / "meta.properties").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=2\n", "version is '2'"),
        ("version=1\nnode.id=1\n", r"cluster\.id is missing"),
        ("version=1\ncluster.id=c\nbroker.id=1\n", r"node\.id is missing"),
        ("version=1\ncluster.id=c\nnode.id=one\n", r"node\.id is 'one'"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "not a Kafka Uuid"),
    ],
)
def test_malformed_properties_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(StorageError, match=message) as caught:
        read_meta_properties(tmp_path)
    assert caught.value.where == str(tmp_path / "meta.properties")


def test_awkward_cluster_ids_survive() -> None:
    properties = MetaProperties("a=b:c d\\e#!", 1)
    assert decode_meta_properties(encode(properties).decode()) == properties


def test_one_process_a_directory(tmp_path: Path) -> None:
    holder = (
        "import sys; from pathlib import Path; from migrator.log.lock import DirectoryLock; "
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(OperatorError, match="another process uses this directory"):
            DirectoryLock(tmp_path)
        process.stdin.close()
    with DirectoryLock(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_election_state_comes_back(tmp_path: Path) -> None:
    file = QuorumStateFile(tmp_path, [3, 1, 2])
    assert file.read() is None
    for state in (ElectionState(1, voted_id=2), ElectionState(2, leader_id=3), ElectionState(3)):
        file.write(state)
        assert file.read() == state
    assert (tmp_path / "quorum-state").read_text() == (
        '{"clusterId":"","leaderId":-1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )


NEGATIVE_EPOCH = '{"leaderId":1,"leaderEpoch":-1,"votedId":1,"data_version":0}'


@pytest.mark.parametrize("text", ["", "{", "[]", '{"data_version":9}', '{"data_version":0}', NEGATIVE_EPOCH])
def test_a_damaged_election_state_stops_the_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "quorum-state").write_text(text)
    with pytest.raises(StorageError, match="vote twice"):
        QuorumStateFile(tmp_path, [1]).read()


@pytest.mark.parametrize("step", ["write_all", "sync_file", "sync_directory"])
def test_a_crash_while_a_vote_is_written_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = QuorumStateFile(tmp_path, [1])
    old, new = ElectionState(1, voted_id=1), ElectionState(2, voted_id=1)
    file.write(old)
    with monkeypatch.context() as patch:
        patch.setattr(files, step, fail)
        with pytest.raises((StorageError, OSError)):
            file.write(new)
    assert file.read() == (new if step == "sync_directory" else old)
