"""The page of a report: what it says, that nothing in it comes from elsewhere, and how a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.observe.pages.template import write
from tests.rollout.support.model_files import SECRET
from tests.rollout.support.sample_reports import EVIL, FACTS, page
from tests.verify.support.chromium import VIEWS, Browser, View, browser
from tests.verify.support.page_checks import faults


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.fixture(scope="module", params=FACTS)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(request.param, tmp_path_factory.mktemp("report") / "state")


def test_nothing_comes_from_outside_and_nothing_breaks_out(shown: str) -> None:
    assert re.findall(r"url\(|@import|https?://|\b(?:src|href|srcset|data)=|<script|javascript:", shown) == []
    assert EVIL not in shown
    assert SECRET not in shown


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_everybody_can_read_it(view: View, tab: Browser, shown: str, tmp_path: Path) -> None:
    write(tmp_path / "report.html", shown)
    tab.look(view)
    tab.open(tmp_path / "report.html")
    assert faults(tab) == []
    assert tab.evaluate("document.title").startswith("migrator rollout: "), "the script in a topic's name did not run"
    assert tab.screenshot().startswith(b"\x89PNG")
