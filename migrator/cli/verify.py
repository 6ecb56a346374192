"""`migrator verify`: options and their checks; `verify_run` does the rest.

Options that contradict each other are refused before Spark is imported. The command changes nothing unless ``--repair``
is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from migrator.cli.options import Seconds, command_config_option, settings_of_spark, sources_options
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.rpc.find_controller import active_controller
from migrator.verify.named import Sources
from migrator.verify.verdict import VerifyRequest


@click.command("verify")
@sources_options
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
@click.option("--watch", type=Seconds(min=1), metavar="SECONDS", help="Repeat at this interval, until SIGTERM.")
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
def command(config: Path | None, server: str | None, **given: Any) -> None:
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
    _check_options(request, given, has_controller=config is not None or server is not None)
    from migrator.cli import verify_run  # noqa: PLC0415 - Spark is optional, and costs seconds

    verify_run.run(request, partial(active_controller, config, server, given["command_config"]), given)


def _check_options(request: VerifyRequest, given: Mapping[str, Any], *, has_controller: bool) -> None:
    """:raises OperatorError: options contradict each other."""
    for option, name in (("mend", "--repair"), ("tell_controller", "--report")):
        if given[option] and not has_controller:
            raise OperatorError("no controller is named", where=name, remedy="Give -c or --server")
        if given[option] and not request.sources.live:
            what = f"{name} cannot be combined with files or an archive, which may be older than the cluster"
            raise OperatorError(what, where=name, remedy="Give a running ZooKeeper with --zookeeper")
    if given["archive"] is not None and (given["watch"] is not None or given["mend"]):
        what = "--parquet cannot be combined with --watch or --repair"
        raise OperatorError(what, where="--parquet", remedy="Run verify once with --parquet alone")
    if given["watch"] is not None and given["mend"]:
        what = "--repair cannot be combined with --watch"
        raise OperatorError(what, where="--watch", remedy="Run --repair without --watch")
    if given["watch"] is not None and not request.sources.live:
        what = "--watch cannot be combined with files or an archive, which do not change"
        raise OperatorError(what, where="--watch", remedy="Give a running ZooKeeper with --zookeeper")


def _request(given: Sources, master: str | None, conf: tuple[str, ...]) -> VerifyRequest:
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
    return VerifyRequest(
        given.zookeeper,
        directory,
        given.config,
        master,
        settings_of_spark(conf),
        zookeeper_files=given.zookeeper_files,
        chroot=given.chroot,
        archive=given.archive,
    )
