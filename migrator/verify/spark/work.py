"""The progress of Spark, for a display.

`verify` shows a `WorkMeter`'s figures while Spark works. It may be asked from any thread, and a session that ends gives
no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession, is_remote

from migrator.values import value


@value
class Work:
    """``rows``: read from the sources; ``done``: finished ones of the ``parts`` that are known by now."""

    rows: int = 0
    done: int = 0
    parts: int = 0


class WorkMeter:
    """Asks a session for its progress, from any thread, also while the session ends. A server of Spark Connect reports
    parts, but no rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._told: dict[int, tuple[int, int]] = {}
        self._store = None
        if is_remote():
            spark.registerProgressHandler(self._tell)  # type: ignore[arg-type]  # it need not be of a class of Spark's
        else:
            self._store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - no public way to the rows
        self._stages: set[int] = set()

    def look(self) -> Work:
        """All work of the session until now."""
        if self._store is None:
            done, parts = (sum(column) for column in zip((0, 0), *self._told.copy().values(), strict=True))
            return Work(0, done, parts)
        try:
            active = self._store.activeStages()
            self._stages |= {active.apply(number).stageId() for number in range(active.size())}
            stages = [self._store.lastStageAttempt(stage) for stage in self._stages]
            return Work(
                sum(int(stage.inputRecords()) for stage in stages),
                sum(int(stage.numCompleteTasks()) for stage in stages),
                sum(int(stage.numTasks()) for stage in stages),
            )
        except (Py4JError, OSError):
            return Work()

    def _tell(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG002, FBT001 - Spark's own parameters
        self._told |= {stage.stage_id: (stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()}
