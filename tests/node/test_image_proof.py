"""Images that are compared with one another and with a replay of their log: a record that one node lacks is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import turns
from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.snapshot import snapshot_steps
from migrator.log.errors import StorageError
from migrator.log.image_snapshot import write_snapshot
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import PART_SUFFIX
from migrator.node import image_proof
from migrator.node.image_proof import ImageComparison, ImageProof
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.storage import NodeStorage
from migrator.node.snapshotter import Snapshotter
from migrator.node.status_source import NodeStatusSource
from migrator.observe.loop_health import TurnGauge
from migrator.observe.status import ImagesStatus
from migrator.raft.transport import TransportError
from migrator.records import metadata as rec
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.uuid import uuid_from_text
from migrator.rpc.quorum_service import ImageDigest
from tests.node.support.cluster import FOLLOWS, Cluster, running, until
from tests.patience import PATIENCE_SECONDS

LEVEL = 21
HISTORY: list[list[rec.MetadataRecord]] = [
    [rec.FeatureLevelRecord("metadata.version", LEVEL)],
    [rec.ConfigRecord(4, "1", "x", "1"), rec.ConfigRecord(4, "2", "x", "2")],
    [rec.BeginTransactionRecord(), rec.ConfigRecord(4, "3", "x", "aborted")],
    [rec.AbortTransactionRecord()],
    [rec.ConfigRecord(4, "4", "x", "4")],
    [rec.NoOpRecord()],
]
ENDS = [1, 3, 5, 6, 7, 8]
LOST = ENDS[4] - 1


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_proof, "DUTY", 1.0)
    monkeypatch.setattr(image_proof, "ASK_SECONDS", 0.0)


class Node:
    """A log on disk, its images, and their proof.

    :param loses: the offset of a batch whose records never reach the image: a planted bug.
    """

    def __init__(self, folder: Path, node_id: int, loses: int = -1) -> None:
        self.node_id = node_id
        self.log = MetadataLog.open(folder / str(node_id))
        self.storage = NodeStorage(self.log, QuorumStateFile(self.log.directory, [1], self.log))
        self.failures: list[BaseException] = []
        self.images = MetadataRuntime(
            self.storage.snapshot,
            self.storage.some_batches,
            self.log.end_offset,
            on_step=lambda *_: None,
            on_failure=self.failures.append,
            gauge=TurnGauge(),
        )
        if loses >= 0:
            self.images._loader = Forgetful(loses)
            self.images._publishing = self.images._loader.publish()
        self.proof = ImageProof(node_id, self.images, self.storage)
        self.answers = True
        self.epoch: int | None = 1

    def append(self, records: list[rec.MetadataRecord]) -> None:
        encoded = encode_all(records, LEVEL)
        self.log.append(build_batch(encoded, timestamp_ms=1, base_offset=self.log.end_offset(), leader_epoch=1))
        self.images.appended()

    async def take(self, history: list[list[rec.MetadataRecord]]) -> None:
        for records in history:
            self.append(records)
        self.images.committed(self.log.end_offset())
        await self.images.caught_up()

    async def close(self) -> None:
        await self.images.close()
        self.storage.close()


class Forgetful(ImageLoader):
    """Passes one batch over, and says nothing."""

    def __init__(self, loses: int) -> None:
        super().__init__()
        self._loses = loses

    def append(self, base_offset: int, epoch: int, timestamp_ms: int, records: object) -> None:
        assert isinstance(records, list)
        kept = [rec.NoOpRecord()] * len(records) if base_offset == self._loses else records
        super().append(base_offset, epoch, timestamp_ms, kept)


@asynccontextmanager
async def nodes(folder: Path, *loses: int) -> AsyncIterator[list[Node]]:
    """As many nodes, whose proofs run; what one of them stops for is among its failures."""
    found = [Node(folder, node_id, lost) for node_id, lost in enumerate(loses, 1)]

    async def prove(node: Node) -> None:
        try:
            await node.proof.run()
        except OperatorError as error:
            node.failures.append(error)

    tasks = [asyncio.create_task(prove(node)) for node in found]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in found:
            await node.close()


def comparison(leader: Node, others: list[Node]) -> ImageComparison:
    known = {node.node_id: node for node in others}

    async def ask(peer: int, offset: int, *, replay: bool, timeout: float) -> ImageDigest:
        if not known[peer].answers:
            raise TransportError("no such call")
        return known[peer].proof.image_digest(offset, replay=replay)

    voters = [leader.node_id, *known]
    return ImageComparison(leader.node_id, leader.proof, leader, lambda: voters, leader.log.end_offset, ask)


async def compared(comparing: ImageComparison, all_nodes: list[Node]) -> ImagesStatus:
    """One round, in which what the leader names is committed on every node."""
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(comparing.compare())
        await asyncio.sleep(0)
        for node in all_nodes:
            await node.take([[rec.NoOpRecord()]] * 3)
    assert comparing.status is not None
    return comparing.status


async def until_stopped(node: Node) -> BaseException:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not node.failures:
            await asyncio.sleep(0)
    return node.failures[0]


@pytest.mark.parametrize("at", range(1, ENDS[-1] + 1))
async def test_the_digest_is_of_the_first_place_outside_transactions(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether what is committed comes in one piece or in several."""
    monkeypatch.setattr(turns, "TURN_RECORDS", 1)
    async with nodes(tmp_path, -1, -1) as (one, other):
        for node in (one, other):
            node.proof.image_digest(at, replay=False)
        await one.take(HISTORY)
        for records in HISTORY:
            await other.take([records])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while min(node.proof.image_digest(at, replay=False).offset for node in (one, other)) < 0:
                await asyncio.sleep(0)
        found = one.proof.image_digest(at, replay=False)
        assert found == other.proof.image_digest(at, replay=False)
        assert found.offset == next(end for end in (1, 3, 6, 7, 8) if end >= at)


