"""The arithmetic of majorities, against what it has to guarantee rather than against itself."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from migrator.raft import votes
from migrator.raft.messages import EpochOffset

VOTERS = st.frozensets(st.integers(0, 50), min_size=1, max_size=9)
ENDS = st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=9)
POSITIONS = st.builds(EpochOffset, st.integers(0, 5), st.integers(0, 5))


def test_any_two_majorities_share_a_voter() -> None:
    for size in range(1, 8):
        groups = [set(group) for group in combinations(range(size), votes.majority(size))]
        assert all(one & other for one in groups for other in groups)
        fewer = [set(group) for group in combinations(range(size), votes.majority(size) - 1)]
        assert size == 1 or any(not one & other for one in fewer for other in fewer)


@given(VOTERS, st.data())
def test_an_election_is_won_or_lost_or_open_and_never_two_of_them(voters: frozenset[int], data: st.DataObject) -> None:
    granted = data.draw(st.frozensets(st.integers(0, 60)))
    rejected = data.draw(st.frozensets(st.sampled_from(sorted(voters)))) - granted
    is_won, is_lost = votes.is_won(voters, granted), votes.is_lost(voters, rejected)
    assert not (is_won and is_lost)
    assert is_won == (2 * len(voters & granted) > len(voters)), "votes of others don't count"
    if not is_won and not is_lost:
        assert votes.is_won(voters, voters - rejected), "an open election can still be won"
        assert voters - granted - rejected, "somebody has not answered yet"


@given(ENDS)
def test_the_committed_offset_is_the_largest_that_a_majority_has(ends: list[int | None]) -> None:
    committed = votes.committed_offset(ends)

    def has_majority(offset: int) -> bool:
        return 2 * sum(end is not None and end >= offset for end in ends) > len(ends)

    if committed is None:
        assert not has_majority(0)
    else:
        assert has_majority(committed)
        assert not has_majority(committed + 1)


@given(ENDS, st.data())
def test_progress_of_one_voter_never_lowers_what_is_committed(ends: list[int | None], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ends) - 1))
    more = [*ends]
    more[at] = (ends[at] or 0) + data.draw(st.integers(0, 5))
    before, after = votes.committed_offset(ends), votes.committed_offset(more)
    assert before is None or (after is not None and after >= before)


@given(POSITIONS, POSITIONS, POSITIONS)
def test_up_to_date_is_a_total_order_of_logs(one: EpochOffset, two: EpochOffset, three: EpochOffset) -> None:
    assert votes.is_up_to_date(one, one)
    assert votes.is_up_to_date(one, two) or votes.is_up_to_date(two, one)
    if votes.is_up_to_date(one, two) and votes.is_up_to_date(two, one):
        assert one == two
    if votes.is_up_to_date(one, two) and votes.is_up_to_date(two, three):
        assert votes.is_up_to_date(one, three)


@given(st.dictionaries(st.integers(0, 9), st.integers(-1, 20), max_size=8), st.frozensets(st.integers(0, 9)))
def test_successors_are_all_others_the_eligible_and_caught_up_first(
    ends: dict[int, int], eligible: frozenset[int]
) -> None:
    order = votes.by_preference(ends.items(), eligible)
    assert sorted(order) == sorted(ends)
    ranks = [(voter not in eligible, -ends[voter]) for voter in order]
    assert ranks == sorted(ranks)


@given(st.integers(1, 9), st.integers(100, 5000))
def test_the_first_successor_does_not_wait_and_each_later_one_longer(successors: int, backoff_max_ms: int) -> None:
    waits = [votes.successor_backoff_ms(at, successors, backoff_max_ms) for at in range(successors + 1)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] <= backoff_max_ms


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [votes.election_backoff_limit_ms(lost, 1000) for lost in (1, 2, 3, 4, 10**6)] == [200, 400, 800, 1000, 1000]
