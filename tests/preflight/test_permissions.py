"""How a real server judges a multi: the access control list first, then versions; and nothing of it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from migrator.preflight.permissions import look_at_permissions
from migrator.zookeeper.ops import Create, Delete, Failed, Op, SetData, ZkError
from migrator.zookeeper.permissions import IMPOSSIBLE, NO_VERSION, PROBE_NAME, WantedPaths
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from tests.conftest import ZooKeeperSpace

CLOSED = [make_digest_acl("kafka", "secret", all=True), make_acl("world", "anyone", read=True)]


@pytest.fixture
def session(zookeeper: ZooKeeperSpace) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as opened:
        yield opened


@pytest.fixture
def tree(zookeeper_client: KazooClient) -> Iterator[KazooClient]:
    """``/open`` and ``/closed``, each with a child; only the digest user may write the second."""
    client = zookeeper_client
    client.add_auth("digest", "kafka:secret")
    for path, acl in (("/open", None), ("/closed", CLOSED)):
        client.create(path, b"parent")
        client.create(f"{path}/child", b"data", acl=acl)
        if acl:
            client.set_acls(path, acl)
    client.create("/controller_epoch", b"1")
    yield client
    client.delete("/closed", recursive=True)


OPERATIONS: dict[str, Callable[[str], Op]] = {
    "set at a version that no znode has": lambda parent: SetData(f"{parent}/child", b"", NO_VERSION),
    "set at any version": lambda parent: SetData(f"{parent}/child", b""),
    "create": lambda parent: Create(f"{parent}/new", None),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_list_is_judged_before_all_else(session: ZooKeeperSession, tree: KazooClient, name: str) -> None:
    before = [tree.get(path)[1] for path in ("/open", "/closed", "/open/child", "/closed/child")]
    writer = ConditionalWriter(session)
    assert writer.write([OPERATIONS[name]("/closed"), IMPOSSIBLE]) == Failed(0, ZkError.NO_AUTH)
    culprit = 0 if "no znode has" in name else 1
    assert writer.write([OPERATIONS[name]("/open"), IMPOSSIBLE]) == Failed(culprit, ZkError.BAD_VERSION)
    assert [tree.get(path)[1] for path in ("/open", "/closed", "/open/child", "/closed/child")] == before


def test_a_deletion_is_judged_by_the_parent(session: ZooKeeperSession, tree: KazooClient) -> None:
    for parent, error in (("/open", ZkError.BAD_VERSION), ("/closed", ZkError.NO_AUTH)):
        outcome = ConditionalWriter(session).write([Delete(f"{parent}/child", NO_VERSION), IMPOSSIBLE])
        assert outcome == Failed(0, error)
    assert tree.exists("/open/child")


def test_what_may_not_be_written_is_named_with_its_owners(session: ZooKeeperSession, tree: KazooClient) -> None:
    wanted = WantedPaths(("/open", "/closed"), ("/open/child", "/closed/child"), ("/open/child", "/closed/child"))
    facts = look_at_permissions(session, wanted, (3, 9, 5))
    assert facts.probed == 6
    assert [(trouble.where, trouble.what) for trouble in facts.refused] == [
        ("/closed", "our identity world:anyone may not create znodes below it"),
        ("/closed/child", "our identity world:anyone may not set it"),
        ("/closed/child", "our identity world:anyone may not delete it: that is a right on /closed"),
    ]
    assert facts.owners["/closed"] == "digest:kafka ALL, world:anyone READ"
    assert facts.identity == ()
    assert not tree.exists(f"/open/{PROBE_NAME}")
    assert tree.get("/open/child")[0] == b"data"


def test_a_known_identity_may_write_and_is_named(session: ZooKeeperSession, tree: KazooClient) -> None:
    session.client.add_auth("digest", "kafka:secret")
    facts = look_at_permissions(session, WantedPaths(("/closed",), ("/closed/child",), ()), (3, 9, 5))
    assert facts.refused == ()
    assert facts.identity == ("digest:kafka",)
    assert not tree.exists(f"/closed/{PROBE_NAME}")


def test_without_the_znode_of_the_check_nothing_is_written_either(
    session: ZooKeeperSession, zookeeper_client: KazooClient
) -> None:
    facts = look_at_permissions(session, WantedPaths(("/",), (), ()), None)
    assert facts.refused == ()
    assert zookeeper_client.get_children("/") == []