async def test_controllers_that_have_the_same_metadata_agree_and_who_cannot_say_is_not_known(tmp_path: Path) -> None:
    async with nodes(tmp_path, -1, -1, -1) as (leader, follower, stock):
        for node in (leader, follower, stock):
            await node.take(HISTORY)
        stock.answers = False
        comparing = comparison(leader, [follower, stock])
        said: list[str] = []
        comparing.listeners.append(said.append)
        found = await compared(comparing, [leader, follower])
        assert (found.equal, found.different, found.unknown) == ((2,), (), (3,))
        assert said == []
        assert (found.offset, leader.proof.image_digest(found.offset, replay=False).digest) is not None
        leader.epoch = 2
        assert comparing.status is None, "what was found in another epoch does not count"


async def test_who_lost_a_record_is_found_and_stops_and_nobody_else_does(tmp_path: Path) -> None:
    async with nodes(tmp_path, -1, LOST, -1) as (leader, forgetful, other):
        for node in (leader, forgetful, other):
            await node.take(HISTORY)
        comparing = comparison(leader, [forgetful, other])
        said: list[str] = []
        comparing.listeners.append(said.append)
        found = await compared(comparing, [leader, forgetful, other])
        assert (found.equal, found.different, found.unknown) == ((3,), (2,), ())
        text = f"the controllers disagree at offset {found.offset}: controller 2 has other metadata than the leader"
        assert said == [found.disagreement] == [text]
        forgetful.answers = False
        silent = await compared(comparing, [leader, other])
        assert (silent.different, silent.unknown, silent.offset) == ((2,), (), found.offset), "silence is no agreement"
        assert len(said) == 1
        error = await until_stopped(forgetful)
        assert isinstance(error, OperatorError)
        assert "not what a replay of its own log gives" in str(error)
        assert "start the controller again" in error.remedy
        await leader.proof.replay()
        await other.proof.replay()
        assert leader.failures == other.failures == []


async def test_on_a_quiet_cluster_nobody_waits_for_the_next_record(tmp_path: Path) -> None:
    async with nodes(tmp_path, -1, -1) as (leader, follower):
        for node in (leader, follower):
            await node.take(HISTORY)
        comparing = comparison(leader, [follower])
        async with asyncio.timeout(PATIENCE_SECONDS):
            await comparing.compare()
        assert comparing.status is not None
        assert (comparing.status.offset, comparing.status.equal) == (ENDS[-1], (2,))


async def test_on_a_busy_cluster_an_offset_further_ahead_is_named_next(tmp_path: Path) -> None:
    async with nodes(tmp_path, -1, -1) as (leader, follower):
        for node in (leader, follower):
            await node.take(HISTORY)
        comparing = comparison(leader, [follower])
        await follower.take([[rec.NoOpRecord()]])  # told of more before it is asked
        async with asyncio.timeout(PATIENCE_SECONDS):
            await comparing.compare()
        assert comparing.status is not None
        assert comparing.status.unknown == (2,)
        await leader.take([[rec.NoOpRecord()]])
        assert (await compared(comparing, [leader, follower])).equal == (2,)


async def test_a_leader_that_lost_a_record_stops_itself(tmp_path: Path) -> None:
    async with nodes(tmp_path, LOST, -1, -1) as (leader, *others):
        for node in (leader, *others):
            await node.take(HISTORY)
        found = await compared(comparison(leader, others), [leader, *others])
        assert found.different == (2, 3)
        assert isinstance(await until_stopped(leader), OperatorError)
        for node in others:
            await node.proof.replay()
            assert node.failures == []


