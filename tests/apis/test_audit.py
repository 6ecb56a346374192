"""Lines of the authorizer's log: what each order is about, in names, and never a secret."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest

from migrator.apis.audit import CHANGES, NAMES_MAX, PARTS_MAX, AuditedRequest, Sender, audit_lines
from migrator.apis.authorization import Access, Audited, Authorizer, Trail, Unlimited
from migrator.apis.call import ApiKind, Call
from migrator.apis.ordered import NAME_MAX, NAMED_AGAIN, TEXT_MAX
from migrator.apis.registry import APIS, check_access, refuse
from migrator.config.types import Secret
from migrator.controller.acl_index import AclIndex
from migrator.controller.decision import RefusedError
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.wire.schemas import CONTROLLER_APIS, build, request_type, response_type
from tests.apis.support.asking import ask, call
from tests.controller.support.leading_controller import LeadingController
from tests.wire.support.messages import random_message

SECRET = b"a-secret-of-somebody"
ALICE = Sender("User:alice", "10.0.0.7", "CONTROLLER")
NOTHING = Authorizer(AclIndex(), (), allow_if_no_acl=False).access_of("User:alice", "10.0.0.7")
ENTRY = {"resource_type": 2, "resource_name": "pay", "principal": "User:bob", "host": "*", "operation": 3}
ACL = {**ENTRY, "resource_pattern_type": 4, "permission_type": 3}
FILTER = {
    "resource_type_filter": 2, "resource_name_filter": "pay", "pattern_type_filter": 4, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
SCRAM = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": SECRET, "salted_password": SECRET * 2}
CONFIG = {"name": "retention.ms", "config_operation": 0, "value": SECRET.decode()}
TOPIC = {"name": "u", "num_partitions": 1, "replication_factor": 2, "assignments": (), "configs": (CONFIG,)}
MINUTE = dt.timedelta(minutes=1)
DIRECTORY = uuid.UUID(int=7)
ORDERS: dict[int, tuple[dict[str, Any], str, str, list[str]]] = {
    19: ({"topics": (TOPIC,), "timeout": MINUTE}, "CREATE", "Cluster", ["u"]),
    20: ({"topics": ({"name": "t", "topic_id": None},), "timeout": MINUTE}, "DELETE", "Cluster", ["t"]),
    30: ({"creations": (ACL,)}, "ALTER", "Cluster", ["ALLOW READ for User:bob from * on Topic:PREFIXED:pay"]),
    31: ({"filters": (FILTER,)}, "ALTER", "Cluster", ["ALLOW READ for User:bob from * on Topic:PREFIXED:pay"]),
    33: (
        {"resources": ({"resource_type": 4, "resource_name": "1", "configs": (CONFIG,)},)},
        "ALTER_CONFIGS", "Cluster", ["BROKER 1: retention.ms"],
    ),
    37: ({"topics": ({"name": "t", "count": 4},), "timeout": MINUTE}, "ALTER", "Topic", []),
    38: ({"renewers": (), "max_lifetime": -MINUTE}, "CREATE", "DelegationToken", ["token ID of User:alice"]),
    39: ({"hmac": SECRET, "renew_period": MINUTE}, "ALTER", "DelegationToken", []),
    40: ({"hmac": SECRET, "expiry_time_period": MINUTE}, "DELETE", "DelegationToken", []),
    43: (
        {"election_type": 0, "topic_partitions": ({"topic": "t", "partitions": (0,)},), "timeout": MINUTE},
        "ALTER", "Cluster", ["t-0"],
    ),
    44: (
        {"resources": ({"resource_type": 2, "resource_name": "t", "configs": (CONFIG,)},)},
        "ALTER_CONFIGS", "Topic", ["t: retention.ms"],
    ),
    45: (
        {"topics": ({"name": "t", "partitions": ({"partition_index": 0, "replicas": (2, 1)},)},), "timeout": MINUTE},
        "ALTER", "Cluster", ["t-0 to 2,1"],
    ),
    49: (
        {"entries": ({"entity": ({"entity_type": "user", "entity_name": None},),
                      "ops": ({"key": "consumer_byte_rate", "value": 7.0},)},)},
        "ALTER_CONFIGS", "Cluster", ["user (default): consumer_byte_rate"],
    ),
    51: (
        {"deletions": ({"name": "eve", "mechanism": 2},), "upsertions": (SCRAM,)},
        "ALTER", "Cluster", ["set SHA_256 of bob", "delete SHA_512 of eve"],
    ),
    57: (
        {"feature_updates": ({"feature": "metadata.version", "max_version_level": 21, "upgrade_type": 1},),
         "timeout": MINUTE},
        "ALTER", "Cluster", ["metadata.version to level 21"],
    ),
    64: ({"broker_id": 2}, "ALTER", "Cluster", ["broker 2"]),
    80: ({"voter_id": 4, "voter_directory_id": DIRECTORY, "timeout": MINUTE}, "ALTER", "Cluster",
         [f"voter 4, directory {DIRECTORY}"]),
    81: ({"voter_id": 4, "voter_directory_id": DIRECTORY}, "ALTER", "Cluster", [f"voter 4, directory {DIRECTORY}"]),
}  # fmt: skip
"""By API: what is ordered, and what the line has of it."""


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController(
        authorizer_class_name="it", delegation_token_secret_key=Secret("a-secret-of-somebody")
    )
    controller.start([1, 2])
    controller.create("t", (1, 2))
    return controller


def answered(controller: LeadingController, asked: Call) -> Any:
    if APIS[asked.key].handle is not None:
        return ask(controller, asked)
    try:
        check_access(asked)
    except RefusedError as error:
        return refuse(asked, error.error.code)
    return asked.respond()


def lines(
    controller: LeadingController, asked: Call, within: Access, *, everything: bool = False, first: bool = False
) -> list[dict[str, Any]]:
    trail = Trail()
    asked = replace(asked, access=Audited(within, trail))
    exchange = AuditedRequest(asked.key, asked.version, asked.body, answered(controller, asked))
    made = audit_lines(ALICE, exchange, trail, everything=everything, is_first_action=first)
    found = [line.content for line in made]
    text = orjson.dumps(found)
    for secret in (SECRET, SECRET.hex().encode(), base64.b64encode(SECRET)[:-4]):
        assert secret not in text
    return found


def test_every_api_that_changes_something_by_order_is_in_the_table() -> None:
    by_order = {
        key
        for key, row in APIS.items()
        if row.kind in (ApiKind.WRITE, ApiKind.RAFT) and (row.cluster_operation or AclOperation.ALTER) in CHANGES
    }
    assert ORDERS.keys() == by_order


@pytest.mark.parametrize("key", ORDERS)
def test_an_allowed_order_says_what_it_is_about_and_no_secret(key: int, controller: LeadingController) -> None:
    if key == 31:
        ask(controller, call(30, creations=(ACL,)))
    fields, operation, kind, about = ORDERS[key]
    asked = call(key, **fields)
    if key in (39, 40):
        made = ask(controller, call(38, **ORDERS[38][0]))
        asked = call(key, **{**fields, "hmac": made.hmac})
    (*_, line) = found = lines(controller, asked, Unlimited())
    assert {each["outcome"] for each in found} == {"allowed"}
    assert (line["principal"], line["host"], line["operation"], line["resource_type"]) == (
        "User:alice", "10.0.0.7", operation, kind
    )  # fmt: skip
    said = [text.replace(line["resources"][0], "ID") if key == 38 else text
            for each in found for text in each.get("about", [])]  # fmt: skip
    assert said == about
    if kind == "DelegationToken":
        assert line["resources"] == [next(iter(controller.image.tokens))]
        assert b"hmac" not in orjson.dumps(found)


@pytest.mark.parametrize("key", ORDERS)
def test_a_denied_order_is_said_with_its_error(key: int, controller: LeadingController) -> None:
    asked = replace(call(key, **ORDERS[key][0]), may_use_tokens=False)
    found = lines(controller, asked, NOTHING)
    assert {each["outcome"] for each in found} == {"denied"}
    assert all(each["error"] != "NONE" for each in found)


def test_an_order_that_was_allowed_and_failed_says_why(controller: LeadingController) -> None:
    topics = tuple({**TOPIC, "name": name, "configs": ()} for name in ("t", "u", "v"))
    asked = call(19, topics=topics, timeout=MINUTE, validate_only=True)
    found = {line["error"]: line for line in lines(controller, asked, Unlimited())}
    assert found.keys() == {"NONE", "TOPIC_ALREADY_EXISTS"}
    assert found["TOPIC_ALREADY_EXISTS"]["about"] == ["t"]
    assert found["NONE"]["about"] == ["u", "v"]
    assert all(line["validate_only"] for line in found.values())


def test_names_are_short_and_lists_go_on_in_further_lines(controller: LeadingController) -> None:
    names = [f"{number}\n{'x' * 20_000}" for number in range(NAMES_MAX + 1)]
    topics = tuple({"name": name, "count": 2, "assignments": None} for name in names)
    first, second = lines(controller, call(37, topics=topics, timeout=MINUTE), Unlimited())
    assert (first["count"], second["count"]) == (NAMES_MAX, 1)
    assert [name[:2] for name in second["resources"]] == [f"{NAMES_MAX}"]
    assert max(map(len, first["resources"])) < NAME_MAX + 50


@pytest.mark.parametrize(
    ("within", "error"), [(Unlimited(), "NONE"), (NOTHING, "CLUSTER_AUTHORIZATION_FAILED")], ids=["allowed", "denied"]
)
def test_an_entity_of_one_kind_twice_is_said_as_it_counts(
    controller: LeadingController, within: Access, error: str
) -> None:
    """One entry has a name and one has none: the last one counts."""
    twice = ({"entity_type": "user", "entity_name": None}, {"entity_type": "user", "entity_name": "eve"})
    entries = ({"entity": twice, "ops": ({"key": "request_percentage", "value": 1.0, "remove": False},)},)
    (line,) = lines(controller, call(49, entries=entries, validate_only=False), within)
    assert (line["about"], line["error"]) == (["user eve: request_percentage"], error)


def test_a_quota_that_was_set_does_not_pass_for_one_that_was_refused(controller: LeadingController) -> None:
    """Of an entity that is named twice, the first order is carried out, and the answer has the error of the second."""
    entity = ({"entity_type": "user", "entity_name": "eve"},)
    keys = ("request_percentage", "nonsense")
    entries = tuple({"entity": entity, "ops": ({"key": key, "value": 1.0, "remove": False},)} for key in keys)
    (line,) = lines(controller, call(49, entries=entries, validate_only=False), Unlimited())
    assert line["error"] == "INVALID_REQUEST"
    assert line["about"] == [f"user eve: {key}{NAMED_AGAIN}" for key in keys]
    assert [dict(values) for values in controller.image.quotas.values()] == [{"request_percentage": 1.0}]


def test_each_of_two_orders_for_one_partition_has_its_own_error(controller: LeadingController) -> None:
    """The first is carried out, whatever becomes of the second."""
    partitions = ({"partition_index": 0, "replicas": (2, 1)}, {"partition_index": 0, "replicas": (9,)})
    topics = ({"name": "t", "partitions": partitions},)
    found = lines(controller, call(45, topics=topics, timeout=MINUTE), Unlimited())
    assert {line["error"]: line["about"] for line in found} == {
        "NONE": ["t-0 to 2,1"],
        "INVALID_REPLICA_ASSIGNMENT": ["t-0 to 9"],
    }


def test_a_feature_that_is_named_twice_is_said_as_it_counts(controller: LeadingController) -> None:
    updates = tuple({"feature": "metadata.version", "max_version_level": level, "upgrade_type": 1} for level in (3, 21))
    (line,) = lines(controller, call(57, feature_updates=updates, timeout=MINUTE, validate_only=True), Unlimited())
    assert line["about"] == ["metadata.version to level 21"]


def test_an_order_that_takes_every_key_away_says_of_whom(controller: LeadingController) -> None:
    resource = {"resource_type": 4, "resource_name": "1", "configs": ()}
    (line,) = lines(controller, call(33, resources=(resource,)), Unlimited())
    assert line["about"] == ["BROKER 1: (no key)"]


@pytest.mark.parametrize("key", ORDERS)
def test_whatever_the_wire_can_carry_gets_its_line(key: int) -> None:
    """A request that took the log down would leave no trace, nor would the changes in it."""
    source = Random(key)
    version = CONTROLLER_APIS[key].max
    for _ in range(100):
        body, answer = (random_message(kind(key, version), source) for kind in (request_type, response_type))
        for said in (answer, None):
            trail = Trail()
            trail.hear((AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster"), allowed=True)
            trail.hear((AclOperation.ALTER, ResourceType.TOPIC, "topic"), allowed=False)
            made = audit_lines(
                ALICE, AuditedRequest(key, version, body, said), trail, everything=False, is_first_action=False
            )
            assert {line.content["outcome"] for line in made} == {"allowed", "denied"}


def test_a_long_name_hides_none_that_follows(controller: LeadingController) -> None:
    long = "x" * 1_000
    acl = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "host": "*", "operation": 3}
    creations = ({**acl, "principal": f"User:CN={long}", "permission_type": 3},)
    (line,) = lines(controller, call(30, creations=creations), Unlimited())
    assert line["about"][0].endswith("from * on Topic:LITERAL:orders")
    entity = ({"entity_type": "user", "entity_name": long},)
    entries = ({"entity": entity, "ops": ({"key": "request_percentage", "value": 1.0, "remove": False},)},)
    (line,) = lines(controller, call(49, entries=entries, validate_only=True), Unlimited())
    assert line["about"][0].endswith("(1000 characters): request_percentage")
    kinds = tuple({"entity_type": f"kind {number}", "entity_name": long} for number in range(100))
    many = ({"entity": kinds, "ops": entries[0]["ops"]},)
    (line,) = lines(controller, call(49, entries=many, validate_only=True), Unlimited())
    assert len(line["about"][0]) < TEXT_MAX + 50


def test_a_denial_of_many_is_one_line_that_counts_them(controller: LeadingController) -> None:
    topics = tuple({"name": f"t{number}", "count": 2, "assignments": None} for number in range(10_000))
    (line,) = lines(controller, call(37, topics=topics, timeout=MINUTE), NOTHING)
    assert (line["count"], len(line["resources"])) == (10_000, NAMES_MAX)


def test_an_order_about_very_many_says_that_its_list_is_cut(controller: LeadingController) -> None:
    rows = tuple({"partition_index": number, "replicas": (1,)} for number in range(PARTS_MAX + 1))
    body = call(45, topics=({"name": "t", "partitions": rows},), timeout=MINUTE).body
    trail = Trail()
    Audited(Unlimited(), trail).allows(AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    exchange = AuditedRequest(45, 0, body, build(response_type(45, 0)))
    for count, is_cut in ((PARTS_MAX, False), (PARTS_MAX + 1, True)):
        topic = replace(body.topics[0], partitions=body.topics[0].partitions[:count])
        less = replace(exchange, body=replace(body, topics=(topic,)))
        found = list(audit_lines(ALICE, less, trail, everything=False, is_first_action=False))
        assert {"cut" in line.content for line in found} == {is_cut}
        assert len(found) >= PARTS_MAX // NAMES_MAX


def test_questions_are_said_on_request_only(controller: LeadingController) -> None:
    for key, fields in ((46, {"timeout": MINUTE}), (60, {}), (32, {"resources": ()})):
        assert lines(controller, call(key, **fields), Unlimited()) == []
    (line,) = lines(controller, call(60), Unlimited(), everything=True)
    assert (line["api"], line["operation"]) == ("DescribeCluster", "ALTER")
    beat = {"broker_id": 1, "broker_epoch": controller.image.cluster.brokers[1].epoch}
    assert lines(controller, call(63, **beat), Unlimited()) == []
    (line,) = lines(controller, call(63, **beat), Unlimited(), first=True)
    assert line["operation"] == "CLUSTER_ACTION"


def test_an_order_without_an_answer_is_said_too() -> None:
    trail = Trail()
    Audited(Unlimited(), trail).allows(AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
    asked = call(64, broker_id=2)
    (line,) = audit_lines(
        Sender("User:alice", "10.0.0.7", "CONTROLLER", "User:broker-1", "10.0.0.1"),
        AuditedRequest(64, 0, asked.body), trail, everything=False, is_first_action=False,
    )  # fmt: skip
    assert line.content["error"] == "NOT_ANSWERED"
    assert (line.content["forwarded_by"], line.content["forwarded_from"]) == ("User:broker-1", "10.0.0.1")
