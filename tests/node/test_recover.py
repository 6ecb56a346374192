"""A survivor of a lost majority: what is written to its directory, in which order, and what is refused then."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.given_up import recovered_of
from migrator.controller.quorum_target import TargetOrder
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.errors import StorageError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.recovery_file import FILE_NAME
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.node.quorum.voter_change_apis import VoterChangeApis
from migrator.node.status_source import NodeStatusSource
from migrator.node.survivor import JOURNAL_KIND, Survivor
from migrator.observe.journal import Journal
from migrator.raft.messages import VoteRequest
from migrator.raft.recovery import EPOCH_STEP
from migrator.raft.refused import Recovered
from migrator.raft.states import ElectionState, Role
from migrator.raft.telling import GIVEN_UP
from migrator.raft.voter_changes import AddVoter, VotersNotChangedError
from migrator.raft.voter_set import ReplicaKey
from migrator.records.control import DynamicVoter
from migrator.records.metadata import BeginTransactionRecord, ClientQuotaRecord, MetadataRecord, QuotaEntity
from migrator.records.uuid import Uuid
from migrator.verify.kraft.files import membership_of, read_image
from migrator.wire.schemas import UPDATE_RAFT_VOTER
from tests.apis.support.asking import call
from tests.node.support.cluster import FOLLOWS, IMPATIENT, until
from tests.node.support.dynamic import DynamicCluster, dynamic

STEPS = 5
"""The file, the records, the election state, the journal, the end."""
SURVIVOR = 3
NEW_DISK = Uuid(b"the new own disk")


def quota(name: str) -> ClientQuotaRecord:
    return ClientQuotaRecord((QuotaEntity("user", name),), "producer_byte_rate", 1.0, remove=False)


async def write(cluster: DynamicCluster, *records: MetadataRecord) -> int:
    """The offset of the last one, which is committed."""
    leader = await cluster.leader()
    assert leader.controller.epoch is not None
    offset = await leader.controller.append(leader.controller.epoch, records)
    await leader.metadata.committed_up_to(offset)
    return offset


@asynccontextmanager
async def stopped(directory: Path, *records: MetadataRecord) -> AsyncIterator[DynamicCluster]:
    """Three voters that had something to write, and do not run any more."""
    async with dynamic(directory, 3, 3) as cluster:
        offset = await write(cluster, quota("kept"), *records)
        nodes = cluster.nodes.values()
        await until(lambda: all(node.storage.log.end_offset() > offset for node in nodes), "all have the records")
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        yield cluster


def key(cluster: DynamicCluster, node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, cluster.directory_id(node_id))


def lost(cluster: DynamicCluster) -> list[ReplicaKey]:
    return [key(cluster, 1), key(cluster, 2)]


def directory_of(cluster: DynamicCluster) -> Path:
    return cluster.settings(SURVIVOR).metadata_directory


def recover(cluster: DynamicCluster, steps: int = STEPS) -> list[str]:
    """Run the command's steps, and end the process after so many: what is on the disk then is what stays."""
    with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
        begun = survivor.unfinished()
        todo: Iterator[str]
        todo = survivor.recover(survivor.plan(lost(cluster))) if begun is None else survivor.finish(begun)
        return list(islice(todo, steps))


def noted(cluster: DynamicCluster) -> list[dict[str, str]]:
    with closing(Journal(directory_of(cluster), 1 << 20)) as journal:
        return [dict(event.details) for event in journal.after(-1) if event.kind == JOURNAL_KIND]


def names(image: MetadataImage) -> set[str | None]:
    return {entity.entity_name for key in image.quotas for entity in key}


@pytest.mark.parametrize("killed_after", range(STEPS + 1))
async def test_a_second_run_finishes_what_the_first_one_began(tmp_path: Path, killed_after: int) -> None:
    async with stopped(tmp_path) as cluster:
        directory = directory_of(cluster)
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            before = survivor.evidence()
        done = recover(cluster, killed_after)
        assert len(done) == killed_after
        voters = membership_of(directory).voters
        assert voters is not None
        assert voters.ids == ({1, 2, 3} if killed_after < 2 else {3}), "before the append nothing has changed"
        if killed_after < STEPS:
            recover(cluster)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            (entry,) = opened.recoveries
            stored, log = opened.election.read(), opened.storage.log
            assert entry.is_done
            assert (entry.epoch, entry.lost) == (before.known_epoch + EPOCH_STEP, tuple(lost(cluster)))
            assert (entry.offset, entry.end_offset) == (before.log_end.offset, log.end_offset())
            assert stored is not None
            assert (stored.epoch, stored.leader_id, stored.voted_id) == (entry.epoch, None, None)
            known = Recovered(frozenset(entry.lost), entry.epoch, entry.end_offset)
            assert opened.recovered() == known
        assert recovered_of(read_image(directory)) == known
        assert names(read_image(directory)) == {"kept"}
        (evidence,) = noted(cluster)
        assert evidence["confirmed_as_wiped"] == ", ".join(map(str, entry.lost))
        assert evidence["voters_before"].count("@") == 3
        assert evidence["log_end_before"] == str(entry.offset)
        with pytest.raises(OperatorError, match="is no other voter"):
            recover(cluster)


