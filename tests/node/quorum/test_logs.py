"""The logs of real controllers, when the last leader's disk is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from migrator.cli.rollback import _newest
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.segment import segment_name
from migrator.log.synced_end import FILE_NAME
from migrator.migration.seen_logs import newest_of
from migrator.records.metadata import ConfigRecord, ConfigResourceType
from migrator.verify.kraft.files import end_of_log, read_image
from migrator.verify.kraft.quorum_logs import logs_in
from tests.node.migration.test_start_check import append
from tests.node.support.cluster import running


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
