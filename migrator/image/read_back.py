"""Compares the records of a snapshot with the image that it is of, some topics at a time.

To build the whole image anew would take as much memory as the image, for minutes if it is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from immutables import Map

from migrator.errors import require
from migrator.image.builder import ImageBuilder
from migrator.image.digest import MODULUS, digest_steps
from migrator.image.model import EMPTY_IMAGE, MetadataImage, TopicsImage
from migrator.image.release import release
from migrator.records.metadata import MetadataRecord, PartitionRecord, TopicRecord
from migrator.turns import TURN_RECORDS, Turn

_OF_TOPICS = frozenset({TopicRecord, PartitionRecord})


def read_back(image: MetadataImage, records: Iterable[tuple[MetadataRecord, int]]) -> Iterator[None]:
    """Yields where a turn is over.

    :param records: the records of the snapshot in the order of `snapshot_steps`, each with its number of bytes.
    :raises InvariantViolation: a record does not fit, or the records make another image.
    """
    rest, part, turn = ImageBuilder(EMPTY_IMAGE), ImageBuilder(EMPTY_IMAGE), Turn()
    wrong = f"the snapshot at offset {image.provenance.offset + 1} does not hold the image that it is of"
    difference, topics, last = 0, 0, ""
    for record, size in records:
        if isinstance(record, TopicRecord):
            require(not topics or last < record.name, f"{wrong}: topic {record.name!r} comes after {last!r}")
            topics, last = topics + 1, record.name
            if part.records >= TURN_RECORDS:
                for step in _compared(image, part):
                    difference += step
                    yield
                part = ImageBuilder(EMPTY_IMAGE)
        (part if type(record) in _OF_TOPICS else rest).replay(record)
        if turn.is_over(size=size):
            yield
    for step in _compared(image, part):
        difference += step
        yield
    left = [rest.image(image.provenance)]
    for step in digest_steps(replace(image, topics=EMPTY_IMAGE.topics), *left):
        difference += step
        yield
    require(topics == len(image.topics.by_id) and difference % MODULUS == 0, wrong)
    yield from release(left)


def _compared(image: MetadataImage, part: ImageBuilder) -> Iterator[int]:
    """As `digest_steps`, of some topics that were read, and of the same topics in the image."""
    read, known = part.image(image.provenance), image.topics.by_id
    same = Map({topic_id: known[topic_id] for topic_id in read.topics.by_id if topic_id in known})
    return digest_steps(replace(read, topics=TopicsImage(same, EMPTY_IMAGE.topics.ids)), read)