async def test_a_replay_begins_at_the_oldest_snapshot_and_ends_where_the_image_ends(tmp_path: Path) -> None:
    """A snapshot that was made of a wrong image is no proof of that image."""
    async with nodes(tmp_path, -1, LOST) as (sound, forgetful):
        for node in (sound, forgetful):
            await node.take(HISTORY[:3])
            node.log.store.add(await write_snapshot(node.log.directory, node.images.published))
            await node.take(HISTORY[3:])
            node.log.store.add(await write_snapshot(node.log.directory, node.images.published))
            node.append([rec.ConfigRecord(4, "5", "x", "not committed")])
            await node.images.caught_up()
        await sound.proof.replay()
        with pytest.raises(OperatorError, match=f"at offset {ENDS[-1]} are not what a replay"):
            await forgetful.proof.replay()


async def test_a_log_that_is_replaced_during_a_replay_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_RECORDS", 1)
    async with nodes(tmp_path, -1) as (node,):
        await node.take(HISTORY)
        ahead = ImageLoader(node.images.published)
        ahead.append(100, 2, 1, [rec.NoOpRecord()])
        ahead.apply()
        ahead.commit(101)
        snapshot_id = await write_snapshot(node.log.directory, ahead.published)
        replaying = asyncio.create_task(node.proof.replay())
        await asyncio.sleep(0)
        node.log.store.add(snapshot_id)
        node.log.truncate_fully_to_snapshot(snapshot_id)
        node.images.installed(snapshot_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await replaying


def _stopped(_images: object) -> Iterator[None]:
    """A stop of the process in the first turn in which an image is freed. At the next start every snapshot counts."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("surplus", "reason"),
    [
        (rec.ConfigRecord(4, "5", "x", "5"), "does not hold the image that it is of"),
        (rec.RemoveTopicRecord(uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ")), "there is no topic"),
    ],
    ids=["another image", "no image"],
)
async def test_a_snapshot_that_does_not_hold_its_image_is_taken_away_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surplus: rec.MetadataRecord, reason: str
) -> None:
    """The next start would load it."""
    cluster = Cluster(tmp_path / "settings", 1)
    cluster.format()
    async with nodes(tmp_path, -1) as (node,):
        await node.take(HISTORY)
        snapshotter = Snapshotter(cluster.settings(1), node.storage, node.images)
        monkeypatch.setattr(
            "migrator.log.image_snapshot.snapshot_steps", lambda image: (*snapshot_steps(image), surplus)
        )
        monkeypatch.setattr("migrator.image.digest.release", _stopped)
        with pytest.raises(InvariantViolation, match=reason):
            await snapshotter.write(node.images.published)
        assert not node.log.store.ids()
        assert not list(node.log.directory.glob("*.checkpoint"))
        monkeypatch.undo()
        written = await snapshotter.write(node.images.published)
        assert node.log.store.ids() == [written]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), StorageError("it is full")], ids=["stop", "disk"])
async def test_a_snapshot_has_no_final_name_until_it_was_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """To read back a large one takes minutes, and a start uses every file with such a name."""
    cluster, seen = Cluster(tmp_path / "settings", 1), list[Path]()
    cluster.format()

    def ended(*_images: object) -> Iterator[int]:
        seen.extend(node.log.directory.glob("*.checkpoint*"))
        raise error

    async with nodes(tmp_path, -1) as (node,):
        await node.take(HISTORY)
        monkeypatch.setattr("migrator.node.snapshotter.read_back", ended)
        with pytest.raises((asyncio.CancelledError, StorageError)):
            await Snapshotter(cluster.settings(1), node.storage, node.images).write(node.images.published)
        assert [path.name.endswith(PART_SUFFIX) for path in seen] == [True]
        assert not list(node.log.directory.glob("*.checkpoint*"))


async def test_the_status_of_a_leader_says_who_disagrees(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        own = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        wrong, right = sorted(set(cluster.nodes) - {own})

        async def ask(peer: int, offset: int, *, replay: bool, timeout: float) -> ImageDigest:
            found = cluster.nodes[peer].image_proof.image_digest(offset, replay=replay)
            return replace(found, digest=found.digest + (peer == wrong))

        leader.image_comparison._ask = ask
        source = NodeStatusSource(cluster.settings(own), leader, FOLLOWS, lambda _after: [])
        assert source.status().images is None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while leader.image_comparison.status is None or leader.image_comparison.status.unknown:
                await leader.image_comparison.compare()
        status = source.status()
        assert status.images is not None
        assert (status.images.equal, status.images.different) == ((right,), (wrong,))
        (problem,) = status.problems
        assert problem.who == "quorum"
        disagree = f"the controllers disagree at offset {status.images.offset}: controller {wrong} has other metadata"
        assert problem.what.startswith(disagree)
        assert not problem.warning
        await until(lambda: not any(node.image_proof._replay_wanted for node in cluster.nodes.values()), "replays")
        assert not cluster.failures, "each of them is what its own log says"
