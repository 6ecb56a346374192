"""The handlers translate requests and answers; the decisions know nothing of these parts."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Authorizer
from migrator.apis.fields import uuid_out
from migrator.config.types import Secret
from migrator.controller.acl_index import AclIndex
from migrator.controller.quorum_target import KEY, RESOURCE, target_of
from migrator.image.model import Acl
from migrator.image.security import acl_record
from migrator.records.acl_codes import AclOperation, AclPermission, ResourceType
from migrator.records.metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    ConfigResourceType,
    PartitionChangeRecord,
    QuotaEntity,
    RegisterBrokerRecord,
)
from migrator.records.uuid import Uuid
from tests.apis.support.asking import ask, call
from tests.controller.support.leading_controller import CLUSTER_ID, LeadingController, some_uuid
from tests.raft.support.reassignment import wanted

LISTENER = {"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}
FEATURE = {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 21}


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController()
    controller.start([1, 2])
    controller.create("t", (1, 2))
    return controller


def wire(number: int) -> uuid.UUID | None:
    return uuid_out(some_uuid(number))


def access(controller: LeadingController, *acls: Acl) -> Any:
    """Access of alice by these entries."""
    controller.write(*(acl_record(some_uuid(500 + number), acl) for number, acl in enumerate(acls)))
    return Authorizer(AclIndex.of(controller.image.acls), (), allow_if_no_acl=False).access_of("User:alice", "1.2.3.4")


def may(operation: AclOperation, kind: ResourceType, name: str) -> Acl:
    return Acl(kind, name, 3, "User:alice", "*", operation, AclPermission.ALLOW)


@pytest.mark.parametrize("version", range(5))
def test_a_broker_registers_and_comes_up(version: int) -> None:
    controller = LeadingController(level=13 if version < 2 else 21)
    asked = call(
        62, version, broker_id=7, cluster_id=CLUSTER_ID, incarnation_id=wire(7), listeners=(LISTENER,),
        features=(FEATURE,), rack="r", log_dirs=(wire(8),),
    )  # fmt: skip
    epoch = ask(controller, asked).broker_epoch
    assert epoch == controller.next_offset - 1
    record = controller.history[-1]
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_id, record.incarnation_id, record.rack) == (7, some_uuid(7), "r")
    beat = call(63, 0, broker_id=7, broker_epoch=epoch, current_metadata_offset=epoch)
    answer = ask(controller, beat)
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)


def test_what_a_heartbeat_reports_is_noted_when_it_is_appended(controller: LeadingController) -> None:
    """The contact is not: it is noted on arrival, see tests/node/test_heard_of.py."""
    epoch, contact_ms = controller.image.cluster.brokers[1].epoch, controller.now_ms
    controller.now_ms += 500
    ask(controller, call(63, broker_id=1, broker_epoch=epoch, current_metadata_offset=77))
    session = controller.sessions.get(1)
    assert session is not None
    assert (session.last_contact_ms, session.metadata_offset) == (contact_ms, 77)


@pytest.mark.parametrize(
    ("version", "unknown", "ineligible"),
    [(0, 3, 55), (1, 3, 55), (2, 100, 107), (3, 100, 107)],
)
def test_alter_partition_speaks_each_versions_error_codes(
    controller: LeadingController, version: int, unknown: int, ineligible: int
) -> None:
    controller.register(3)
    controller.create("u", (1, 3))
    epoch = controller.image.cluster.brokers[1].epoch

    def partition(*isr: int) -> dict[str, Any]:
        return {
            "partition_index": 0,
            "new_isr": isr,
            "new_isr_with_epochs": tuple({"broker_id": b, "broker_epoch": -1} for b in isr),
        }

    ids = {name: uuid_out(topic_id) for name, topic_id in controller.image.topics.ids.items()}
    topics = (
        {"topic_name": "t", "topic_id": ids["t"], "partitions": (partition(1),)},
        {"topic_name": "nope", "topic_id": wire(99), "partitions": (partition(1),)},
        {"topic_name": "u", "topic_id": ids["u"], "partitions": (partition(1, 3),)},
    )
    response = ask(controller, call(56, version, broker_id=1, broker_epoch=epoch, topics=topics))
    rows = [topic.partitions[0] for topic in response.topics]
    assert [row.error_code for row in rows] == [0, unknown, ineligible]
    assert (rows[0].leader_id, rows[0].isr, rows[0].partition_epoch) == (1, (1,), 1)
    assert controller.partition("t").isr == (1,)


def test_alter_partition_with_a_zero_topic_id(controller: LeadingController) -> None:
    epoch = controller.image.cluster.brokers[1].epoch
    topics = ({"topic_id": None, "partitions": ({"partition_index": 0},)},)
    response = ask(controller, call(56, 3, broker_id=1, broker_epoch=epoch, topics=topics))
    assert response.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id


def test_alter_partition_to_a_recovery_state_that_does_not_exist(controller: LeadingController) -> None:
    """A stock controller resigns upon it, so that the comparison with it can't ask."""
    epoch = controller.image.cluster.brokers[1].epoch
    topic_id = uuid_out(controller.image.topics.ids["t"])
    topics = ({"topic_id": topic_id, "partitions": ({"partition_index": 0, "leader_recovery_state": 7},)},)
    response = ask(controller, call(56, 3, broker_id=1, broker_epoch=epoch, topics=topics))
    assert response.error_code is ErrorCode.invalid_request
    assert not response.topics


