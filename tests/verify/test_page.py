"""The page: what it says, that nothing in it comes from elsewhere or can break out, and how a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.observe.pages.template import write
from migrator.verify.comparison import Comparison
from migrator.verify.history import HistoryEntry
from migrator.verify.page import render
from tests.verify.support.chromium import VIEWS, Browser, View, browser
from tests.verify.support.page_checks import faults
from tests.verify.support.sample_pages import (
    COUNTS,
    DIFFERENT,
    EQUAL,
    EVIL,
    FOUND,
    HISTORY,
    NOW_MS,
    PICTURE,
    UNDECIDED,
    about,
    digest,
    page,
    pictured,
)

ONE_KIND = replace(EQUAL, comparison=Comparison({kind: COUNTS[kind] for kind in ("quota", "token")}, ()))
LONG = replace(
    DIFFERENT,
    comparison=Comparison(
        COUNTS, (replace(FOUND[0], entity="t" * 249, field=f"User:CN={'x' * 200}", kraft="v" * 3_000, zxid=2**63 - 1),)
    ),
    cluster_id="c" * 200,
)
PAGES = {
    "different": page(DIFFERENT, HISTORY),
    "equal": page(EQUAL),
    "undecided": page(UNDECIDED, HISTORY[:20]),
    "one kind": page(ONE_KIND),
    "long names": page(LONG),
}


class Outside(HTMLParser):
    """Collects whatever a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={text}" for name, text in attributes if name in {"src", "href", "srcset", "data"}]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def test_it_says_what_was_found_where_when_and_by_which_release() -> None:
    text = page(DIFFERENT, HISTORY)
    for said in (
        *("different", "0x1a00004c37", "0x1a00004c2f", "1,204,311", "payments", "604800000", "4 records", "999,997"),
        *("MkU3OEVBNTcwNTJENDM2Qk", "zk1:2181,zk2:2181,zk3:2181/kafka", "controller-1.example.com", "1.0.0", "21.3 s"),
        *("2026-09-21 14:13:20 UTC", "31 rows"),
    ):
        assert said in text, said
    assert "hold the same" in page(EQUAL)
    assert "follows the log only to offset 7" in page(UNDECIDED)
    assert "could not tell" in page(UNDECIDED)
    assert "7 differences</p>" in text


def test_of_very_many_differences_the_page_says_how_many_it_lists() -> None:
    counts = {**COUNTS, "partition": replace(COUNTS["partition"], missing=9_997)}
    text = page(replace(DIFFERENT, comparison=Comparison(counts, FOUND * 800)))
    assert "10,001 differences, the first 5,000 are listed" in text
    assert text.count('data-label="status"') == 5_000


def test_what_is_not_known_is_not_shown() -> None:
    """A verdict on files has no transaction, no lag and no cluster id."""
    text = page(replace(EQUAL, at=replace(EQUAL.at, zxid=-1, offset=-1), lag=None, cluster_id=""))
    assert (
        re.findall("Cluster id|zxid|Offset|behind|None|-0x|>-1", text.partition("<dl>")[2].partition("</dl>")[0]) == []
    )
    without = replace(DIFFERENT, comparison=Comparison(COUNTS, tuple(replace(one, zxid=None) for one in FOUND)))
    assert "read at zxid" in page(DIFFERENT)
    assert "read at zxid" not in page(without)


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        (page(EQUAL), ("Differences", "behind</h2>", "<svg", "not-equal")),
        (page(EQUAL, HISTORY[:1]), ("behind</h2>", "<svg")),
        (page(EQUAL, [replace(entry, lag=None) for entry in HISTORY]), ("behind</h2>", "<svg")),
        (page(EQUAL, [entry for entry in HISTORY if entry.verdict == "equal"]), ("not-equal", "could not tell")),
        (page(ONE_KIND), (">topic</th>", ">token</th>")),
        (page(UNDECIDED), ("Differences of each kind",)),
    ],
)
def test_nothing_empty_is_drawn(text: str, absent: tuple[str, ...]) -> None:
    body = text.partition("<body>")[2].partition("<script>")[0]
    assert [word for word in absent if word in body] == []


