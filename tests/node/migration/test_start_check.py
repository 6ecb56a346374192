"""Looking at a running quorum from outside, and the start that would end a migration too early."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.errors import ExitCode, OperatorError
from migrator.image.loader import MAX_STATES
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.migration.machine.finish import zk_mode_brokers
from migrator.node.core import NodeCore
from migrator.node.migration.start_check import AskVoters, check_start
from migrator.raft.messages import (
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
)
from migrator.raft.transport import RaftTransport
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import Uuid
from migrator.records.versions import FEATURE_NAME, parse_version
from migrator.wire.observer import NoAnswerError, Observer
from migrator.wire.remote_image import read_remote_image
from migrator.wire.voters import VoterAnswer
from tests.node.support.cluster import CLUSTER_ID, Cluster, Wires, running

ASKING = 99


def registration(broker_id: int, *, in_zookeeper_mode: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, in_zookeeper_mode, Uuid(b"i" * 16), 1, (), (), None)


def observe(transport: RaftTransport, *peers: int, patience_seconds: float = 10.0) -> Observer:
    return Observer(transport, peers, CLUSTER_ID, patience_seconds=patience_seconds, gives_up=True)


async def append(leader: NodeCore, *records: MetadataRecord) -> None:
    offset = await leader.controller.append(leader.quorum.epoch, records)
    await leader.metadata.stable(offset)


async def dual_writing(cluster: Cluster, *, zk_brokers: tuple[int, ...]) -> NodeCore:
    leader = await cluster.leader()
    await append(
        leader,
        ZkMigrationStateRecord(ZkMigrationState.MIGRATION),
        *(registration(broker, in_zookeeper_mode=broker in zk_brokers) for broker in (1, 2, 3)),
    )
    return leader


def answering(**stock: bool) -> AskVoters:
    """Of the voters 1 to 3 those that are named run Kafka's own controller, others ours; not every one is up."""

    async def ask() -> dict[int, VoterAnswer | None]:
        ours = VoterAnswer(migrating=True, is_ours=True)
        found = {int(name.removeprefix("voter_")): VoterAnswer(on, is_ours=False) for name, on in stock.items()}
        return {1: ours, 2: ours, 3: None} | found

    return ask


async def start(settings: Settings, own: MetadataImage, transport: RaftTransport, ask: AskVoters) -> None:
    voters = {voter.voter_id for voter in settings.voters}
    others = voters - {settings.node_id}
    await check_start(settings, own, CLUSTER_ID, transport, ask, voters=voters, others=others)


async def check(cluster: Cluster, *, flag: str = "false", ask: AskVoters | None = None) -> None:
    keys = dict(cluster.settings(1).explicit) | {
        "zookeeper.metadata.migration.enable": flag,
        "zookeeper.connect": "localhost:1",
    }
    settings, _ = settings_from(keys, "test")
    await start(settings, EMPTY_IMAGE, cluster.wires.to(ASKING), ask or answering())


