"""A change that makes a znode larger than ZooKeeper takes is refused, whatever family the znode is of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.index import ControllerIndex
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.migration.translate.to_ops import delta_writes
from migrator.migration.write_behind.multis import Limits
from migrator.migration.write_behind.sizes import check_sizes, too_large
from migrator.records import metadata as rec
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.uuid import Uuid
from migrator.zookeeper.ops import Create, SetData
from migrator.zookeeper.request_size import bytes_of_one, op_bytes
from tests.image.support.differences import changes_between
from tests.lanes import examples
from tests.migration.support.images import PASSWORDS, target

Records = list[rec.MetadataRecord]
TOPIC = Uuid(bytes(15) + b"\xff")


def uuid(number: int) -> Uuid:
    return Uuid((1_000 + number).to_bytes(16, "big"))


def partition(number: int, replicas: int = 3, *, adding: tuple[int, ...] = ()) -> rec.PartitionRecord:
    ids = tuple(range(1, replicas + 1))
    return rec.PartitionRecord(number, TOPIC, ids, ids, (), adding, 1, 0, 0, 0)


def after(image: MetadataImage, records: Records) -> MetadataImage:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(Provenance(image.provenance.offset + 1, 1, 0))[0]


def topic(count: int) -> Records:
    return [rec.TopicRecord("large", TOPIC), *(partition(number) for number in range(count))]


def more_partitions(_: int) -> Records:
    return [partition(number) for number in range(50, 90)]


def reassigned(_: int) -> Records:
    return [
        rec.PartitionChangeRecord(
            number, TOPIC, replicas=(1, 2, 3, 1004), adding_replicas=(1004,), removing_replicas=(1,)
        )
        for number in range(50)
    ]


def config(kind: int, name: str) -> Callable[[int], Records]:
    def records(count: int) -> Records:
        return [rec.ConfigRecord(kind, name, f"key-{number}", "ü\x01" * 20) for number in range(count)]

    return records


def password(_: int) -> Records:
    return [rec.ConfigRecord(rec.ConfigResourceType.BROKER, "1", "ssl.key.password", "p" * 3_000)]


def acls(count: int) -> Records:
    return [
        rec.AccessControlEntryRecord(
            uuid(number),
            ResourceType.TRANSACTIONAL_ID,
            "r",
            PatternType.PREFIXED,
            f"User:ü\x01{number}",
            "*",
            AclOperation.IDEMPOTENT_WRITE,
            AclPermission.ALLOW,
        )
        for number in range(count)
    ]


def more_acls(_: int) -> Records:
    return acls(90)[50:]


def credential(_: int) -> Records:
    mechanism = rec.ScramMechanism.SHA_512
    return [rec.UserScramCredentialRecord("alice", mechanism, b"s" * 4_000, b"k" * 64, b"k" * 64, 4_096)]


def token(count: int) -> Records:
    renewers = tuple(f"User:renewer-{number}" for number in range(count))
    return [rec.DelegationTokenRecord("User:a", "User:b", renewers, 1, 2, 3, "t")]


NOTHING: Callable[[int], Records] = lambda _: []  # noqa: E731 - a row of the table below
FAMILIES = {
    "a new topic": (NOTHING, topic),
    "more partitions": (topic, more_partitions),
    "a reassignment": (topic, reassigned),
    "the config of a new topic": (
        NOTHING,
        lambda count: [rec.TopicRecord("large", TOPIC), partition(0), *config(2, "large")(count)],
    ),
    "the config of a topic": (lambda _: topic(1), config(2, "large")),
    "the config of a broker": (config(4, "1"), lambda count: config(4, "1")(count + 9)),
    "a password": (NOTHING, password),
    "ACLs": (NOTHING, acls),
    "more ACLs": (acls, more_acls),
    "a credential": (NOTHING, credential),
    "a token": (NOTHING, token),
}


def largest(before: MetadataImage, image: MetadataImage) -> int:
    """Of all that is written and can grow without end."""
    return max(
        op_bytes(op)
        for write in delta_writes(before, target(image), changes_between(before, image))
        for op in write.ops
        if isinstance(op, Create | SetData) and not op.path.endswith("/state")
    )


def check(image: MetadataImage, records: Records, size: int) -> None:
    """With servers that take one operation of ``size``."""
    limits = Limits(jute_maxbuffer=size - bytes_of_one(0))
    assert limits.max_op_bytes == size
    index = ControllerIndex.of(image)
    check_sizes(image, records, acl_bytes=index.acl_bytes, limits=limits, passwords=PASSWORDS)


def large(image: MetadataImage, size: int) -> dict[str, int]:
    """Of the whole image, with such servers."""
    return too_large(image, limits=Limits(jute_maxbuffer=size - bytes_of_one(0)), passwords=PASSWORDS)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_limit_is_exact_for_every_family(family: str) -> None:
    held, changed = FAMILIES[family]
    before = after(EMPTY_IMAGE, held(50))
    records = changed(50)
    image = after(before, records)
    size, whole = largest(before, image), largest(EMPTY_IMAGE, image)
    assert (large(image, whole), set(large(image, whole - 1).values())) == ({}, {whole})
    check(before, records, size)
    with pytest.raises(RefusedError, match=r"takes no more than .*migrator\.zookeeper\.jute\.maxbuffer") as refused:
        check(before, records, size - 1)
    assert refused.value.error.code is ErrorCode.policy_violation


def test_what_is_too_large_may_become_smaller() -> None:
    """The znode was so large before the migration, or before the setting was lowered."""
    before = after(EMPTY_IMAGE, [*topic(50), *reassigned(50), *config(4, "1")(50), *acls(50)])
    finished: Records = [
        rec.PartitionChangeRecord(number, TOPIC, replicas=(2, 3, 1004), adding_replicas=(), removing_replicas=())
        for number in range(50)
    ]
    check(before, finished, 500)
    check(before, [rec.ConfigRecord(4, "1", "key-0", None)], 500)
    check(before, [rec.RemoveAccessControlEntryRecord(uuid(0))], 500)
    check(before, [rec.RemoveTopicRecord(TOPIC)], 500)
    with pytest.raises(RefusedError):
        check(before, [rec.ConfigRecord(4, "1", "key-0", "v" * 1_000)], 500)


def test_vital_records_are_not_looked_at() -> None:
    before = after(EMPTY_IMAGE, topic(50))
    check(before, [rec.PartitionChangeRecord(0, TOPIC, isr=(1,), leader=1), rec.ProducerIdsRecord(1, 5, 1_000)], 100)


def test_nothing_is_encoded_where_nothing_can_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """45 partitions take some kilobytes; the default limit is a megabyte."""

    def unexpected(*_: object) -> None:
        raise AssertionError("built an image")

    monkeypatch.setattr("migrator.migration.write_behind.sizes.ImageBuilder", unexpected)
    limits = Limits()
    before = after(EMPTY_IMAGE, [*topic(45), *acls(45)])
    for records in (more_partitions(0), reassigned(0), more_acls(0), config(4, "1")(20), token(20), credential(0)):
        check_sizes(before, records, acl_bytes=ControllerIndex.of(before).acl_bytes, limits=limits, passwords=PASSWORDS)
    monkeypatch.setattr("migrator.migration.write_behind.sizes._znodes", unexpected)
    assert too_large(before, limits=limits, passwords=PASSWORDS) == {}


texts = st.text(max_size=40)


@settings(max_examples=examples(60))
@given(
    counts=st.tuples(st.integers(0, 30), st.integers(1, 30)),
    replicas=st.integers(1, 4),
    adding=st.lists(st.integers(0, 2**31 - 1), max_size=3, unique=True).map(tuple),
    values=st.lists(st.tuples(texts.filter(bool), texts), min_size=1, max_size=20),
)
def test_the_bound_never_lies_below_the_size(
    counts: tuple[int, int], replicas: int, adding: tuple[int, ...], values: list[tuple[str, str]]
) -> None:
    held, new = counts
    brokers = [
        rec.RegisterBrokerRecord(number, False, uuid(number), number, (), (), None, True, False, ())
        for number in range(1, 5)
    ]
    first: Records = [*brokers, rec.TopicRecord("large", TOPIC), *(partition(n, replicas) for n in range(held))]
    before = after(EMPTY_IMAGE, first)
    records: Records = [partition(n, replicas, adding=adding) for n in range(held, held + new)]
    records += [rec.ConfigRecord(4, "1", key, text) for key, text in values]
    size = largest(before, after(before, records))
    check(before, records, size)
    with pytest.raises(RefusedError):
        check(before, records, size - 1)
