"""A controller that does not lead looks where its ``zookeeper.connect`` leads, too."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.node.migration.address import check_address
from migrator.zookeeper.session import ZooKeeperUnavailableError
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.node.migration.test_turned_off import controller
from tests.node.support.cluster import CLUSTER_ID, Cluster
from tests.patience import PATIENCE_SECONDS


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "is elected" in record.message]


async def test_a_follower_with_the_wrong_chroot_says_so_before_it_leads(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One of three voters alone: it never leads."""
    server, _, chroot = zookeeper.hosts.partition("/")
    zookeeper_client.create(paths.CLUSTER_ID, b'{"version":"1","id":"%s"}' % CLUSTER_ID.encode(), makepath=True)
    extra = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "zookeeper.metadata.migration.enable": "true",
        "zookeeper.connect": f"{server}/{chroot[:-1]}",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    voters = Cluster(tmp_path, 3, **extra)
    voters.format()
    properties = dict(voters.settings(1).explicit)
    with caplog.at_level(logging.WARNING):
        async with controller(properties), asyncio.timeout(PATIENCE_SECONDS):
            while not said(caplog):
                await asyncio.sleep(0.01)
    assert f"Did you mean /{chroot}?" in said(caplog)[0]


async def test_another_cluster_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await check_address(lambda: "another", CLUSTER_ID, "zk:2181/other")
        await check_address(lambda: CLUSTER_ID, CLUSTER_ID, "zk:2181/kafka")
    (line,) = said(caplog)
    assert "zk:2181/other: the cluster there is another, and this quorum is of cluster " in line


async def test_a_zookeeper_that_is_away_is_told_of_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    def read() -> str:
        raise ZooKeeperUnavailableError("zk:2181", "no server answers")

    with caplog.at_level(logging.WARNING):
        await check_address(read, CLUSTER_ID, "zk:2181")
    assert not caplog.records
