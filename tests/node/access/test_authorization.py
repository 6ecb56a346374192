"""Callers that get in while the access control entries are loaded, and the authorizer that follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster
from migrator.controller.acls import CLUSTER_NAME
from migrator.controller.context import Context
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.migration_gate import Operation
from migrator.image.model import Acl, MetadataImage
from migrator.image.security import acl_record
from migrator.node.access.authorization import Authorization
from migrator.node.core import NodeCore
from migrator.node.endpoint import ControllerEndpoint
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import MetadataRecord, RemoveAccessControlEntryRecord
from migrator.turns import TURN_RECORDS, give_back
from migrator.wire.principal import Principal
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import ENVELOPE, build, request_type
from migrator.wire.schemas import LIST_PARTITION_REASSIGNMENTS as LIST_REASSIGNMENTS
from tests.calls import CallCounter
from tests.controller.support.leading_controller import some_uuid
from tests.node.support.cluster import Cluster, running, until
from tests.wire.test_envelope import envelope

DENY, ALLOW = 2, 3
BOB, ROOT = Principal("User", "bob"), Principal("User", "root")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "allow.everyone.if.no.acl.found": "true",
}


def deny_bob(topic: str) -> Acl:
    return Acl(ResourceType.TOPIC, topic, 3, "User:bob", "*", AclOperation.ALL, DENY)


async def write(node: NodeCore, *records: MetadataRecord) -> None:
    def decide(_image: MetadataImage, _context: Context) -> Decision[None]:
        return Decision(None, records)

    await node.controller.write(Operation.CREATE_ACLS, decide)


def may_read(authorization: Authorization, who: Principal, topic: str = "t") -> bool:
    return authorization.access_of(who, "1.2.3.4").allows(AclOperation.READ, ResourceType.TOPIC, topic)


def is_broker(authorization: Authorization, who: Principal) -> bool:
    return allows_cluster(authorization.access_of(who, "1.2.3.4"), AclOperation.CLUSTER_ACTION)


async def until_answered(authorization: Authorization, who: Principal) -> None:
    """Wait turn by turn: each turn takes more entries in."""
    while True:
        try:
            is_broker(authorization, who)
        except RefusedError:
            await give_back()
        else:
            return


async def test_nobody_but_super_users_gets_in_before_the_entries_are_loaded(tmp_path: Path) -> None:
    async with running(tmp_path, 2, **AUTHORIZER) as cluster:
        node = await cluster.leader()
        await write(node, acl_record(some_uuid(1), deny_bob("t")))
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        node = cluster.start(1)  # alone, it can learn of nothing that is committed
        authorization = Authorization(cluster.settings(1), node.metadata, cluster.failures.append)
        assert may_read(authorization, ROOT)
        with pytest.raises(RefusedError) as refusal:
            may_read(authorization, BOB)
        assert refusal.value.error.code is ErrorCode.unknown_server_error
        cluster.start(2)
        await until(lambda: node.metadata.has_reached_high_watermark, "the high watermark")
        assert not may_read(authorization, BOB)
        assert may_read(authorization, BOB, "other")
        await cluster.stop(2)  # and what was ready stays so
        assert not may_read(authorization, BOB)


@pytest.mark.parametrize("broker", [ROOT, BOB], ids=["a super user", "by an entry"])
async def test_a_broker_that_forwards_asks_again_while_the_entries_are_loaded(
    tmp_path: Path, broker: Principal
) -> None:
    """Its client used to get a final UNKNOWN_SERVER_ERROR."""
    async with running(tmp_path, 2, **AUTHORIZER) as cluster:
        await cluster.leader()
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        node = cluster.start(1)  # alone, it can learn of nothing that is committed
        unused: Any = None
        endpoint = ControllerEndpoint(
            cluster.settings(1),
            node.metadata,
            node.controller,
            unused,
            quorum_answers={},
            read_context=unused,
            on_failure=cluster.failures.append,
        )
        context = RequestContext(ENVELOPE, 0, 1, "broker", broker, "CONTROLLER", "127.0.0.1")
        answer = await endpoint.handle(context, envelope(build(request_type(LIST_REASSIGNMENTS, 0), topics=None)))
        assert answer.error_code is ErrorCode.not_controller
        cluster.start(2)


async def test_the_authorizer_follows_each_change(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **AUTHORIZER) as cluster:
        node = await cluster.leader()
        authorization = Authorization(cluster.settings(1), node.metadata, cluster.failures.append)
        assert may_read(authorization, BOB)
        await write(node, acl_record(some_uuid(1), deny_bob("t")))
        assert not may_read(authorization, BOB)
        await write(node, RemoveAccessControlEntryRecord(some_uuid(1)))
        assert may_read(authorization, BOB)


async def test_a_change_is_followed_at_the_price_of_a_change(tmp_path: Path) -> None:
    """Before, each change arranged all entries anew."""
    async with running(tmp_path, 1, **AUTHORIZER) as cluster:
        node = await cluster.leader()
        count = 10 * TURN_RECORDS
        await write(node, *(acl_record(some_uuid(number), deny_bob(f"t{number}")) for number in range(count)))
        authorization = Authorization(cluster.settings(1), node.metadata, cluster.failures.append)
        await until(lambda: may_read(authorization, BOB), "ready")
        with CallCounter() as counter:
            await write(node, acl_record(some_uuid(count), deny_bob("t")))
            assert not may_read(authorization, BOB)
        assert counter.calls < count


async def test_nobody_gets_in_while_many_changes_are_taken_in_over_several_turns(tmp_path: Path) -> None:
    """As after the copy from ZooKeeper, when no entry is known. Everybody used to get in until all of them were."""
    async with running(tmp_path, 1, **AUTHORIZER) as cluster:
        node = await cluster.leader()
        authorization = Authorization(cluster.settings(1), node.metadata, cluster.failures.append)
        assert may_read(authorization, BOB, "t0"), "no entry is known, as before the copy"
        count = 5 * TURN_RECORDS
        await write(node, *(acl_record(some_uuid(number), deny_bob(f"t{number}")) for number in range(count)))
        with pytest.raises(RefusedError) as refusal:
            may_read(authorization, BOB, "t0")
        assert refusal.value.error.code is ErrorCode.unknown_server_error
        assert may_read(authorization, ROOT, "t0")
        await write(node, acl_record(some_uuid(count), deny_bob("last")))
        await until(lambda: authorization._work is None, "the last entry")
        assert not any(may_read(authorization, BOB, f"t{number}") for number in range(count))
        assert not may_read(authorization, BOB, "last")
        assert may_read(authorization, BOB, "other")


async def test_brokers_get_in_before_all_entries_are_taken_in(tmp_path: Path) -> None:
    """Their heartbeats used to be refused for as long as the entries of all topics took: a broker is fenced then."""
    broker = Acl(ResourceType.CLUSTER, CLUSTER_NAME, 3, "User:bob", "*", AclOperation.CLUSTER_ACTION, ALLOW)
    async with running(tmp_path, 1, **AUTHORIZER) as cluster:
        node = await cluster.leader()
        authorization = Authorization(cluster.settings(1), node.metadata, cluster.failures.append)
        assert is_broker(authorization, BOB)
        count = 5 * TURN_RECORDS
        topics = [acl_record(some_uuid(number), deny_bob(f"t{number}")) for number in range(count)]
        await write(node, *topics, acl_record(some_uuid(count), broker))
        with pytest.raises(RefusedError):
            is_broker(authorization, BOB)
        await until_answered(authorization, BOB)
        assert is_broker(authorization, BOB)
        assert not is_broker(authorization, Principal("User", "carol"))
        with pytest.raises(RefusedError):
            may_read(authorization, BOB, "t0")


def test_a_node_without_an_authorizer_lets_everybody_in(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    authorization = Authorization(cluster.settings(1), None, cluster.failures.append)  # type: ignore[arg-type]  # it has nothing to follow
    assert may_read(authorization, BOB)
