"""What Spark has done so far, for whoever waits for it."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from migrator.values import value


@value
class Work:
    """``rows`` that were read from the sources; ``done`` of the ``parts`` that are known by now."""

    rows: int = 0
    done: int = 0
    parts: int = 0


class WorkMeter:
    """Asks a session; from any thread, and also while the session ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - Spark has no public way to the rows
        self._stages: set[int] = set()

    def look(self) -> Work:
        """All work of the session until now."""
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
