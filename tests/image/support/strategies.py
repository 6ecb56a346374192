"""Hypothesis strategies for valid sequences of metadata records, with and without transactions.

A sequence fits the cluster that its earlier records have made, so replaying it must never fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.records import metadata as rec
from migrator.records.uuid import ZERO_UUID, Uuid

NAMES = ("a", "b", "c", "<default>", "")
KEYS = ("retention.ms", "cleanup.policy", "producer_byte_rate")
BROKERS = range(5)
EPOCH_STEP = 10


def small_uuid(number: int) -> Uuid:
    """A Uuid that is not reserved and reads well in a failing example."""
    return Uuid((1000 + number).to_bytes(16, "big"))


replica_lists = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple)
features = st.tuples(st.builds(rec.FeatureRange, st.just("metadata.version"), st.just(1), st.integers(1, 21)))
endpoints = st.lists(
    st.builds(rec.Endpoint, st.sampled_from(["A", "B"]), st.just("host"), st.integers(1, 65535), st.integers(0, 3)),
    max_size=2,
    unique_by=lambda endpoint: endpoint.name,
).map(tuple)
directories = st.integers(0, 2).map(lambda number: ZERO_UUID if number == 0 else small_uuid(number))


class _Cluster:
    """The cluster after the records drawn so far: just enough to draw a next one that fits."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, str] = {}
        self.partitions: dict[tuple[Uuid, int], int] = {}
        self.brokers: dict[int, int] = {}
        self.acls: set[Uuid] = set()
        self.scram: set[tuple[int, str]] = set()
        self.counter = 0

    def copy(self) -> _Cluster:
        copy = _Cluster()
        copy.topics, copy.partitions, copy.brokers = dict(self.topics), dict(self.partitions), dict(self.brokers)
        copy.acls, copy.scram, copy.counter = set(self.acls), set(self.scram), self.counter
        return copy

    def number(self) -> int:
        """A number not used before."""
        self.counter += 1
        return self.counter


def _topic(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord | None:
    name = draw(st.sampled_from(("t0", "t1", "t2", "t3")))
    if name in cluster.topics.values():
        return None
    topic_id = small_uuid(cluster.number())
    cluster.topics[topic_id] = name
    return rec.TopicRecord(name, topic_id)


def _remove_topic(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord | None:
    if not cluster.topics:
        return None
    topic_id = draw(st.sampled_from(sorted(cluster.topics)))
    del cluster.topics[topic_id]
    cluster.partitions = {key: size for key, size in cluster.partitions.items() if key[0] != topic_id}
    return rec.RemoveTopicRecord(topic_id)


def _partition(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord | None:
    if not cluster.topics:
        return None
    topic_id = draw(st.sampled_from(sorted(cluster.topics)))
    number = draw(st.integers(0, 5))
    if (topic_id, number) in cluster.partitions:
        return None
    replicas = draw(replica_lists)
    cluster.partitions[topic_id, number] = len(replicas)
    return rec.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=draw(st.sampled_from([replicas, replicas[:1]])),
        removing_replicas=draw(st.sampled_from([(), replicas[:1]])),
        adding_replicas=draw(st.sampled_from([(), replicas[-1:]])),
        leader=draw(st.sampled_from([*replicas, rec.NO_LEADER])),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 9)),
        partition_epoch=draw(st.integers(0, 9)),
        directories=draw(st.just(()) | st.tuples(*[directories] * len(replicas))),
    )


