"""What a reader of committed records must see of transactions, and must not."""

from __future__ import annotations

import itertools

import pytest

from migrator.drill.kafka.transactions import RECORDS, faults, undone, values_of

COMMITTED, ABORTED, IN_DOUBT = {0, 1}, {2}, {3}
SOUND = [*values_of(0), *values_of(1)]
WRONG = {
    "lost": (SOUND[1:], "transaction 0 was committed"),
    "twice": ([*SOUND, SOUND[-1]], "transaction 1 was committed"),
    "aborted": ([*SOUND, values_of(2)[0]], "transaction 2 was aborted"),
    "half": ([*SOUND, *values_of(3)[1:]], "of transaction 3 a part is there"),
    "strange": ([*SOUND, "9.0"], "nobody sent 9.0"),
}


def test_committed_ones_whole_and_those_in_doubt_whole_or_not_at_all() -> None:
    assert len(SOUND) == 2 * RECORDS
    for seen in (SOUND, SOUND + values_of(3)):
        assert list(faults(seen, COMMITTED, ABORTED, IN_DOUBT)) == []


@pytest.mark.parametrize("case", WRONG)
def test_anything_else_is_a_fault(case: str) -> None:
    seen, expected = WRONG[case]
    found = list(itertools.islice(faults(seen, COMMITTED, ABORTED, IN_DOUBT), 5))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_an_abort_of_what_never_reached_a_broker_proves_nothing() -> None:
    assert undone(SOUND + values_of(2) + values_of(3)[1:], {2, 3, 4}) == {2}
