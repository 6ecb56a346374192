"""Where clusters are found on a ZooKeeper, and what is said when none is at an address."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from migrator.zookeeper import clusters
from migrator.zookeeper.clusters import NoClusterError, chroots_of_clusters, read_cluster_id
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace


def make(client: KazooClient, *chroots: str) -> None:
    for chroot in chroots:
        client.create(chroot + paths.CLUSTER_ID, encode_cluster_id("here"), makepath=True)


def found(zookeeper: ZooKeeperSpace) -> list[str]:
    """Chroots of the test's own, without the test's chroot."""
    with ZooKeeperSession(SessionOptions(zookeeper.server)) as session:
        return [
            it.removeprefix(zookeeper.chroot) for it in chroots_of_clusters(session) if it.startswith(zookeeper.chroot)
        ]


def test_clusters_are_found_some_names_deep_and_not_below_another(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    make(zookeeper_client, "/b", "/a/deep", "/b/inner", "/a/far/down/below")
    assert found(zookeeper) == ["/b", "/a/deep"]


def test_what_may_not_be_read_is_passed_over(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    make(zookeeper_client, "/open", "/shut/in")
    zookeeper_client.set_acls("/shut", [make_digest_acl("other", "secret", all=True)])
    assert found(zookeeper) == ["/open"]
    zookeeper_client.add_auth("digest", "other:secret")
    zookeeper_client.delete("/shut", recursive=True)


def test_no_more_than_so_many_znodes_are_looked_at(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(zookeeper_client, *(f"/{number:02}" for number in range(20)))
    monkeypatch.setattr(clusters, "ZNODES_MAX", 11)
    assert len(found(zookeeper)) <= 10


def test_the_id_is_read_or_the_right_chroot_named(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    make(zookeeper_client, "/kafka")
    with ZooKeeperSession(SessionOptions(f"{zookeeper.hosts}/kafka")) as session:
        assert read_cluster_id(session) == "here"
    with ZooKeeperSession(SessionOptions(zookeeper.server)) as session, pytest.raises(NoClusterError) as wrong:
        read_cluster_id(session)
    assert wrong.value.where == zookeeper.server
    assert wrong.value.remedy.startswith("Did you mean ")
    assert f"{zookeeper.chroot}/kafka" in wrong.value.remedy


@pytest.mark.parametrize(
    ("hosts", "chroots", "remedy"),
    [
        (
            "zk1:2181,zk2:2181",
            ("/kafka",),
            "Did you mean /kafka? A Kafka cluster is there: write zk1:2181,zk2:2181/kafka",
        ),
        ("zk:2181/kafka", ("",), "Did you mean zk:2181, without a chroot? A Kafka cluster is there"),
        ("zk:2181/c", ("/a", "/b"), "Did you mean one of /a, /b? Kafka clusters are there: write zk:2181/CHROOT"),
        ("zk:2181/c", tuple(f"/{n}" for n in range(8)), "Did you mean one of /0, /1, /2, /3, /4 and 3 more? "),
        ("zk:2181/c", (), "No cluster was found at another chroot of zk:2181 either. "),
    ],
)
def test_what_is_said(hosts: str, chroots: tuple[str, ...], remedy: str) -> None:
    error = NoClusterError(hosts, chroots)
    assert error.remedy.startswith(remedy)
    assert str(error).startswith(f"{hosts}: no Kafka cluster is here: /cluster/id is missing. ")
