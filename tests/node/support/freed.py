"""Images that note in which turn of the event loop each of their topics is freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from immutables import Map

from migrator.image.model import MetadataImage, PartitionRegistration
from migrator.image.replay import replay_snapshot


class Freed:
    """``turn``: the present one, which the test counts. ``topics``: by turn, how many were freed."""

    def __init__(self) -> None:
        self.turn = 0
        self.topics = Counter[int]()

    def noting(self, image: MetadataImage) -> MetadataImage:
        """The image with partitions that note when they are freed."""
        freed = self

        class Partitions(dict[int, PartitionRegistration]):
            def __del__(self) -> None:
                freed.topics[freed.turn] += 1

        known = image.topics.by_id.items()
        by_id = Map((topic_id, replace(topic, partitions=Partitions(topic.partitions))) for topic_id, topic in known)
        return replace(image, topics=replace(image.topics, by_id=by_id))

    def replay_snapshot(self, *snapshot: Any) -> Iterator[MetadataImage | None]:
        """As the product's; the image notes."""
        for image in replay_snapshot(*snapshot):
            yield None if image is None else self.noting(image)
