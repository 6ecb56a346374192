"""What comparisons told this process; kept in memory, so that a new leader asks for a new one."""

from __future__ import annotations

from migrator.migration.machine.finish import VerdictContext, objection
from migrator.observe.status import VerdictAnswer, VerdictReport


class Verdicts:
    """Those that were reported while this node was the active controller."""

    def __init__(self) -> None:
        self._last: VerdictReport | None = None
        self._told_in = self._covers = -1

    def take(self, report: VerdictReport, standing: VerdictContext) -> VerdictAnswer:
        """Judge a verdict; the newest is the one that counts, or not."""
        self._last, self._told_in = report, standing.leader_epoch
        against = objection(report, standing)
        self._covers = -1 if against else standing.leader_epoch
        if against:
            return VerdictAnswer(
                counts=False,
                sentence=f"the verdict is recorded, but it does not allow the end of the migration: {against}",
            )
        return VerdictAnswer(
            counts=True,
            sentence=f"ZooKeeper equals the log up to offset {report.offset}: the migration may be finished",
        )

    def cover(self, leader_epoch: int | None) -> bool:
        """Whether the newest verdict allows the leader of that epoch to finish."""
        return leader_epoch is not None and self._covers == leader_epoch

    def last(self, leader_epoch: int | None) -> int:
        """For the metric: 1 equal, 0 different, -1 nothing was told to the leader of that epoch. Who was deposed hears
        of no repair: his verdict would stand for ever."""
        return int(self._last.equal) if self._last is not None and self._told_in == leader_epoch else -1
