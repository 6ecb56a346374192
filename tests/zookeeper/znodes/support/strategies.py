"""Hypothesis strategies for the values of every znode family. A value is one that Kafka could have written."""

from __future__ import annotations

from hypothesis import strategies as st

from migrator.image.model import ScramCredential
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import DelegationTokenRecord, Endpoint, FeatureRange, ScramMechanism, SecurityProtocol
from migrator.records.uuid import Uuid
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import MigrationState
from migrator.zookeeper.znodes.partition_state import PartitionState
from migrator.zookeeper.znodes.producer_ids import ProducerIdBlock
from migrator.zookeeper.znodes.scram import UserConfig
from migrator.zookeeper.znodes.topics import TopicAssignment

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
awkward_names = st.sampled_from(["c@@l dude*", "a/b", "ü~", "a+b", "%41", "<default>", "a:b,c=d"]) | names
node_names = st.text("abcXYZ019._-", min_size=1, max_size=10).filter(lambda name: name not in {".", ".."})
int32 = st.integers(-(2**31), 2**31 - 1)
epochs = st.integers(0, 2**31 - 2)
times = st.integers(-1, 2**53)
broker_id_lists = st.lists(st.integers(0, 9), unique=True, max_size=5).map(tuple)
principals = st.builds("{}:{}".format, st.sampled_from(["User", "Group"]), awkward_names)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)


@st.composite
def topic_assignments(draw: st.DrawFn) -> TopicAssignment:
    partitions = draw(st.dictionaries(st.integers(0, 30), broker_id_lists.filter(bool), max_size=5))
    if not partitions:
        return TopicAssignment(draw(st.none() | uuids), {}, {}, {})
    affected = st.dictionaries(st.sampled_from(sorted(partitions)), broker_id_lists.filter(bool), max_size=2)
    return TopicAssignment(draw(st.none() | uuids), partitions, draw(affected), draw(affected))


partition_states = st.builds(PartitionState, st.integers(-1, 9), epochs, int32, broker_id_lists, st.booleans())
configs = st.dictionaries(names, text, max_size=4)
quota_values = st.floats(allow_nan=False).map(lambda quota: quota + 0.0)
quotas = st.dictionaries(st.sampled_from(["request_percentage", "controller_mutation_rate"]), quota_values) | (
    st.dictionaries(st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]), st.integers(0, 2**63 - 1).map(float))
    | st.dictionaries(st.just("connection_creation_rate"), st.integers(0, 2**31 - 1).map(float))
)
credentials = st.builds(
    ScramCredential, st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8), st.integers(1, 2**31 - 1)
)
user_configs = st.builds(UserConfig, quotas, st.dictionaries(st.sampled_from(ScramMechanism), credentials))
acl_entries = st.builds(AclEntry, principals, text, st.sampled_from(AclOperation), st.sampled_from(AclPermission))
acl_sets = st.frozensets(acl_entries, max_size=4)
patterns = st.builds(
    ResourcePattern, st.sampled_from(ResourceType), names, st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED))
)
tokens = st.builds(
    DelegationTokenRecord,
    principals,
    principals,
    st.lists(principals, max_size=3).map(tuple),
    times,
    times,
    times,
    node_names,
)
controller_claims = st.builds(ControllerClaim, int32, times, int32)
migration_states = st.builds(MigrationState, int32, int32, st.integers(-1, 2**63 - 1), int32)


@st.composite
def producer_id_blocks(draw: st.DrawFn) -> ProducerIdBlock:
    start = draw(st.integers(0, 2**62))
    return ProducerIdBlock(draw(int32), start, start + draw(st.integers(0, 10_000)))


@st.composite
def brokers(draw: st.DrawFn) -> BrokerRegistrationZnode:
    version = draw(st.integers(1, 5))
    hosts = st.sampled_from(["", "broker-1.example.com", "10.0.0.1", "::1"])
    port = draw(st.integers(0, 65535))
    host = draw(hosts.filter(bool))
    if version == 1:
        endpoints = [Endpoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)]
    else:
        protocols = draw(st.lists(st.sampled_from(SecurityProtocol), unique=True, max_size=3))
        endpoints = [Endpoint(p.name, draw(hosts), draw(st.integers(0, 65535)), p) for p in protocols]
    ranges = st.builds(FeatureRange, node_names, st.integers(0, 3), st.integers(0, 30))
    features = draw(st.lists(ranges, unique_by=lambda feature: feature.name, max_size=2)) if version == 5 else []
    return BrokerRegistrationZnode(
        version=version,
        endpoints=tuple(endpoints),
        host=host,
        port=port,
        jmx_port=draw(st.integers(-1, 65535)),
        timestamp_ms=draw(times),
        rack=draw(st.none() | text) if version >= 3 else None,
        features=tuple(sorted(features, key=lambda feature: feature.name)),
    )
