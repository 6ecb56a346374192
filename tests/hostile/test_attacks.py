"""Seeds of hostile messages against whole controllers in this process: some thousands, and in the long lane a million.

`python -m tests.hostile --seed N --replay` shows what a seed does, and the fewest of its messages that fail.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.hostile.attack import attack
from tests.hostile.doors import BY_DOOR, KNOCKS, Door
from tests.hostile.values import integer_fields
from tests.lanes import TEST_ALL, TEST_LONG

pytestmark = pytest.mark.lane(TEST_ALL)  # no cluster: it runs beside those
FEW, MANY, A_CASE = 16, 2_000, 50
"""Seeds. A seed is 250 messages at a leader, or about 1,000 at a voter with what it is answered."""
BOTH_ENDS = 0.75
"""Of a door's integer fields, the share that few seeds send at both ends of their range at least; many send all."""


def _cases() -> list[object]:
    long = pytest.mark.lane(TEST_LONG)
    ranges = (range(first, first + A_CASE) for first in range(FEW, FEW + MANY, A_CASE))
    more = [pytest.param(seeds, id=f"seeds {seeds[0]} to {seeds[-1]}", marks=long) for seeds in ranges]
    return [pytest.param(range(FEW), id=f"{FEW} seeds"), *more]


@pytest.mark.parametrize("seeds", _cases())
def test_no_message_of_any_door_ends_a_controller_or_spoils_its_files(seeds: range) -> None:
    sent: Counter[str] = Counter()
    ends: set[tuple[str, int]] = set()
    for seed in seeds:
        outcome = attack(seed)
        assert not outcome.failure, f"seed {seed}, message {outcome.index}: {outcome.failure}"
        sent += outcome.coverage
        ends |= outcome.ends
    unsent = [f"{knock.door.name} {knock.name}" for knock in KNOCKS if not sent[f"{knock.door.name} {knock.name}"]]
    assert unsent == []
    for door in Door:
        integers = {
            name for knock in BY_DOOR[door] if knock.schema is not None for name in integer_fields(knock.schema)
        }
        both = sum((name, 0) in ends and (name, 1) in ends for name in integers)
        assert both >= BOTH_ENDS * len(integers), f"{door.name}: {both} of {len(integers)} integer fields at both ends"
