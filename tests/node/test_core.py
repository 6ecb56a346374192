"""Log, images, consensus and decisions together: real disks, several nodes in one loop, wires that can be cut."""

from __future__ import annotations

import asyncio
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.controller.configs import AlterConfigsRequest, ConfigChange, ConfigOperation, alter_configs
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.errors import OperatorError
from migrator.image.model import ConfigResource, MetadataImage
from migrator.log.errors import NoSpaceError
from migrator.log.metadata_log import MetadataLog
from migrator.node.core import NodeCore
from migrator.raft.messages import EpochOffset
from migrator.records.batch import BATCH_BYTES_MAX, build_batch
from migrator.records.codec import encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.primitives import MAX_STRING_BYTES
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, parse_version
from tests.node.support.cluster import IMPATIENT, Cluster, running, until
from tests.patience import PATIENCE_SECONDS

MIGRATES = {
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "nowhere.invalid:1",
    "inter.broker.listener.name": "PLAINTEXT",
}
RESOURCE = ConfigResource(ConfigResourceType.BROKER, "")


def set_config(key: str, text: str) -> Any:
    """A decision that sets one default of all brokers."""

    def decide(_image: MetadataImage, _context: Context) -> Decision[str]:
        return Decision(text, (ConfigRecord(RESOURCE.resource_type, RESOURCE.name, key, text),))

    return decide


async def write(node: NodeCore, key: str, text: str) -> str:
    return await node.controller.write(Operation.ALTER_CONFIGS, set_config(key, text))


def configs(node: NodeCore) -> dict[str, str]:
    return dict(node.metadata.published.configs.get(RESOURCE, {}))


async def test_an_empty_quorum_bootstraps_and_every_node_sees_what_is_written(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        for number in range(20):
            assert await write(leader, f"key-{number}", str(number)) == str(number)
        await cluster.agree(leader.metadata.published.provenance.offset)
        for node in cluster.nodes.values():
            image = node.metadata.published
            assert configs(node) == {f"key-{number}": str(number) for number in range(20)}
            assert image.features.levels[FEATURE_NAME] == parse_version("3.9").level
            assert image.features.zk_migration_state is ZkMigrationState.NONE
        nodes = cluster.nodes.values()
        await until(lambda: all(n.metadata.image == n.metadata.published for n in nodes), "nothing is on its way")


async def test_a_level_that_cannot_begin_a_migration_stops_the_start_and_not_the_election(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, **MIGRATES)
    cluster.release = "3.5"
    cluster.format()
    text = await refused_start(cluster)
    assert text.startswith("zookeeper.metadata.migration.enable: metadata.version is 3.5-IV2, and a migration needs")
    assert "Empty the metadata directory of this controller" in text
    with closing(MetadataLog.open(cluster.settings(1).metadata_directory)) as log:  # an election went before
        leader = LeaderChange(1, (Voter(1),), (Voter(1),))
        log.append(build_control_batch([leader], timestamp_ms=0, base_offset=0, leader_epoch=1))
        log.sync()
    assert await refused_start(cluster) == text


async def test_the_level_that_the_log_has_reached_counts_at_the_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, **MIGRATES)
    cluster.release = "3.5"
    cluster.format()
    records: list[MetadataRecord] = [
        FeatureLevelRecord(FEATURE_NAME, LATEST_SUPPORTED),
        ZkMigrationStateRecord(ZkMigrationState.MIGRATION),
    ]
    with closing(MetadataLog.open(cluster.settings(1).metadata_directory)) as log:
        log.append(build_batch(encode_all(records, LATEST_SUPPORTED), timestamp_ms=0, base_offset=0, leader_epoch=1))
        log.sync()
    cluster.start(1)
    leader = await cluster.leader()
    assert leader.metadata.published.features.metadata_version == LATEST_SUPPORTED
    await cluster.stop(1)
    assert not cluster.failures


async def refused_start(cluster: Cluster) -> str:
    with pytest.raises(OperatorError) as refused:
        cluster.start(1)
    await cluster.stop(1)
    return str(refused.value)


