"""The pictures of `migrator status`."""

from __future__ import annotations

import io

from rich.console import Console

from migrator.cli.status import render
from migrator.migration.machine.states import State
from migrator.observe.status_page import Answers
from tests.observe.support.statuses import a_status


def test_the_heading_of_a_narrow_table_stays_on_one_line() -> None:
    """A follower's table has two columns, and its heading is wider than they are."""
    follower = a_status(State.INACTIVE, node=3002)
    shown = io.StringIO()
    Console(file=shown, width=100).print(render(Answers(follower, follower)))
    assert "quorum: controller 3001 leads, epoch 4" in shown.getvalue().splitlines()