def test_nothing_comes_from_outside_and_nothing_breaks_out() -> None:
    text = page(DIFFERENT, HISTORY)
    outside = Outside()
    outside.feed(text)
    assert outside.found == []
    assert re.findall(r"url\(|@import|https?://", text) == []
    assert EVIL not in text
    assert text.count("<script>") == 1


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=f"{tmp_path}.*cannot be written"):
        write(tmp_path, "page")


def test_a_browser_without_a_network_shows_it_and_searches(tab: Browser, tmp_path: Path) -> None:
    write(tmp_path / "verify.html", page(DIFFERENT, HISTORY))
    tab.open(tmp_path / "verify.html", "clicks%20isr")
    hidden = "[...document.querySelectorAll('#differences tbody tr')].map(row => row.hidden)"
    assert tab.evaluate(hidden).count(False) == 1, "one row has both words"
    assert tab.evaluate("document.querySelector('#matching').textContent") == f"1 of {len(FOUND)} rows match"
    assert tab.evaluate("document.title") == "migrator verify: different", "the script in a topic's name did not run"
    tab.evaluate("search.value = ''; search.dispatchEvent(new Event('input'))")
    assert tab.evaluate(hidden) == [False] * len(FOUND)


@pytest.mark.parametrize(
    "view", [VIEWS[0], *(pytest.param(view, marks=pytest.mark.lane("test-all")) for view in VIEWS[1:])], ids=str
)
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_read_it(name: str, view: View, tab: Browser, tmp_path: Path) -> None:
    write(tmp_path / "verify.html", PAGES[name])
    tab.look(view)
    tab.open(tmp_path / "verify.html")
    assert faults(tab) == []
    assert tab.screenshot().startswith(b"\x89PNG")


def test_paper_shows_everything_but_the_search(tab: Browser, tmp_path: Path) -> None:
    write(tmp_path / "verify.html", page(DIFFERENT, HISTORY))
    tab.open(tmp_path / "verify.html")
    tab.look(VIEWS[-1])
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(28, 35, 48)", "dark ink, also on a dark desk"
    assert tab.evaluate("document.querySelector('.search').checkVisibility()") is False
    assert tab.evaluate("document.querySelectorAll('#differences tbody tr')[6].checkVisibility()") is True
    assert tab.pdf().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ("--quiet: #586174", "--quiet: #9aa2b1", "contrast"),
        ("--kraft: #b85c00", "--kraft: #ffd9b0", "of the shape"),
        ("overflow-wrap: anywhere", "white-space: nowrap", "wide"),
        ("<h2 id=\"rows\">Rows of each kind</h2>", "<h4 id=\"rows\">Rows of each kind</h4>", "after a heading"),
        ('<svg role="img" aria-labelledby="behind summary">', "<svg>", "neither an image nor hidden"),
        ('aria-labelledby="behind summary"', 'aria-labelledby="nobody"', "nothing has the id"),
        ('<label for="search">Search: kind, entity, field or value</label>', "", "searchbox has no name"),
        ('scope="col">status', ">status", "th without scope"),
        (">The last comparisons that were not equal<", "><", "nothing is in h3"),
        (' role="columnheader"', ' role="cell"', "thead th a screen reader finds"),
        ("font-size: 12px", "font-size: 8px", "letters of 8 px"),
        (' lang="en"', "", "no language"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_page_is_found(good: str, bad: str, fault: str, tab: Browser, tmp_path: Path) -> None:
    text = page(DIFFERENT, HISTORY)
    assert good in text
    write(tmp_path / "verify.html", text.replace(good, bad))
    tab.look(VIEWS[0])
    tab.open(tmp_path / "verify.html")
    assert [found for found in faults(tab) if fault in found], faults(tab)


def test_the_picture_in_the_docs_is_of_this_page() -> None:
    assert digest(pictured()) in PICTURE.read_bytes(), "run: make picture-of-verify"


def test_a_name_of_a_label_is_text() -> None:
    hostile = replace(about(EQUAL), sources={EVIL: EVIL}, host=EVIL, version=EVIL)
    assert EVIL not in render(EQUAL, hostile, [HistoryEntry(0, "equal", 1, 1, 1, 1, 0, 0, 0, 1.0, EVIL)] * 2, NOW_MS)