async def test_a_follower_refuses_to_write(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        with pytest.raises(RefusedError) as caught:
            await write(follower, "a", "b")
        assert caught.value.error.code is ErrorCode.not_controller


async def test_what_was_acknowledged_survives_the_loss_of_a_leader_and_a_restart_of_all(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        await write(leader, "first", "1")
        victim = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        await cluster.stop(victim)
        await write(await cluster.leader(), "second", "2")
        cluster.start(victim)
        successor = await cluster.leader()
        await cluster.agree(successor.metadata.published.provenance.offset)
        assert configs(cluster.nodes[victim]) == {"first": "1", "second": "2"}
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        for node_id in range(1, 4):
            cluster.start(node_id)
        leader = await cluster.leader()
        assert configs(leader) == {"first": "1", "second": "2"}


async def test_a_leader_whose_disk_is_full_refuses_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_batches: bytes) -> None:
        raise NoSpaceError("cannot append: No space left on device", where="disk", remedy="Free space")

    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        with monkeypatch.context() as patch:
            patch.setattr(leader.storage.log, "append", full)
            with pytest.raises(RefusedError) as caught:
                await write(leader, "lost", "1")
            assert caught.value.error.code is ErrorCode.not_controller
            others = [node for node in cluster.nodes.values() if node is not leader]
            await until(lambda: any(node.controller.epoch is not None for node in others), "another leads")
            await write(next(node for node in others if node.controller.epoch is not None), "kept", "2")
        successor = await cluster.leader()
        await cluster.agree(successor.metadata.published.provenance.offset)
        assert configs(leader) == {"kept": "2"}
    assert len([record for record in caplog.records if "No space left" in record.message]) == 1


async def test_a_leader_that_is_cut_off_acknowledges_nothing_and_takes_back_what_it_appended(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        await write(leader, "before", "1")
        lonely = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        cluster.wires.cut.add(lonely)
        waiting = asyncio.create_task(write(leader, "lost", "1"))
        await write(await cluster.leader(), "after", "2")
        with pytest.raises(RefusedError) as caught:
            await waiting
        assert caught.value.error.code is ErrorCode.not_controller
        cluster.wires.cut.clear()
        successor = await cluster.leader()
        await write(successor, "later", "3")
        await cluster.agree(successor.metadata.published.provenance.offset)
        for node in cluster.nodes.values():
            assert configs(node) == {"before": "1", "after": "2", "later": "3"}
            assert node.metadata.image.configs == node.metadata.published.configs


async def test_an_open_transaction_is_seen_by_nobody_and_aborted_by_the_next_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        epoch = leader.quorum.epoch
        records = (BeginTransactionRecord("test"), ConfigRecord(RESOURCE.resource_type, RESOURCE.name, "half", "1"))
        offset = await leader.controller.append(epoch, records)
        await leader.metadata.committed_up_to(offset)
        await until(lambda: all(n.quorum.high_watermark > offset for n in cluster.nodes.values()), "committed")
        assert "half" in leader.metadata.image.configs[RESOURCE]
        assert all(configs(node) == {} for node in cluster.nodes.values())
        with pytest.raises(RefusedError, match="being copied"):
            await write(leader, "meanwhile", "1")
        victim = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        await cluster.stop(victim)
        successor = await cluster.leader()
        await write(successor, "after", "1")
        assert configs(successor) == {"after": "1"}
        aborts = [
            record
            for batch in successor.storage.batches_from(0)
            if not batch.header.is_control
            for record, _ in batch.records()
            if isinstance(record, AbortTransactionRecord)
        ]
        assert len(aborts) == 1


async def test_a_whole_transaction_appears_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        epoch = leader.quorum.epoch
        seen: list[set[str]] = []
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        follower.metadata.subscribers.append(lambda delta: seen.append(set(delta.after.configs.get(RESOURCE, {}))))
        await leader.controller.append(epoch, (BeginTransactionRecord("test"),))
        for number in range(5):
            record = ConfigRecord(RESOURCE.resource_type, RESOURCE.name, f"key-{number}", "1")
            await leader.controller.append(epoch, (record,))
        offset = await leader.controller.append(epoch, (EndTransactionRecord(),))
        await leader.metadata.stable(offset)
        await cluster.agree(offset)
        everything = {f"key-{number}" for number in range(5)}
        assert all(keys in (set(), everything) for keys in seen)
        assert everything in seen


async def test_a_node_far_behind_gets_a_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        away = next(node_id for node_id, node in cluster.nodes.items() if node is not leader)
        await cluster.stop(away)
        for number in range(30):
            await write(leader, "counter", str(number))
        image = leader.metadata.snapshot_image
        assert image is not None
        snapshot_id = await leader.snapshotter.write(image)
        leader.storage.log._forget_before(snapshot_id, 0)
        assert leader.storage.log.start_offset() == snapshot_id.offset
        node = cluster.start(away)
        await cluster.agree(leader.metadata.published.provenance.offset)
        assert configs(node) == {"counter": "29"}
        assert node.storage.log.snapshots() == [EpochOffset(snapshot_id.epoch, snapshot_id.offset)]
        await cluster.stop(away)
        node = cluster.start(away)
        await until(lambda: configs(node) == {"counter": "29"}, "the snapshot is loaded again")


async def test_leadership_is_handed_over_without_a_timeout(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **{"controller.quorum.fetch.timeout.ms": "15000"}) as cluster:
        leader = await cluster.leader()
        await write(leader, "a", "1")
        leaving = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        await cluster.stop(leaving, patience_seconds=5.0)
        successor = await cluster.leader()
        assert successor is not leader
        assert await write(successor, "b", "2") == "2"


async def test_configs_are_validated_by_the_real_decision(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        change = ConfigChange("log.retention.ms", ConfigOperation.SET, "not a number")
        request = AlterConfigsRequest(((RESOURCE, (change,)),))
        answer = await leader.controller.write(
            Operation.ALTER_CONFIGS, lambda image, context: alter_configs(image, request, context)
        )
        assert dict(answer)[RESOURCE].code is ErrorCode.invalid_config


async def test_a_cluster_is_kept_by_its_directories(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    cluster.format()
    for number in range(3):
        node = cluster.start(1)
        await write(await cluster.leader(), f"run-{number}", "1")
        assert configs(node) == {f"run-{earlier}": "1" for earlier in range(number + 1)}
        await cluster.stop(1)
    assert not cluster.failures


@pytest.mark.parametrize(
    ("broken", "method"),
    [("storage.log", "append"), ("metadata", "_advance"), ("controller", "activate")],
    ids=["consensus", "image", "activation"],
)
async def test_a_defect_stops_the_node_instead_of_leaving_it_half_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, method: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    cluster = Cluster(tmp_path, 2)
    cluster.format()
    for node_id in (1, 2):
        monkeypatch.setattr(attrgetter(broken)(cluster.start(node_id)), method, fail)
    await until(lambda: bool(cluster.failures), "the failure is told")
    assert isinstance(cluster.failures[0], KeyError)
    for node_id in (1, 2):
        await cluster.stop(node_id)


async def test_a_change_that_is_larger_than_a_batch_may_be_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Stock controllers take no larger batch into their snapshots."""
    longest = "x" * MAX_STRING_BYTES
    fits = BATCH_BYTES_MAX // (MAX_STRING_BYTES + 100)
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        end = leader.storage.log.end_offset()
        with pytest.raises(RefusedError) as caught:
            await write_many(leader, longest, fits + 2)
        assert caught.value.error.code is ErrorCode.record_list_too_large
        assert not configs(leader)
        await write_many(leader, longest, fits)
        assert len(configs(leader)) == fits
        assert leader.storage.log.end_offset() > end


async def test_a_text_that_no_reader_takes_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Appended to in small parts, a list grows beyond what one request may bring."""
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        with pytest.raises(RefusedError, match=r"config 'key' of '[^']*': a text has 32,768 bytes") as caught:
            await write(leader, "key", "x" * (MAX_STRING_BYTES + 1))
        assert caught.value.error.code is ErrorCode.invalid_request
        assert not configs(leader)
        assert await write(leader, "key", "x" * MAX_STRING_BYTES)


async def write_many(node: NodeCore, text: str, count: int) -> None:
    records = tuple(ConfigRecord(RESOURCE.resource_type, RESOURCE.name, f"key-{n}", text) for n in range(count))
    await node.controller.write(Operation.ALTER_CONFIGS, lambda _image, _context: Decision(None, records))


async def test_a_write_in_the_very_step_in_which_a_stopped_leader_notices_that_it_is_cut_off_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped may run a waiting write before its timer: the leadership ends within that append."""
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        await write(leader, "before", "1")
        lonely = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        cluster.wires.cut.add(lonely)
        append = leader.quorum.append

        def late(*given: Any) -> None:
            with monkeypatch.context() as patch:
                patch.setattr("migrator.node.quorum.runner.monotonic_ms", lambda: monotonic_ms() + 60_000)
                append(*given)

        monkeypatch.setattr(leader.quorum, "append", late)
        waiting = asyncio.create_task(write(leader, "lost", "1"))
        await until(lambda: leader.controller.epoch is None, "the old leader has resigned")
        successor = await cluster.leader()
        for number in range(20):
            await write(successor, f"after-{number}", "2")
        cluster.wires.cut.clear()
        await cluster.agree(successor.metadata.published.provenance.offset)
        assert "lost" not in configs(leader)
        with pytest.raises(RefusedError) as caught:
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert caught.value.error.code is ErrorCode.not_controller
