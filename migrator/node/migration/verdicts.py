"""The verdicts that comparisons reported to this process. They are kept in memory only, so a new leader needs a new
one."""

from __future__ import annotations

from migrator.migration.machine.finish import VerdictContext, objection
from migrator.observe.status import VerdictAnswer, VerdictReport


class Verdicts:
    """The verdicts that were reported while this node was the active controller."""

    def __init__(self) -> None:
        self._last: VerdictReport | None = None
        self._told_in = self._covers = -1

    def take(self, report: VerdictReport, standing: VerdictContext) -> VerdictAnswer:
        """Judge a verdict. Only the newest one counts."""
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
        """The value of the metric: 1 equal, 0 different, -1 when the leader of that epoch has no verdict. A deposed
        leader gets no verdict after a repair, so its old one does not count."""
        return int(self._last.equal) if self._last is not None and self._told_in == leader_epoch else -1
