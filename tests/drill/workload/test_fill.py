"""The filling is complete, in order, repeatable, and made of what the codecs take."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from migrator.drill.workload.fill import AWKWARD_NAMES, DOOMED_TOPIC, MOVING_TOPIC, FillOptions, fill, znodes
from migrator.errors import OperatorError
from migrator.zookeeper.ops import Create, SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import decode_acls, parse_acl_path
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.topics import decode_topic

OPTIONS = FillOptions("XkYOzJkUQQ-rHVYhnWGvTg", (1, 2, 3), 200, 1_700_000_000_000, "secret")


def test_it_can_be_repeated() -> None:
    assert list(znodes(OPTIONS)) == list(znodes(OPTIONS))


def test_parents_come_first_and_nothing_twice() -> None:
    made: set[str] = set()
    for operation in znodes(OPTIONS):
        if isinstance(operation, SetData):
            assert operation.path in made
        else:
            assert isinstance(operation, Create)
            assert operation.path not in made
            assert paths.parent_of(operation.path) in made | {"/"}
            made.add(operation.path)


def test_every_family_is_there_and_decodes() -> None:
    last = {operation.path: operation.data for operation in znodes(OPTIONS)}
    states = [path for path in last if path.endswith("/state")]
    assert len(states) == OPTIONS.partitions
    assert any(decode_partition_state(path, last[path]).leader_epoch for path in states)
    assert decode_topic("", last[paths.topic(MOVING_TOPIC)]).adding[0]
    assert paths.delete_topic(DOOMED_TOPIC) in last
    for name in AWKWARD_NAMES:
        path = f"{paths.USER_CONFIGS}/{paths.sanitize(name)}"
        assert paths.desanitize(path, paths.name_of(path)) == name
        decode_config(path, last[path])
    acls = [path for path in last if parse_acl_path(path) is not None]
    assert all(decode_acls(path, last[path]) for path in acls)
    assert len(acls) == 12
    for family in (paths.PRODUCER_IDS, paths.CLUSTER_ID, f"{paths.BROKER_CONFIGS}/{paths.DEFAULT_ENTITY}"):
        assert last[family]
    assert any(path.startswith(f"{paths.TOKENS}/") for path in last)


def test_it_is_written_with_nulls_and_only_once(zookeeper_client: KazooClient) -> None:
    expected = {operation.path for operation in znodes(OPTIONS)}
    assert fill(zookeeper_client, OPTIONS) == len(expected)
    assert zookeeper_client.get(paths.TOPICS)[0] is None
    assert zookeeper_client.get(paths.CONTROLLER_EPOCH)[0] == b"7"
    with pytest.raises(OperatorError, match="another directory"):
        fill(zookeeper_client, OPTIONS)
