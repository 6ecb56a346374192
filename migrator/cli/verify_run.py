"""The part of `migrator verify` that needs Spark, after the options have been checked.

It inspects the sources, starts Spark, compares once or again and again, and ends with the exit code of the verdict. A
repair is asked for, and made by the active controller.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from migrator.cli import terminal
from migrator.cli.interrupted import terminated_as_interrupted
from migrator.cli.progress import VerifyProgress
from migrator.cli.terminal import console
from migrator.cli.verify_output import VerifyOutput
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.observe.metrics_access import OPEN, AccessFiles, access_files
from migrator.parts.java import find_java
from migrator.verify.history import History
from migrator.verify.inspection import inspect
from migrator.verify.job import VerifyJob
from migrator.verify.repair import OpenActive, repair
from migrator.verify.spark.session import is_submitted, spark_session, starts_java
from migrator.verify.spark.work import WorkMeter
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.watch import Watch, WatchMetrics, entry_of
from migrator.zookeeper.session import ZooKeeperUnavailableError


def run(request: VerifyRequest, controller: OpenActive, given: Mapping[str, Any]) -> NoReturn:
    """Compare and show, once or again and again. Ends with the exit code of the verdict.

    :param given: the options of the command line.
    :raises OperatorError: as in `verify`; or a check of a source fails before Spark starts.
    """
    if starts_java(request.master):
        find_java()
    history = None if given["history"] is None else History(given["history"])
    stderr = console(stderr=True, quiet=given["as_json"] and is_submitted())  # otherwise it mixes with the JSON
    with terminated_as_interrupted(), VerifyProgress(stderr) as progress:
        output = VerifyOutput(given["page"], history, request.sources, progress.say, as_json=given["as_json"])
        mend = partial(_mend, controller, output, progress, ask=not given["yes"]) if given["mend"] else None
        job = VerifyJob(request, report_to=controller if given["tell_controller"] else None, repair=mend)
        if given["watch"] is None:
            _once(job, output, progress)
        try:
            inspect(request.sources, progress.begin)
        except ZooKeeperUnavailableError as error:  # ZooKeeper may come back; other faults end the command
            progress.say(f"{error}. Trying again")
        progress.begin("starting Spark")
        _again_and_again(job, output, progress, given)


def _once(job: VerifyJob, output: VerifyOutput, progress: VerifyProgress) -> NoReturn:
    inspect(job.request.sources, progress.begin)
    progress.begin("starting Spark")
    with spark_session(job.request.master, job.request.conf) as spark:
        progress.follow(partial(_how_far, WorkMeter(spark)))
        verdict = job.run(spark, output.say, progress.begin)
        progress.follow(None)
        progress.begin("ending Spark")
    if output.history is not None:
        output.history.append(entry_of(verdict, 0, wall_ms()))
    output.show(verdict)
    progress.say(f"the command took {progress.seconds:.0f} s")
    sys.exit(verdict.exit_code)


def _how_far(meter: WorkMeter) -> str:
    work = meter.look()
    rows = f"{work.rows:,} rows read, " if work.rows else ""
    return f"{rows}{work.done} of {work.parts} parts done" if work.parts else ""


def _again_and_again(
    job: VerifyJob, output: VerifyOutput, progress: VerifyProgress, given: Mapping[str, Any]
) -> NoReturn:
    with ExitStack() as stack:
        metrics = None
        if given["metrics_port"] is not None:
            metrics = WatchMetrics(given["metrics_host"], given["metrics_port"], _access(job.request.config))
            stack.callback(metrics.close)
            output.say(f"metrics on port {metrics.port}")
        spark = stack.enter_context(spark_session(job.request.master, job.request.conf))
        progress.rest()
        watch = Watch(
            job.request, given["watch"], partial(job.run, tell=output.say), output.show_again, output.history, metrics,
            given["transaction_logs"],
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: watch.stopping.set())
        found = watch.run(spark)
    if isinstance(found, OperatorError):
        raise found
    sys.exit(found.exit_code)


def _access(config: str | None) -> AccessFiles:
    """The access rules of the property file, as for a controller's own endpoint."""
    return OPEN if config is None else access_files(load_settings(Path(config))[0])


def _mend(
    controller: OpenActive, output: VerifyOutput, progress: VerifyProgress, verdict: Verdict, *, ask: bool
) -> bool:
    """Show the verdict, ask, and let the active controller repair; its messages go to stderr."""
    with progress.silent():
        output.before_repair(verdict)
        if ask and not terminal.ask("Overwrite these differences in ZooKeeper with the content of the log?", err=True):
            return False
    progress.begin("waiting for the active controller to repair")
    reason = f"verify found {verdict.comparison.differences:,} differences"
    output.say(asyncio.run(repair(controller, reason, output.say)))
    return True
