"""The gates of reopening name each obstacle, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from immutables import Map

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.controller.given_up import QUORUM
from migrator.controller.way_back import KEY
from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE, Acl, ConfigResource, FeaturesImage, MetadataImage
from migrator.migration.broker_file_gates import broker_file_gates
from migrator.migration.machine.guards import MarkEvidence
from migrator.migration.machine.states import PublicState
from migrator.migration.reopen_gates import ReopenFacts, reopen_gates
from migrator.records.acl_codes import ResourceType
from migrator.records.metadata import ConfigResourceType, DelegationTokenRecord, FeatureRange, ZkMigrationState
from migrator.records.uuid import Uuid
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.support.builders import CLUSTER_ID, CRC, broker, cluster, controller, standing

MARK = MigrationState(3001, 5, 1000, 4, CRC)
OURS = ControllerClaim(3001, 0, 5)
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, 32
TOKEN = DelegationTokenRecord("User:alice", "User:alice", (), 1, 2, 3, "a/b")
KNOWS_4_0 = (FeatureRange("metadata.version", 1, 22),)


def features(**levels: int) -> FeaturesImage:
    named = {name.replace("_", "."): level for name, level in {"metadata_version": 21, **levels}.items()}
    return FeaturesImage(Map(named), ZkMigrationState.POST_MIGRATION)


def image(**changes: object) -> MetadataImage:
    nodes = cluster([replace(broker(1, migrating=False), features=KNOWS_4_0)], [controller(3001)])
    return replace(EMPTY_IMAGE, features=features(), cluster=nodes, **changes)  # type: ignore[arg-type]


FINE = ReopenFacts(
    CLUSTER_ID,
    image(),
    PublicState.FINISHED,
    {3001: True, 3002: True},
    frozenset(),
    standing(controller=OURS, mark=MARK, mark_in_log=4),
)


def with_configs(kind: int, name: str, **keys: str) -> ReopenFacts:
    config = Map({key.replace("_", "."): text for key, text in keys.items()})
    return replace(FINE, image=image(configs=Map({ConfigResource(kind, name): config})))


def with_levels(**levels: int) -> ReopenFacts:
    return replace(FINE, image=replace(image(), features=features(**levels)))


def with_brokers(number: int, newest: int, oldest: int = 1) -> ReopenFacts:
    ranges = (FeatureRange("metadata.version", oldest, newest),)
    nodes = cluster([replace(broker(number, migrating=False), features=ranges)], [])
    return replace(FINE, image=replace(image(), cluster=nodes))


def with_acl(name: str) -> ReopenFacts:
    acl = Acl(ResourceType.GROUP, name, 3, "User:alice", "*", 2, 3)
    return replace(FINE, image=image(acls=Map({Uuid(bytes(16)): acl})))


def with_fault(error: OperatorError) -> ReopenFacts:
    assert FINE.standing is not None
    return replace(FINE, standing=replace(FINE.standing, fault=error))


def seen(**changes: object) -> ReopenFacts:
    return replace(FINE, standing=standing(**{"controller": OURS, "mark": MARK, "mark_in_log": 4, **changes}))  # type: ignore[arg-type]


def with_mark(evidence: MarkEvidence) -> ReopenFacts:
    assert FINE.standing is not None
    return replace(FINE, standing=replace(FINE.standing, evidence=evidence))


def test_nothing_stands_against_it() -> None:
    assert [gate.name for gate in reopen_gates(FINE) if not gate.open] == []


OBSTACLES: tuple[tuple[str, ReopenFacts, str], ...] = (
    ("state", replace(FINE, public=PublicState.DUAL_WRITE), "the migration is in DualWrite"),
    ("controllers", replace(FINE, migrating={1: True, 2: False, 3: False}), "off on controllers 2, 3"),
    ("controllers", replace(FINE, migrating={1: True, 2: None}), "no answer from controller 2"),
    ("controllers", replace(FINE, migrating={1: True, 2: True}, stock=frozenset({2})), "controller 2 .*Kafka's own"),
    ("controllers", replace(FINE, outdated=frozenset({2})), "controller 2: a release .* does not know"),
    ("sizes", replace(FINE, too_large=frozenset({"/brokers/topics/t"})), r"1 \(/brokers/topics/t\)"),
    ("permissions", replace(FINE, forbidden=("/config: our identity x may not set it",)), r"refuses: 1 \(/config: our"),
    ("zookeeper", replace(FINE, standing=None, away="connection refused"), "cannot be read: connection refused"),
    ("zookeeper", with_fault(OperatorError("it does not decode", where="/migration")), "/migration: it does"),
    ("zookeeper", replace(FINE, cluster_id="another"), f"/cluster/id is {CLUSTER_ID}, and .* of cluster another"),
    ("zookeeper", seen(epoch=None), "/controller_epoch is missing"),
    ("zookeeper", seen(controller=ControllerClaim(7, 0)), "held by broker 7"),
    ("zookeeper", replace(FINE, running=frozenset({1, 2})), "in ZooKeeper mode: brokers 1, 2"),
    ("zookeeper", seen(mark_in_log=3), "of another quorum"),
    ("features", with_levels(metadata_version=22), "at level 22"),
    ("features", with_levels(group_version=1), "group.version is at level 1"),
    ("features", with_levels(transaction_version=2), "transaction.version is at level 2"),
    (
        "configs",
        with_configs(GROUP, "readers", interval_ms="1"),
        r"configs of groups .*: 1 \(readers\)",
    ),
    ("configs", with_configs(ConfigResourceType.CLIENT_METRICS, "all", interval_ms="1"), "client metrics"),
    ("configs", with_configs(BROKER, "3001", num_io_threads="8"), "configs of controllers.*3001"),
    ("configs", with_configs(BROKER, "+03001", num_io_threads="8"), "configs of controllers.*03001"),
    ("configs", with_configs(TOPIC, "tiered", remote_log_copy_disable="true"), "topics with .*tiered"),
    ("configs", with_configs(TOPIC, "tiered", remote_log_delete_on_disable="true"), "topics with .*tiered"),
    ("names", with_acl("a/b"), r"ACLs .*: 1 \(a/b\)"),
    ("names", replace(FINE, image=image(tokens=Map({"a/b": TOKEN}))), r"delegation tokens .*: 1 \(a/b\)"),
    ("brokers", with_brokers(4, newest=20), "broker 4: no release that has metadata.version 21"),
    ("brokers", with_brokers(4, newest=25, oldest=7), "broker 4: of Kafka 4, which has no ZooKeeper mode"),
)


@pytest.mark.parametrize(("name", "facts", "words"), OBSTACLES)
def test_each_obstacle_is_named_and_nothing_else(name: str, facts: ReopenFacts, words: str) -> None:
    closed = [gate for gate in reopen_gates(facts) if not gate.open]
    assert [gate.name for gate in closed] == [name]
    assert closed[0].remedy
    assert re.search(words, closed[0].what)


@pytest.mark.parametrize(
    "facts",
    [
        with_configs(TOPIC, "orders", cleanup_policy="compact"),
        with_configs(BROKER, "", log_retention_ms="1"),
        with_configs(BROKER, "1", num_io_threads="8"),
        with_configs(BROKER, "of-no-number", num_io_threads="8"),
        with_levels(group_version=0),
        seen(mark=MigrationState(-1, -1, -1, -1), controller=None),
        with_acl("a b"),
    ],
)
def test_what_zookeeper_mode_has_is_no_obstacle(facts: ReopenFacts) -> None:
    assert [gate.what for gate in reopen_gates(facts) if not gate.open] == []


def test_a_way_back_that_was_closed_on_purpose_is_told_and_does_not_hold_up() -> None:
    facts = replace(FINE, image=replace(FINE.image, configs=Map({QUORUM: Map({KEY: "CHG-45"})})))
    assert [gate.what for gate in reopen_gates(facts) if "closed on purpose (CHG-45)" in gate.what and gate.open]


def test_a_mark_that_nothing_proves_is_told_and_does_not_hold_up() -> None:
    """Each copy of an older release has such a mark: the copy has no name."""
    (gate,) = [gate for gate in reopen_gates(with_mark(MarkEvidence(compacted=True))) if gate.name == "zookeeper"]
    assert gate.open
    assert "'migrator force reclaim' says so" in gate.what


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (with_brokers(2001, newest=21), "broker 2001: set broker.id.generation.enable=false"),
        (with_brokers(4, newest=22), "broker 4: the default of the release is another level"),
    ],
)
def test_what_the_files_of_brokers_need_is_told_and_does_not_hold_up(facts: ReopenFacts, told: str) -> None:
    (gate,) = [gate for gate in reopen_gates(facts) if gate.name == "brokers"]
    assert gate.open
    assert told in gate.what


FILE = {
    "broker.id": "2001",
    "broker.id.generation.enable": "false",
    "inter.broker.protocol.version": "3.9",
    "zookeeper.metadata.migration.enable": "true",
    "zookeeper.connect": "zk:2181",
    "authorizer.class.name": ACL_AUTHORIZER,
    "super.users": "User:a;User:b",
    "delegation.token.secret.key": "one",
}
CONTROLLER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:b;User:a",
    "delegation.token.master.key": "one",
}


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("", {}, ""),
        ("", {"super.users": "${env:SUPER_USERS}"}, ""),
        ("", {"inter.broker.protocol.version": "${env:VERSION}"}, ""),
        ("", {"broker.id.generation.enable": "${env:GENERATION}"}, ""),
        ("", {"broker.id.generation.enable": "", "reserved.broker.max.id": "${env:RESERVED}"}, ""),
        ("", {"zookeeper.metadata.migration.enable": "${env:MIGRATING}"}, ""),
        ("", {"delegation.token.secret.key": "${file:/etc/kafka/secrets:token}"}, ""),
        ("mode", {"process.roles": "broker"}, "KRaft mode"),
        ("mode", {"zookeeper.metadata.migration.enable": ""}, "migration.enable is not true"),
        ("mode", {"zookeeper.connect": ""}, "zookeeper.connect is not set"),
        ("protocol version", {"inter.broker.protocol.version": "3.8"}, "is 3.8, and .* is 3.9-IV0"),
        ("protocol version", {"inter.broker.protocol.version": ""}, "is not set, and"),
        ("ids", {"broker.id.generation.enable": ""}, r"broker.id 2001 is above reserved.broker.max.id \(1000\)"),
        ("authorizer", {"authorizer.class.name": STANDARD_AUTHORIZER}, "no access control list in ZooKeeper mode"),
        ("authorizer", {"authorizer.class.name": ""}, "everybody could do everything"),
        ("authorizer", {"super.users": "User:a"}, "differ from those of the controllers in User:b"),
        ("secrets", {"delegation.token.secret.key": "other"}, "differs from that of the controllers"),
        ("secrets", {"delegation.token.secret.key": ""}, "is on one side only"),
    ],
)
def test_each_obstacle_in_a_file_of_a_broker_is_named(name: str, changed: dict[str, str], words: str) -> None:
    gates = broker_file_gates({"server.properties": FILE, "b1": {**FILE, **changed}}, CONTROLLER, "3.9-IV0")
    closed = [gate for gate in gates if not gate.open]
    assert [gate.name for gate in closed] == ([f"files, {name}"] if name else [])
    for gate in closed:
        assert gate.remedy
        assert re.search(f"b1: .*{words}", gate.what)
        assert "other" not in gate.what
