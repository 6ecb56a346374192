"""No attack of a caller without rights takes a controller's memory, its leadership, or the answers of honest callers.

Nothing here asserts a time: ``python -m tests.doors.costs`` measures those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.doors.costs import honest
from tests.doors.costs.place import Place, place_in
from tests.doors.costs.report import MEMORY_MIB
from tests.doors.costs.run import Costs, costs_of
from tests.doors.costs.table import ATTACKS, Attack
from tests.lanes import TEST_LONG

SECONDS, LONG_SECONDS = 3.0, 120.0
HEARTBEATS = honest.BROKERS
"""One of each broker at least is answered while the attack goes on."""
PAIRS = list(zip(ATTACKS, (*ATTACKS[7:], *ATTACKS[:7]), strict=True))
"""Each with one of another kind."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_in(tmp_path_factory.mktemp("single")) as place:
        yield place


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With the time-outs of Kafka."""
    with place_in(tmp_path_factory.mktemp("quorum"), voters=3) as place:
        yield place


def check(place: Place, attacks: Sequence[Attack], seconds: float) -> Costs:
    costs = costs_of(place, attacks, seconds)
    assert costs.survived, place.account()
    assert costs.elections == 0
    assert costs.above_rest <= MEMORY_MIB
    assert costs.scrapes_refused == 0
    assert costs.latencies[honest.HEARTBEAT].answered >= HEARTBEATS
    assert costs.latencies[honest.HEARTBEAT].failures == 0
    assert costs.latencies[honest.FETCH].failures == 0
    return costs


def titles(attacks: Sequence[Attack]) -> list[str]:
    return [attack.title for attack in attacks]


SMALL = [attack for attack in ATTACKS if attack.small]
ON_QUORUM = [attack for attack in ATTACKS if attack.quorum]


@pytest.mark.parametrize("attack", SMALL, ids=titles(SMALL))
def test_an_attack_costs_neither_memory_nor_answers(single: Place, attack: Attack) -> None:
    check(single, [attack], SECONDS)


@pytest.mark.parametrize("attack", ON_QUORUM, ids=titles(ON_QUORUM))
def test_a_leader_under_attack_stays_the_leader(quorum: Place, attack: Attack) -> None:
    check(quorum, [attack], SECONDS)


@pytest.mark.lane(TEST_LONG)
@pytest.mark.parametrize("attack", ATTACKS, ids=titles(ATTACKS))
def test_an_attack_of_minutes(tmp_path: Path, attack: Attack) -> None:
    with place_in(tmp_path) as place:
        check(place, [attack], LONG_SECONDS)


@pytest.mark.lane(TEST_LONG)
@pytest.mark.parametrize("pair", PAIRS, ids=[" and ".join(titles(pair)) for pair in PAIRS])
def test_two_attacks_at_a_time(tmp_path: Path, pair: tuple[Attack, Attack]) -> None:
    with place_in(tmp_path, voters=3) as place:
        check(place, pair, LONG_SECONDS)
