"""The same on a real ZooKeeper server, through the bulk reader and the conditional writer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.translate.reconcile import reconcile, repair
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_ops import delta_writes
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied, Create, Failed
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from tests.conftest import ZooKeeperSpace
from tests.image.support.differences import changes_between
from tests.migration.support.images import comparable, copy_records, read_image
from tests.migration.translate.test_golden import BEFORE, load, our_image, passwords


@pytest.fixture
def session(zookeeper: ZooKeeperSpace) -> Iterator[ZooKeeperSession]:
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as started:
        yield started


def write(session: ZooKeeperSession, writes: Iterable[EntityWrite], target: Target) -> int:
    """As the write-behind does: an entity that is not as believed is read again, once; how many were."""
    writer, repaired = ConditionalWriter(session), 0
    for entity in writes:
        outcomes = [writer.write((*entity.ops, *entity.notices))]
        if isinstance(outcomes[0], Failed):
            repaired += 1
            again = repair(BulkReader(session), target, entity.entity)
            outcomes = [writer.write((*write.ops, *write.notices)) for write in again]
        assert all(isinstance(outcome, Applied) for outcome in outcomes)
    return repaired


def target(image: MetadataImage) -> Target:
    return Target(image, passwords=passwords(), controller_epoch=8)


def image_of(session: ZooKeeperSession) -> MetadataImage:
    return read_image(copy_records(BulkReader(session), passwords=passwords(), random=random.Random(1)))


def test_stocks_zookeeper_is_read_as_from_the_model(session: ZooKeeperSession) -> None:
    model = load(BEFORE)
    parts = split_ops(Create(path, data) for path, data in model.dump().items())
    writer = ConditionalWriter(session)
    assert all(isinstance(writer.write(part), Applied) for part in parts)
    model.load({}, dict.fromkeys(model.dump(), 0))  # versions are not part of a dump's content
    assert comparable(image_of(session)) == comparable(our_image(model))


def test_images_are_written_changed_removed_and_read_back(session: ZooKeeperSession) -> None:
    image, reader = our_image(load(BEFORE)), BulkReader(session)
    full, empty = target(image), target(EMPTY_IMAGE)
    assert write(session, reconcile(reader, full), full) == 0
    assert comparable(image_of(session)) == comparable(image)
    assert list(reconcile(reader, full)) == []
    write(session, delta_writes(image, empty, changes_between(image, EMPTY_IMAGE)), empty)
    assert list(reconcile(reader, empty)) == []
    assert comparable(image_of(session)) == comparable(EMPTY_IMAGE) | {"producer ids": image.producer_ids_next}
    write(session, delta_writes(EMPTY_IMAGE, full, changes_between(EMPTY_IMAGE, image)), full)
    assert list(reconcile(reader, full)) == []
    assert comparable(image_of(session)) == comparable(image)
