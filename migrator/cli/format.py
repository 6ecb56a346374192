"""`migrator format`."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import say
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.config.types import split_list
from migrator.errors import OperatorError
from migrator.log.formatting import FormatPlan, format_directories
from migrator.records.versions import LATEST_SUPPORTED, parse_version, version_at


@click.command("format")
@config_option("The controller's property file.", required=True)
@click.option("-t", "--cluster-id", required=True, help="The cluster id of the brokers, as znode /cluster/id holds it.")
@click.option(
    "--release-version", default=None, metavar="VERSION", help="The metadata.version, for example 3.9 or 3.9-IV0."
)
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Do nothing to directories that are already formatted for this node."
)
def command(config: Path, cluster_id: str, release_version: str | None, ignore_formatted: bool) -> None:
    """Prepare the directories of a new controller, as kafka-storage format does."""
    settings, warnings = load_settings(config)
    for warning in warnings:
        say(f"migrator: warning: {warning}", err=True)
    try:
        version = parse_version(release_version) if release_version else version_at(LATEST_SUPPORTED)
    except ValueError as error:
        raise OperatorError(str(error), where="--release-version", remedy="Write for example 3.9 or 3.9-IV0") from error
    plan = FormatPlan(
        directories=tuple(Path(name) for name in split_list(settings.log_dirs or settings.log_dir)),
        metadata_directory=settings.metadata_directory,
        cluster_id=cluster_id,
        node_id=settings.node_id,
        version=version,
        ignore_formatted=ignore_formatted,
    )
    formatted = format_directories(plan, random=SystemRandom(), now_ms=wall_ms())
    for directory in formatted:
        say(f"Formatted {directory} for node {settings.node_id} with metadata.version {version.name}")
    if not formatted:
        say("All of the log directories are already formatted")
