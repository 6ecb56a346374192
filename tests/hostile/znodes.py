"""Znodes of other programs: valid JSON, or nearly, with content that no broker would write."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_records import RecordReader
from migrator.records.codec import encode_all
from migrator.records.errors import TooLongError
from migrator.records.metadata import MetadataRecord
from migrator.records.versions import LATEST_SUPPORTED
from migrator.zookeeper.leadership import ClaimPlan, ClaimView, plan_claim, plan_release, read_view
from migrator.zookeeper.ops import SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import decode_broker
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from migrator.zookeeper.znodes.controller import decode_controller_epoch
from migrator.zookeeper.znodes.errors import ZnodeError
from tests.hostile.readable import BESIDE, faults_for_stock
from tests.hostile.values import TEXTS
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.images import read_image
from tests.migration.translate.test_golden import BEFORE, load, passwords

INTEGERS: Final = (-(2**63), -(2**31) - 1, -(2**31), -2, -1, 0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63)
"""Numbers that fit into a field of some width, and numbers that do not."""
ODD: Final[tuple[Any, ...]] = (
    2**64 - 1,
    2**64,
    10**400,
    0.5,
    True,
    False,
    None,
    "",
    [],
    {},
    [[]],
    {"a": {}},
    "1",
    "-9223372036854775808",
)
CHANGES: Final = 3
"""At most, of one znode."""
AT: Final[dict[str, Callable[[str], bool]]] = {
    "topic": lambda path: path.startswith(f"{paths.TOPICS}/") and path.count("/") == 3,
    "partition state": lambda path: path.endswith("/state"),
    "topic config": lambda path: path.startswith(f"{paths.CONFIG}/topics/"),
    "broker config": lambda path: path.startswith(f"{paths.BROKER_CONFIGS}/"),
    "client config": lambda path: path.startswith(
        tuple(f"{root}/" for root in (paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS))
    ),
    "access control list": lambda path: path.startswith("/kafka-acl") and path.count("/") == 3 and "change" not in path,
    "delegation token": lambda path: path.startswith(f"{paths.TOKENS}/"),
    "producer ids": lambda path: path == paths.PRODUCER_IDS,
    "broker registration": lambda path: path.startswith(f"{paths.BROKER_IDS}/"),
    "cluster id": lambda path: path == paths.CLUSTER_ID,
    "controller": lambda path: path == paths.CONTROLLER,
    "controller epoch": lambda path: path == paths.CONTROLLER_EPOCH,
    "migration": lambda path: path == paths.MIGRATION,
}
"""Where the znodes of a sort are."""
SINGLE: Final[dict[str, Callable[[str, bytes | None], Any]]] = {
    "broker registration": decode_broker,
    "cluster id": decode_cluster_id,
    "controller epoch": decode_controller_epoch,
}
"""Read by themselves; the others are read together."""
CLAIM: Final = frozenset({"controller", "controller epoch", "migration"})
"""The znodes that decide a claim."""
MISSING: Final = {
    paths.MIGRATION: b'{"version":0,"kraft_controller_id":3001,"kraft_controller_epoch":5,"kraft_metadata_offset":7,'
    b'"kraft_metadata_epoch":5}',
    paths.CONTROLLER: b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}',
    f"{paths.BROKER_IDS}/99": b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":'
    b'["PLAINTEXT://h:9092"],"rack":null,"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}',
}
"""Of what stock's ZooKeeper does not hold at that moment."""


@cache
def _golden() -> ModelZooKeeper:
    """A complete ZooKeeper that a stock cluster has written."""
    found = load(BEFORE)
    content = {**found.dump(), **{path: data for path, data in MISSING.items() if found.get(path) is None}}
    whole = ModelZooKeeper()
    whole.load(content, {path: version for path, version in found.dump_versions().items() if path in content})
    return whole


