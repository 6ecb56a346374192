"""`migrator quorum recover` from the command line: what it shows, what it asks for, and when it is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from migrator.cli.main import migrator
from migrator.errors import OperatorError
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import MetadataLog
from migrator.parts.processes import free_port
from migrator.raft.voter_set import ReplicaKey
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.control import (
    DynamicVoter,
    KRaftVersion,
    KRaftVersionRange,
    KRaftVoters,
    VoterEndpoint,
    build_control_batch,
)
from migrator.records.metadata import FeatureLevelRecord, MetadataRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.records.versions import parse_version
from migrator.verify.kraft.files import end_of_log, membership_of

CLUSTER_ID = "9egfFDzKSbaonHwNn88EuQ"
OTHER_CLUSTER = "Z29sZGVuLWNsdXN0ZXItMQ"
SURVIVOR = 3
EPOCH = 7
VERSION = parse_version("3.9")
LEVEL = FeatureLevelRecord("metadata.version", VERSION.level)
MIGRATING = ZkMigrationStateRecord(ZkMigrationState.MIGRATION)
DISKS = {1: Uuid(b"disk of number 1"), 2: Uuid(b"disk of number 2")}
LOST = [word for node_id, disk in DISKS.items() for word in ("--lost", str(ReplicaKey(node_id, disk)))]


class Left:
    """The directory and the property file of controller 3, whose log names two more voters; nobody runs."""

    def __init__(self, directory: Path, records: Sequence[MetadataRecord] = (LEVEL,)) -> None:
        self.directory = directory / "metadata"
        self.file = directory / "controller.properties"
        self.ports = {node_id: free_port() for node_id in (1, 2, SURVIVOR)}
        self.file.write_text(
            f"process.roles=controller\nnode.id={SURVIVOR}\nlog.dirs={self.directory}\n"
            "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
            f"listeners=CONTROLLER://127.0.0.1:{self.ports[SURVIVOR]}\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{self.ports[SURVIVOR]}\n"
        )
        plan = FormatPlan((self.directory,), self.directory, CLUSTER_ID, SURVIVOR, VERSION)
        format_directories(plan, random=Random(1), now_ms=0)
        identity = read_meta_properties(self.directory)
        assert identity is not None
        self.key = ReplicaKey(SURVIVOR, identity.directory_id or ZERO_UUID)
        voters = tuple(self._voter(*it) for it in (*DISKS.items(), (SURVIVOR, self.key.directory_id)))
        log = MetadataLog.open(self.directory)
        log.append(build_control_batch([KRaftVersion(1), KRaftVoters(voters)], timestamp_ms=0, leader_epoch=EPOCH))
        if records:
            values = encode_all(records, VERSION.level)
            log.append(build_batch(values, timestamp_ms=0, base_offset=log.end_offset(), leader_epoch=EPOCH))
        self.end = log.end_offset()
        log.close()

    def _voter(self, node_id: int, disk: Uuid) -> DynamicVoter:
        at = VoterEndpoint("CONTROLLER", "127.0.0.1", self.ports[node_id])
        return DynamicVoter(node_id, disk, (at,), KRaftVersionRange(0, 1))

    def run(self, *words: str, typed: str | None = None) -> Result:
        return CliRunner().invoke(migrator, ["quorum", "recover", "-c", str(self.file), *words], input=typed)

    def refused(self, *words: str, typed: str | None = None) -> str:
        """Why; nothing is written."""
        error = self.run(*words, typed=typed).exception
        assert isinstance(error, OperatorError), error
        assert end_of_log(self.directory) == self.end
        return str(error)


def test_without_force_it_only_shows_what_may_be_lost(tmp_path: Path) -> None:
    left = Left(tmp_path)
    told = left.run(*LOST).output
    for line in (
        f"cluster {CLUSTER_ID}, controller {left.key}",
        f"voters: {LOST[1]}, {LOST[3]}, {left.key}",
        f"the log ends at offset {left.end}, in epoch {EPOCH}",
        "lost: acknowledged records of the lost voters that this log lacks. Their number is unknown",
        f"refused for ever: {LOST[1]}, {LOST[3]}",
        "nothing was written; add --force to recover",
    ):
        assert line in told.splitlines()
    assert end_of_log(left.directory) == left.end


@pytest.mark.parametrize("by_hand", [True, False], ids=["typed", "option"])
def test_with_force_and_the_cluster_id_the_survivor_is_the_only_voter(tmp_path: Path, *, by_hand: bool) -> None:
    left = Left(tmp_path)
    how = [] if by_hand else ["--yes-cluster-id", CLUSTER_ID]
    result = left.run(*LOST, "--force", *how, typed=f"{CLUSTER_ID}\n" if by_hand else None)
    assert result.exit_code == 0, result.output
    assert "this controller is the only voter. Start it." in result.output
    voters = membership_of(left.directory).voters
    assert voters is not None
    assert voters.ids == {SURVIVOR}
    again = left.run(*LOST, "--force", *how)
    assert "is no other voter" in str(again.exception)


@pytest.mark.parametrize("words", [("--yes-cluster-id", OTHER_CLUSTER), ()], ids=["option", "typed"])
def test_another_cluster_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    left = Left(tmp_path)
    told = left.refused(*LOST, "--force", *words, typed=f"{OTHER_CLUSTER}\n")
    assert f"the cluster of this directory has the id {CLUSTER_ID}, not {OTHER_CLUSTER}" in told


@pytest.mark.parametrize("force", [True, False])
def test_a_voter_that_answers_is_refused(tmp_path: Path, *, force: bool) -> None:
    """It accepts connections and says nothing, as a process does that is stopped by a signal."""
    left = Left(tmp_path)
    with socket.create_server(("127.0.0.1", left.ports[2])):
        told = left.refused(*LOST, *(["--force", "--yes-cluster-id", CLUSTER_ID] if force else []))
    assert "voter 2 answers" in told
    assert "start this controller too" in told


def test_a_voter_that_is_not_confirmed_is_refused(tmp_path: Path) -> None:
    left = Left(tmp_path)
    assert "is not confirmed as lost" in left.refused(*LOST[:2], "--force", "--yes-cluster-id", CLUSTER_ID)
    told = left.refused()
    assert LOST[1] in told
    assert LOST[3] in told


@pytest.mark.parametrize("text", ["1", "1@", "x@JEXY6aqzQY-32P5TStzaFg", "-1@JEXY6aqzQY-32P5TStzaFg", "1@disk", ""])
def test_a_lost_voter_is_named_with_its_directory(tmp_path: Path, text: str) -> None:
    assert "does not name a voter" in Left(tmp_path).refused("--lost", text)


def test_a_migration_is_rolled_back_instead(tmp_path: Path) -> None:
    assert "migrator rollback" in Left(tmp_path, (LEVEL, MIGRATING)).refused(*LOST)


def test_an_empty_log_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    assert "the log is empty" in Left(tmp_path, ()).refused(*LOST)


def test_json_says_the_same(tmp_path: Path) -> None:
    left = Left(tmp_path)
    found = json.loads(left.run(*LOST, "--json").output)
    assert found["voters"] == [LOST[1], LOST[3], str(left.key)]
    assert (found["refused"], found["written"], found["goes_on"]) == ([LOST[1], LOST[3]], False, False)
    assert (found["log_end_offset"], found["log_end_epoch"]) == (left.end, EPOCH)
    done = json.loads(left.run(*LOST, "--json", "--force", "--yes-cluster-id", CLUSTER_ID).output)
    assert done["written"] is True
