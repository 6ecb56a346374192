"""A snapshot is compared with its image without a second image."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import InvariantViolation
from migrator.image import digest as module
from migrator.image.builder import ImageBuilder
from migrator.image.digest import MODULUS, digest_steps, read_back
from migrator.image.model import MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.records import metadata as rec
from migrator.records.versions import LATEST_KNOWN
from tests.image.support.snapshots import snapshot_records
from tests.image.support.strategies import image_of, images, small_uuid
from tests.image.test_snapshot import at_level

TOPICS = range(1, 31)
PART = 8
Records = list[rec.MetadataRecord]


def compare(image: MetadataImage, records: Records) -> None:
    for _ in read_back(image, ((record, 10) for record in records)):
        pass


def makes(image: MetadataImage, records: Records) -> bool:
    """Whether the records make that image, which is built as a whole."""
    try:
        *_, read = load_snapshot(((record, 0) for record in records), image.provenance)
    except InvariantViolation:
        return False
    return read is not None and sum(digest_steps(image, read)) % MODULUS == 0


@given(images(), st.data())
def test_a_snapshot_is_that_of_its_image_and_of_no_other(image: MetadataImage, data: st.DataObject) -> None:
    newest = at_level(image, LATEST_KNOWN)
    records = list(snapshot_records(newest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TURN_RECORDS", data.draw(st.sampled_from([1, 3, 1000])))
        compare(newest, records)
        lost = data.draw(st.integers(0, len(records) - 1))
        left = records[:lost] + records[lost + 1 :]
        with nullcontext() if makes(newest, left) else pytest.raises(InvariantViolation):
            compare(newest, left)


def partition(number: int, leader: int = 1) -> rec.PartitionRecord:
    return rec.PartitionRecord(0, small_uuid(number), (1, 2), (1, 2), (), (), leader, 0, 0, 0)


def twice(records: Records) -> Records:
    """The first topic in place of the last one."""
    return [*records[:-2], *records[:2]]


def other(records: Records) -> Records:
    return [*records[:-1], partition(TOPICS[-1], leader=2)]


@pytest.mark.parametrize(("change", "is_image"), [(list, True), (twice, False), (other, False)])
def test_no_more_than_a_part_is_in_memory(
    change: Callable[[Records], Records], is_image: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ImageBuilder.image
    sizes = list[int]()

    def counted(self: ImageBuilder, provenance: Provenance) -> MetadataImage:
        image = built(self, provenance)
        sizes.append(len(image.topics.by_id))
        return image

    topics = [(rec.TopicRecord(f"t{number:02}", small_uuid(number)), partition(number)) for number in TOPICS]
    image = image_of([record for topic in topics for record in topic])
    monkeypatch.setattr(module, "TURN_RECORDS", PART)
    monkeypatch.setattr(ImageBuilder, "image", counted)
    records = change([record for topic in topics for record in topic])
    if is_image:
        compare(image, records)
        assert sum(sizes) == len(TOPICS)
    else:
        with pytest.raises(InvariantViolation, match="does not hold the image"):
            compare(image, records)
    assert max(sizes) <= PART
