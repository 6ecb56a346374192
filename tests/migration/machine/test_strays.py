"""Brokers in ZooKeeper that do not obey the quorum are named: after two looks, or at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.image.model import BrokerRegistration
from migrator.migration.machine.strays import Running, Strays, in_words
from tests.migration.support.builders import broker, cluster, controller

CONTROLLER = 3001
FENCED = replace(broker(1), fenced=True)


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        ([], "not registered with the quorum"),
        ([broker(1, migrating=False)], "registered in KRaft mode"),
        ([FENCED], "sends no heartbeats"),
    ],
)
def test_one_that_stays_is_named_at_the_second_look(registered: list[BrokerRegistration], words: str) -> None:
    strays, image = Strays(frozenset({CONTROLLER})), cluster(registered, [])
    assert strays.look(Running({1: 77}), image) == ()
    (gap,) = strays.look(Running({1: 77}), image)
    assert gap.who == "broker 1"
    assert words in gap.reason
    assert "zookeeper.metadata.migration.enable=true" in gap.remedy
    assert in_words((gap,)) == f"{gap.who}: {gap.reason}"


def test_the_id_of_a_controller_is_named_at_once() -> None:
    strays = Strays(frozenset({CONTROLLER}))
    (gap,) = strays.look(Running({CONTROLLER: 77}), cluster([broker(CONTROLLER)], []))
    assert "id of a controller" in gap.reason


def test_the_id_of_a_controller_that_joined_later_counts_as_well() -> None:
    (gap,) = Strays(frozenset()).look(Running({CONTROLLER: 77}), cluster([], [controller(CONTROLLER)]))
    assert "id of a controller" in gap.reason


def test_one_that_registers_starts_again_or_goes_is_no_stray() -> None:
    strays, nobody = Strays(frozenset()), cluster([], [])
    assert strays.look(Running({1: 77, 2: 78, 3: 79}), nobody) == ()
    after = strays.look(Running({1: 77, 2: 90}), cluster([broker(1)], []))
    assert after == (), "1 has registered, 2 was started again, 3 is gone"
    (gap,) = strays.look(Running({2: 90}), nobody)
    assert gap.who == "broker 2"


def test_brokers_that_obey_are_none() -> None:
    strays, image = Strays(frozenset({CONTROLLER})), cluster([broker(1), broker(2, migrating=False)], [])
    for _ in range(3):
        assert strays.look(Running({1: 77}), image) == ()
