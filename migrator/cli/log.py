"""`migrator log`: look into metadata logs and snapshots."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.log.dump import to_json_lines, to_lines


@click.group()
def command() -> None:
    """Look into metadata logs and snapshots."""


@command.command()
@click.argument("files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record, one a line.")
def dump(files: tuple[Path, ...], as_json: bool) -> None:
    """Print every record of segments (.log) and snapshots (.checkpoint).

    The text is that of kafka-dump-log --cluster-metadata-decoder. Damage ends it with exit code 2, and the message
    names file and byte.
    """
    for file in files:
        for line in to_json_lines(file) if as_json else to_lines(file):
            click.echo(line)
