"""The screen of `migrator top` in windows of any size."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.screen import Screen

from migrator.cli.picture import save_picture
from migrator.cli.terminal import console
from migrator.cli.top import LEAVE, Fitted, render
from migrator.errors import OperatorError
from migrator.observe.printable import printable
from migrator.observe.status import JournalEvent, Problem
from migrator.observe.status_page import Answers
from migrator.observe.top_page import Rates, TopPage, top_page_of
from tests.observe.support.statuses import a_status, zookeeper_brokers

PROBLEMS = tuple(Problem(f"topic {n}", "it has a bad name", "Rename it", warning=True) for n in range(30))
EVENTS = tuple(JournalEvent(n, 1_700_000_000_000, "state", f"event {n}") for n in range(8))


def page(problems: tuple[Problem, ...] = ()) -> TopPage:
    brokers = zookeeper_brokers(tuple(range(1, 200)), tuple(range(200, 301)))
    status = a_status(brokers=brokers, problems=problems, events=EVENTS)
    return top_page_of(Answers(status, replace(status)), Rates(120, 90, (1, 5, 3)))


def drawn(lines: int, columns: int, shown: TopPage, *, colours: bool = True) -> list[str]:
    out = io.StringIO()
    terminal = console(
        file=out, width=columns, height=lines, force_terminal=True, no_color=not colours, legacy_windows=False
    )
    terminal.print(Screen(Fitted(render(shown))), end="")
    return out.getvalue().replace("\r", "").split("\n")


def plain(lines: list[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]


@pytest.mark.parametrize(("lines", "columns"), [(60, 160), (24, 80), (10, 40), (3, 20), (1, 10)])
def test_a_screen_fills_the_window_and_no_more(lines: int, columns: int) -> None:
    found = plain(drawn(lines, columns, page(PROBLEMS)))
    assert len(found) == lines
    assert max(map(len, found)) <= columns


def test_a_big_window_has_all_of_it_and_says_how_to_leave() -> None:
    found = plain(drawn(60, 160, page()))
    text = "\n".join(found)
    assert LEAVE in text
    for part in ("● DualWrite", "1-199", "committed: 120 records/s", "ZooKeeper follows: 90 records/s", "event 7"):
        assert part in text, part


def test_a_small_window_says_that_there_is_more() -> None:
    found = plain(drawn(24, 160, page(PROBLEMS)))
    left = re.match(r"(\d+) more lines: enlarge the window", found[-1])
    assert left is not None
    whole = plain(drawn(24 + int(left[1]), 160, page(PROBLEMS)))
    assert whole[-1] == LEAVE, "so many, and not one more"
    assert whole[:23] == found[:23]


def test_without_colours_the_words_are_the_same() -> None:
    bare = drawn(50, 160, page(PROBLEMS), colours=False)
    assert plain(bare) == plain(drawn(50, 160, page(PROBLEMS)))
    assert not re.search(r"\x1b\[(?:\d+;)*[349]\d", "".join(bare))


def test_a_hostile_controller_draws_only_text() -> None:
    evil = "\x1b[2J\x1b]0;title\x07\u202e"
    status = a_status(problems=(Problem(evil, evil, evil),), events=(JournalEvent(1, 0, evil, evil),))
    status = replace(status, cluster_id=evil, version=evil, metadata_version=evil)
    found = drawn(60, 160, top_page_of(Answers(status, status), Rates()))
    assert all(line == printable(line) for line in plain(found))


def test_a_picture_that_cannot_be_written_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be written"):
        save_picture(tmp_path / "none" / "top.svg", "migrator top", "text")
