"""The page: what it says, that nothing in it comes from elsewhere or can break out, and that a browser shows it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.verify.comparison import Comparison, Difference, KindCounts
from migrator.verify.history import Entry
from migrator.verify.page import render, write
from migrator.verify.recheck import Pair
from migrator.verify.verdict import Verdict
from tests.verify.support.chromium import dom, screenshot

NOW_MS = 1_790_000_000_000
EVIL = "<script>document.title='broken in'</script>\"'&"
COUNTS = {
    "topic": KindCounts(2_000, 2_000, 0, 0, 1),
    "partition": KindCounts(1_000_000, 999_995, 5, 0, 1),
    "config": KindCounts(312, 313, 0, 1, 0),
    "quota": KindCounts(40, 40, 0, 0, 0),
    "scram": KindCounts(12, 12, 0, 0, 0),
    "acl": KindCounts(640, 639, 1, 0, 0),
    "producer ids": KindCounts(1, 1, 0, 0, 0),
    "token": KindCounts(24, 24, 0, 0, 0),
}
FOUND = (
    Difference("acl", "literal Topic:orders", "User:alice Allow Read from *", "", None),
    Difference("config", "topic:payments", "retention.ms", None, "604800000"),
    Difference("partition", "orders-3", "leader_epoch", "7", "8"),
    *(Difference("partition", "clicks-11", field, "1,2,3", None) for field in ("isr", "replicas", "leader")),
    Difference("topic", EVIL, "id", "oB3vJQ7PQbWg5J9r1uTzXw", "y5m2m3oRS8-1kC0y8Yx0fA"),
)
DIFFERENT = Verdict(Comparison(COUNTS, FOUND), 21.3, Pair(0x1A_0000_4C2F, 1_204_311), read_again=31, lag=4)
EQUAL = Verdict(
    Comparison({kind: KindCounts(c.kraft, c.kraft, 0, 0, 0) for kind, c in COUNTS.items()}, ()),
    20.1,
    DIFFERENT.at,
    lag=2,
)
UNDECIDED = replace(EQUAL, undecided=FOUND[2:3], why="ZooKeeper follows the log only to offset 7")
SOURCES = {"ZooKeeper": "zk1:2181,zk2:2181/kafka", "Metadata log": "/var/lib/kafka/metadata"}
HISTORY = [
    Entry(
        NOW_MS - (40 - step) * 60_000, "different" if 18 < step < 24 else "could not tell" if step == 9 else "equal",
        step, step, (step * 7919) % 40 + (400 if 8 < step < 12 else 0), 100, 0, 0, 0, 20.0,
    )
    for step in range(40)
]  # fmt: skip


class Outside(HTMLParser):
    """Collects whatever a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={text}" for name, text in attributes if name in {"src", "href", "srcset", "data"}]


def page(verdict: Verdict, history: list[Entry] | None = None) -> str:
    return render(verdict, SOURCES, history or [], NOW_MS)


def test_it_says_what_was_found() -> None:
    text = page(DIFFERENT, HISTORY)
    for said in ("different", "0x1a00004c2f", "1,204,311", "payments", "604800000", "4 records", "999,995"):
        assert said in text, said
    assert "hold the same" in page(EQUAL)
    assert "follows the log only to offset 7" in page(UNDECIDED)
    assert "could not tell" in page(UNDECIDED)


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


def test_a_browser_without_a_network_shows_it_and_searches(tmp_path: Path) -> None:
    file, picture = tmp_path / "verify.html", tmp_path / "verify.png"
    write(file, page(DIFFERENT, HISTORY))
    seen = dom(file, "clicks%20isr", tmp_path / "profile")
    rows = re.findall(r"<tr( hidden=\"\")?><td><span class=\"tag", seen)
    assert len(rows) == len(FOUND)
    assert [row for row in rows if not row] == [""], "one row has both words"
    assert "1 match" in seen
    assert "<title>migrator verify: different</title>" in seen, "the script in a topic's name did not run"
    screenshot(file, picture, tmp_path / "profile")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