def test_directories_are_answered_in_the_shape_of_the_request(controller: LeadingController) -> None:
    controller.create("u", (1,), (1,))
    ids = {name: uuid_out(topic_id) for name, topic_id in controller.image.topics.ids.items()}
    directories = (
        {
            "id_": wire(10_001),
            "topics": (
                {"topic_id": ids["u"], "partitions": ({"partition_index": 0}, {"partition_index": 1})},
                {"topic_id": ids["t"], "partitions": ({"partition_index": 9},)},
            ),
        },
    )
    epoch = controller.image.cluster.brokers[1].epoch
    response = ask(controller, call(73, broker_id=1, broker_epoch=epoch, directories=directories))
    (directory,) = response.directories
    found = [(row.partition_index, row.error_code) for topic in directory.topics for row in topic.partitions]
    assert found == [(0, 0), (1, 0), (9, 3)]


def test_create_topics_answers_names_that_never_reach_the_decision(controller: LeadingController) -> None:
    topics = tuple(
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in ("new", "twice", "twice", "__cluster_metadata")
    )
    response = ask(controller, call(19, topics=topics))
    found = {topic.name: topic.error_code for topic in response.topics}
    assert found == {"new": 0, "twice": 42, "__cluster_metadata": 42}
    (created,) = [topic for topic in response.topics if topic.name == "new"]
    assert created.topic_id == uuid_out(controller.image.topics.ids["new"])
    assert created.num_partitions == 1
    assert "retention.ms" in {config.name for config in created.configs}


