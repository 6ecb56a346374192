"""`migrator repair partition-states`: what brokers know goes back into ZooKeeper, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from migrator.cli.main import migrator
from migrator.drill.workload.fill import CONTROLLER_EPOCH
from migrator.parts.processes import free_port
from migrator.preflight.lost_states import SETS_AHEAD, Lost, Reported, restore, writes
from migrator.zookeeper.ops import Applied
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import PartitionState, decode_partition_state
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.preflight.support import cases_of_zookeeper
from tests.preflight.support.cases_of_zookeeper import TOPIC
from tests.preflight.support.ready_cluster import KNOWN, ReadyCluster
from tests.preflight.test_command import stats_of

PATH = paths.partition_state(TOPIC, 0)
REPORTED = Reported(2, 57, (2, 1))
RESTORED = PartitionState(2, 58, CONTROLLER_EPOCH, (2, 1))


def run(cluster: ReadyCluster, *options: str) -> Result:
    (config,) = cluster.request().controllers
    return CliRunner().invoke(migrator, ["repair", "partition-states", "-c", str(config), *options])


@pytest.fixture
def electing(cluster: ReadyCluster) -> Iterator[ReadyCluster]:
    """Brokers elect a controller as soon as there is none."""
    on = [True]

    @cluster.client.DataWatch(paths.CONTROLLER)  # type: ignore[untyped-decorator]
    def elect(data: bytes | None, _stat: object) -> bool:
        if data is None and on:
            cluster.client.create_async(paths.CONTROLLER, encode_controller(ControllerClaim(3, 0)))
        return bool(on)

    yield cluster
    on.clear()


def deleted(cluster: ReadyCluster) -> None:
    cluster.client.delete(PATH)


def deleted_with_its_parents(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.partitions(TOPIC), recursive=True)


def damaged(cluster: ReadyCluster) -> None:
    cluster.put(PATH, b"{")


def emptied(cluster: ReadyCluster) -> None:
    cluster.client.set(PATH, b"")


@pytest.mark.parametrize("damage", [deleted, deleted_with_its_parents, damaged, emptied])
def test_a_lost_state_becomes_what_the_brokers_know(
    electing: ReadyCluster, damage: Callable[[ReadyCluster], None]
) -> None:
    cluster = electing
    damage(cluster)
    KNOWN[TOPIC, 0] = REPORTED
    before = stats_of(cluster.client)
    shown = run(cluster, "--dry-run")
    assert shown.exit_code == 1, shown.output
    assert f"{TOPIC}-0" in shown.stdout
    assert "leader 2, leader epoch 58 (brokers know 57), in sync [2, 1]" in shown.stdout
    assert stats_of(cluster.client) == before

    done = run(cluster, "--yes")
    assert done.exit_code == 0, done.output
    assert "broker 3 is the controller" in done.stdout, "another one reads the states"
    data, stat = cluster.client.get(PATH)
    assert decode_partition_state(PATH, data) == RESTORED
    assert stat.version >= (SETS_AHEAD if damage in {deleted, deleted_with_its_parents} else 1)
    assert "M015" not in {finding.check.code for finding in cluster.report().findings}
    again = run(cluster)
    assert (again.exit_code, "every partition has a state" in again.stdout) == (0, True), again.output


def test_what_no_broker_knows_is_left_alone(cluster: ReadyCluster) -> None:
    deleted(cluster)
    before = stats_of(cluster.client)
    result = run(cluster, "--yes")
    assert result.exit_code == 1, result.output
    assert "no broker knows its leader epoch" in result.stdout
    assert stats_of(cluster.client) == before


def broker_is_silent(cluster: ReadyCluster) -> None:
    cluster.register(3, port=free_port())


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (cases_of_zookeeper.claimed_by_kraft, "KRaft controller 3000 holds it"),
        (cases_of_zookeeper.nobody_elected, "nobody holds it"),
        (broker_is_silent, "broker 3 does not say"),
    ],
)
def test_it_refuses(cluster: ReadyCluster, obstacle: Callable[[ReadyCluster], None], said: str) -> None:
    deleted(cluster)
    KNOWN[TOPIC, 0] = REPORTED
    obstacle(cluster)
    before = stats_of(cluster.client)
    result = run(cluster, "--yes")
    assert result.exit_code != 0
    assert said in str(result.exception) + result.output
    assert stats_of(cluster.client) == before


def test_the_newest_report_counts_and_only_replicas_are_in_sync() -> None:
    lost = [Lost("t", 0, (1, 2, 3)), Lost("t", 1, (1, 2)), Lost("t", 2, (1, 2)), Lost("t", 3, (1,), version=90)]
    reports = {
        ("t", 0): [Reported(1, 56, (1, 2)), Reported(2, 57, (2, 3)), Reported(-1, 3, (1,))],
        ("t", 1): [Reported(9, 5, (9,))],
        ("t", 2): [Reported(-1, 8, (2,))],
        ("t", 3): [Reported(1, 40, (1,))],
    }
    found, left = restore(lost, reports, controller_epoch=7, least_version=300)
    assert [each.state for each in found] == [
        PartitionState(2, 58, 7, (2, 3)),
        PartitionState(-1, 9, 7, (2,)),
        PartitionState(1, 41, 7, (1,)),
    ]
    assert [each.version for each in found] == [300, 300, 0]
    assert [(str(each), "in-sync" in why) for each, why in left] == [("t-1", True)]


@given(version=st.none() | st.integers(0, 5), least=st.integers(0, 9), epoch=st.integers(0, 9), cut=st.integers(0, 40))
def test_a_state_that_is_not_written_whole_is_still_seen_to_be_lost(
    version: int | None, least: int, epoch: int, cut: int
) -> None:
    zookeeper = ModelZooKeeper()
    zookeeper.load({paths.topic("t"): b"{}"})
    path = paths.partition_state("t", 0)
    if version is not None:
        zookeeper.create(path, b"{", parents=True)
        for _ in range(version):
            zookeeper.set(path, b"{")
    ((restored,), _) = restore(
        [Lost("t", 0, (1,), version)],
        {("t", 0): [Reported(1, epoch, (1,))]},
        controller_epoch=7,
        least_version=least,
    )
    ops = list(writes(restored, frozenset(zookeeper.dump())))
    for op in ops[:cut]:
        assert isinstance(zookeeper.multi([op]), Applied)
    znode = zookeeper.get(path)
    if cut >= len(ops):
        assert znode is not None
        assert decode_partition_state(path, znode.data) == restored.state
        assert znode.stat.version >= restored.version
    elif znode is not None:
        with pytest.raises(ZnodeError):
            decode_partition_state(path, znode.data)