def _partition_change(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord | None:
    if not cluster.partitions:
        return None
    topic_id, number = key = draw(st.sampled_from(sorted(cluster.partitions)))
    replicas = draw(st.none() | replica_lists)
    size = cluster.partitions[key] if replicas is None else len(replicas)
    cluster.partitions[key] = size
    assigned = st.tuples(*[directories] * size)
    return rec.PartitionChangeRecord(
        partition_id=number,
        topic_id=topic_id,
        isr=draw(st.none() | replica_lists),
        leader=draw(st.sampled_from([rec.NO_LEADER_CHANGE, rec.NO_LEADER, *BROKERS])),
        replicas=replicas,
        removing_replicas=draw(st.none() | st.just(()) | replica_lists),
        adding_replicas=draw(st.none() | st.just(()) | replica_lists),
        leader_recovery_state=draw(st.integers(-1, 1)),
        directories=draw(st.none() | assigned if replicas is None else assigned),
    )


def _register_broker(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    broker_id = draw(st.sampled_from(BROKERS))
    cluster.brokers[broker_id] = epoch = cluster.number() * EPOCH_STEP
    return rec.RegisterBrokerRecord(
        broker_id=broker_id,
        is_migrating_zk_broker=draw(st.booleans()),
        incarnation_id=small_uuid(epoch),
        broker_epoch=epoch,
        end_points=draw(endpoints),
        features=draw(features),
        rack=draw(st.sampled_from([None, "r1"])),
        fenced=draw(st.booleans()),
        log_dirs=draw(st.sampled_from([(), (small_uuid(1), small_uuid(2))])),
    )


def _broker_change(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord | None:
    if not cluster.brokers:
        return None
    broker_id = draw(st.sampled_from(sorted(cluster.brokers)))
    epoch = cluster.brokers[broker_id]
    kind = draw(st.sampled_from("FUXC"))
    if kind == "X":
        del cluster.brokers[broker_id]
        return rec.UnregisterBrokerRecord(broker_id, epoch)
    if kind == "F":
        return rec.FenceBrokerRecord(broker_id, epoch)
    if kind == "U":
        return rec.UnfenceBrokerRecord(broker_id, epoch)
    dirs = draw(st.sampled_from([(), (small_uuid(3),)]))
    return rec.BrokerRegistrationChangeRecord(broker_id, epoch, draw(st.integers(-1, 1)), draw(st.integers(0, 1)), dirs)


def _register_controller(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    incarnation = small_uuid(cluster.number())
    return rec.RegisterControllerRecord(
        draw(st.integers(3000, 3002)), incarnation, draw(st.booleans()), draw(endpoints), draw(features)
    )


def _config(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    types = st.sampled_from([rec.ConfigResourceType.TOPIC, rec.ConfigResourceType.BROKER])
    value = draw(st.none() | st.sampled_from(["", "1", "2"]))
    return rec.ConfigRecord(
        int(draw(types)), draw(st.sampled_from(["t0", "t1", *NAMES])), draw(st.sampled_from(KEYS)), value
    )


def _quota(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    name = st.none() | st.sampled_from(NAMES)
    entity: tuple[rec.QuotaEntity, ...] = (rec.QuotaEntity(draw(st.sampled_from(["user", "ip"])), draw(name)),)
    if entity[0].entity_type == "user" and draw(st.booleans()):
        entity = (*entity, rec.QuotaEntity("client-id", draw(name)))
    return rec.ClientQuotaRecord(
        entity, draw(st.sampled_from(KEYS)), draw(st.sampled_from([1.0, 2.5])), draw(st.booleans())
    )


def _acl(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    removes = draw(st.booleans())
    if removes and cluster.acls:
        gone = draw(st.sampled_from(sorted(cluster.acls)))
        cluster.acls.remove(gone)
        return rec.RemoveAccessControlEntryRecord(gone)
    acl_id = small_uuid(cluster.number())
    cluster.acls.add(acl_id)
    numbers = st.integers(2, 4)
    return rec.AccessControlEntryRecord(
        acl_id, draw(numbers), draw(st.sampled_from(NAMES)), draw(numbers), "User:a", "*", draw(numbers), draw(numbers)
    )


def _scram(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    removes = draw(st.booleans())
    if removes and cluster.scram:
        mechanism, user = draw(st.sampled_from(sorted(cluster.scram)))
        cluster.scram.remove((mechanism, user))
        return rec.RemoveUserScramCredentialRecord(user, mechanism)
    key = (draw(st.integers(1, 2)), draw(st.sampled_from(NAMES)))
    cluster.scram.add(key)
    return rec.UserScramCredentialRecord(key[1], key[0], b"salt", b"stored", b"server", draw(st.integers(4096, 4099)))


def _token(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    token_id = draw(st.sampled_from(["x", "y"]))
    if draw(st.booleans()):
        return rec.RemoveDelegationTokenRecord(token_id)
    renewers = draw(st.sampled_from([(), ("User:b", "User:c")]))
    return rec.DelegationTokenRecord("User:a", "User:b", renewers, 1, 3, draw(st.integers(1, 3)), token_id)


def _single(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    return draw(
        st.one_of(
            st.just(rec.NoOpRecord()),
            st.builds(rec.ZkMigrationStateRecord, st.integers(0, 3)),
            st.builds(rec.ProducerIdsRecord, st.just(-1), st.just(-1), st.integers(0, 9000)),
            st.builds(
                rec.FeatureLevelRecord, st.sampled_from(["metadata.version", "group.version"]), st.integers(1, 9)
            ),
            st.just(rec.FeatureLevelRecord("group.version", 0)),
        )
    )


_Draw = Callable[[DrawFn, _Cluster], "rec.MetadataRecord | None"]
_KINDS: Sequence[_Draw] = (
    _topic, _partition, _partition, _partition_change, _partition_change, _remove_topic, _register_broker,
    _broker_change, _register_controller, _config, _quota, _acl, _scram, _token, _single,
)  # fmt: skip


def _next(draw: DrawFn, cluster: _Cluster) -> rec.MetadataRecord:
    return draw(st.sampled_from(_KINDS))(draw, cluster) or rec.NoOpRecord()


@st.composite
def record_sequences(draw: DrawFn, max_size: int = 40) -> list[rec.MetadataRecord]:
    """Records that fit an empty image, one after the other; no transactions."""
    cluster = _Cluster()
    return [_next(draw, cluster) for _ in range(draw(st.integers(0, max_size)))]


@st.composite
def transactional_sequences(draw: DrawFn, max_size: int = 30) -> list[rec.MetadataRecord]:
    """Like `record_sequences`, with transactions between: ended, aborted, and perhaps one left open at the end."""
    cluster = _Cluster()
    before: _Cluster | None = None
    records: list[rec.MetadataRecord] = []
    for _ in range(draw(st.integers(0, max_size))):
        marks = draw(st.integers(0, 4)) == 0
        if not marks:
            records.append(_next(draw, cluster))
        elif before is None:
            before = cluster.copy()
            records.append(rec.BeginTransactionRecord("t"))
        elif draw(st.booleans()):
            before = None
            records.append(rec.EndTransactionRecord())
        else:
            counter, cluster, before = cluster.counter, before, None
            cluster.counter = counter
            records.append(rec.AbortTransactionRecord("r"))
    return records


def image_of(records: Sequence[rec.MetadataRecord], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """The image that those records make, one offset a record."""
    builder = ImageBuilder(base)
    for record in records:
        builder.replay(record)
    return builder.build(Provenance(base.provenance.offset + len(records), 1, 0))[0]


def images(max_size: int = 40) -> SearchStrategy[MetadataImage]:
    """Images of everything that a cluster can hold."""
    return record_sequences(max_size).map(image_of)
