"""`migrator verify`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from migrator.cli import terminal
from migrator.cli.options import command_config_option, config_option
from migrator.cli.verify_output import Output, labels
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.observe.metrics_access import OPEN, AccessFiles, access_files
from migrator.rpc.find_controller import active_controller
from migrator.verify.history import History
from migrator.verify.job import Job
from migrator.verify.repair import OpenActive, repair
from migrator.verify.spark.session import spark_session
from migrator.verify.spark.sides import Sources
from migrator.verify.verify import Verdict, VerifyRequest
from migrator.verify.watch import Watch, WatchMetrics, entry_of


@click.command("verify")
@click.option("--zookeeper", metavar="HOSTS", help="ZooKeeper, as in zookeeper.connect: host:port[,...][/chroot].")
@click.option(
    "--zookeeper-files",
    multiple=True,
    metavar="DIR",
    help="Read files instead: the dataDir of a ZooKeeper server, with snapshots and transaction logs. Repeat the "
    "option for a separate dataLogDir.",
)
@click.option("--chroot", metavar="PATH", help="The chroot of Kafka in those files.")
@click.option(
    "--metadata",
    "directory",
    metavar="DIR|HOST:PORT",
    help="Metadata directory of a controller, ours or stock Kafka's; or the listeners of running controllers, with "
    "commas: then the log is fetched from them.",
)
@config_option("A controller's property file: ZooKeeper's address and security, password encoder, metadata directory.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; may be repeated.")
@click.option(
    "--parquet",
    "archive",
    metavar="DIR",
    help="Keep the compared rows there, secrets as salted hashes. Without other sources: compare the rows kept there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write an HTML page.")
@click.option(
    "--history",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep each verdict there, in Parquet. The page draws them over time.",
)
@click.option(
    "--watch", type=click.FloatRange(min=1), metavar="SECONDS", help="Repeat at this interval, until SIGTERM."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="With --watch: serve metrics for Prometheus on this port.",
)
@click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address of the metrics port."
)
@click.option(
    "--transaction-logs",
    multiple=True,
    metavar="DIR",
    help="With --watch: the dataDir of a ZooKeeper server on this machine. It shows the session of a foreign write.",
)
@click.option(
    "--report",
    "tell_controller",
    is_flag=True,
    help="Report the verdict to the active controller. See migrator.finish.require.verify.",
)
@click.option(
    "--repair", "mend", is_flag=True,
    help="If the sides differ, order the active controller to overwrite ZooKeeper with the log, and compare again.",
)  # fmt: skip
@click.option(
    "--server", metavar="HOST:PORT", help="The controller for --repair and --report. Default: found through -c."
)
@command_config_option
@click.option("--yes", is_flag=True, help="Repair without asking.")
def command(config: Path | None, server: str | None, watch: float | None, **given: Any) -> None:
    """Compare ZooKeeper with a metadata log, and prove that both hold the same metadata.

    The command reads both sides completely and compares them row by row in Spark. On a running cluster it reads again
    what differs, until the sides agree or the difference is certain. Secrets are compared by a hash that is of no use
    outside this run. Exit codes: 0 equal, 1 different, 2 could not tell, or could not repair; with --watch, the exit
    code of the last verdict.
    """
    sources = Sources(
        given["zookeeper"], given["zookeeper_files"], given["chroot"], given["directory"],
        None if config is None else str(config), given["archive"],
    )  # fmt: skip
    request = _request(sources, given["master"], given["conf"])
    for option, name in (("mend", "--repair"), ("tell_controller", "--report")):
        if given[option] and config is None and server is None:
            raise OperatorError("no controller is named", where=name, remedy="Give -c or --server")
        if given[option] and not request.sources.live:
            what = f"{name} cannot be combined with files or an archive, which may be older than the cluster"
            raise OperatorError(what, where=name, remedy="Give a running ZooKeeper with --zookeeper")
    if given["archive"] is not None and (watch is not None or given["mend"]):
        what = "--parquet cannot be combined with --watch or --repair"
        raise OperatorError(what, where="--parquet", remedy="Run verify once with --parquet alone")
    history = None if given["history"] is None else History(given["history"])
    output = Output(given["page"], history, labels(request.sources), as_json=given["as_json"])
    controller = partial(active_controller, config, server, given["command_config"])
    job = Job(
        request,
        report_to=controller if given["tell_controller"] else None,
        repair=_repairer(controller, output, ask=not given["yes"]) if given["mend"] else None,
    )
    if watch is None:
        _once(job, output)
    if given["mend"]:
        raise OperatorError(
            "--repair cannot be combined with --watch", where="--watch", remedy="Run --repair without --watch"
        )
    _again_and_again(job, output, watch, given)


def _once(job: Job, output: Output) -> NoReturn:
    with spark_session(job.request.master, job.request.conf) as spark:
        verdict = job.run(spark, output.say)
    if output.history is not None:
        output.history.append(entry_of(verdict, 0, wall_ms()))
    output.show(verdict)
    sys.exit(verdict.exit_code)


def _again_and_again(job: Job, output: Output, seconds: float, given: Mapping[str, Any]) -> NoReturn:
    if not job.request.sources.live:
        what = "--watch cannot be combined with files or an archive, which do not change"
        raise OperatorError(what, where="--watch", remedy="Give a running ZooKeeper with --zookeeper")
    with ExitStack() as stack:
        metrics = None
        if given["metrics_port"] is not None:
            metrics = WatchMetrics(given["metrics_host"], given["metrics_port"], _access(job.request.config))
            stack.callback(metrics.close)
            output.say(f"metrics on port {metrics.port}")
        spark = stack.enter_context(spark_session(job.request.master, job.request.conf))
        watch = Watch(
            job.request, seconds, partial(job.run, tell=output.say), output.show_again, output.history, metrics,
            given["transaction_logs"],
        )  # fmt: skip
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: watch.stopping.set())
        found = watch.run(spark)
    if isinstance(found, OperatorError):
        raise found
    sys.exit(found.exit_code)


def _access(config: str | None) -> AccessFiles:
    """As the property file says for a controller's own endpoint."""
    return OPEN if config is None else access_files(load_settings(Path(config))[0])


