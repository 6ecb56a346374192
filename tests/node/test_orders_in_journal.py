"""Every order, by every door, is in the journal with who gave it and from where. A new order needs a row here."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.apis.audit import CHANGES
from migrator.apis.authorization import Audited, Trail, Unlimited
from migrator.apis.call import ApiKind
from migrator.apis.registry import APIS
from migrator.config.load import settings_from
from migrator.errors import OperatorError
from migrator.machine import running_on
from migrator.migration.machine.states import OVERRIDES, State
from migrator.migration.machine.volatile_state import Situation
from migrator.node.orders import ORDERS, KafkaOrders, opened_journal
from migrator.node.rollout_lock import RolloutLockKeeper
from migrator.node.status_source import NodeStatusSource
from migrator.node.voter_orders import VoterOrders
from migrator.node.way_back import WayBackKeeper
from migrator.observe.journal import Journal
from migrator.observe.status import Force, JournalEvent, Orderer
from migrator.observe.voters import VoterOrder
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.rpc.identity import DOORS, local_user
from migrator.rpc.identity import ORDERS as MAY_ORDER
from migrator.wire.principal import Principal
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import CONTROLLER_APIS, build, request_type, response_type
from tests.node.migration.test_orders import Runtime, insight
from tests.node.support.cluster import CLUSTER_ID, FOLLOWS, until
from tests.node.support.dynamic import dynamic
from tests.observe.test_journal import FullDisk

ALICE = Orderer("User:CN=alice", "ipv4:10.0.0.1:4711")
DIRECTORY = uuid.UUID(int=7)
METADATA = "__cluster_metadata"
KAFKA: dict[int, tuple[dict[str, Any], dict[str, Any], str]] = {
    45: (
        {"topics": (
            {"name": METADATA, "partitions": ({"partition_index": 0, "replicas": (1, 2, 4)},)},
            {"name": "t", "partitions": ({"partition_index": 0, "replicas": (1,)},)},
        )},
        {"responses": ({"name": METADATA, "partitions": ({"partition_index": 0},)},)},
        "AlterPartitionReassignments: __cluster_metadata-0 to 1,2,4",
    ),
    57: (
        {"feature_updates": ({"feature": "metadata.version", "max_version_level": 21, "upgrade_type": 1},)},
        {}, "UpdateFeatures: metadata.version to level 21",
    ),
    64: ({"broker_id": 3}, {}, "UnregisterBroker: broker 3"),
    80: ({"voter_id": 4, "voter_directory_id": DIRECTORY}, {}, f"AddRaftVoter: voter 4, directory {DIRECTORY}"),
    81: ({"voter_id": 4, "voter_directory_id": DIRECTORY}, {}, f"RemoveRaftVoter: voter 4, directory {DIRECTORY}"),
    82: ({"voter_id": 4, "voter_directory_id": DIRECTORY}, {}, f"UpdateRaftVoter: voter 4, directory {DIRECTORY}"),
}  # fmt: skip
"""By API: request, answer, and the text."""
OF_METADATA = frozenset({19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 49, 51})
"""Orders of clients about their topics, configurations and access: they are in the log of the authorizer."""
OF_BROKERS = frozenset({1, 52, 53, 54, 55, 56, 59, 62, 63, 67, 70, 73})
"""Requests that brokers and controllers send by themselves, and questions."""
GRPC = {"Pause", "Resume", "Force", "Reopen", "CloseWayBack", "ReportVerdict", "RolloutLock", "Reassign"}
"""Each has a test below, in tests/doors/test_orders.py, or in tests/node/migration."""


@contextmanager
def journal_in(directory: Path) -> Iterator[Journal]:
    journal = Journal(directory, 1 << 20)
    yield journal
    journal.close()


def who(event: JournalEvent) -> tuple[str, str]:
    details = dict(event.details)
    return details["by"], details["address"]


def test_each_api_and_each_call_is_an_order_or_is_known_to_be_none() -> None:
    changing = {key for key, row in APIS.items() if row.kind in (ApiKind.WRITE, ApiKind.RAFT)}
    assert changing == KAFKA.keys() | OF_METADATA | OF_BROKERS
    assert KAFKA.keys() == ORDERS
    by_operators = {key for key, row in APIS.items() if row.cluster_operation in CHANGES and key in changing}
    assert by_operators <= KAFKA.keys() | OF_METADATA
    assert {call.rpartition("/")[2] for call, door in DOORS.items() if door.roles == MAY_ORDER} == GRPC


def context_of(key: int, principal: str, host: str) -> RequestContext:
    return RequestContext(key, CONTROLLER_APIS[key].max, 1, "c", Principal("User", principal), "CONTROLLER", host)


def told(journal: Journal, key: int, answer: dict[str, Any] | None, **changes: Any) -> list[JournalEvent]:
    fields, granted, _ = KAFKA[key]
    version, trail, before = CONTROLLER_APIS[key].max, Trail(), len(journal.after(-1))
    Audited(Unlimited(), trail).allows(AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    body = build(request_type(key, version), **fields, **changes)
    response = None if answer is None else build(response_type(key, version), **granted | answer)
    KafkaOrders(journal).tell(
        context_of(key, "bob", "10.0.0.9"), context_of(58, "broker", "10.0.0.1"), body, response, trail
    )
    return journal.after(-1)[before:]


@pytest.mark.parametrize("key", KAFKA)
def test_an_order_through_kafkas_protocol(key: int, tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        (event,) = told(journal, key, {})
        assert (event.kind, event.text, *who(event)) == ("order", KAFKA[key][2], "User:bob", "10.0.0.9")
        assert dict(event.details)["forwarded_by"] == "User:broker at 10.0.0.1"
        (unanswered,) = told(journal, key, None)
        assert unanswered.text == f"{KAFKA[key][2]} (NOT_ANSWERED)"
        if key != 45:
            refused = ErrorCode.cluster_authorization_failed
            assert told(journal, key, {"error_code": refused}) == []
            assert told(journal, key, {"error_code": ErrorCode.not_leader_or_follower}) == []
            assert len(told(journal, key, {"error_code": ErrorCode.request_timed_out})) == 1, "it may be in the log"
        if key == 57:
            assert told(journal, key, {}, validate_only=True) == []


async def test_an_entry_that_waits_for_the_disk_is_shown_and_once_more_with_its_number(tmp_path: Path) -> None:
    disk = FullDisk()
    with running_on(disk), journal_in(tmp_path) as journal:
        journal.append(1, "order", "first")
        disk.room = 0
        journal.note(2, "transition", "waits")
        nothing: Any = SimpleNamespace(node_id=1)
        source = NodeStatusSource(nothing, nothing, FOLLOWS, journal.after)
        shown = [(event.sequence, event.text) async for event in source.journal(0, follow=False)]
        assert shown == [(1, "first"), (0, "waits")]
        follows = source.journal(0, follow=True)
        assert [(await anext(follows)).sequence for _ in shown] == [1, 0]
        disk.room = 1 << 20
        journal.append(3, "order", "second")
        assert [(await anext(follows)).sequence for _ in range(2)] == [2, 3]


def test_an_order_of_others_through_the_same_api_is_none(tmp_path: Path) -> None:
    row = {"name": "t", "partitions": ({"partition_index": 0, "replicas": (1,)},)}
    body = build(request_type(45, 0), topics=(row,))
    trail = Trail()
    Audited(Unlimited(), trail).allows(AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    with journal_in(tmp_path) as journal:
        KafkaOrders(journal).tell(context_of(45, "bob", "h"), None, body, build(response_type(45, 0)), trail)
        assert journal.after(-1) == []


FORCES = {Force.RECLAIM: State.REFUSED, Force.DELETES: State.HOLDING, Force.RECONCILE: State.DUAL_WRITING}
"""``finish`` is noted by `LeavingOut`, see tests/node/migration/test_left_out.py."""


@pytest.mark.parametrize("kind", Force)
async def test_what_is_forced(kind: Force) -> None:
    if kind is Force.FINISH:
        return
    facts = ("a fact",) if kind in OVERRIDES else ()
    runtime = Runtime(FORCES[kind], Situation("refused", "Look.", facts))
    await insight(runtime).force(kind, "CHG-1", ALICE, overrides=facts)
    noted = runtime.seen[0]
    assert isinstance(noted, tuple)
    assert noted[:2] == ("force", "CHG-1")
    assert ALICE.details.items() <= noted[2].items()


async def test_orders_about_voters_and_the_lock_of_a_rollout_are_noted_before_they_happen(tmp_path: Path) -> None:
    """An order counts although its caller hangs up meanwhile."""
    async with dynamic(tmp_path, 4, 3) as cluster:
        leader = await cluster.leader()
        own = leader.quorum.leader_id
        assert own is not None
        journal = cluster.journals[own]
        orders = VoterOrders(cluster.settings(own), leader, cluster.plans[own], journal)
        await orders.reassign(VoterOrder.TO, "1,2,3", CLUSTER_ID, ALICE)
        await orders.reassign(VoterOrder.CANCEL, "", CLUSTER_ID, ALICE)
        await orders.reassign(VoterOrder.ADD, "4", CLUSTER_ID, ALICE)
        await orders.reassign(VoterOrder.CANCEL, "", CLUSTER_ID, ALICE)
        lock = RolloutLockKeeper(own, leader, journal)
        await lock.move("", "taken by alice", ALICE)
        with pytest.raises(OperatorError, match="Give --reason"):
            await WayBackKeeper(leader, journal).close(" ", ALICE)
        with pytest.raises(OperatorError, match="is not finished"):
            await WayBackKeeper(leader, journal).close("CHG-45", ALICE)
        found = [event for event in journal.after(-1) if "by" in dict(event.details)]
        assert [(event.kind, event.text) for event in found] == [
            ("voters", "the operator has ordered: the voters shall be 1,2,3"),
            ("voters", "the operator has ordered: the voters stay what they are"),
            ("voters", "the operator has ordered: the voters shall be 1,2,3,4"),
            ("voters", "the operator has ordered: the voters stay what they are"),
            ("rollout lock", "the lock of the rollout has been taken"),
        ]
        assert {who(event) for event in found} == {(ALICE.name, ALICE.address)}
        before = len(journal.after(-1))
        cluster.wires.cut.update(cluster.nodes)  # nothing is committed any more
        task = asyncio.create_task(orders.reassign(VoterOrder.TO, "1,2,3", CLUSTER_ID, ALICE))
        await until(lambda: len(journal.after(-1)) > before, "the order is noted")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert journal.after(-1)[before].text == "the operator has ordered: the voters shall be 1,2,3"
        cluster.wires.cut.clear()


def test_orders_of_the_property_file_are_noted_when_they_change(tmp_path: Path) -> None:
    keys = {
        "process.roles": "controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER", "listeners": "CONTROLLER://localhost:9093",
        "log.dirs": str(tmp_path), "zookeeper.connect": "localhost:1",
    }  # fmt: skip
    flag = "zookeeper.metadata.migration.enable"
    for value in ("true", "true", "false"):
        more = {"inter.broker.listener.name": "PLAINTEXT"} if value == "true" else {}
        opened_journal(settings_from(keys | more | {flag: value}, "the file")[0]).close()
    with journal_in(tmp_path) as journal:
        first, second = journal.after(-1)
    assert (first.kind, *who(first)) == ("settings", local_user(tmp_path.stat().st_uid), "the file")
    assert f"{flag}=true, " in first.text
    assert "controller.quorum.voters=1@localhost:9093" in first.text
    assert f"{flag}=false, " in second.text