def test_create_topics_needs_create_on_cluster_or_topic(controller: LeadingController) -> None:
    topics = tuple({"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("mine", "other"))
    mine = access(controller, may(AclOperation.CREATE, ResourceType.TOPIC, "mine"))
    response = ask(controller, call(19, topics=topics, access=mine))
    rows = {topic.name: topic for topic in response.topics}
    assert (rows["mine"].error_code, rows["other"].error_code) == (0, 29)
    assert rows["mine"].topic_config_error_code == 29
    assert not rows["mine"].configs


def test_delete_topics_by_name_and_id(controller: LeadingController) -> None:
    for name in "abcde":
        controller.create(name, (1,))
    ids = {name: uuid_out(topic_id) for name, topic_id in controller.image.topics.ids.items()}
    topics = (
        {"name": "a"},
        {"name": None, "topic_id": ids["b"]},
        {"name": "c"},
        {"name": None, "topic_id": ids["c"]},
        {"name": "d", "topic_id": ids["d"]},
        {"name": None, "topic_id": None},
        {"name": "nope"},
        {"name": None, "topic_id": wire(99)},
        {"name": "e"},
        {"name": "e"},
    )
    response = ask(controller, call(20, 6, topics=topics))
    found = {(row.name, row.topic_id): row.error_code for row in response.responses}
    assert found == {
        ("a", ids["a"]): 0,
        ("b", ids["b"]): 0,
        ("c", ids["c"]): 42,
        ("d", ids["d"]): 42,
        (None, None): 42,
        ("nope", None): 3,
        (None, wire(99)): 100,
        ("e", None): 42,
    }
    assert set(controller.image.topics.ids) == {"t", "c", "d", "e"}


def test_delete_topics_hides_what_the_caller_may_not_see(controller: LeadingController) -> None:
    for name in "ab":
        controller.create(name, (1,))
    ids = {name: uuid_out(topic_id) for name, topic_id in controller.image.topics.ids.items()}
    mine = access(controller, may(AclOperation.DESCRIBE, ResourceType.TOPIC, "a"))
    topics = ({"name": None, "topic_id": ids["a"]}, {"name": None, "topic_id": ids["b"]}, {"name": "nope"})
    response = ask(controller, call(20, 6, topics=topics, access=mine))
    found = {(row.name, row.topic_id): row.error_code for row in response.responses}
    assert found == {("a", ids["a"]): 29, (None, ids["b"]): 29, ("nope", None): 29}


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_off(version: int, code: int) -> None:
    controller = LeadingController(delete_topic_enable=False)
    controller.start([1])
    controller.create("t", (1,))
    response = ask(controller, call(20, version, topics=({"name": "t"},), topic_names=("t",)))
    assert response.responses[0].error_code == code
    assert "t" in controller.image.topics.ids


def test_create_partitions_twice_in_a_request(controller: LeadingController) -> None:
    topics = tuple({"name": name, "count": 3, "assignments": None} for name in ("t", "x", "x"))
    response = ask(controller, call(37, topics=topics))
    assert {row.name: row.error_code for row in response.results} == {"t": 0, "x": 42}


TOO_MUCH = 89


@pytest.mark.parametrize(
    ("key", "version", "strict"),
    [(19, 5, False), (19, 6, True), (20, 4, False), (20, 5, True), (37, 2, False), (37, 3, True)],
)
def test_a_mutation_quota_refuses_or_delays_by_the_requests_version(key: int, version: int, strict: bool) -> None:
    controller = LeadingController()
    controller.start([1])
    for name in "ab":
        controller.create(name, (1,))
    controller.write(
        ClientQuotaRecord((QuotaEntity("user", "alice"),), "controller_mutation_rate", 0.001, remove=False)
    )
    bodies: dict[int, list[dict[str, Any]]] = {
        19: [{"topics": ({"name": name, "num_partitions": 3, "replication_factor": 1},)} for name in "cd"],
        20: [{"topic_names": (name,), "topics": ({"name": name},)} for name in "ab"],
        37: [{"topics": ({"name": name, "count": 4, "assignments": None},)} for name in "ab"],
    }
    answers = [ask(controller, call(key, version, **body)) for body in bodies[key]]
    rows = [
        (getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results) for answer in answers
    ]
    assert [row.error_code for (row,) in rows] == [0, TOO_MUCH if strict else 0]
    waits = [answer.throttle_time > dt.timedelta(minutes=10) for answer in answers]
    assert waits == ([False, True] if strict else [True, True])


@pytest.mark.parametrize("version", range(3))
def test_elect_leaders(controller: LeadingController, version: int) -> None:
    controller.write(PartitionChangeRecord(0, controller.image.topics.ids["t"], leader=2))
    partitions = ({"topic": "t", "partitions": (0, 9)},)
    response = ask(controller, call(43, version, topic_partitions=partitions))
    (topic,) = response.replica_election_results
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [(0, 0), (9, 3)]
    assert controller.partition("t").leader == 1


def test_reassignments_are_altered_listed_and_cancelled(controller: LeadingController) -> None:
    controller.start([3])

    def alter(replicas: tuple[int, ...] | None) -> Any:
        rows = ({"partition_index": 0, "replicas": replicas},)
        return (
            ask(controller, call(45, topics=({"name": "t", "partitions": rows},))).responses[0].partitions[0].error_code
        )

    assert alter((3, 1)) == 0
    listed = ask(controller, call(46, topics=None)).topics[0].partitions[0]
    assert (listed.replicas, listed.adding_replicas, listed.removing_replicas) == ((3, 1, 2), (3,), (2,))
    assert ask(controller, call(46, topics=({"name": "t", "partition_indexes": (0,)},))).topics[0].name == "t"
    assert alter(None) == 0
    assert ask(controller, call(46, topics=None)).topics == ()
    assert alter(None) == 85


def test_a_reassignment_of_the_metadata_partition_is_one_of_the_voters(controller: LeadingController) -> None:
    def alter(*rows: tuple[str, tuple[int, ...] | None]) -> list[int]:
        topics = tuple(
            {"name": name, "partitions": ({"partition_index": 0, "replicas": replicas},)} for name, replicas in rows
        )
        answer = ask(controller, call(45, topics=topics))
        return [partition.error_code for topic in answer.responses for partition in topic.partitions]

    metadata = "__cluster_metadata"
    assert alter((metadata, (4, 5, 6))) == [3]  # the voters of kraft.version 0 are those of the property files
    controller.kraft_version = 1
    assert alter((metadata, (6, 5, 4)), ("t", (2, 1)), ("no", (1,))) == [0, 0, 3]
    assert target_of(controller.image) == wanted(4, 5, 6)
    listed = {topic.name: topic.partitions[0] for topic in ask(controller, call(46, topics=None)).topics}
    voters = listed[metadata]
    assert (voters.replicas, voters.adding_replicas, voters.removing_replicas) == ((3000,), (4, 5, 6), (3000,))
    asked = ask(controller, call(46, topics=({"name": metadata, "partition_indexes": (0,)},)))
    assert [topic.name for topic in asked.topics] == [metadata]
    assert alter((metadata, ())) == [42]
    assert alter((metadata, (4, 4))) == [42]
    assert alter((metadata, (1,))) == [42]  # a broker
    assert alter((metadata, (4,)), (metadata, (5,))) == [42, 42]
    assert target_of(controller.image) == wanted(4, 5, 6)
    assert alter((metadata, None)) == [0]
    assert alter((metadata, None)) == [85]
    assert ask(controller, call(46, topics=({"name": metadata, "partition_indexes": (0,)},))).topics == ()


def test_incremental_alter_configs_sorts_resources_out(controller: LeadingController) -> None:
    def row(kind: int, name: str, key: str, text: str | None, operation: int = 0) -> dict[str, Any]:
        config = {"name": key, "config_operation": operation, "value": text}
        return {"resource_type": kind, "resource_name": name, "configs": (config,)}

    resources = (
        row(2, "t", "retention.ms", "5"),
        row(4, "", "background.threads", "5"),
        row(4, "", "background.threads", "6"),
        row(0, "x", "y", "5"),
        row(8, "1", "kafka", "INFO"),
        row(4, "1", "background.threads", "5", operation=9),
    )
    response = ask(controller, call(44, resources=resources))
    found = {(r.resource_type, r.resource_name): r.error_code for r in response.responses}
    assert found == {(2, "t"): 0, (4, ""): 42, (0, "x"): 35, (8, "1"): 42, (4, "1"): 42}


@pytest.mark.parametrize(("kind", "name", "code"), [(2, "t", 29), (4, "1", 31)])
@pytest.mark.parametrize("key", [33, 44])
def test_configs_need_permission(controller: LeadingController, key: int, kind: int, name: str, code: int) -> None:
    resources = ({"resource_type": kind, "resource_name": name, "configs": ()},)
    response = ask(controller, call(key, resources=resources, access=access(controller)))
    assert response.responses[0].error_code == code


def describe(controller: LeadingController, kind: int, name: str, **fields: Any) -> Any:
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": fields.pop("keys", None)}
    return ask(controller, call(32, resources=(row,), include_synonyms=True, **fields)).results[0]


def test_describe_topic_configs() -> None:
    controller = LeadingController(explicit={"log.retention.ms": "7"})
    controller.start([1])
    controller.create("t", (1,), retention_ms="5")
    controller.write(ConfigRecord(ConfigResourceType.BROKER, "", "log.retention.ms", "6"))
    result = describe(controller, 2, "t", keys=("retention.ms", "segment.bytes"))
    retention, segment = result.configs
    assert (retention.name, retention.value, retention.config_source, retention.config_type) == (
        "retention.ms", "5", 1, 5,
    )  # fmt: skip
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "6", 3),
        ("log.retention.ms", "7", 4),
    ]
    assert (segment.value, segment.config_source, segment.read_only) == ("1073741824", 5, False)


