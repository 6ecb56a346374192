"""The index follows the image, forward and back, and is the same whichever way it got there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.controller.index import ControllerIndex, PartitionSet
from migrator.controller.token_index import token_hmac
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, Changes, MetadataImage, Provenance
from migrator.records.metadata import MetadataRecord
from migrator.records.uuid import ZERO_UUID
from tests.image.support.strategies import record_sequences
from tests.lanes import examples

SECRET = b"of delegation tokens"


@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)))
def test_partition_set_behaves_like_a_set(added: set[int], removed: set[int]) -> None:
    partitions = PartitionSet()
    for number in added:
        partitions.add(ZERO_UUID, 1 << number)
    for number in removed:
        partitions.discard(ZERO_UUID, 1 << number)
    expected = added - removed
    assert [number for _, number in partitions] == sorted(expected)
    assert len(partitions) == len(expected)
    assert bool(partitions) == bool(expected)


@settings(max_examples=examples(60))
@given(record_sequences(), st.integers(1, 7))
def test_index_follows_batches_forward_and_back(records: list[MetadataRecord], size: int) -> None:
    steps: list[tuple[MetadataImage, MetadataImage, Changes]] = []
    index, image = ControllerIndex(SECRET), EMPTY_IMAGE
    for start in range(0, len(records), size):
        builder = ImageBuilder(image)
        for record in records[start : start + size]:
            builder.replay(record)
        after, changes = builder.build(Provenance(start, 1, 0))
        index.apply(image, after, changes)
        steps.append((image, after, changes))
        image = after
        assert index == ControllerIndex.of(image, SECRET)
        assert all(index.tokens.find(token_hmac(SECRET, token_id)) == token_id for token_id in image.tokens)
    for before, after, changes in reversed(steps):
        index.apply(after, before, changes)
    assert index == ControllerIndex(SECRET)