async def test_an_image_read_from_outside_is_the_leaders(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        for number in range(10):
            await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", f"key-{number}", "1"))
        observer = observe(cluster.wires.to(ASKING), *cluster.nodes)
        image = await read_remote_image(observer)
        assert image.configs == leader.metadata.published.configs
        assert cluster.nodes[observer.leader] is leader


async def test_a_log_that_starts_with_a_snapshot_is_read_too(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", "early", "1"))
        image = leader.metadata.snapshot_image
        assert image is not None
        snapshot_id = await leader.snapshotter.write(image)
        leader.storage.log._forget_before(snapshot_id, 0)
        await append(leader, ConfigRecord(ConfigResourceType.BROKER, "", "late", "1"))
        found = await read_remote_image(observe(cluster.wires.to(ASKING), 1))
        assert found.configs == leader.metadata.published.configs


async def test_a_quorum_that_is_away_is_no_answer() -> None:
    with pytest.raises(NoAnswerError):
        await read_remote_image(observe(Wires().to(ASKING), 1, 2, 3))


class NewLeader:
    """A stock leader of epoch 2; its log begins with a snapshot. A broker was in ZooKeeper mode then, and is not since.

    :param silent: how often it answers without a high watermark, as it does until its epoch has begun for a majority;
        None: for ever.
    """

    def __init__(self, silent: int | None) -> None:
        self._silent = silent
        level = parse_version("3.9").level
        state = ZkMigrationStateRecord(ZkMigrationState.MIGRATION)
        before: list[MetadataRecord] = [
            FeatureLevelRecord(FEATURE_NAME, level),
            state,
            registration(7, in_zookeeper_mode=True),
        ]
        self._snapshot = build_batch(encode_all(before, level), timestamp_ms=0)
        after = encode_all([registration(7, in_zookeeper_mode=False)], level)
        self._records = build_batch(after, timestamp_ms=0, base_offset=10, leader_epoch=1)
        self._records += build_batch(encode_all([NoOpRecord()], level), timestamp_ms=0, base_offset=11, leader_epoch=2)

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        none, start = ErrorCode.none, EpochOffset(1, 10)
        if isinstance(request, FetchSnapshotRequest):
            size = len(self._snapshot)
            return FetchSnapshotResponse(none, none, peer, 2, start, size, 0, self._snapshot)
        assert isinstance(request, FetchRequest)
        if self._silent:
            self._silent -= 1
        watermark = 12 if self._silent == 0 else -1
        if request.fetch_offset < start.offset:
            return FetchResponse(none, none, peer, 2, watermark, start.offset, snapshot_id=start)
        records = self._records if request.fetch_offset == start.offset else b""
        return FetchResponse(none, none, peer, 2, watermark, start.offset, records=records)

    async def close(self) -> None:
        pass


async def test_a_leader_elected_an_instant_ago_is_asked_until_its_epoch_has_begun() -> None:
    image = await read_remote_image(observe(NewLeader(silent=5), 1))
    assert zk_mode_brokers(image.cluster) == ()


async def test_a_leader_that_commits_nothing_is_no_answer() -> None:
    with pytest.raises(NoAnswerError, match="has not committed anything in its epoch"):
        await read_remote_image(observe(NewLeader(silent=None), 1, patience_seconds=0))


class Electorate:
    """Voters of whom none knows a leader yet."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        self.asked.append(peer)
        return FetchResponse(ErrorCode.none, ErrorCode.not_leader_or_follower, -1, 1, -1, -1)

    async def close(self) -> None:
        pass


async def test_who_knows_no_leader_is_asked_once_before_a_rest() -> None:
    """Each start of a quorum asked each voter five times, ten times a second."""
    voters = Electorate()
    with pytest.raises(NoAnswerError, match="no controller names a leader"):
        await read_remote_image(observe(voters, 1, 2, patience_seconds=0))
    assert voters.asked == [1, 2]


class BusyLeader:
    """A leader with more batches than an image loader keeps states, some of which are not committed yet. Its broker
    was in ZooKeeper mode at first, and is not since."""

    def __init__(self) -> None:
        level = parse_version("3.9").level
        records: list[MetadataRecord] = [NoOpRecord()] * (MAX_STATES + 10)
        records[0] = FeatureLevelRecord(FEATURE_NAME, level)
        records[1] = registration(7, in_zookeeper_mode=True)
        records[-5] = registration(7, in_zookeeper_mode=False)
        records[-2] = registration(7, in_zookeeper_mode=True)
        self._records = b"".join(
            build_batch(encode_all([record], level), timestamp_ms=0, base_offset=offset, leader_epoch=1)
            for offset, record in enumerate(records)
        )
        self.high_watermark = len(records) - 3

    async def send(self, peer: int, request: RaftRequest, timeout: float) -> RaftResponse:
        assert isinstance(request, FetchRequest)
        records = self._records if request.fetch_offset == 0 else b""
        none = ErrorCode.none
        return FetchResponse(none, none, peer, 1, self.high_watermark, 0, records=records)

    async def close(self) -> None:
        pass


async def test_what_a_leader_has_not_committed_hides_nothing_of_what_it_has() -> None:
    leader = BusyLeader()
    image = await read_remote_image(observe(leader, 1))
    assert image.provenance.offset == leader.high_watermark - 1
    assert zk_mode_brokers(image.cluster) == ()


async def test_an_election_is_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await dual_writing(cluster, zk_brokers=())
        leader_id = next(voter for voter, node in cluster.nodes.items() if node is leader)
        await cluster.stop(leader_id)
        await check(cluster)


async def test_the_flag_off_is_refused_with_the_names_of_brokers_in_zookeeper_mode(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await dual_writing(cluster, zk_brokers=(1, 3))
        with pytest.raises(OperatorError, match=r"brokers 1, 3 .*the leader, controller") as caught:
            await check(cluster)
        assert caught.value.exit_code == ExitCode.REFUSED
        assert "1, 3" in caught.value.remedy


async def test_the_flag_off_is_taken_when_every_broker_is_in_kraft_mode(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await dual_writing(cluster, zk_brokers=())
        await check(cluster)


async def test_its_own_log_counts_only_where_nobody_answers(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await dual_writing(cluster, zk_brokers=(2,))
        own = leader.metadata.published
        settings, _ = settings_from(dict(cluster.settings(1).explicit), "test")
        with pytest.raises(OperatorError, match="the log of this node, because no other voter answers, says") as caught:
            await start(settings, own, Wires().to(ASKING), answering())
        assert caught.value.exit_code == ExitCode.REFUSED, "nobody else has a log"


async def test_a_refusal_by_a_log_that_may_be_behind_is_not_final(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        own = (await dual_writing(cluster, zk_brokers=(2,))).metadata.published
        settings, _ = settings_from(dict(cluster.settings(1).explicit), "test")
        with pytest.raises(OperatorError, match=r"brokers 2 .*start again") as caught:
            await start(settings, own, Wires().to(ASKING), answering())
        assert caught.value.exit_code == ExitCode.TRY_AGAIN


async def test_a_majority_of_stock_voters_is_refused_until_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await dual_writing(cluster, zk_brokers=())
        for flag in ("true", "false"):
            with pytest.raises(
                OperatorError, match=r"controllers 2, 3 are too many of the voters: .*the leader, controller"
            ):
                await check(cluster, flag=flag, ask=answering(voter_2=True, voter_3=True))
            await check(cluster, flag=flag, ask=answering(voter_2=False))
        await append(leader, ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION))
        await check(cluster, flag="true", ask=answering(voter_2=False, voter_3=False))


async def test_the_first_start_of_a_migration_is_refused_among_stock_voters() -> None:
    settings, _ = settings_from(
        dict(Cluster(Path("nowhere"), 3).settings(1).explicit)
        | {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": "localhost:1"},
        "test",
    )
    ask = answering(voter_2=True, voter_3=True)
    with pytest.raises(OperatorError, match="the log of this node, because no other voter answers, says"):
        await start(settings, EMPTY_IMAGE, Wires().to(ASKING), ask)
