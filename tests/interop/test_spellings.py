"""A real broker in ZooKeeper mode obeys znodes in spellings that no tool of Kafka writes, before the copy and after."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from immutables import Map
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.errors import OperatorError
from migrator.image.model import MetadataImage, ScramCredential
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_ops import delta_writes
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from migrator.records.metadata import QuotaEntity
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.scram import format_credential
from tests.conftest import ZooKeeperSpace
from tests.image.support.differences import changes_between
from tests.migration.support.images import PASSWORDS, copy_records, read_image
from tests.patience import until

USER = "svc@CORP"
LONGEST = "9223372036854775807"
ANSWER_SECONDS = 5.0


def credential(password: str) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salty", 4096)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return ScramCredential(
        b"salty", hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256"), 4096
    )


def unpadded(password: str) -> str:
    return ",".join(part.rstrip("=") for part in format_credential(credential(password)).split(","))


def config(**values: str) -> dict[str, Any]:
    return {"version": "x", "config": {key.replace("SCRAM", "SCRAM-SHA-256"): text for key, text in values.items()}}


def acl(principal: str) -> dict[str, Any]:
    entry = {"principal": principal, "permissionType": "ALLOW", "operation": "describeconfigs", "host": "*"}
    return {"version": 1, "acls": [entry], "more": 1}


TOPIC_ID = b64encode(bytes(range(16)), b"-_").decode()
ZNODES: dict[str, Any] = {
    f"/config/users/{USER}": config(SCRAM=unpadded("first"), producer_byte_rate="1"),
    "/config/users/bob": config(consumer_byte_rate=LONGEST),
    "/config/clients/a+b": config(producer_byte_rate="+01000"),
    "/config/ips/::1": config(connection_creation_rate="77"),
    "/config/brokers/01": config(**{"background.threads": "11"}),
    "/kafka-acl/Topic/orders": acl("User:big"),
    "/kafka-acl/topic/orders": acl("User:intruder"),
    "/kafka-acl-extended/prefixed/GROUP/g": acl("User:intruder"),
    "/config/topics/orders": config(),
    "/brokers/topics/orders": {"version": "x", "topic_id": TOPIC_ID, "partitions": {"00": [1]}, "more": {}},
    "/brokers/topics/orders/partitions/0/state": (
        b'{"leader":9,"leader":1,"leader_epoch":3,"isr":[1],"controller_epoch":1,"version":"7"}'
    ),
    "/latest_producer_id_block": {"version": "x", "broker": 1, "block_start": "+0", "block_end": "0999"},
}


@dataclass
class Broker:
    """One, and what it says of itself."""

    plain: int
    secured: int

    @property
    def properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.plain},SASL_PLAINTEXT://127.0.0.1:{self.secured}"
        return {
            "broker.id": "1",
            "listeners": listeners,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.replication.factor": "1",
        }

    def logs_in(self, password: str) -> bool:
        security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        login = {"sasl.username": USER, "sasl.password": password}
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.secured}", **security, **login})
        try:
            client.list_topics(timeout=4)
        except KafkaException:
            return False
        return True

    def obeys(self, wanted: tuple[Any, ...]) -> bool:
        """Asked by a new client each time: one that met the broker while it started may never get an answer."""
        try:
            return self._obeyed() == wanted
        except (KafkaException, TimeoutError):
            return False

    def _obeyed(self) -> tuple[Any, ...]:
        """Who has a right, how many background threads the broker has, who leads the topic."""
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}"})
        fields: list[Any] = [
            *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
            *(AclOperation.ANY, AclPermissionType.ANY),
        ]
        any_acl = AclBindingFilter(*fields)
        rights = {binding.principal for binding in client.describe_acls(any_acl).result(ANSWER_SECONDS)}
        (asked,) = client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        topic = client.list_topics("orders", timeout=ANSWER_SECONDS).topics["orders"]
        leaders = {number: partition.leader for number, partition in topic.partitions.items()}
        return rights, asked.result(ANSWER_SECONDS)["background.threads"].value, leaders


WANTED = ({"User:big"}, "11", {0: 1})


class Ours:
    """Copies, compares and writes as the controllers do."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._reader = BulkReader(session)
        self._writer = ConditionalWriter(session)
        self._spellings: dict[str, tuple[str, ...]] = {}

    def copy(self) -> MetadataImage:
        return read_image(copy_records(self._reader, passwords=PASSWORDS, random=random.Random(1)))

    def _target(self, image: MetadataImage) -> Target:
        return Target(image, passwords=PASSWORDS, controller_epoch=1, spellings=self._spellings)

    def compare(self, image: MetadataImage) -> list[str]:
        return [write.entity for write in reconcile(self._reader, self._target(image))]

    def change(self, before: MetadataImage, after: MetadataImage) -> None:
        for write in delta_writes(before, self._target(after), changes_between(before, after)):
            if not isinstance(self._writer.write([*write.ops, *write.notices]), Applied):
                for again in reconcile(self._reader, self._target(after)):
                    assert isinstance(self._writer.write([*again.ops, *again.notices]), Applied)
        assert self.compare(after) == []


@contextmanager
def ours(hosts: str) -> Iterator[Ours]:
    with ZooKeeperSession(SessionOptions(hosts)) as session:
        yield Ours(session)


def test_what_a_broker_obeys_before_the_copy_it_obeys_afterwards(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    for path, data in ZNODES.items():
        zookeeper_client.create(path, data if isinstance(data, bytes) else json.dumps(data).encode(), makepath=True)
    broker = Broker(free_port(), free_port())
    node = kafka_391.node("broker", tmp_path, {**broker.properties, "zookeeper.connect": zookeeper.hosts})
    with node:
        until(lambda: broker.obeys(WANTED))
        until(lambda: broker.logs_in("first"))
        assert "client-id a b to 1000.0" in node.process.output_text()
        with ours(zookeeper.hosts) as we:
            image = we.copy()
            assert we.compare(image) == []
            assert [acl.principal for acl in image.acls.values()] == ["User:big"]
            (key,) = image.scram
            assert (key.user, image.scram[key]) == (USER, credential("first"))

            bob = frozenset([QuotaEntity("user", "bob")])
            quotas = image.quotas.set(bob, {**image.quotas[bob], "request_percentage": 50.0})
            changed = replace(image, scram=Map({key: credential("second")}), quotas=quotas)
            we.change(image, changed)
            assert LONGEST.encode() in zookeeper_client.get("/config/users/bob")[0], "or no broker starts"
            until(lambda: broker.logs_in("second"))
            assert not broker.logs_in("first")
            node.restart()
            until(lambda: broker.logs_in("second"))
            assert not broker.logs_in("first")
            until(lambda: broker.obeys(WANTED))

            we.change(changed, replace(changed, scram=Map()))
            until(lambda: not broker.logs_in("second"))
            node.restart()
            until(lambda: broker.obeys(WANTED))
            assert not broker.logs_in("second"), "no other znode of the user brings it back"

    zookeeper_client.create("/config/ips/%3A%3A1", b"{}")
    with pytest.raises(OperatorError, match=r"Unable to resolve address %3A%3A1"):
        node.start()
