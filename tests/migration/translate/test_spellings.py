"""An entity is not its spelling: znodes that no tool of Kafka's would write so, as brokers in ZooKeeper mode read them."""

from __future__ import annotations

from typing import Any

import orjson

from migrator.image.model import MetadataImage
from migrator.migration.translate.reconcile import reconcile
from migrator.zookeeper.znodes.quotas import format_quota, parse_quota
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import empty_cluster, image_from, target


def with_znodes(znodes: dict[str, Any]) -> ModelZooKeeper:
    """An empty cluster with these znodes; what is no bytes is written as JSON."""
    zookeeper = empty_cluster()
    zookeeper.load(
        {path: data if isinstance(data, bytes | None) else orjson.dumps(data) for path, data in znodes.items()}
    )
    return zookeeper


def copied(zookeeper: ModelZooKeeper) -> MetadataImage:
    """What a copy makes of it, which nothing has to be written for."""
    image = image_from(zookeeper)
    assert list(reconcile(zookeeper, target(image))) == []
    return image


class TestAcls:
    @staticmethod
    def of(principal: str) -> dict[str, Any]:
        entry = {"principal": principal, "permissionType": "Allow", "operation": "All", "host": "*"}
        return {"version": 1, "acls": [entry]}

    def test_below_a_type_in_another_case_no_broker_reads_them(self) -> None:
        """Brokers look up any case, and then list the znode with the type's own name."""
        wrong = {f"/kafka-acl/{name}/t": self.of("User:intruder") for name in ("topic", "TOPIC", "Topics")}
        prefixed = {"/kafka-acl-extended/prefixed/transactionalid/t": self.of("User:intruder")}
        assert not copied(with_znodes(wrong | prefixed)).acls
        image = copied(with_znodes({"/kafka-acl/Topic/t": self.of("User:big"), **wrong, **prefixed}))
        assert [acl.principal for acl in image.acls.values()] == ["User:big"]


class TestNumbers:
    def test_unlimited_stays_the_longest_long(self) -> None:
        """What "no limit" is written as (KAFKA-2209); no broker parses one more, and none starts with it."""
        for text in ("9223372036854775807", "9223372036854775806"):
            quota = parse_quota("/q", "producer_byte_rate", text)
            assert format_quota("producer_byte_rate", quota) == "9223372036854775807"
