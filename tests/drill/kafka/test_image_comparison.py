"""Judges the files that a real broker leaves on its disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.drill.kafka.image_comparison import violations
from migrator.image.model import EMPTY_IMAGE
from migrator.records.metadata import TopicRecord
from migrator.records.uuid import Uuid, uuid_to_text
from tests.image.support.strategies import image_of

KEPT, DELETED = Uuid(b"k" * 16), Uuid(b"d" * 16)


def stray(data: Path, topic_id: Uuid) -> None:
    directory = data / "orders-0.ae819a06c1c14164920c4cff63bc3fee-stray"
    directory.mkdir()
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(topic_id)}")


@pytest.mark.parametrize(("topic_id", "found"), [(KEPT, 1), (DELETED, 0)])
def test_only_the_log_of_a_topic_that_lives_may_not_be_set_aside(tmp_path: Path, topic_id: Uuid, found: int) -> None:
    stray(tmp_path, topic_id)
    assert len(violations("", tmp_path, image_of([TopicRecord("orders", KEPT)]))) == found


def test_the_last_words_of_a_broker_count(tmp_path: Path) -> None:
    assert violations("[now] INFO fine\n[now] FATAL no more", tmp_path, EMPTY_IMAGE) == ["[now] FATAL no more"]
