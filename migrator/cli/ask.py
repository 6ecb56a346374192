"""`migrator ask`: options and their checks; `ask_run` does the rest.

Options that contradict each other are refused before Spark is imported. The command only reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from migrator.cli.options import settings_of_spark, sources_options
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.verify.kraft.files import end_of_log, log_directory_of
from migrator.verify.kraft.observed import is_address
from migrator.verify.named import Sources
from migrator.verify.places import place
from migrator.verify.questions import OF_ZOOKEEPER, QUESTIONS


@click.command("ask")
@click.argument("name", type=click.Choice(QUESTIONS), required=False)
@click.option("--sql", metavar="SQL", help="A question of your own. The views: kraft, changes, history, partitions, "
              "and zookeeper if it is named.")  # fmt: skip
@sources_options
@click.option("--from", "since", metavar="POINT", help="Ask about what came after this offset or time.")
@click.option("--to", "until", metavar="POINT",
              help="Read the log up to this offset or time, as 2026-01-01T10:00:00Z.  "
              "[default: its end]")  # fmt: skip
@click.option("--csv", "form", flag_value="csv", help="Print the answer as CSV.")
@click.option("--json", "form", flag_value="json", help="Print each row as JSON, one a line.")
@click.option("--parquet", metavar="DIR", help="Let Spark write the answer there, in Parquet; prints nothing.")
def command(name: str | None, config: Path | None, **given: Any) -> None:
    """Ask questions about the metadata of a cluster and its history, in SQL, in Spark.

    offline-in-roll: the partitions that have no leader while a broker restarts. below-min-isr: the partitions that
    had fewer replicas in sync than min.insync.replicas, and when. changed: what changed in the log, and which side
    was first. foreign-writes: the values in ZooKeeper that the log never had. unbalanced-leaders: the brokers that
    lead more or fewer partitions than they should. docs/ask.md shows answers. Nothing is written to either side. Exit
    codes: 0 answered, with any number of rows; 2 could not tell.
    """
    if (name is None) == (given["sql"] is None):
        what = "give either the name of a question or --sql"
        raise OperatorError(what, where="ask", remedy=f"The names are {', '.join(QUESTIONS)}")
    directory = given["directory"]
    if directory is None and config is not None:
        directory = str(load_settings(config)[0].metadata_directory)
    if directory is None or is_address(directory):
        what = "no metadata directory is named"
        raise OperatorError(what, where="--metadata", remedy="Give --metadata DIR, or a property file with -c")
    sources = Sources(
        given["zookeeper"], given["zookeeper_files"], given["chroot"], directory,
        None if config is None else str(config),
    )  # fmt: skip
    if name in OF_ZOOKEEPER and not (sources.zookeeper or sources.zookeeper_files or sources.config):
        remedy = "Give --zookeeper, --zookeeper-files or a property file with -c"
        raise OperatorError("this question needs ZooKeeper, and no ZooKeeper is named", where=name, remedy=remedy)
    if name in OF_ZOOKEEPER and given["until"] is not None and not sources.zookeeper_files:
        what = "ZooKeeper is read as it is now, so what the log says after this point would look foreign"
        raise OperatorError(what, where="--to", remedy="Leave it out, or give ZooKeeper's files of that time")
    settings = settings_of_spark(given["conf"])
    from migrator.cli import ask_run  # noqa: PLC0415 - Spark is optional, and costs seconds
    from migrator.verify.spark.ask import Question  # noqa: PLC0415 - likewise
    from migrator.verify.spark.metadata_source import offset_of  # noqa: PLC0415 - likewise

    log, since, until = place(directory), given["since"], given["until"]
    log_directory_of(log)
    last = None if until is None else offset_of(log, until, "--to")
    begins = -1 if since is None else offset_of(log, since, "--from")
    ends = end_of_log(log) - 1 if last is None else last
    if begins > ends:
        what = f"offset {begins} comes after offset {ends}, up to which the log is read: no row could follow"
        raise OperatorError(what, where="--from", remedy="Give an earlier offset or time")
    question = Question(name, given["sql"], begins, last)
    ask_run.run(sources, question, (given["master"], settings), given["form"], given["parquet"])