def test_describe_broker_configs_hides_passwords() -> None:
    controller = LeadingController(explicit={"ssl.key.password": "hunter2", "node.id": "3000", "odd.key": "hunter2"})
    controller.write(ConfigRecord(ConfigResourceType.BROKER, "", "background.threads", "5"))
    entries = {entry.name: entry for entry in describe(controller, 4, "3000").configs}
    assert "hunter2" not in str(entries)
    assert entries["ssl.key.password"].is_sensitive
    assert entries["odd.key"].is_sensitive
    assert (entries["node.id"].value, entries["node.id"].read_only) == ("3000", True)
    assert (entries["background.threads"].value, entries["background.threads"].config_source) == ("5", 3)
    (default,) = describe(controller, 4, "").configs
    assert (default.name, default.value) == ("background.threads", "5")


@pytest.mark.parametrize(
    ("kind", "name", "code"), [(2, "nope", 3), (2, "!", 17), (4, "1", 42), (8, "1", 42), (16, "", 42)]
)
def test_describe_configs_refused(controller: LeadingController, kind: int, name: str, code: int) -> None:
    assert describe(controller, kind, name).error_code == code


@pytest.mark.parametrize("key", [33, 44])
def test_no_client_reads_or_writes_the_target_of_the_voters(controller: LeadingController, key: int) -> None:
    """Stock 3.9.1: UNSUPPORTED_VERSION for a change of this type, INVALID_REQUEST for a question."""
    controller.write(ConfigRecord(RESOURCE.resource_type, RESOURCE.name, KEY, "4,5,6"))
    config = {"name": KEY, "value": "7"} | ({"config_operation": 0} if key == 44 else {})
    resources = ({"resource_type": 0, "resource_name": RESOURCE.name, "configs": (config,)},)
    assert ask(controller, call(key, resources=resources)).responses[0].error_code == 35
    assert describe(controller, 0, RESOURCE.name).error_code == 42
    assert controller.image.configs[RESOURCE] == {KEY: "4,5,6"}


