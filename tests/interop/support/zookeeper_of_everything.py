"""A ZooKeeper with every family of znodes: written by stock brokers, by the drill, and by hand in odd forms.

Our copy and Kafka's copy of it must give the same image.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kazoo.client import KazooClient

from migrator.drill.workload.fill import FillOptions, write, znodes
from migrator.records.uuid import Uuid, uuid_to_text
from migrator.zookeeper.ops import Create, SetData
from migrator.zookeeper.znodes import paths
from tests.golden.stock import STOCK_391, read_dump

SETTINGS = STOCK_391.settings()
CLUSTER_ID = SETTINGS["cluster.id"]
BROKERS = (1, 2, 3)
TOPICS_OF_THE_DRILL = 40

_DEFAULT = paths.DEFAULT_ENTITY
_ALLOW = {"principal": "User:a", "permissionType": "Allow", "operation": "IdempotentWrite", "host": "*"}
_TOKEN = {"owner": "User%3Aalice", "renewers": [], "issueTimestamp": 5, "maxTimestamp": 7, "expiryTimestamp": 6}


def _topic(number: int, **fields: object) -> dict[str, object]:
    return {"version": 3, "topic_id": uuid_to_text(Uuid((2000 + number).to_bytes(16, "big")))} | fields


def _state(leader: int, *isr: int, **more: int) -> dict[str, object]:
    return {"controller_epoch": 2, "leader": leader, "version": 1, "leader_epoch": 5, "isr": list(isr)} | more


def _config(**config: str) -> dict[str, object]:
    return {"version": 1, "config": {key.replace("_", "."): text for key, text in config.items()}}


def _quota(**quotas: str) -> dict[str, object]:
    return {"version": 1, "config": quotas}


ODD_FORMS: dict[str, object] = {
    # A topic that nobody reassigned since 2.8; no config node, no states: its brokers were never told of it.
    paths.topic("no-states"): _topic(1, partitions={"0": [1, 2], "1": [3, 1]}),
    paths.topic("no-leader"): _topic(2, partitions={"0": [1, 2]}, adding_replicas={}, removing_replicas={}),
    paths.topic_config("no-leader"): None,
    paths.partition_state("no-leader", 0): _state(-1, 2),
    # A reassignment's maps may name partitions with nothing to add or remove.
    paths.topic("moving"): _topic(
        3,
        partitions={"0": [3, 1, 2], "1": [1, 2]},
        adding_replicas={"0": [3], "1": []},
        removing_replicas={"0": [2], "1": []},
    ),
    paths.topic_config("moving"): _config(),
    paths.partition_state("moving", 0): _state(1, 1, 2, leader_recovery_state=0),
    paths.partition_state("moving", 1): _state(1, 2, 1),
    # Configs of what is not there any more, or not yet.
    paths.topic_config("never-created"): _config(retention_ms="1"),
    f"{paths.BROKER_CONFIGS}/77": _config(log_cleaner_threads="3", unknown_key=""),
    # A user whose name is what stands for the default; entities emptied again.
    f"{paths.USER_CONFIGS}/%3Cdefault%3E": _quota(producer_byte_rate="1000", request_percentage="0.5"),
    f"{paths.USER_CONFIGS}/emptied": _quota(),
    f"{paths.USER_CONFIGS}/emptied/clients/{_DEFAULT}": _quota(),
    f"{paths.CLIENT_CONFIGS}/%25": _quota(consumer_byte_rate="4096"),
    f"{paths.IP_CONFIGS}/10.0.0.9": _quota(connection_creation_rate="7"),
    # Entries twice, none, no data; types that only a newer or an older Kafka knows.
    "/kafka-acl/Topic/twice": {"version": 1, "acls": [_ALLOW, _ALLOW, _ALLOW | {"principal": "Group:b:c"}]},
    "/kafka-acl/Topic/none": {"version": 1, "acls": []},
    "/kafka-acl/Topic/no-data": None,
    "/kafka-acl/Planet/earth": {"version": 1, "acls": [_ALLOW]},
    "/kafka-acl-extended/prefixed/Group/*": {"version": 1, "acls": [_ALLOW | {"operation": "DescribeConfigs"}]},
    # Tokens of before KIP-373, which had no requester, and one that is only a name.
    paths.token("of-version-1"): _TOKEN | {"version": 1, "tokenId": "of-version-1"},
    paths.token("of-version-2"): _TOKEN | {"version": 2, "tokenId": "of-version-2", "renewers": ["User%3Ac%40%40l"]},
    paths.token("no-data"): None,
}
"""Content that Kafka's readers take and its newest writers do not write: JSON or no data, by path."""


def fill_everything(client: KazooClient, now_ms: int) -> None:
    """Write it below the client's root."""
    write(client, operations(now_ms))


def operations(now_ms: int) -> Iterator[Create | SetData]:
    """Parents first; of what comes twice, the first counts. Versions of znodes are as in stock's dump."""
    made: set[str] = set()
    for operation in _all(now_ms):
        if isinstance(operation, SetData) or operation.path not in made:
            for parent in paths.ancestors(operation.path):
                if parent not in made:
                    made.add(parent)
                    yield Create(parent, None)
            yield operation
            made.add(operation.path)


def _all(now_ms: int) -> Iterator[Create | SetData]:
    dumped = read_dump(STOCK_391.before)
    for znode in dumped:
        yield Create(znode.path, znode.data)
        for _ in range(znode.stat.version if znode.data else 0):
            yield SetData(znode.path, znode.data)
    stocks = {znode.path for znode in dumped}
    options = FillOptions(CLUSTER_ID, BROKERS, TOPICS_OF_THE_DRILL, now_ms, SETTINGS["password.encoder.secret"])
    yield from (operation for operation in znodes(options) if operation.path not in stocks)
    for path, content in ODD_FORMS.items():
        yield Create(path, None if content is None else json.dumps(content).encode())
