"""ZooKeeper that does not let us: a right is missing at each step in turn, and a name that nobody knows any more."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, make_acl
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import zookeeper_client
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions, ZooKeeperSasl
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.logins import JaasEntry
from migrator.zookeeper.ops import FORBIDDEN_REMEDY
from migrator.zookeeper.session import SessionOptions, default_acl
from migrator.zookeeper.znodes import paths
from tests.faults.support.cluster import FaultCluster, cluster_in, every_znode, start_all
from tests.faults.support.requests import REQUEST_SECONDS, create_topic
from tests.parts.support.jaas import client_jaas

USER, PASSWORD = "kafka", "the-password-of-kafka"
RENAMED = "kafka-renamed"
ADMIN = "admin"
IDENTITY = f"sasl:{USER}"
CHROOT = "/kafka"
TOPIC, GOES = PLAIN_TOPIC + "000007", PLAIN_TOPIC + "000008"
DELETE_TOPICS, ALTER_CONFIGS = (20, 6), (44, 1)


class Server:
    """A ZooKeeper that serves only who logs in; an administrator may do everything."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running = self.with_user(USER)
        self.admin = replace(self.access(ADMIN), set_acl=False)
        self.kafka = self.access(USER)

    @property
    def hosts(self) -> str:
        return self.running.hosts + CHROOT

    def with_user(self, name: str, port: int | None = None) -> EmbeddedZooKeeper:
        """A server on the same data that knows the brokers by that name."""
        users = ZooKeeperSasl({name: PASSWORD, ADMIN: PASSWORD})
        options = ZooKeeperOptions(sasl=users, system_properties={"zookeeper.superUser": ADMIN})
        return EmbeddedZooKeeper(self.directory / "zookeeper", port=port, options=options)

    def access(self, user: str) -> SessionOptions:
        jaas = self.directory / f"{user}.conf"
        jaas.write_text(client_jaas(user, PASSWORD))
        return SessionOptions(self.hosts, set_acl=True, jaas=JaasEntry(str(jaas)))

    def make_chroot(self) -> None:
        with zookeeper_client(replace(self.kafka, hosts=self.running.hosts)) as client:
            client.create(CHROOT, acl=list(default_acl(CHROOT, set_acl=True)))

    def cluster(self) -> AbstractAsyncContextManager[FaultCluster]:
        """Its controllers have a JAAS file of their own, with the same name in it."""
        own = self.directory / "controllers.conf"
        own.write_text(client_jaas(USER, PASSWORD))
        return cluster_in(
            self.directory,
            self.hosts,
            access=self.kafka,
            controllers=1,
            brokers=2,
            partitions=20,
            zookeeper_set_acl="true",
            migrator_zookeeper_jaas_file=str(own),
        )


@contextmanager
def only(admin: KazooClient, path: str, **rights: bool) -> Iterator[None]:
    """A while in which the brokers' identity has just these rights to a znode."""
    before, _ = admin.get_acls(path)
    admin.set_acls(path, [make_acl("sasl", USER, **rights)])
    yield
    admin.set_acls(path, before)


def below(client: KazooClient, path: str) -> dict[str, tuple[int, int]]:
    return {found: at for found, at in every_znode(client).items() if found.startswith(f"{path}/")}


def wrong_lists(admin: KazooClient) -> list[str]:
    """Znodes that have another access control list than stock Kafka would have given them."""
    found = []
    for path in every_znode(admin).keys() - {"/"}:
        listed, _ = admin.get_acls(path)
        expected = [
            replace_id(each, "sasl", USER) if each.id.scheme == "auth" else each
            for each in default_acl(path, set_acl=True)
        ]
        if set(listed) != set(expected):
            found.append(f"{path}: {listed}")
    return found


def replace_id(each: ACL, scheme: str, name: str) -> ACL:
    return ACL(each.perms, Id(scheme, name))


async def ask(channel: ControllerChannel, key: tuple[int, int], **fields: Any) -> Any:
    request = build(request_type(*key), **fields)
    return (await channel.request(request, timeout_seconds=REQUEST_SECONDS)).responses[0].error_code


async def set_retention(channel: ControllerChannel, topic: str, ms: int) -> None:
    config = {"name": "retention.ms", "config_operation": 0, "value": str(ms)}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    assert await ask(channel, ALTER_CONFIGS, resources=[resource], validate_only=False) is ErrorCode.none


async def delete(channel: ControllerChannel, topic: str) -> None:
    timeout = dt.timedelta(seconds=REQUEST_SECONDS)
    rows = [{"name": topic, "topic_id": None}]
    assert await ask(channel, DELETE_TOPICS, topics=rows, timeout=timeout) is ErrorCode.none


