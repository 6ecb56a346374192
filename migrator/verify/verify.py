"""`migrator verify`: both sides in, a verdict out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from migrator.errors import ExitCode, OperatorError
from migrator.values import value
from migrator.verify.compare import Comparison, Difference, KindCounts, compare
from migrator.verify.failures import operator_error
from migrator.verify.session import spark_session
from migrator.verify.sources import KRaftDataSource, ZooKeeperDataSource


@value
class VerifyRequest:
    """What to compare. ``config`` is a controller's property file: ZooKeeper's security and the password encoder's
    secret come from there. ``directory`` is a metadata directory."""

    zookeeper: str | None
    directory: str
    config: str | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] | None = None
    shards: int = 2


@value
class Verdict:
    comparison: Comparison
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """0 equal, 1 different; what could not be compared raises instead."""
        return ExitCode.DIFFERENT if self.comparison.differences else ExitCode.OK

    def to_json(self) -> dict[str, object]:
        """For scripts."""
        return {
            "equal": not self.comparison.differences,
            "rows": self.comparison.rows,
            "differences": self.comparison.differences,
            "seconds": round(self.seconds, 2),
            "kinds": {kind: _counts(counts) for kind, counts in self.comparison.kinds.items()},
            "examples": [_example(difference) for difference in self.comparison.examples],
        }


def verify(request: VerifyRequest, repair: Callable[[Verdict], bool] | None = None) -> Verdict:
    """Compare. If the sides differ, ``repair`` may mend that; when it says that it did, they are compared again.

    :raises OperatorError: when a side can't be read whole: then there is no verdict. Whatever ``repair`` raises.
    """
    started = time.monotonic()
    with spark_session(request.master, request.conf) as spark:
        verdict = Verdict(compare_sides(spark, request), time.monotonic() - started)
        if verdict.comparison.differences and repair is not None and repair(verdict):
            started = time.monotonic()
            verdict = Verdict(compare_sides(spark, request), time.monotonic() - started)
    return verdict


def compare_sides(spark: SparkSession, request: VerifyRequest) -> Comparison:
    """The comparison alone, in a session that is there already; errors as `verify`."""
    options = {"salt": secrets.token_hex(32), "shards": str(request.shards)}
    if request.config is not None:
        options["config"] = request.config
    spark.dataSource.register(ZooKeeperDataSource)
    spark.dataSource.register(KRaftDataSource)
    try:
        zookeeper = _load(spark, "zookeeper", options | ({"hosts": request.zookeeper} if request.zookeeper else {}))
        kraft = _load(spark, "kraft", options | {"directory": request.directory})
        comparison = compare(zookeeper, kraft)
    except PySparkException as error:
        raise operator_error(error) from error
    if comparison.rows == 0:
        raise OperatorError("could not tell: neither side holds any metadata", remedy="Check both addresses")
    return comparison


def _load(spark: SparkSession, name: str, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format(name).options(**options).load()


def _counts(counts: KindCounts) -> dict[str, int]:
    return {
        "zookeeper": counts.zookeeper,
        "kraft": counts.kraft,
        "missing": counts.missing,
        "extra": counts.extra,
        "different": counts.different,
    }


def _example(difference: Difference) -> dict[str, str | None]:
    return {
        "kind": difference.kind,
        "entity": difference.entity,
        "field": difference.field,
        "status": difference.status,
        "zookeeper": difference.zookeeper,
        "kraft": difference.kraft,
    }
