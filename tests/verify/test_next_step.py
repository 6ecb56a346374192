"""The command that a page recommends after a verdict exists, with its options."""

from __future__ import annotations

import shlex
from dataclasses import replace

import click
import pytest

from migrator.cli.main import migrator
from migrator.verify.named import Sources
from migrator.verify.verdict import Verdict, next_step
from tests.verify.support.sample_pages import DIFFERENT, EQUAL, UNDECIDED

FILE = Sources(metadata="/meta data", config="c.properties")
NOT_REGULAR = Sources(zookeeper="zk1:2181/kafka", metadata="host1:9093")
FILES = Sources(zookeeper_files=("/zk",), metadata="/meta", config="c.properties")
MOVING = replace(UNDECIDED, why="")
NOBODY = replace(DIFFERENT, lag=None)


@pytest.mark.parametrize(
    ("verdict", "sources", "command"),
    [
        (EQUAL, FILE, "migrator status -c c.properties"),
        (EQUAL, NOT_REGULAR, "migrator status -c controller.properties"),
        (EQUAL, FILES, "migrator verify -c c.properties"),
        (DIFFERENT, FILES, "migrator verify -c c.properties"),
        (DIFFERENT, Sources(archive="/kept"), "migrator verify -c controller.properties"),
        (DIFFERENT, FILE, "migrator verify --metadata '/meta data' -c c.properties --repair"),
        (
            DIFFERENT,
            NOT_REGULAR,
            "migrator verify --zookeeper zk1:2181/kafka --metadata host1:9093 -c controller.properties --repair",
        ),
        (replace(DIFFERENT, stock=True), FILE, "migrator verify --metadata '/meta data' -c c.properties"),
        (replace(EQUAL, stock=True), FILE, "migrator verify --metadata '/meta data' -c c.properties"),
        (NOBODY, FILE, "migrator status -c c.properties"),
        (UNDECIDED, FILE, "migrator status -c c.properties"),
        (MOVING, FILE, "migrator verify --metadata '/meta data' -c c.properties"),
        (replace(UNDECIDED, stock=True), FILE, "migrator verify --metadata '/meta data' -c c.properties"),
    ],
)
def test_the_command_fits_the_verdict_and_can_be_typed(verdict: Verdict, sources: Sources, command: str) -> None:
    found = next_step(verdict, sources)
    assert found.command == command
    assert found.text.endswith(":")
    _, name, *words = shlex.split(found.command)
    known = migrator.get_command(click.Context(migrator), name)
    assert known is not None
    options = {option for parameter in known.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options