async def test_records_that_are_half_there_are_written_again(tmp_path: Path) -> None:
    """A crash within the append leaves whole batches only: here the one that does not name the voters."""
    async with stopped(tmp_path) as cluster:
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            end = survivor.evidence().log_end.offset
        recover(cluster, 2)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            opened.storage.log.truncate_to(opened.storage.log.end_offset() - 1)
            assert opened.storage.log.end_offset() == end + 2
            assert opened.recovered() == Recovered()
        recover(cluster)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            (entry,) = opened.recoveries
            assert (entry.offset, entry.is_done) == (end + 2, True)
            voters = opened.storage.log.membership().voters
            assert voters is not None
            assert voters.ids == {SURVIVOR}


async def test_the_survivor_leads_alone_and_goes_on_writing(tmp_path: Path) -> None:
    async with stopped(tmp_path, BeginTransactionRecord(), quota("never ended")) as cluster:
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            assert survivor.evidence().open_transaction is not None
        recover(cluster)
        node = cluster.start(SURVIVOR)
        await cluster.leader()
        await write(cluster, quota("later"))
        await until(lambda: "later" in names(node.metadata.published), "the write is published")
        assert names(node.metadata.published) == {"kept", "later"}, "the open transaction is aborted"
        assert recovered_of(node.metadata.published).refused == set(lost(cluster))


async def test_a_survivor_that_had_to_fetch_first_says_so_and_leads_alone(tmp_path: Path) -> None:
    async with stopped(tmp_path) as cluster:
        mark = EmptyMark(directory_of(cluster) / DIRECTORY_NAME)
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            assert survivor.evidence().is_whole
        mark.write(EmptyReason.UNKNOWN)
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            assert not survivor.evidence().is_whole
        recover(cluster)
        cluster.extra = {"migrator.quorum.require.bootstrap": "true"}
        cluster.start(SURVIVOR)
        await cluster.leader()
        assert mark.read() is None


async def test_those_who_were_given_up_come_back_and_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of them led last, so that it begins with the word that its leadership has ended."""
    async with stopped(tmp_path) as cluster:
        recover(cluster)
        with closing(OpenedDirectory(cluster.settings(1))) as opened:
            opened.election.write(ElectionState(opened.storage.log.last_epoch() + 1, leader_id=1))
        survivor = cluster.start(SURVIVOR)
        await cluster.leader()
        epoch = survivor.quorum.epoch
        ends = {1: cluster.start(1).storage.log.end_offset()}
        await until(lambda: "refuses this controller" in caplog.text, "a lost controller is told why")
        ends[2] = cluster.start(2).storage.log.end_offset()
        lost_ones = [cluster.nodes[it].quorum for it in (1, 2)]
        await until(lambda: Role.LEADER in {it.role for it in lost_ones}, "they elect one of them")
        assert all(it.epoch < EPOCH_STEP for it in lost_ones), "nobody has told them our epoch"
        update = await asks_to_be_updated(survivor, cluster.voter(1), epoch=2)
        assert (update.leader_id, update.leader_epoch) == (-1, 0)
        stranger = replace(cluster.voter(2), voter_id=4)
        assert (await asks_to_be_updated(survivor, stranger, epoch=2)).leader_epoch == epoch
        await write(cluster, quota("later"))
        assert (survivor.quorum.role, survivor.quorum.epoch) == (Role.LEADER, epoch)
        assert {row.replica_id for row in survivor.quorum.status().observers} == set()
        for node_id, end in ends.items():
            assert "later" not in names(cluster.nodes[node_id].metadata.image), end
        with pytest.raises(VotersNotChangedError, match="was given up"):
            survivor.quorum.change_voters(AddVoter(cluster.voter(1)))


async def test_both_sides_say_that_there_are_two_quorums_whoever_starts_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lost ones lead each other already when the survivor comes. Their leader only announces itself to it."""
    async with stopped(tmp_path) as cluster:
        recover(cluster)
        cluster.extra |= IMPATIENT
        lost_ones = [cluster.start(it).quorum for it in (1, 2)]
        await until(lambda: Role.LEADER in {it.role for it in lost_ones}, "the lost ones elect one of them")
        leader = next(it for it in lost_ones if it.role is Role.LEADER)
        survivor = cluster.start(SURVIVOR).quorum
        await until(lambda: survivor.role is Role.LEADER, "the survivor leads")
        await until(lambda: leader.given_up.problem(1) is not None, "the lost leader is told")
        await until(lambda: survivor.given_up.problem(SURVIVOR) is not None, "the survivor knows")
        theirs, ours = leader.given_up.problem(leader.leader_id or 0), survivor.given_up.problem(SURVIVOR)
        assert theirs is not None
        assert ours is not None
        assert f"controller {SURVIVOR} refused this controller" in theirs.what
        assert str(leader.leader_id) in ours.who
        assert "refuses this controller" in caplog.text
        assert "was given up when the majority of the voters was lost" in caplog.text
        assert leader.epoch < EPOCH_STEP, "and nobody has told it our epoch"
        source = NodeStatusSource(cluster.settings(SURVIVOR), cluster.nodes[SURVIVOR], FOLLOWS, lambda _after: [])
        assert ours.what in {problem.what for problem in source.status().problems}


