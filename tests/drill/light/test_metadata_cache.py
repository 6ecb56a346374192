"""The cache follows a broker's rules: what a request deletes, keeps and replaces."""

from __future__ import annotations

from migrator.drill.light.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from tests.drill.support.control_requests import CONTROLLER, FULL, state, topic_id, update_metadata

A, B = topic_id(1), topic_id(2)


def filled() -> MetadataCache:
    cache = MetadataCache()
    cache.update(update_metadata({("a", A): [state(0, 1), state(1, 2)], ("b", B): [state(0, 3)]}))
    return cache


def test_updates_add_and_replace() -> None:
    cache = filled()
    assert cache.update(update_metadata({("a", A): [state(1, 3, epoch=5)]})) == set()
    assert cache.topics["a"][0].leader == 1
    assert (cache.topics["a"][1].leader, cache.topics["a"][1].leader_epoch) == (3, 5)
    assert cache.controller_id == CONTROLLER
    assert list(cache.brokers) == [1]


def test_a_full_update_deletes_topics_that_it_does_not_name() -> None:
    cache = filled()
    assert cache.update(update_metadata({("a", A): []}, kind=FULL)) == {("b", B)}
    assert set(cache.topics) == {"a"}
    assert cache.topic_ids == {"a": A}


def test_an_update_that_is_not_full_deletes_nothing_by_silence() -> None:
    cache = filled()
    assert cache.update(update_metadata({})) == set()
    assert set(cache.topics) == {"a", "b"}


def test_a_full_update_knows_topics_by_id() -> None:
    cache = filled()
    again = topic_id(3)
    assert cache.update(update_metadata({("a", again): [state(0, 2)], ("b", B): []}, kind=FULL)) == {("a", A)}
    assert list(cache.topics["a"]) == [0]
    assert cache.topic_ids["a"] == again


def test_the_sentinel_leader_deletes_partition_by_partition() -> None:
    cache = filled()
    request = update_metadata({("a", None): [state(0, LEADER_DURING_DELETE)]})
    assert cache.update(request) == {("a", A)}
    assert list(cache.topics["a"]) == [1]
    assert "a" not in cache.topic_ids
    cache.update(update_metadata({("a", None): [state(1, LEADER_DURING_DELETE)]}))
    assert set(cache.topics) == {"b"}
