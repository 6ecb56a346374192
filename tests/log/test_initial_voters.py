"""Directories of a quorum whose log names the voters, as formatting leaves them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from migrator.errors import OperatorError
from migrator.log.formatting import FormatPlan, format_directories, open_formatted
from migrator.log.initial_voters import initial_voters_text, parse_initial_voters
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.raft.voter_set import NO_MEMBERSHIP
from migrator.records.uuid import uuid_to_text
from migrator.records.versions import parse_version

CLUSTER = "Z29sZGVuLWNsdXN0ZXItMQ"
IDS = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A")
LIST = f"7@one:9093:{IDS[0]},8@[::1]:9094:{IDS[1]}"


def plan(folder: Path, node_id: int, version: str = "3.9", *, ignore_formatted: bool = False) -> FormatPlan:
    directories, voters = (folder, folder / "other"), parse_initial_voters(LIST, "CONTROLLER")
    return FormatPlan(directories, folder, CLUSTER, node_id, parse_version(version), ignore_formatted, voters)


def formatted(wanted: FormatPlan) -> list[Path]:
    return format_directories(wanted, random=Random(1), now_ms=5)


@pytest.mark.parametrize(("node_id", "listed"), [(7, True), (8, True), (9, False)])
def test_a_listed_node_takes_its_directory_id_and_all_know_the_voters(
    tmp_path: Path, node_id: int, listed: bool
) -> None:
    wanted = plan(tmp_path / "data", node_id)
    formatted(wanted)
    identity, lock = open_formatted(tmp_path / "data", node_id, random=Random(2))
    assert identity.directory_id is not None
    assert (uuid_to_text(identity.directory_id) in IDS) is listed
    other = read_meta_properties(tmp_path / "data" / "other")
    assert other is not None
    assert other.directory_id not in (None, identity.directory_id)
    log = MetadataLog.open(tmp_path / "data")
    assert (log.membership().kraft_version, log.membership().voters) == (1, wanted.voters)
    assert (log.membership().offset, log.end_offset()) == (-1, 0)
    log.close()
    lock.close()


def test_a_list_is_read_as_it_is_written() -> None:
    voters = parse_initial_voters(f" {LIST} ,", "CONTROLLER")
    assert initial_voters_text(voters) == LIST
    assert [voter.endpoints[0].host for voter in voters.voters] == ["one", "::1"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7@one:9093",
        f"one:9093:{IDS[0]}",
        f"-1@one:9093:{IDS[0]}",
        f"2147483648@one:9093:{IDS[0]}",
        f"7@:9093:{IDS[0]}",
        f"7@one:0:{IDS[0]}",
        f"7@one:65536:{IDS[0]}",
        "7@one:9093:short",
        "7@one:9093:AAAAAAAAAAAAAAAAAAAAAA",
        f"7@one:9093:{IDS[0]},7@two:9093:{IDS[1]}",
    ],
)
def test_a_list_that_names_no_quorum_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no voter|is not|not a Kafka Uuid|keeps for itself|listed twice"):
        parse_initial_voters(text, "CONTROLLER")


def test_an_older_metadata_version_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"need metadata\.version 3\.9-IV0, not 3\.8-IV0"):
        formatted(plan(tmp_path / "data", 7, "3.8"))
    assert not (tmp_path / "data").exists()


def test_an_interrupted_formatting_is_done_again(tmp_path: Path) -> None:
    """The voters may be others by then. A log is never taken for an interrupted formatting."""
    formatted(plan(tmp_path / "data", 7))
    (tmp_path / "data" / "meta.properties").unlink()
    again = plan(tmp_path / "data", 7, ignore_formatted=True)
    assert formatted(again) == [tmp_path / "data"]
    (tmp_path / "data" / "meta.properties").unlink()
    (tmp_path / "data" / DIRECTORY_NAME / f"{0:020d}.log").touch()
    with pytest.raises(OperatorError, match="there is a metadata log but no meta"):
        formatted(again)


def test_an_interrupted_formatting_with_voters_leaves_none_to_one_without(tmp_path: Path) -> None:
    """Otherwise the directory would count unknown voters instead of the configured ones, and never vote."""
    formatted(plan(tmp_path / "data", 7))
    (tmp_path / "data" / "meta.properties").unlink()
    assert formatted(replace(plan(tmp_path / "data", 7), voters=None, ignore_formatted=True)) == [tmp_path / "data"]
    log = MetadataLog.open(tmp_path / "data")
    assert log.membership() == NO_MEMBERSHIP
    log.close()
