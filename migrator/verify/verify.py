"""`migrator verify`: both sides in, a verdict out."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from migrator.errors import ExitCode, OperatorError
from migrator.values import value
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.kraft.observed_tail import end_of_metadata, metadata_tail
from migrator.verify.recheck import Pair, Patience, Recheck
from migrator.verify.spark.compare import EXAMPLES_MAX, Comparison, Difference, KindCounts, compare, settled
from migrator.verify.spark.failures import operator_error
from migrator.verify.spark.session import spark_session
from migrator.verify.spark.sides import Sources, load_sides
from migrator.verify.zookeeper.side import ZooKeeperSide

PASSES_MAX = 3
"""Comparisons of everything, while there are more differences than can be read again one by one."""


@value
class VerifyRequest:
    """What to compare, and in which Spark. The sources are those of `Sources`, ``directory`` being its ``metadata``."""

    zookeeper: str | None
    directory: str | None
    config: str | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] | None = None
    shards: int = 2
    patience: Patience = Patience()
    zookeeper_files: tuple[str, ...] = ()
    chroot: str | None = None
    archive: str | None = None

    @property
    def sources(self) -> Sources:
        """Where both sides come from."""
        return Sources(
            zookeeper=self.zookeeper,
            zookeeper_files=self.zookeeper_files,
            chroot=self.chroot,
            metadata=self.directory,
            config=self.config,
            archive=self.archive,
            shards=self.shards,
        )


@value
class Verdict:
    """``at``: where the sides were seen to be equal, or to differ; offset -1 where no KRaft quorum writes to this
    ZooKeeper. ``undecided`` kept changing, for the reason ``why``. ``read_again``: leaves that differed at first.
    ``lag``: records that ZooKeeper is behind the log, None where nobody writes to it."""

    comparison: Comparison
    seconds: float
    at: Pair
    undecided: tuple[Difference, ...] = ()
    why: str = ""
    read_again: int = 0
    lag: int | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0 equal, 1 different, 2 could not tell; what could not be read at all raises instead."""
        if self.comparison.differences:
            return ExitCode.DIFFERENT
        return ExitCode.REFUSED if self.undecided else ExitCode.OK

    @property
    def word(self) -> str:
        """The verdict in a word or three."""
        return {ExitCode.OK: "equal", ExitCode.DIFFERENT: "different"}.get(self.exit_code, "could not tell")

    def to_json(self) -> dict[str, object]:
        """For scripts."""
        return {
            "verdict": self.word,
            "equal": self.exit_code is ExitCode.OK,
            "zxid": self.at.zxid,
            "offset": self.at.offset if self.at.offset >= 0 else None,
            "rows": self.comparison.rows,
            "differences": self.comparison.differences,
            "seconds": round(self.seconds, 2),
            "kinds": {kind: _counts(counts) for kind, counts in self.comparison.kinds.items()},
            "examples": [_example(difference) for difference in self.comparison.examples],
            "read_again": self.read_again,
            "lag": self.lag,
            "undecided": [_example(difference) for difference in self.undecided[:EXAMPLES_MAX]],
            "why": self.why,
        }


def verify(request: VerifyRequest) -> Verdict:
    """Compare, in a session of its own.

    :raises OperatorError: when a side can't be read whole: then there is no verdict.
    """
    with spark_session(request.master, request.conf) as spark:
        return verify_in(spark, request)


def verify_in(spark: SparkSession, request: VerifyRequest, *, frozen: bool = False) -> Verdict:
    """One verdict, in a session that is there already; errors as `verify`. What differs between a live ZooKeeper and
    the log is read again (`Recheck`).

    :param frozen: nobody writes to ZooKeeper any more: it is compared with the log up to where it followed it.
    """
    started = time.monotonic()
    if not request.sources.live:
        return Verdict(compare_sides(spark, request), time.monotonic() - started, Pair(-1, -1))
    salt = secrets.token_bytes(32)
    log: LogTail | None = None
    metadata = request.sources.metadata or ""
    with ZooKeeperSide(request.zookeeper, request.config, salt) as zookeeper, tempfile.TemporaryDirectory() as scratch:
        for _ in range(PASSES_MAX):
            first = compare_sides(spark, request)
            mark = zookeeper.mark()
            lag = max(end_of_metadata(metadata, request.config) - 1 - mark.offset, 0) if mark.copied else None
            if not first.found:
                at = Pair(mark.zxid, mark.offset, mark.state.kraft_metadata_epoch)
                return Verdict(first, time.monotonic() - started, at, lag=lag)
            log = log or metadata_tail(metadata, request.config, Path(scratch), mark.offset if frozen else None)
            settlement = Recheck(zookeeper, log, salt, request.patience).settle(first.found)
            if settlement.different or first.differences == len(first.found):
                return Verdict(
                    settled(first, settlement.different, settlement.agreed),
                    time.monotonic() - started,
                    settlement.at,
                    settlement.undecided,
                    settlement.why,
                    len(first.found),
                    lag,
                )
    raise OperatorError(
        f"could not tell: {first.differences:,} rows differed at first; the rows that were read again agreed, or "
        f"kept changing",
        remedy="Run verify again when the cluster changes less",
    )


def compare_sides(spark: SparkSession, request: VerifyRequest) -> Comparison:
    """The comparison alone, in a session that is there already; errors as `verify`."""
    try:
        comparison = compare(*load_sides(spark, request.sources))
    except (PySparkException, Py4JError) as error:
        raise operator_error(error) from error
    if comparison.rows == 0:
        raise OperatorError("could not tell: neither side holds any metadata", remedy="Check both addresses")
    return comparison


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
