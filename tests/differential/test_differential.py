"""The same requests to a stock 3.9.1 controller and to ours: equal answers, and equal records in their logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from migrator.parts.kafka import StockKafka
from tests.differential.scenarios import GUARDED, MAIN, OLD
from tests.differential.support.coverage import expected, succeeded
from tests.differential.support.differences import DIFFERENCES
from tests.differential.support.pair import SUPER, Comparison, Pair, started

GUARD = {**SUPER, "super.users": "User:admin"}
BARE = {"delete.topic.enable": "false"}


@dataclass(frozen=True)
class Played:
    """Everything that was asked, and the pairs that were."""

    pairs: dict[str, Pair]
    comparisons: dict[str, list[Comparison]]

    @property
    def every(self) -> list[Comparison]:
        return [comparison for comparisons in self.comparisons.values() for comparison in comparisons]


@pytest.fixture(scope="module")
def played(kafka_391: StockKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenarios, on three pairs of controllers."""
    directory = tmp_path_factory.mktemp("pairs")
    pairs = {
        "main": Pair(kafka_391, directory / "main", SUPER),
        "guarded": Pair(kafka_391, directory / "guarded", GUARD, registers=False),
        "old": Pair(kafka_391, directory / "old", BARE, release="3.6", registers=False),
    }
    with started(list(pairs.values())):
        comparisons = pairs["main"].play(MAIN) | pairs["guarded"].play(GUARDED) | pairs["old"].play(OLD)
        yield Played(pairs, comparisons)


@pytest.mark.parametrize("name", [scenario.name for scenario in (*MAIN, *GUARDED, *OLD)])
def test_answers_and_records_are_equal(played: Played, name: str) -> None:
    different = [each for each in played.comparisons[name] if not each.equal and each.step.label not in DIFFERENCES]
    assert not different, "\n".join(map(str, different))


def test_every_listed_difference_is_one(played: Played) -> None:
    assert set(DIFFERENCES) <= {each.step.label for each in played.every if not each.equal}


def test_every_version_of_every_api_is_asked_for_with_success(played: Played) -> None:
    found = succeeded(played.every)
    assert sorted(expected() - found) == []
    assert sorted(found - expected()) == [], "the reasons why these never succeed do not hold"


@pytest.mark.parametrize("name", ["main", "guarded", "old"])
def test_logs_begin_alike(played: Played, name: str) -> None:
    pair = played.pairs[name]
    assert pair.stock.opening == pair.ours.opening


@pytest.mark.parametrize("name", ["main", "old"])
def test_controllers_register_alike(played: Played, name: str) -> None:
    """Where stock is allowed to, that is; ours does not have to ask itself over its own listener."""
    pair = played.pairs[name]
    for side in pair.sides:
        side.wait_until_registered()
    assert len(pair.stock.registrations) == 1
    assert pair.stock.registrations == pair.ours.registrations


def test_our_controllers_met_nothing_unexpected(played: Played) -> None:
    for pair in played.pairs.values():
        assert pair.ours.process.exit_code() is None
        assert "Traceback" not in pair.ours.process.output_text()
