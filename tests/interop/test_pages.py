"""The names on the pages exist: scenarios and tests of docs/interop.md, code of the walks, targets of links."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.interop.support.kafkas_suites import DEFECTS, REPORTS, SUITES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = re.compile(r"`((?:(?!migrator/|tests/)\w+/)*\w+\.py)(?:::([\w.]+))?`")
METHOD = re.compile(r"`([A-Z]\w+\.\w+)`")
FILE = re.compile(r"`((?:migrator|tests|docs|deploy|protos)/[\w/.-]+)(?:::(\w+))?`")
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def rows_below(heading: str) -> dict[str, str]:
    """The second column by the first, of the table below a heading."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[1:]}


@pytest.mark.parametrize("suite", SUITES)
def test_every_scenario_of_a_suite_has_a_row(suite: str) -> None:
    rows = rows_below(suite)
    assert list(rows) == [f"`{name}`" for name in SUITES[suite].split()]
    assert all(NAMED.search(text) or text.startswith("Does not apply: ") for text in rows.values())


def test_every_defect_and_report_has_a_row() -> None:
    ids = {name for row in rows_below("Defects and field reports") for name in row.split(", ")}
    assert ids == {*DEFECTS, *REPORTS}


def test_every_test_that_is_named_exists() -> None:
    missing = [f"{path}::{function}" for path, function in NAMED.findall(PAGE) if not exists(path, function)]
    assert not missing


def exists(path: str, function: str) -> bool:
    """Whether the file is there, and the function in it if one is named."""
    file = ROOT / path
    return (
        file.is_file() and re.search(rf"^ *(async )?def {function or ''}\b", file.read_text(), re.MULTILINE) is not None
    )


def documents_with_code() -> list[Path]:
    return [ROOT / "docs/walk.md", *(ROOT / "docs/walks").glob("*.md"), ROOT / "CONTRIBUTING.md"]


@cache
def modules() -> dict[str, list[Path]]:
    """The files of the program by name."""
    found: dict[str, list[Path]] = {}
    for path in (ROOT / "migrator").rglob("*.py"):
        found.setdefault(path.name, []).append(path)
    return found


def modules_at(file: str) -> list[Path]:
    """The files of that name, in those folders if it names some."""
    return [path for path in modules().get(Path(file).name, []) if path.as_posix().endswith(f"/{file}")]


@cache
def defined(path: Path) -> frozenset[str]:
    """Classes, functions and constants of a module, and members of its classes as ``Class.member``."""
    return frozenset(_names(ast.parse(path.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt]) -> list[str]:
    names: list[str] = []
    for node in body:
        match node:
            case ast.ClassDef():
                names += [node.name, *(f"{node.name}.{member}" for member in _names(node.body))]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.append(node.name)
            case ast.Assign():
                names += [target.id for target in node.targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
    return names


@pytest.mark.parametrize("page", documents_with_code(), ids=lambda page: page.name)
def test_code_that_a_page_walks_through_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = CODE.findall(text)
    assert named
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not any(not name or name in defined(path) for path in modules_at(file))
    ]
    everywhere = {name for paths in modules().values() for path in paths for name in defined(path)}
    missing += [name for name in METHOD.findall(text) if name not in everywhere]
    missing += [path for path, name in FILE.findall(text) if not _is_there(path, name)]
    assert not missing


def _is_there(path: str, name: str) -> bool:
    if name:
        return exists(path, name)
    return (ROOT / path).exists()


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = [
        f"{target}#{anchor}"
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target
        if not (there := (page.parent / target).resolve() if target else page).exists()
        or (anchor and anchor not in anchors(there))
    ]
    assert not broken