async def asks_to_be_updated(node: NodeCore, voter: DynamicVoter, epoch: int) -> Any:
    """The leader in the answer to that voter's UpdateRaftVoter request."""
    apis = VoterChangeApis(node.cluster_id, node.quorum, node.addresses, node.voter_changes, lambda: None)
    directory = uuid.UUID(bytes=voter.voter_directory_id)
    named = {"voter_id": voter.voter_id, "voter_directory_id": directory, "current_leader_epoch": epoch}
    answer = await apis(call(UPDATE_RAFT_VOTER, cluster_id=node.cluster_id, **named))
    assert answer.error_code is ErrorCode.fenced_leader_epoch
    return answer.current_leader


async def test_a_target_names_nobody_who_was_given_up(tmp_path: Path) -> None:
    async with stopped(tmp_path) as cluster:
        recover(cluster)
        cluster.start(SURVIVOR)
        await cluster.leader()
        for node_id, disk in ((1, cluster.directory_id(1)), (2, cluster.directory_id(2))):
            with pytest.raises(RefusedError, match="was given up when the majority was lost"):
                await cluster.order(TargetOrder.ADD, ReplicaKey(node_id, disk))
        await cluster.order(TargetOrder.ADD, ReplicaKey(1, NEW_DISK))


async def test_a_second_recovery_keeps_what_the_first_one_refuses(tmp_path: Path) -> None:
    """Controller 4 joins the survivor, and is lost, too."""
    async with dynamic(tmp_path, 4, 3) as cluster:
        leader = await cluster.leader()
        await cluster.agree(leader.metadata.published.provenance.offset)  # the survivor knows who has registered
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        recover(cluster)
        for node_id in (SURVIVOR, 4):
            cluster.start(node_id)
        await cluster.leader()
        await cluster.order(TargetOrder.ADD, key(cluster, 4))
        await until(lambda: cluster.voters() == {frozenset({SURVIVOR, 4})}, "controller 4 votes")
        joined = cluster.nodes[4]
        await until(lambda: bool(recovered_of(joined.metadata.published).refused), "it knows whom to refuse")
        vote = VoteRequest(joined.cluster_id, 4, joined.quorum.epoch + 1, 1, 1, 9, cluster.directory_id(1))
        assert (await joined.quorum.handle(vote)).error is GIVEN_UP, "controller 4 has no file, and the log says so"
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        with closing(Survivor(cluster.settings(SURVIVOR))) as survivor:
            list(survivor.recover(survivor.plan([key(cluster, 4)])))
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            first, second = opened.recoveries
            assert (first.lost, second.lost) == (tuple(lost(cluster)), (key(cluster, 4),))
            assert second.epoch > first.epoch + EPOCH_STEP
            known = opened.recovered()
        assert known.refused == {*lost(cluster), key(cluster, 4)}
        assert recovered_of(read_image(directory_of(cluster))) == known


async def test_a_damaged_file_is_no_reason_to_go_on_without(tmp_path: Path) -> None:
    async with stopped(tmp_path) as cluster:
        recover(cluster)
        file = directory_of(cluster) / "__cluster_metadata-0" / FILE_NAME
        copy = tmp_path / "copy"
        shutil.copy(file, copy)
        for damage in (b"", b"{}", file.read_bytes().replace(b'"epoch":', b'"epoch":"a"', 1), b'{"data_version":0}'):
            file.write_bytes(damage)
            with pytest.raises(StorageError, match="about the recovery of the quorum is damaged"):
                OpenedDirectory(cluster.settings(SURVIVOR))
        shutil.copy(copy, file)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            assert opened.recovered().refused == set(lost(cluster))


async def test_a_recovery_without_records_is_forgotten_when_the_log_goes_on(tmp_path: Path) -> None:
    """The lost ones came back before the records were written: nobody may be refused for that later."""
    async with stopped(tmp_path) as cluster:
        recover(cluster, 1)
        for node_id in (1, 2, SURVIVOR):
            cluster.start(node_id)
        await write(cluster, quota("later"))
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            assert opened.recoveries == ()
            assert opened.recovered() == Recovered()


async def test_an_entry_counts_only_with_its_own_records(tmp_path: Path) -> None:
    async with stopped(tmp_path) as cluster:
        recover(cluster)
        with closing(OpenedDirectory(cluster.settings(SURVIVOR))) as opened:
            (entry,) = opened.recoveries
            log = opened.storage.log
            assert entry.counts(log)
            assert not replace(entry, epoch=entry.epoch + 1).counts(log)
            assert not replace(entry, epoch=entry.epoch - 1).counts(log)
            assert not replace(entry, end_offset=entry.end_offset + 1).counts(log)
            assert not replace(entry, offset=entry.offset - 1).counts(log)
