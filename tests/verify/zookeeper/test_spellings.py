"""Both sides make the same rows, however ZooKeeper's znodes are spelt."""

from __future__ import annotations

import os
from itertools import chain
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.image.model import MetadataImage
from migrator.migration.translate.reconcile import reconcile
from migrator.verify.foreign import _subjects
from migrator.verify.kraft import image_rows
from migrator.verify.recheck import agrees
from migrator.verify.zookeeper.reading import other_families, topic_names, topics
from tests.lanes import examples
from tests.migration.support import images as some
from tests.migration.support.images import PASSWORDS, apply, empty_cluster, target
from tests.migration.support.spellings import respell

SALT = os.urandom(16)


@settings(max_examples=examples(30))
@given(some.images(), st.randoms(use_true_random=False))
def test_any_spelling_agrees(image: MetadataImage, random: Random) -> None:
    zookeeper = empty_cluster()
    apply(zookeeper, reconcile(zookeeper, target(image)))
    respell(zookeeper, random)
    listed = topics(zookeeper, topic_names(zookeeper), PASSWORDS, SALT)
    zookeepers = {row[:3]: row[3] for row in chain(listed, other_families(zookeeper, PASSWORDS, SALT))}
    rows = chain(*map(image_rows.topic_rows, image.topics.by_id.values()), image_rows.other_rows(image, SALT))
    krafts = {row[:3]: row[3] for row in rows}
    assert zookeepers.keys() == krafts.keys()
    assert [key for key in krafts if not agrees(key, zookeepers[key], krafts[key])] == []


def test_a_change_of_an_entity_explains_a_write_to_any_of_its_znodes() -> None:
    for name in ("svc@X", "svc%40X", "s%76c@X"):
        assert "/config/users/svc%40X" in _subjects(f"/config/users/{name}")
    assert "/config/ips/::1" in _subjects("/config/ips/%3A%3A1")
    assert "/config/users/50%off" in _subjects("/config/users/50%off")