def hold(random: Random, sort: str) -> None:
    """Read a ZooKeeper with one hostile znode as a migration does, and write it back.

    :raises AssertionError: something came of it that stock could not read, or that does not fit a record.
    """
    golden = _golden()
    content, versions = golden.dump(), golden.dump_versions()
    if sort == "names of children":
        parent = random.choice(
            (paths.TOPICS, paths.BROKER_CONFIGS, paths.USER_CONFIGS, paths.TOKENS, "/kafka-acl/Topic")
        )
        name = random.choice([text for text in TEXTS if text.strip(".") and "/" not in text and "\0" not in text])
        content[path := f"{parent}/{name}"] = random.choice([data for data in content.values() if data])
    else:
        path = random.choice(sorted(path for path in content if AT[sort](path)))
        content[path] = _spoilt(random, content[path])
        if random.random() < 0.2:
            versions[path] = random.choice((0, 2**31 - 2, 2**31 - 1))
    zookeeper = ModelZooKeeper()
    zookeeper.load(content, {path: version for path, version in versions.items() if path in content})
    if sort in SINGLE:
        _decoded(SINGLE[sort], path, content[path])
    if sort in CLAIM:
        _claim(zookeeper)
    elif sort not in SINGLE:
        _copy(zookeeper)


def _claim(zookeeper: ModelZooKeeper) -> None:
    try:
        view: ClaimView = read_view(zookeeper.read)
        plan = plan_claim(view, controller_id=3001, kraft_epoch=8, now_ms=1)
        plan_release(view, kraft_epoch=8)
    except OperatorError:
        return
    if isinstance(plan, ClaimPlan):
        assert 0 < plan.zk_epoch < 2**31, plan
        for op in plan.ops:
            if isinstance(op, SetData) and op.path == paths.CONTROLLER_EPOCH:
                assert int(op.data or b"-1") == plan.zk_epoch


def _copy(zookeeper: ModelZooKeeper) -> None:
    faults: list[ZnodeError] = []
    reader = RecordReader(zookeeper, passwords=passwords(), random=Random(1), on_fault=faults.append)
    records: list[MetadataRecord] = [record for some in reader.all_records() for record in some]
    for record in records:
        for fault in set(faults_for_stock(record)) - {BESIDE}:  # ZooKeeper's controllers leave such a state, too
            raise AssertionError(f"stock can't read {record}: {fault}")
    try:
        encode_all(records, LATEST_SUPPORTED)
    except TooLongError:  # the copy stops before it writes anything, and says which record it is
        return
    image: MetadataImage = read_image(records)
    for write in reconcile(zookeeper, Target(image, passwords=passwords(), controller_epoch=1)):
        assert write.ops is not None


def _decoded(decode: Callable[[str, bytes | None], Any], path: str, data: bytes | None) -> None:
    try:
        decode(path, data)
    except ZnodeError as error:
        str(error).encode()


def _spoilt(random: Random, data: bytes | None) -> bytes | None:
    dice = random.random()
    if dice < 0.06:
        return random.choice((None, b"", b"null", b"[]", b"{}", b"0", b"\xff\xfe", b"[" * 3_000, b'{"a":' * 3_000))
    try:
        content = json.loads(data or b"{}")
    except ValueError:
        return str(random.choice(INTEGERS)).encode() if dice < 0.7 else random.choice(TEXTS).encode()
    if not isinstance(content, dict):
        return str(random.choice(INTEGERS)).encode()
    for _ in range(random.randint(1, CHANGES)):
        _change(random, content)
    text = json.dumps(content).encode()
    return text.replace(b"0.5", b"1e999") if random.random() < 0.05 else text


def _change(random: Random, content: dict[str, Any]) -> None:
    """One place of it, however deep."""
    place: Any = content
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = random.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and random.random() < 0.75:
            place = place[key]
            continue
        break
    dice = random.random()
    if dice < 0.1:
        del place[key]
    elif dice < 0.2 and isinstance(place, list):
        place.append(place[key])
    elif dice < 0.3 and isinstance(place, dict):
        place[random.choice(TEXTS)] = place.pop(key)
    else:
        place[key] = _worse(random, place[key])


def _worse(random: Random, before: Any) -> Any:
    if random.random() < 0.15:
        return random.choice(ODD)
    if isinstance(before, int):
        return random.choice(INTEGERS)
    if isinstance(before, str) and before.lstrip("-").isdigit():
        return str(random.choice(INTEGERS))
    if isinstance(before, list) and all(isinstance(item, int) for item in before):
        return [random.choice((*INTEGERS, 1, 2, 3)) for _ in range(random.choice((0, 1, 2, 300)))]
    if isinstance(before, str):
        return random.choice((*TEXTS, before + "\0", f"{before},iterations={random.choice(INTEGERS)}"))
    return random.choice((*ODD, *INTEGERS))
