"""Hundreds of seeds without a violation, everything worth testing covered, each planted bug found."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest
from click.testing import CliRunner

from tests.lanes import TEST_ALL, seeds
from tests.simulation import planted, runner
from tests.simulation.__main__ import main
from tests.simulation.options import expand


@pytest.mark.parametrize("numbers", seeds(80, 10_080))
def test_no_seed_breaks_a_rule(numbers: range) -> None:
    """Each is a cluster of 3 or 5 voters, some with an observer, or one whose voters change."""
    coverage: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    failures = []
    for outcome in runner.run_seeds(numbers):
        coverage.update(outcome.coverage)
        sizes[outcome.options.voters] += 1
        if outcome.rule is not None:
            failures.append(runner.describe_failure(outcome))
    assert not failures, "\n".join(failures)
    assert min(sizes[3], sizes[5]) >= len(numbers) // 3
    assert not runner.never_happened(coverage), runner.describe_coverage(coverage)
    print(runner.describe_coverage(coverage))  # noqa: T201 - shown with -rP


@pytest.mark.lane(TEST_ALL)
def test_every_planted_bug_is_found() -> None:
    with multiprocessing.get_context("spawn").Pool() as pool:
        catches = pool.map(planted.hunt, planted.BUGS, chunksize=1)
    escaped = [catch.name for catch in catches if catch.seed is None]
    assert len(catches) >= 12
    assert not escaped, f"nobody found {escaped} in {planted.SEEDS_MAX} seeds"


def test_a_seed_is_the_same_whenever_it_runs() -> None:
    first, second = (runner.run_seed(7) for _ in range(2))
    assert first == second
    assert first.coverage["elections"] > 0


def test_a_failure_names_seed_options_and_how_to_see_it_again() -> None:
    with planted.planted("half_is_a_majority"):
        outcomes = (runner.run_seed(seed, {"voters": "3"}) for seed in range(planted.SEEDS_MAX))
        failure = next(outcome for outcome in outcomes if outcome.rule is not None)
    text = runner.describe_failure(failure, {"voters": "3"})
    assert f"seed={failure.options.seed}" in text
    assert f"python -m tests.simulation --seed {failure.options.seed} --option voters=3 --trace" in text
    assert runner.run_seed(failure.options.seed, {"voters": "3"}).rule is None, "the bug is gone with its context"


def test_options_can_be_overruled_one_by_one() -> None:
    assert expand(3, {"voters": "1", "barred": "yes", "loss": "0.5"}).voters == 1
    assert expand(3, {"barred": "yes"}).barred is True
    assert expand(3, {"loss": "0.5"}).loss == 0.5


@pytest.mark.parametrize("voters", [1, 2, 4])
def test_other_sizes_of_quorum_work_too(voters: int) -> None:
    for seed in range(30):
        outcome = runner.run_seed(seed, {"voters": str(voters), "barred": "no"})
        assert outcome.rule is None, runner.describe_failure(outcome, {"voters": str(voters)})


def test_the_command_line_replays_a_seed_event_by_event() -> None:
    result = CliRunner().invoke(main, ["--seed", "5", "--option", "chaos_ms=300", "--trace"])
    assert result.exit_code == 0, result.output
    assert "chaos_ms=300" in result.output
    assert "-> PersistElectionState" in result.output
    assert "every rule held" in result.output


def test_the_command_line_fails_with_a_seed_that_fails() -> None:
    with planted.planted("two_votes_in_an_epoch"):
        seed = next(seed for seed in range(planted.SEEDS_MAX) if runner.run_seed(seed).rule is not None)
        result = CliRunner().invoke(main, ["--seed", str(seed)])
    assert result.exit_code == 1
    assert f"python -m tests.simulation --seed {seed} --trace" in result.output


def test_what_never_happened_is_a_failure() -> None:
    assert "elections" in runner.never_happened(Counter({"crashes": 3}))
    assert runner.never_happened(Counter(dict.fromkeys(runner.MUST_HAPPEN, 1))) == []
