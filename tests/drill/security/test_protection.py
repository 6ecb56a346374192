"""The files of a secured drill: no listener in clear, and an intruder without rights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from immutables import Map

from migrator.apis.authorization import Authorizer
from migrator.config.load import settings_from
from migrator.controller.acl_index import AclIndex
from migrator.drill.cluster import controller_properties, migration_properties
from migrator.drill.security.protection import (
    INTRUDER,
    ORDERS,
    PAYMENTS,
    PERMISSIONS,
    READER,
    TRANSACTIONAL_ID,
    WRITER,
    BrokerPorts,
    ControllerDoor,
    Secured,
)
from migrator.image.model import Acl
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.uuid import Uuid

PORTS = {3001: 9093}


def of_controller(secured: Secured) -> Mapping[str, str]:
    return controller_properties(3001, PORTS) | secured.of_controller(3001) | migration_properties("zk:2181/kafka")


@pytest.mark.parametrize("door", ControllerDoor)
def test_a_controller_starts_with_its_file_and_no_listener_is_in_clear(door: ControllerDoor, tmp_path: Path) -> None:
    secured = Secured(tmp_path, door)
    settings, _ = settings_from({"log.dirs": str(tmp_path), **of_controller(secured)}, "controller.properties")
    assert set(settings.protocol_map.values()) <= {"SSL", "SASL_SSL"}
    assert settings.zookeeper_ssl_client_enable
    assert settings.zookeeper_set_acl
    for in_zookeeper in (True, False):
        broker = secured.of_broker(1, BrokerPorts(1, 2), in_zookeeper=in_zookeeper)
        assert "PLAINTEXT" not in str(broker)
        assert "CONTROLLER" not in broker["listeners"]
        assert ("zookeeper.ssl.client.enable" in broker) == in_zookeeper


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "security")
    of_controller(secured)
    files = [path for path in (tmp_path / "security").rglob("*") if path.is_file()]
    assert files
    assert {file.stat().st_mode & 0o077 for file in files} == {0}


def authorizer() -> Authorizer:
    entries = [
        Acl(pattern.resource_type, pattern.name, pattern.pattern_type, entry.principal, entry.host, entry.operation,
            entry.permission)
        for pattern, found in PERMISSIONS.items() for entry in found
    ]  # fmt: skip
    acls = {Uuid(number.to_bytes(16, "big")): entry for number, entry in enumerate(entries, 1)}
    return Authorizer(AclIndex.of(Map(acls)), (), allow_if_no_acl=False)


def test_users_may_do_what_they_need() -> None:
    deeds = [
        (WRITER, AclOperation.WRITE, ResourceType.TOPIC, ORDERS),
        (READER, AclOperation.READ, ResourceType.TOPIC, PAYMENTS),
    ]
    for user, operation, kind, name in deeds:
        assert authorizer().allows((f"User:{user}", "127.0.0.1"), operation, kind, name)


def test_and_the_intruder_nothing() -> None:
    for operation in AclOperation:
        for kind, name in (
            (ResourceType.TOPIC, ORDERS),
            (ResourceType.CLUSTER, "kafka-cluster"),
            (ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID),
        ):
            assert not authorizer().allows((f"User:{INTRUDER}", "127.0.0.1"), operation, kind, name)
    assert not authorizer().allows((f"User:{WRITER}", "127.0.0.1"), AclOperation.READ, ResourceType.TOPIC, ORDERS)
