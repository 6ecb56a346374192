"""A rehearsal, and the migration behind it: the forecast is of that migration, and the log is that log."""

from __future__ import annotations

from pathlib import Path

from tests.bench.rehearsals import rehearse_and_migrate

PARTITIONS = 1_000
SLACK_SECONDS = 30.0
"""How far off a machine that does other work meanwhile may be; `python -m tests.bench --rehearse` measures properly."""


async def test_the_migration_is_as_it_was_rehearsed(tmp_path: Path) -> None:
    rehearsed = await rehearse_and_migrate(tmp_path / "cluster", PARTITIONS, kafka="none")
    report, figures = rehearsed.report, rehearsed.figures
    assert (report["verdict"], report["blockers"]) == ("fine", [])
    assert report["brokers"] == 3
    assert report["counts"]["partitions"] == PARTITIONS - 1, "one belongs to a topic that is being deleted"
    assert rehearsed.copied == report["counts"]["partitions"]
    assert abs(figures["dual_write_forecast"] - figures["dual_write"]) < SLACK_SECONDS
    assert 0 < figures["copy_forecast"] < figures["dual_write_forecast"]
