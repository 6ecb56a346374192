"""`migrator verify`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from migrator.cli.options import config_option
from migrator.errors import ExitCode, OperatorError
from migrator.rpc.reach import active_controller
from migrator.verify.compare import EXAMPLES_MAX, Difference
from migrator.verify.repair import repair
from migrator.verify.sides import Sources
from migrator.verify.verify import Verdict, VerifyRequest, verify


@click.command("verify")
@click.option("--zookeeper", metavar="HOSTS", help="ZooKeeper, as in zookeeper.connect: host:port[,...][/chroot].")
@click.option(
    "--zookeeper-files",
    multiple=True,
    metavar="DIR",
    help="Instead: the dataDir of a ZooKeeper server, with its snapshots and transaction logs; a second time for a "
    "dataLogDir.",
)
@click.option("--chroot", metavar="PATH", help="Where Kafka's znodes are in those files.")
@click.option(
    "--metadata",
    "directory",
    metavar="DIR|HOST:PORT",
    help="Metadata directory of a controller, ours or stock Kafka's; or the listener of running ones (several with "
    "commas), which it is fetched from.",
)
@config_option("A controller's property file: ZooKeeper's address and security, password encoder, metadata directory.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; may be repeated.")
@click.option(
    "--parquet",
    "archive",
    metavar="DIR",
    help="Keep the compared rows there, secrets as salted hashes. Without a source: compare what is kept there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option(
    "--repair", "mend", is_flag=True,
    help="If they differ, have the active controller overwrite ZooKeeper with the log, and compare again.",
)  # fmt: skip
@click.option("--server", metavar="HOST:PORT", help="The controller that repairs; else it is found through -c.")
@click.option("--yes", is_flag=True, help="Repair without asking.")
def command(
    zookeeper: str | None,
    zookeeper_files: tuple[str, ...],
    chroot: str | None,
    directory: str | None,
    config: Path | None,
    master: str,
    conf: tuple[str, ...],
    archive: str | None,
    as_json: bool,
    mend: bool,
    server: str | None,
    yes: bool,
) -> None:
    """Prove that ZooKeeper and a metadata log hold the same metadata.

    Both sides are read whole and compared row by row in Spark. Secrets are compared by a hash that is of no use outside
    this run. Exit codes: 0 equal, 1 different, 2 could not tell, or could not repair.
    """
    given = Sources(zookeeper, zookeeper_files, chroot, directory, None if config is None else str(config), archive)
    request = _request(given, master, conf)
    if mend and config is None and server is None:
        raise OperatorError("no controller is named that could repair", where="--repair", remedy="Give -c or --server")
    verdict = verify(request, _repairer(config, server, as_json=as_json, ask=not yes) if mend else None)
    if as_json:
        click.echo(orjson.dumps(verdict.to_json(), option=orjson.OPT_INDENT_2))
    else:
        _print(verdict)
    sys.exit(verdict.exit_code)


def _repairer(config: Path | None, server: str | None, *, as_json: bool, ask: bool) -> Callable[[Verdict], bool]:
    """Shows the verdict, asks, and has the active controller repair; what it tells goes to stderr."""

    def tell(sentence: str) -> None:
        click.echo(sentence, err=True)

    def mend(verdict: Verdict) -> bool:
        if as_json:
            tell(f"{verdict.comparison.differences:,} differences")
        else:
            _print(verdict)
        if ask and not click.confirm("Overwrite what differs in ZooKeeper with what the log says?", err=True):
            return False
        reason = f"verify found {verdict.comparison.differences:,} differences"
        tell(asyncio.run(repair(lambda: active_controller(config, server), reason, tell)))
        return True

    return mend


def _request(given: Sources, master: str, conf: tuple[str, ...]) -> VerifyRequest:
    if not given.archived and not (given.zookeeper or given.zookeeper_files or given.config):
        raise OperatorError("no ZooKeeper is named", where="--zookeeper", remedy="Give --zookeeper, or a file with -c")
    directory = given.metadata
    if not given.archived and directory is None:
        if given.config is None:
            raise OperatorError("no metadata is named", where="--metadata", remedy="Give --metadata, or a file with -c")
        from migrator.config.load import load_settings  # noqa: PLC0415 - only this branch needs it

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


def _print(verdict: Verdict) -> None:
    console = Console()
    table = Table("kind", "ZooKeeper", "KRaft", "missing", "extra", "different")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, counts in verdict.comparison.kinds.items():
        figures = (counts.zookeeper, counts.kraft, counts.missing, counts.extra, counts.different)
        style = "red" if any(figures[2:]) else None
        table.add_row(kind, *(f"{figure:,}" for figure in figures), style=style)
    console.print(table)
    for difference in verdict.comparison.examples:
        _print_difference(console, difference.status, difference)
    for difference in verdict.undecided[:EXAMPLES_MAX]:
        _print_difference(console, "kept changing", difference)
    found = {
        ExitCode.OK: "equal",
        ExitCode.DIFFERENT: f"{verdict.comparison.differences:,} differences",
    }.get(verdict.exit_code, f"could not tell: {verdict.why or 'it kept changing'}")
    console.print(
        f"{found}: {verdict.comparison.rows:,} rows compared in {verdict.seconds:.1f} s, {_where(verdict)}",
        highlight=False,
    )


def _where(verdict: Verdict) -> str:
    again = f", {verdict.read_again:,} of them more than once" if verdict.read_again else ""
    if verdict.at.zxid < 0:
        return "of what was kept"
    offset = f"offset {verdict.at.offset} of the log" if verdict.at.offset >= 0 else "no KRaft quorum writes there"
    return f"at zxid {verdict.at.zxid:#x} and {offset}{again}"


def _print_difference(console: Console, status: str, difference: Difference) -> None:
    place = f"{difference.kind} {difference.entity} {difference.field}"
    console.print(
        f"  {status}: {place}: ZooKeeper {difference.zookeeper!r}, KRaft {difference.kraft!r}",
        markup=False,
        highlight=False,
    )
