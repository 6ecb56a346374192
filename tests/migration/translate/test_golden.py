"""Against stock Kafka 3.9.1: its ZooKeeper of every family, the image that it made of it, the ZooKeeper it left."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from migrator.image.model import MetadataImage
from migrator.log.snapshots import iter_snapshot
from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.records.metadata import RegisterBrokerRecord
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import decode_acls, encode_acl_change, encode_acls
from migrator.zookeeper.znodes.broker_ids import decode_broker, encode_broker
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id, encode_cluster_id
from migrator.zookeeper.znodes.configs import decode_config, encode_config, encode_config_change
from migrator.zookeeper.znodes.controller import (
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from migrator.zookeeper.znodes.delegation_tokens import (
    decode_token,
    encode_token,
    encode_token_change,
)
from migrator.zookeeper.znodes.migration import decode_migration, encode_migration
from migrator.zookeeper.znodes.partition_state import decode_partition_state, encode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids, encode_producer_ids
from migrator.zookeeper.znodes.topics import decode_topic, encode_topic
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import apply, comparable, copy_records, read_image
from tests.zookeeper.znodes.support.notices import decode_acl_change, decode_config_change, decode_token_change

GOLDEN = Path(__file__).parents[2] / "golden" / "stock-3.9.1"
BEFORE, AFTER = GOLDEN / "zookeeper.jsonl", GOLDEN / "zookeeper-after.jsonl"

CODECS: list[tuple[str, Callable[..., Any], Callable[..., bytes]]] = [
    (paths.TOKEN_CHANGES, decode_token_change, encode_token_change),
    (paths.TOKENS, decode_token, encode_token),
    (paths.CONFIG_CHANGES, decode_config_change, encode_config_change),
    (paths.CONFIG, decode_config, encode_config),
    (paths.LITERAL_ACL_CHANGES, decode_acl_change, encode_acl_change),
    (paths.PREFIXED_ACL_CHANGES, decode_acl_change, encode_acl_change),
    ("/kafka-acl", decode_acls, encode_acls),
    (paths.BROKER_IDS, decode_broker, encode_broker),
    (paths.CLUSTER_ID, decode_cluster_id, encode_cluster_id),
    (paths.CONTROLLER_EPOCH, decode_controller_epoch, encode_controller_epoch),
    (paths.CONTROLLER, decode_controller, encode_controller),
    (paths.MIGRATION, decode_migration, encode_migration),
    (paths.PRODUCER_IDS, decode_producer_ids, encode_producer_ids),
]


def passwords() -> PasswordEncoder:
    properties = dict(line.split("=", 1) for line in (GOLDEN / "cluster.properties").read_text().splitlines() if line)
    return PasswordEncoder(properties["password.encoder.secret"], random.Random(1).randbytes)


def load(file: Path) -> ModelZooKeeper:
    znodes = [json.loads(line) for line in file.read_text().splitlines()]
    zookeeper = ModelZooKeeper()
    zookeeper.load(
        {znode["path"]: None if znode["data"] is None else base64.b64decode(znode["data"]) for znode in znodes},
        {znode["path"]: znode["stat"]["version"] for znode in znodes},
    )
    return zookeeper


def our_image(zookeeper: ModelZooKeeper) -> MetadataImage:
    return read_image(copy_records(zookeeper, passwords=passwords(), random=random.Random(1)))


def stock_image() -> MetadataImage:
    """The records of stock's snapshot after the migration, without registrations."""
    batches = [batch for batch in iter_snapshot(GOLDEN / "migrated.checkpoint") if not batch.header.is_control]
    records = itertools.chain.from_iterable(batch.records() for batch in batches)
    return read_image(record for record, _ in records if not isinstance(record, RegisterBrokerRecord))


def differences(zookeeper: ModelZooKeeper, image: MetadataImage) -> list[EntityWrite]:
    return list(reconcile(zookeeper, Target(image, passwords=passwords(), controller_epoch=1)))


@pytest.mark.parametrize("file", [BEFORE, AFTER], ids=["before", "after"])
def test_every_znode_survives_its_codec(file: Path) -> None:
    seen = set()
    for path, data in load(file).dump().items():
        if data is None or path.startswith(("/feature", "/consumers", "/admin")):
            continue
        if path.startswith(paths.BROKER_IDS) and data == b"{}":
            continue  # the brokers that stock migrated with were played by a script
        codec = _codec(path)
        assert codec is not None, path
        prefix, decode, encode = codec
        seen.add(prefix)
        assert _normal(encode(decode(path, data))) == _normal(data), path
    assert len(seen) >= len(CODECS)


def test_our_image_of_stocks_zookeeper_is_stocks() -> None:
    assert comparable(our_image(load(BEFORE))) == comparable(stock_image())


def test_a_reconcile_leaves_stocks_zookeeper_alone_but_finishes_its_deletions() -> None:
    zookeeper = load(BEFORE)
    image = our_image(zookeeper)
    (write,) = differences(zookeeper, image)
    assert (write.entity, write.effect) == ("topic gone", Effect.FINISH_DELETION)
    apply(zookeeper, [write])
    assert differences(zookeeper, image) == []
    assert not [path for path in zookeeper.dump() if path.endswith("/gone")]


def test_a_reconcile_leaves_what_stock_wrote_alone() -> None:
    """Stock rewrites much of this at every takeover."""
    assert differences(load(AFTER), stock_image()) == []


def _codec(path: str) -> tuple[str, Callable[..., Any], Callable[..., bytes]] | None:
    if path.endswith("/state"):
        return "state", decode_partition_state, encode_partition_state
    if path.startswith(f"{paths.TOPICS}/"):
        return "topic", decode_topic, encode_topic
    return next((codec for codec in CODECS if path.startswith(codec[0])), None)


def _normal(data: bytes) -> object:
    """JSON regardless of order; lists of ACLs are sets."""
    if not data.startswith(b"{"):
        return data
    fields = orjson.loads(data)
    if "acls" in fields:
        fields["acls"] = sorted(fields["acls"], key=repr)
    return fields
