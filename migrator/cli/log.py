"""`migrator log`: look into metadata logs and snapshots."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.terminal import say, say_json
from migrator.log.dump import to_lines, to_objects


@click.group()
def command() -> None:
    """Print metadata logs and snapshots."""


@command.command()
@click.argument("files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each record, one per line.")
@click.option("--secrets", is_flag=True, help="Show credentials and sensitive configuration, as Kafka's tool does.")
def dump(files: tuple[Path, ...], as_json: bool, secrets: bool) -> None:
    """Print every record of segments (.log) and snapshots (.checkpoint).

    The text is that of kafka-dump-log --cluster-metadata-decoder, but secrets are left out. Damage ends it with exit
    code 2, and the message names file and byte.
    """
    for file in files:
        if as_json:
            for content in to_objects(file, secrets=secrets):
                say_json(content)
        else:
            for line in to_lines(file, secrets=secrets):
                say(line)
