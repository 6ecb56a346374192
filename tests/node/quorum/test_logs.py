"""The logs of real controllers, when the last leader's disk is lost."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli.format import command as format_command
from migrator.cli.rollback import _all_stopped, _in_log, _newest, _running
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.segment import segment_name
from migrator.log.synced_end import FILE_NAME
from migrator.migration.seen_logs import newest_of
from migrator.parts.processes import free_port
from migrator.raft.voter_set import Membership, VoterSet
from migrator.records.control import KRaftVersion, KRaftVoters, build_control_batch
from migrator.records.metadata import ConfigRecord, ConfigResourceType
from migrator.verify.kraft.files import end_of_log, membership_of, read_image
from migrator.verify.kraft.quorum_logs import logs_in
from tests.node.migration.test_start_check import append
from tests.node.support.cluster import CLUSTER_ID, running


async def test_what_was_confirmed_is_in_the_newest_log_of_those_that_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        leader_id = next(voter for voter, node in cluster.nodes.items() if node is leader)
        behind = next(voter for voter in cluster.nodes if voter != leader_id)
        await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", "early", "1"))
        await cluster.agree(leader.metadata.published.provenance.offset)
        await cluster.stop(behind)
        await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", "late", "1"))
        confirmed = leader.metadata.published.configs
        directories = {voter: cluster.settings(voter).metadata_directory for voter in (1, 2, 3)}
        await cluster.stop(leader_id)
    shutil.rmtree(directories.pop(leader_id))
    found = logs_in(directories.values())
    for seen, directory in found.items():
        assert (directories[seen.node_id], seen.end.offset) == (directory, end_of_log(directory))
    chosen = newest_of(list(found), (1, 2, 3))
    assert (chosen.doubt, chosen.newest.node_id != behind) == ("", True)
    assert read_image(found[chosen.newest]).configs == confirmed

    assert read_image(_newest(cluster.settings(leader_id), tuple(directories.values()))).configs == confirmed
    assert capsys.readouterr().err == ""
    _newest(cluster.settings(leader_id), (directories[behind],))
    assert f"only the log of controller {behind} was read" in capsys.readouterr().err


def test_a_directory_that_is_nobodys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"meta\.properties"):
        logs_in([tmp_path])


async def test_who_reads_the_log_of_a_crashed_controller_hears_how_its_end_is_mended(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", "early", "1"))
        published, directory = leader.metadata.published, cluster.settings(1).metadata_directory
    (directory / DIRECTORY_NAME / FILE_NAME).unlink()  # a clean stop leaves it, a crash does not
    segment = directory / DIRECTORY_NAME / segment_name(0)
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:40])
    with pytest.raises(OperatorError) as refused:
        read_image(directory)
    assert "start the controller once" in refused.value.remedy
    MetadataLog.open(directory).close()  # what its start does with the log
    assert read_image(directory).configs == published.configs


VOTERS = {1: "JEXY6aqzQY-32P5TStzaFg", 2: "MvDxzVmcRsaTz33bUuRU6A", 3: "QjeOJEoBRTmk5ZCmtmUg6Q"}


def in_the_log(directory: Path, ports: Mapping[int, int]) -> dict[int, Settings]:
    """Three directories whose voters are those that they were formatted with; ``ports`` by node."""
    listed = ",".join(f"{node}@localhost:{ports[node]}:{disk}" for node, disk in VOTERS.items())
    found = {}
    for node in VOTERS:
        file = directory / f"{node}.properties"
        file.write_text(
            f"process.roles=controller\nnode.id={node}\nlog.dirs={directory / str(node)}\n"
            f"controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:{ports[node]}\n"
            f"controller.quorum.bootstrap.servers=localhost:{ports[1]}\n"
        )
        done = CliRunner().invoke(format_command, ["-c", str(file), "-t", CLUSTER_ID, "--initial-controllers", listed])
        assert done.exit_code == 0, done.output
        found[node] = load_settings(file)[0]
    return found


def voter_ports() -> dict[int, int]:
    """Each one is kept free for its voter."""
    return {node: free_port() for node in VOTERS}


def test_voters_of_the_log_decide_which_logs_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = in_the_log(tmp_path, voter_ports())
    directories = {node: each.metadata_directory for node, each in settings.items()}
    assert _newest(settings[1], (directories[2],)) in (directories[1], directories[2])
    assert capsys.readouterr().err == ""
    _newest(settings[1], ())
    assert "only the log of controller 1 was read" in capsys.readouterr().err

    log = MetadataLog.open(directories[2])
    formatted = log.membership().voters
    assert formatted is not None
    kept = [voter for voter in formatted.voters if voter.voter_id != 3]
    changed = (KRaftVersion(1), KRaftVoters(tuple(kept)))
    log.append(build_control_batch(changed, timestamp_ms=1, base_offset=0, leader_epoch=1))
    log.close()
    assert membership_of(directories[2]) == Membership(1, VoterSet.of(kept), 1)
    assert _newest(settings[1], (directories[2],)) == directories[2]
    assert capsys.readouterr().err == ""
    with pytest.raises(OperatorError, match="node 3, which is none of the voters that the newest log names"):
        _newest(settings[3], (directories[2],))


def test_no_voter_of_the_log_may_run_during_a_rollback(tmp_path: Path) -> None:
    ports = voter_ports()
    settings = in_the_log(tmp_path, ports)
    voters = list(_in_log(settings[3].metadata_directory, settings[3]))
    assert [(name, port) for name, _, port in voters] == [(f"controller {node}", ports[node]) for node in (1, 2, 3)]
    _all_stopped(_running(voters))
    with socket.create_server(("localhost", ports[1])), pytest.raises(OperatorError, match="controller 1 still runs"):
        _all_stopped(_running(voters))
