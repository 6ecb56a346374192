"""Compares both sides, and decides the verdict.

`job` calls `verify_in` with a Spark session, and `rehearse` calls `verify`, which starts one. A difference between a
live ZooKeeper and the log is read again before it counts, because both sides change while they are read
(docs/walks/comparison.md). Nothing is written to either side.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.verify.comparison import Comparison, Reading, settled
from migrator.verify.kraft.log_tail import LogTail, end_of_metadata, metadata_tail
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.recheck import Pair, Recheck
from migrator.verify.spark.compare import compare
from migrator.verify.spark.failures import operator_error
from migrator.verify.spark.session import spark_session
from migrator.verify.spark.sides import OF_FILES, OF_LOG, loaded_sides
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.zookeeper.side import ZooKeeperSide

Begin = Callable[[str], None]
"""Called with the name of each phase."""


def unheard(_: str) -> None:
    """Do nothing: the default `Begin`."""


PASSES_MAX = 3
"""The most comparisons of everything, while there are more differences than can be read again one by one."""


def verify(request: VerifyRequest) -> Verdict:
    """Compare in a separate Spark session.

    :raises OperatorError: a side can't be read completely: then there is no verdict.
    """
    with spark_session(request.master, request.conf) as spark:
        return verify_in(spark, request)


def verify_in(spark: SparkSession, request: VerifyRequest, *, frozen: bool = False, begin: Begin = unheard) -> Verdict:
    """Compare, in a given session; errors as in `verify`. Differences between a live ZooKeeper and the log are read
    again (`Recheck`).

    :param frozen: no controller writes to ZooKeeper any more: it is compared with the log up to the offset that it
        holds.
    :param begin: called with each phase.
    """
    started = time.monotonic()
    begin("comparing everything in Spark")
    if not request.sources.live:
        cluster_id = _formatted_for(request.sources)
        return Verdict(
            compare_sides(spark, request, begin), time.monotonic() - started, Pair(-1, -1), cluster_id=cluster_id
        )
    salt = secrets.token_bytes(32)
    log: LogTail | None = None
    metadata = request.sources.metadata or ""
    with ZooKeeperSide(request.zookeeper, request.config, salt) as zookeeper, tempfile.TemporaryDirectory() as scratch:
        for _ in range(PASSES_MAX):
            first = compare_sides(spark, request, begin)
            begin("reading how far ZooKeeper follows the log")
            mark = zookeeper.mark()
            lag = max(end_of_metadata(metadata, request.config) - 1 - mark.offset, 0) if mark.copied else None
            stock = mark.copied and mark.state.batch_crc is None
            cluster_id = zookeeper.cluster_id() or ""
            if not first.found:
                at = Pair(mark.zxid, mark.offset, mark.state.kraft_metadata_epoch)
                return Verdict(first, time.monotonic() - started, at, lag=lag, cluster_id=cluster_id, stock=stock)
            begin(f"reading again the {len(first.found):,} rows that differed")
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
                    cluster_id,
                    stock,
                )
            begin("comparing everything in Spark again")
    raise OperatorError(
        f"could not tell: {first.differences:,} rows differed at first; the rows that were read again agreed, or "
        f"kept changing",
        where="verify",
        remedy="Run verify again when the cluster changes less",
    )


def compare_sides(spark: SparkSession, request: VerifyRequest, begin: Begin = unheard) -> Comparison:
    """The comparison without a second reading, in a given session; errors as in `verify`."""
    readings: dict[str, Reading] = {}

    def tell(side: str, reading: Reading) -> None:
        readings[side] = reading
        begin(f"comparing everything in Spark. Of {side}, {reading}")

    try:
        with loaded_sides(spark, request.sources, tell) as sides:
            compared = compare(*sides)
            comparison = replace(compared, log=readings.get(OF_LOG), files=readings.get(OF_FILES))
    except (PySparkException, Py4JError) as error:
        raise operator_error(error) from error
    if comparison.rows == 0:
        raise OperatorError(
            "could not tell: neither side holds any metadata",
            where="verify",
            remedy="Check both addresses, and the chroot",
        )
    return comparison


def _formatted_for(sources: Sources) -> str:
    """The cluster id of the metadata directory, if a directory is compared, and if it is formatted."""
    directory = place(sources.metadata or "")
    with storage_errors("cannot read", directory):
        if sources.archived or not directory.is_dir():
            return ""
    identity = read_meta_properties(directory.parent if directory.name == DIRECTORY_NAME else directory)
    return "" if identity is None else identity.cluster_id