async def test_each_right_that_is_missing_is_named_and_nothing_is_half_changed(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with server.running:
        server.make_chroot()
        async with server.cluster() as cluster:
            with zookeeper_client(server.admin) as admin:
                await before_the_claim(cluster, admin)
                await in_dual_write(cluster, admin)
                (controller,) = cluster.controllers
                assert await asyncio.to_thread(controller.stop) == ExitCode.OK
                assert wrong_lists(admin) == []
        secrets = [file for file in controller.directory.rglob("*") if file.is_file()]
        assert [file for file in secrets if PASSWORD.encode() in file.read_bytes()] == []


async def before_the_claim(cluster: FaultCluster, admin: KazooClient) -> None:
    """Reading, taking /controller_epoch, and deleting the /controller of the brokers."""
    before = every_znode(admin)
    with ExitStack() as stack:
        closed = [stack.enter_context(ExitStack()) for _ in range(3)]
        cases: list[tuple[str, dict[str, bool], tuple[str, ...]]] = [
            (f"{paths.TOPIC_CONFIGS}/{TOPIC}", {"write": True}, ("read",)),
            (paths.CONTROLLER_EPOCH, {"read": True}, ("set",)),
            ("/", {"read": True, "write": True, "create": True}, (paths.CONTROLLER, "delete")),
        ]
        for each, (path, rights, _) in zip(closed, cases, strict=True):
            each.enter_context(only(admin, path, **rights))
        start_all(cluster)
        for each, (path, _, said) in zip(closed, cases, strict=True):
            await cluster.until_problem(path, IDENTITY, FORBIDDEN_REMEDY, *said)
            now = every_znode(admin)
            assert {path: at[0] for path, at in now.items() if path in before} == {
                path: at[0] for path, at in before.items()
            }
            assert paths.MIGRATION not in now
            each.close()
    await cluster.until_converged()


async def in_dual_write(cluster: FaultCluster, admin: KazooClient) -> None:
    """Setting, creating and deleting while the migration runs."""
    config = f"{paths.TOPIC_CONFIGS}/{TOPIC}"
    with only(admin, config, read=True):
        await set_retention(cluster.client, TOPIC, 7_200_001)
        await cluster.until_problem(f"{IDENTITY} write {config}", f"WRITE on {config}", FORBIDDEN_REMEDY)
        assert b"7200001" not in admin.get(config)[0]
    await cluster.until_converged()
    assert b"7200001" in admin.get(config)[0]

    with only(admin, paths.TOPICS, read=True, write=True):
        assert await create_topic(cluster.client, "new") is ErrorCode.none
        await cluster.until_problem(f"{IDENTITY} create {paths.topic('new')}", f"CREATE on {paths.TOPICS}")
        assert admin.exists(paths.topic_config("new")) is None
    await cluster.until_converged()
    assert admin.exists(paths.partition_state("new", 1))

    topic = paths.topic(GOES)
    before = below(admin, topic)
    assert before
    with only(admin, topic, read=True, write=True, create=True):
        await delete(cluster.client, GOES)
        await cluster.until_problem(f"{IDENTITY} delete {topic}/partitions", f"DELETE on {topic} is missing")
        assert below(admin, topic) == before
        assert admin.exists(paths.topic_config(GOES))
    await cluster.until_converged()
    assert admin.exists(topic) is None


@pytest.mark.lane("test-long")
async def test_a_name_that_zookeeper_no_longer_knows_is_an_outage_of_it_alone(tmp_path: Path) -> None:
    server = Server(tmp_path)
    own = tmp_path / "controllers.conf"
    first = server.running
    renamed, back = (server.with_user(name, first.port) for name in (RENAMED, USER))
    with ExitStack() as servers:
        servers.enter_context(first)
        server.make_chroot()
        async with server.cluster() as cluster:
            start_all(cluster)
            await cluster.until_converged()

            first.kill()
            await asyncio.to_thread(servers.enter_context, renamed)
            await cluster.until_problem(f"the SASL login as {USER} (DIGEST-MD5) failed", "unknown name, wrong password")
            assert await create_topic(cluster.client, "meanwhile") is ErrorCode.none

            own.write_text(client_jaas(RENAMED, PASSWORD))
            await cluster.until_problem(f"sasl:{RENAMED}", "NO_AUTH", FORBIDDEN_REMEDY)

            renamed.kill()
            own.write_text(client_jaas(USER, PASSWORD))
            await asyncio.to_thread(servers.enter_context, back)
            await cluster.until_converged()
            with zookeeper_client(server.admin) as admin:
                assert admin.exists(paths.partition_state("meanwhile", 1))
                assert wrong_lists(admin) == []
            assert await asyncio.to_thread(cluster.controllers[0].stop) == ExitCode.OK
