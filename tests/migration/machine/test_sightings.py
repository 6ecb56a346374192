"""Whose znode it is: what a czxid, a heartbeat, an address and a refused registration show together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.machine.readiness import ControllerSignals, Surroundings, ZooKeeperBrokers
from migrator.migration.machine.sightings import Doubts, Sighting, doubts, sighted
from migrator.records.metadata import Endpoint
from tests.migration.support.builders import broker, cluster

HERE = Endpoint("REPLICATION", "b1.example", 9092, 0)
ELSEWHERE = [replace(HERE, host="b2.example"), replace(HERE, port=9093)]


class Watch:
    """Broker 1, looked at again and again."""

    def __init__(self) -> None:
        self.now = 0
        self.seen: dict[int, Sighting] = {}

    def look(
        self,
        born: int,
        alive_ms: int,
        *,
        at: tuple[Endpoint, ...] = (HERE,),
        registered: tuple[Endpoint, ...] = (HERE,),
        rivals: tuple[int, ...] = (),
    ) -> Doubts:
        self.now += 1_000
        brokers = ZooKeeperBrokers({1: frozenset()}, frozenset(), born={1: born}, endpoints={1: at})
        self.seen = sighted(self.seen, brokers, self.now)
        signals = ControllerSignals({}, rivals=frozenset(rivals), alive_ms={1: alive_ms})
        image = cluster([replace(broker(1), listeners=registered)], [])
        return doubts(Surroundings(brokers, signals, image, 19), self.seen)


def test_an_expired_session_is_in_doubt_until_the_process_is_heard_of_after_the_new_znode_was_read() -> None:
    watch = Watch()
    assert watch.look(100, 0).brief.keys() == {1}, "nobody knows when the first znode was made either"
    assert watch.look(100, 1_500) == Doubts({}, {})
    assert watch.look(200, 2_900).brief.keys() == {1}
    assert watch.look(200, 3_000).brief.keys() == {1}, "that may have been before the reading ended"
    assert watch.look(200, 3_001) == Doubts({}, {})
    assert watch.look(200, 3_001) == Doubts({}, {}), "what was proved stays proved"
    assert watch.look(300, 6_000).brief.keys() == {1}, "each znode is another one"


def test_a_znode_that_was_away_in_between_is_a_new_one() -> None:
    seen = sighted({1: Sighting(100, 5)}, ZooKeeperBrokers({}, frozenset()), 10)
    assert seen == {}


@pytest.mark.parametrize("at", ELSEWHERE)
def test_a_znode_at_another_address_than_the_registration_is_not_its_own_whatever_is_heard(at: Endpoint) -> None:
    found = Watch().look(100, 1_000_000, at=(at,))
    assert not found.brief
    (gap,) = found.lasting.values()
    assert f"{at.host}:{at.port} in /brokers/ids, and at b1.example:9092" in gap.reason
    assert "restart the broker" in gap.remedy


def test_listeners_that_only_one_side_names_and_the_case_of_a_host_mean_nothing() -> None:
    control = Endpoint("CONTROL", "b1.example", 9999, 0)
    upper = replace(HERE, host="B1.Example")
    assert Watch().look(100, 1_000_000, at=(control, upper)) == Doubts({}, {})
    assert Watch().look(100, 1_000_000, registered=(HERE, control)) == Doubts({}, {})


@pytest.mark.parametrize("spelling", ["2001:db8:0:0:0:0:0:1", "2001:DB8::1", "2001:0db8::0001"])
def test_another_spelling_of_an_address_means_nothing_either(spelling: str) -> None:
    """A file has it as somebody wrote it, and Java writes all eight groups."""
    at, other = (replace(HERE, host=host) for host in ("2001:db8::1", "2001:db8::2"))
    assert Watch().look(100, 1_500, at=(at,), registered=(replace(HERE, host=spelling),)) == Doubts({}, {})
    assert Watch().look(100, 1_500, at=(at,), registered=(other,)).lasting.keys() == {1}


def test_another_process_that_asks_to_register_may_own_the_znode() -> None:
    found = Watch().look(100, 1_000_000, rivals=(1,))
    assert "another process than the registered one" in found.lasting[1].reason
    assert not found.brief
