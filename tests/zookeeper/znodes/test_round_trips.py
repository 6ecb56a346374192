"""Every family: value -> bytes -> value, bytes -> value -> bytes, and hostile bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.zookeeper.znodes import (
    acls,
    broker_ids,
    cluster_id,
    configs,
    controller,
    delegation_tokens,
    migration,
    partition_state,
    producer_ids,
    topics,
)
from migrator.zookeeper.znodes.errors import ZnodeError
from tests.lanes import examples
from tests.zookeeper.znodes.support import notices
from tests.zookeeper.znodes.support import strategies as some


@dataclass(frozen=True)
class Family:
    """``path`` makes the znode's path from the value, for codecs that compare the two."""

    values: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[str, bytes | None], Any]
    path: Callable[[Any], str] = lambda _: "/path"


FAMILIES = {
    "topic": Family(some.topic_assignments(), topics.encode_topic, topics.decode_topic),
    "state": Family(
        some.partition_states, partition_state.encode_partition_state, partition_state.decode_partition_state
    ),
    "config": Family(some.configs, configs.encode_config, configs.decode_config),
    "acls": Family(some.acl_sets, acls.encode_acls, acls.decode_acls),
    "token": Family(
        some.tokens,
        delegation_tokens.encode_token,
        delegation_tokens.decode_token,
        lambda token: f"/delegation_token/tokens/{token.token_id}",
    ),
    "producer_ids": Family(
        some.producer_id_blocks(), producer_ids.encode_producer_ids, producer_ids.decode_producer_ids
    ),
    "controller": Family(some.controller_claims, controller.encode_controller, controller.decode_controller),
    "controller_epoch": Family(
        st.integers(0, controller.EPOCH_MAX), controller.encode_controller_epoch, controller.decode_controller_epoch
    ),
    "migration": Family(some.migration_states, migration.encode_migration, migration.decode_migration),
    "cluster_id": Family(some.text, cluster_id.encode_cluster_id, cluster_id.decode_cluster_id),
    "broker": Family(some.brokers(), broker_ids.encode_broker, broker_ids.decode_broker),
}
NOTICES = {
    "config_change": Family(some.names, configs.encode_config_change, notices.decode_config_change),
    "acl_change": Family(some.patterns, acls.encode_acl_change, notices.decode_acl_change, acls.acl_change_prefix),
    "token_change": Family(some.node_names, delegation_tokens.encode_token_change, notices.decode_token_change),
}
"""Fields that the product writes and never reads."""
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@pytest.mark.parametrize("family", [*FAMILIES.values(), *NOTICES.values()], ids=[*FAMILIES, *NOTICES])
@given(data=st.data())
def test_values_survive_bytes_and_bytes_survive_values(family: Family, data: st.DataObject) -> None:
    value = data.draw(family.values)
    encoded = family.encode(value)
    decoded = family.decode(family.path(value), encoded)
    assert decoded == value
    assert family.encode(decoded) == encoded


@each_family
@given(data=st.data())
def test_hostile_bytes_raise_nothing_but_znode_errors(family: Family, data: st.DataObject) -> None:
    raw = data.draw(
        st.none()
        | st.binary(max_size=40)
        | st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | some.text,
            lambda leaf: st.lists(leaf, max_size=3) | st.dictionaries(some.text, leaf, max_size=3),
            max_leaves=6,
        ).map(orjson.dumps)
    )
    try:
        family.decode("/some/path", raw)
    except ZnodeError as error:
        assert error.where == "/some/path"  # noqa: PT017 - decoding is also allowed to succeed
        assert error.remedy  # noqa: PT017


@each_family
@settings(max_examples=examples(60))
@given(data=st.data())
def test_one_wrong_field_raises_nothing_but_znode_errors(family: Family, data: st.DataObject) -> None:
    """Hostile values in an otherwise good znode reach deeper than random bytes do."""
    value = data.draw(family.values)
    try:
        document = orjson.loads(family.encode(value))
    except orjson.JSONDecodeError:
        return
    wrong: Any = data.draw(
        st.sampled_from([None, True, -1, 2**31, 2**63, 1.5, "", "x", "9" * 5000, [], [[]], [1, 1], {}])
    )
    holder = document
    while isinstance(holder, dict) and holder:
        key = data.draw(st.sampled_from(sorted(holder)))
        if isinstance(holder[key], dict) and holder[key] and data.draw(st.booleans()):
            holder = holder[key]
        else:
            holder[key] = wrong
            break
    try:
        family.decode(family.path(value), orjson.dumps(document))
    except ZnodeError as error:
        assert str(error).startswith(family.path(value))  # noqa: PT017
