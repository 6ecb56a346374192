"""The list of doors and messages is complete: against Kafka's APIs, the registry, the protos and the record types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from migrator.apis.registry import APIS
from migrator.records.specs import SPECS
from migrator.rpc import stubs
from migrator.rpc.stubs import operator_pb2, quorum_pb2, voters_pb2
from migrator.wire.envelope import FORWARDABLE
from migrator.wire.legacy.messages import LegacyRequest
from migrator.wire.raft_codec import RAFT_APIS
from migrator.wire.sasl import MECHANISMS
from migrator.wire.schemas import ENVELOPE, SERVED_APIS
from migrator.zookeeper import znodes
from tests.hostile import migrating, outside
from tests.hostile.doors import BY_DOOR, HANDLED_BY_LISTENER, KNOCKS, LOGIN, ZNODES, Door
from tests.hostile.seats import LEADERS_ROUND, VOTERS_ROUND

SORTS = {
    "decode_acls": {"access control list"},
    "decode_broker": {"broker registration"},
    "decode_cluster_id": {"cluster id"},
    "decode_config": {"topic config", "broker config", "client config"},
    "decode_controller": {"controller"},
    "decode_controller_epoch": {"controller epoch"},
    "decode_token": {"delegation token"},
    "decode_migration": {"migration"},
    "decode_partition_state": {"partition state"},
    "decode_producer_ids": {"producer ids"},
    "decode_topic": {"topic"},
}


def _served() -> set[tuple[int, int]]:
    return {(key, version) for key, served in SERVED_APIS.items() for version in range(served.min, served.max + 1)}


def test_every_version_of_every_api_is_knocked_with() -> None:
    known = {(knock.key, knock.version) for door in (Door.LISTENER, Door.SASL) for knock in BY_DOOR[door]}
    assert known - {(-1, -1)} == _served()
    assert {key for key, _ in _served()} == set(APIS)
    assert LOGIN | {ENVELOPE} == HANDLED_BY_LISTENER


def test_every_api_that_a_broker_may_forward_is_knocked_with_in_an_envelope() -> None:
    assert {knock.key for knock in BY_DOOR[Door.ENVELOPE]} == FORWARDABLE | {ENVELOPE}


def test_every_method_of_every_service_is_called() -> None:
    services = {
        (service.name, method.name)
        for module in (quorum_pb2, operator_pb2, voters_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    doors = (Door.QUORUM, Door.OPERATOR, Door.VOTERS)
    called = {(door.name.capitalize(), knock.name) for door in doors for knock in BY_DOOR[door]}
    assert called == services
    assert {knock.name for knock in BY_DOOR[Door.SOCKET]} == {method for _, method in services}
    modules = {path.stem for path in Path(stubs.__path__[0]).glob("*_pb2.py")}
    assert modules == {"quorum_pb2", "operator_pb2", "voters_pb2"}, "a proto that no door is named for"


def test_every_answer_of_a_voter_and_every_record_of_a_leader_is_played() -> None:
    answers = {knock.key for knock in BY_DOOR[Door.KAFKA_ANSWER]}
    assert answers == {key for key, _ in RAFT_APIS.values()}
    assert {knock.name for knock in BY_DOOR[Door.LEADERS_LOG]} == {spec.type_name for spec in SPECS}


def test_every_mechanism_of_a_login_is_tried() -> None:
    tried = {knock.name.rpartition(" ")[2] for knock in BY_DOOR[Door.SASL] if knock.schema is None}
    assert tried == set(MECHANISMS)


def test_every_answer_of_a_broker_in_zookeeper_mode_is_played() -> None:
    assert {knock.name for knock in BY_DOOR[Door.BROKER_ANSWER]} == {kind.__name__ for kind in get_args(LegacyRequest)}


def test_every_sort_of_znode_is_held() -> None:
    """Each codec of a znode's content has a sort of hostile bytes."""
    decoders = {
        name
        for file in Path(znodes.__path__[0]).glob("*.py")
        for name in re.findall(r"^def (decode_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert decoders == set(SORTS)
    assert {sort for sorts in SORTS.values() for sort in sorts} == set(ZNODES) - {"names of children"}


def test_each_door_is_one_that_a_run_opens() -> None:
    """No door is listed and left out; `test_attacks` proves that no message is."""
    opened = {knock.door for knock in (*LEADERS_ROUND, *VOTERS_ROUND, *outside.ROUND, *migrating.ROUND)}
    answers = {Door.KAFKA_ANSWER, Door.QUORUM_ANSWER, Door.LEADERS_LOG}
    assert opened | answers == set(Door)
    assert len({(knock.door, knock.name) for knock in KNOCKS}) == len(KNOCKS)