def _repairer(controller: OpenActive, output: Output, *, ask: bool) -> Callable[[Verdict], bool]:
    """Shows the verdict, asks, and has the active controller repair; what it tells goes to stderr."""

    def mend(verdict: Verdict) -> bool:
        output.before_repair(verdict)
        if ask and not terminal.ask("Overwrite these differences in ZooKeeper with the content of the log?", err=True):
            return False
        reason = f"verify found {verdict.comparison.differences:,} differences"
        output.say(asyncio.run(repair(controller, reason, output.say)))
        return True

    return mend


def _request(given: Sources, master: str, conf: tuple[str, ...]) -> VerifyRequest:
    if not given.archived and not (given.zookeeper or given.zookeeper_files or given.config):
        what = "no ZooKeeper is named"
        raise OperatorError(what, where="--zookeeper", remedy="Give --zookeeper, or a property file with -c")
    directory = given.metadata
    if not given.archived and directory is None:
        if given.config is None:
            what = "no metadata log is named"
            raise OperatorError(what, where="--metadata", remedy="Give --metadata, or a property file with -c")
        settings, _ = load_settings(Path(given.config))
        directory = str(settings.metadata_directory)
    for pair in conf:
        if "=" not in pair:
            raise OperatorError(f"{pair!r} is not KEY=VALUE", where="--conf", remedy="Write for example a.b=c")
    settings_of_spark = dict(pair.split("=", 1) for pair in conf)
    return VerifyRequest(
        given.zookeeper,
        directory,
        given.config,
        master,
        settings_of_spark,
        zookeeper_files=given.zookeeper_files,
        chroot=given.chroot,
        archive=given.archive,
    )
