"""The site of docs/: it builds strictly, stands alone, hides no page, and shows what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from markdown_it import MarkdownIt

from tests.patience import PATIENCE_SECONDS
from tests.site.support.reference import PAGES
from tests.verify.support.chromium import VIEWS, Browser, View, browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = sorted(DOCS.rglob("*.md"))
TARGET = re.compile(r'\b(?:href|src|action|data|poster)="?([^"\s>]+)')
LOADED = re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)")
SCREENS = [view for view in VIEWS if view.media == "screen"]
OF_READER = ("http://127.0.0.1:3000/d/kraft-migrator", "http://127.0.0.1:9090/alerts")
"""Addresses on the reader's own machine: docs/compose.md starts what answers there."""


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build strictly, as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, built for these tests."""
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as started:
        started.ask("Network.enable")
        yield started


def pages(site: Path) -> dict[Path, str]:
    """The text of every page; the page of errors of a server is none."""
    found = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(found) == len(SOURCES)
    return found


def targets(text: str) -> list[str]:
    return [unquote(target) for target in TARGET.findall(text)]


def test_no_page_and_no_style_names_another_host(site: Path) -> None:
    named = {target for text in pages(site).values() for target in targets(text) if urlparse(target).netloc}
    assert named <= {*OF_READER}
    styles = {path: LOADED.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.css")}
    assert styles
    assert {path: found for path, found in styles.items() if found} == {}


def test_every_link_and_every_anchor_leads_somewhere_and_every_page_is_reached(site: Path) -> None:
    """Also those that the theme makes, and those of pictures, scripts and styles."""
    texts = pages(site)
    ids = {path: {*re.findall(r'\bid="?([^"\s>]+)', text)} for path, text in texts.items()}
    broken, linked = [], {site / "index.html"}
    for path, text in texts.items():
        for target in targets(text):
            if urlparse(target).scheme:
                continue
            file, anchor = urldefrag(target)
            there = (path.parent / file).resolve() if file else path
            if not there.is_file() or (anchor and there in ids and anchor not in ids[there]):
                broken.append(f"{path.name}: {target}")
            elif there != path:
                linked.add(there)
    assert broken == []
    assert texts.keys() - linked == set()


def test_faults_of_pages_end_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[a](gone.md) [b](#gone) [c](/etc/passwd) [d](gone/)\n")
    (docs / "orphan.md").write_text("No navigation has this page.\n")
    config = tmp_path / "mkdocs.yml"
    own = "docs_dir: docs\nhooks: []\nextra_css: []\nnav: [index.md]\nplugins: []\n"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{own}")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    faults = ("'gone.md'", "'#gone'", "'/etc/passwd'", "'gone/'", "orphan.md")
    assert [fault for fault in faults if fault not in done.stderr] == [], done.stderr
    assert len(re.findall("^WARNING", done.stderr, re.MULTILINE)) == len(faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_generated_page_is_current(page: Path) -> None:
    """docs/compatibility.md has its test in tests/test_compatibility.py."""
    assert page.read_text(encoding="utf-8") == PAGES[page](), "run: python -m tests.site.support.reference"


def counts(html: str, tags: tuple[str, ...]) -> dict[str, int]:
    return {tag: len(re.findall(rf"<{tag}[ >]", html)) for tag in tags}


def test_the_site_takes_lists_tables_and_blocks_for_what_github_takes_them_for(site: Path) -> None:
    """The two renderers differ: Python-Markdown wants a blank line before a list, for one."""
    github = MarkdownIt("commonmark").enable("table")
    different = {}
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        tags: tuple[str, ...] = ("li", "ol", "h1", "h2", "h3", "strong", "em")
        tags += () if "```mermaid" in text else ("pre", "table", "tr")  # the site shows a diagram as a table
        name = source.relative_to(DOCS).with_suffix(".html")
        page = (site / name.parent / ("index.html" if name.stem == "README" else name.name)).read_text(encoding="utf-8")
        (article,) = re.findall(r"<article.*?</article>", page, re.DOTALL)
        wanted, found = counts(github.render(text), tags), counts(article, tags)
        if wanted != found:
            different[source.name] = {tag: (wanted[tag], found[tag]) for tag in tags if wanted[tag] != found[tag]}
    assert different == {}, "by tag, on GitHub and in the site; mostly a blank line before a list is missing"


def test_each_figure_of_the_readme_stands_on_a_page_that_its_row_links() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!what it does|-)(.+) \|$", readme, re.MULTILINE)
    assert len(rows) > 5
    for row in rows:
        linked = [ROOT / target for target in re.findall(r"\]\(([^)#]+)", row)]
        assert linked, row
        texts = "\n".join(page.read_text(encoding="utf-8") for page in linked)
        figures = re.findall(r"\d[\d,.]*(?<![.,])", re.sub(r"\]\([^)]+\)", "]", row))
        assert [figure for figure in figures if figure not in texts] == [], row


@pytest.mark.lane("test-all")  # a browser
@pytest.mark.parametrize("view", SCREENS, ids=str)
def test_a_page_fits_the_window_and_asks_no_other_host(site: Path, tab: Browser, view: View) -> None:
    for name in ("index", "configuration", "walks/vote"):
        tab.look(view)
        tab.open(site / f"{name}.html")
        assert tab.evaluate("document.documentElement.scrollWidth") <= view.width
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 384) == (view.scheme == "dark")
        assert "Network.requestWillBeSent" in tab.events
        assert "Network.loadingFailed" not in tab.events, "the browser of these tests reaches no host"


SEARCH = """
new Promise((resolve, reject) => {
  const input = document.querySelector(".md-search__input")
  input.focus()
  input.value = WORD
  const look = () => {
    const found = [...document.querySelectorAll(".md-search-result__link")].map(link => link.href)
    if (found.length) resolve(found); else input.dispatchEvent(new Event("keyup", { bubbles: true }))
  }
  new MutationObserver(look).observe(document.querySelector(".md-search-result"), { childList: true, subtree: true })
  setTimeout(() => reject("nothing was found"), PATIENCE)
  look()
})
"""


@pytest.mark.lane("test-all")  # a browser
@pytest.mark.parametrize(("word", "page"), [("M212", "checks.html"), ("claim whose quorum is gone", "migration.html")])
def test_the_search_finds_a_page_that_was_opened_from_a_disk(site: Path, tab: Browser, word: str, page: str) -> None:
    tab.look(SCREENS[-1])
    tab.open(site / "adr/index.html")
    script = SEARCH.replace("WORD", repr(word)).replace("PATIENCE", str(int(PATIENCE_SECONDS * 1000)))
    answer = tab.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    assert any(f"/{page}" in found for found in answer["result"]["value"])