def test_quotas_and_scram_through_the_wire(controller: LeadingController) -> None:
    entity = ({"entity_type": "user", "entity_name": None}, {"entity_type": "client-id", "entity_name": "c"})
    ops = ({"key": "producer_byte_rate", "value": 5.0, "remove": False},)
    response = ask(controller, call(49, entries=({"entity": entity, "ops": ops},)))
    assert response.entries[0].error_code == 0
    assert list(controller.image.quotas.values()) == [{"producer_byte_rate": 5.0}]
    ops = ({"key": "producer_byte_rate", "value": 0.0, "remove": True},)
    ask(controller, call(49, entries=({"entity": entity, "ops": ops},)))
    assert not controller.image.quotas
    upsertion = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    assert ask(controller, call(51, upsertions=(upsertion,))).results[0].error_code == 0
    assert len(controller.image.scram) == 1


def test_acls_through_the_wire(controller: LeadingController) -> None:
    row = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "host": "*", "operation": 3,
        "permission_type": 3,
    }  # fmt: skip
    principals = [f"User:{letter}" for letter in "abcdefghij"]  # the image has them in an order of hashes
    rows = tuple(row | {"principal": principal} for principal in principals)
    assert not any(result.error_code for result in ask(controller, call(30, creations=rows)).results)
    everything = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    (resource,) = ask(controller, call(29, **everything)).resources
    assert (resource.resource_name, [acl.principal for acl in resource.acls]) == ("t", principals)
    (result,) = ask(controller, call(31, filters=(everything,))).filter_results
    assert sorted(acl.principal for acl in result.matching_acls) == principals
    assert not controller.image.acls


