"""Seeds of hostile messages against whole controllers in this process: some thousands, and in the long lane a million.

`python -m tests.hostile --seed N --replay` shows what a seed does, and the fewest of its messages that fail.
"""

from __future__ import annotations

import pytest

from tests.hostile.attack import attack
from tests.lanes import TEST_LONG

FEW, MANY, A_CASE = 12, 2_000, 50
"""Seeds. A seed is 250 messages at a leader, or about 1,000 at a voter with what it is answered."""


def _cases() -> list[object]:
    long = pytest.mark.lane(TEST_LONG)
    ranges = (range(first, first + A_CASE) for first in range(FEW, FEW + MANY, A_CASE))
    more = [pytest.param(seeds, id=f"seeds {seeds[0]} to {seeds[-1]}", marks=long) for seeds in ranges]
    return [pytest.param(range(FEW), id=f"{FEW} seeds"), *more]


@pytest.mark.parametrize("seeds", _cases())
def test_no_message_of_any_door_ends_a_controller_or_spoils_its_files(seeds: range) -> None:
    for seed in seeds:
        outcome = attack(seed)
        assert not outcome.failure, f"seed {seed}, message {outcome.index}: {outcome.failure}"
