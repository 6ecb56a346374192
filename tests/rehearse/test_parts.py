"""The small parts: forecast, verdict."""

from __future__ import annotations

import pytest

from migrator.migration.machine.readiness import Gap
from migrator.rehearse.forecast import ERROR_SECONDS, ERROR_SHARE, Times, forecast
from migrator.rehearse.report import Outcome, RehearsalCheck, RehearsalReport


def test_a_forecast_grows_with_what_it_rests_on_and_bounds_its_error() -> None:
    small, big = Times(0.1, 0.2, 0.2), Times(2.0, 5.0, 4.0)
    low, high = forecast(small, 3, 10.0), forecast(big, 3, None)
    assert high.copy.seconds > low.copy.seconds >= small.copy
    assert high.dual_write.seconds >= big.decode + big.copy + big.compare
    assert (low.copy.error, low.roll is not None and low.roll.seconds) == (ERROR_SECONDS, 30.0)
    assert high.dual_write.error == pytest.approx(ERROR_SHARE * high.dual_write.seconds)
    assert high.roll is None


GAP = (Gap("broker 3", "it is not there", "Start it."),)


@pytest.mark.parametrize(
    ("kafka", "verified", "blockers", "expected"),
    [
        (Outcome.FINE, Outcome.FINE, (), Outcome.FINE),
        (Outcome.NOT_CHECKED, Outcome.NOT_CHECKED, (), Outcome.FINE),
        (Outcome.DIFFERENT, Outcome.FINE, (), Outcome.DIFFERENT),
        (Outcome.FINE, Outcome.UNKNOWN, (), Outcome.UNKNOWN),
        (Outcome.DIFFERENT, Outcome.UNKNOWN, (), Outcome.DIFFERENT),
        (Outcome.FINE, Outcome.UNKNOWN, GAP, Outcome.BLOCKED),
    ],
)
def test_the_verdict_is_the_worst_of_all(
    kafka: Outcome, verified: Outcome, blockers: tuple[Gap, ...], expected: Outcome
) -> None:
    report = RehearsalReport(
        "zk", kafka=RehearsalCheck(kafka, ""), verified=RehearsalCheck(verified, ""), blockers=blockers
    )
    assert report.outcome is expected
    assert report.to_json()["verdict"] == expected.value