@pytest.mark.parametrize("key", [29, 30, 31])
def test_acls_without_an_authorizer(key: int) -> None:
    controller = LeadingController(authorizer_class_name="")
    row = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
    response = ask(controller, call(key, creations=(row,), filters=({},)))
    rows = getattr(response, "results", None) or getattr(response, "filter_results", None) or (response,)
    assert rows[0].error_code is ErrorCode.security_disabled


def test_delegation_tokens_through_the_wire() -> None:
    controller = LeadingController(delegation_token_secret_key=Secret("secret"))
    renewers = ({"principal_type": "User", "principal_name": "r"},)
    created = ask(controller, call(38, owner_principal_type=None, owner_principal_name=None, renewers=renewers,
                              max_lifetime=dt.timedelta(milliseconds=-1)))  # fmt: skip
    assert (created.error_code, created.principal_name, created.token_requester_principal_name) == (0, "alice", "alice")
    moment = dt.datetime.fromtimestamp(controller.wall_ms / 1000, dt.UTC)
    assert created.issue_timestamp == moment
    period = dt.timedelta(milliseconds=5)
    renewed = ask(controller, call(39, hmac=created.hmac, renew_period=period))
    assert renewed.expiry_timestamp == moment + period
    gone = ask(controller, call(40, hmac=created.hmac, expiry_time_period=dt.timedelta(milliseconds=-1)))
    assert gone.error_code == 0
    assert not controller.image.tokens


def test_delegation_tokens_for_another_owner_take_permission() -> None:
    controller = LeadingController(delegation_token_secret_key=Secret("secret"))
    fields = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    refused = ask(controller, call(38, **fields, access=access(controller)))
    assert refused.error_code is ErrorCode.delegation_token_authorization_failed
    allowed = access(controller, may(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    created = ask(controller, call(38, **fields, access=allowed))
    assert (created.error_code, created.principal_name) == (0, "bob")


def test_update_features_reports_each_feature() -> None:
    controller = LeadingController(level=19)
    updates = tuple({"feature": name, "max_version_level": 21} for name in ("metadata.version", "nope"))
    response = ask(controller, call(57, 0, feature_updates=updates))
    assert [(row.feature, row.error_code) for row in response.results] == [("metadata.version", 0), ("nope", 95)]


def test_describe_cluster_names_the_controllers(controller: LeadingController) -> None:
    listeners = ({**LISTENER, "name": "CONTROLLER", "port": 9093}, LISTENER)
    ask(controller, call(70, controller_id=3000, incarnation_id=wire(1), listeners=listeners, features=(FEATURE,)))
    described = ask(controller, call(60, 1, endpoint_type=2, include_cluster_authorized_operations=True))
    assert [(node.broker_id, node.host, node.port) for node in described.brokers] == [(3000, "h", 9093)]
    assert (described.cluster_id, described.controller_id) == (CLUSTER_ID, -1)
    assert described.cluster_authorized_operations & 1 << AclOperation.ALTER
    assert ask(controller, call(60, 1, endpoint_type=1)).error_code is ErrorCode.mismatched_endpoint_type
    assert ask(controller, call(60, 0)).error_code is ErrorCode.invalid_request


def test_producer_ids(controller: LeadingController) -> None:
    epoch = controller.image.cluster.brokers[1].epoch
    block = ask(controller, call(67, broker_id=1, broker_epoch=epoch))
    assert (block.producer_id_start, block.producer_id_len) == (0, 1000)
    assert ask(controller, call(67, broker_id=1, broker_epoch=epoch + 1)).error_code is ErrorCode.stale_broker_epoch


def test_unregistering_a_broker(controller: LeadingController) -> None:
    assert ask(controller, call(64, broker_id=2)).error_code == 0
    assert ask(controller, call(64, broker_id=2)).error_code is ErrorCode.broker_id_not_registered
    assert isinstance(controller.image.topics.ids["t"], bytes)
    assert Uuid(controller.image.topics.ids["t"]) in controller.image.topics.by_id
