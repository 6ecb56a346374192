"""What MkDocs calls while it builds the site: the pages are written for GitHub, and the site lacks parts of it."""

from __future__ import annotations

import posixpath
import re
from itertools import groupby
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")
OPTION_OF_A_FENCE = re.compile(r"^(```\w+) \w+$", re.MULTILINE)
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"<td>.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]+")
NAME = re.compile(r"^ +(\w+) : (.+)$", re.MULTILINE)
EDGE = re.compile(r"^ +(\w+) --> (\w+) : (.+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Put all pages of a folder into the place of ``folder/*`` in the navigation. MkDocs calls this first."""
    config.nav = [_whole(entry, Path(config.docs_dir)) for entry in config.nav]
    return config


def _whole(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    ((name, below),) = entry.items()
    if isinstance(below, str):
        return entry
    named = {each for each in below if isinstance(each, str)}
    pages = [
        page
        for each in below
        for page in (sorted(_pages(each, docs) - named) if str(each).endswith("/*") else [_whole(each, docs)])
    ]
    return {name: pages}


def _pages(pattern: str, docs: Path) -> set[str]:
    return {path.relative_to(docs).as_posix() for path in docs.glob(f"{pattern}.md")}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A page's text as MkDocs shall render it. MkDocs calls this for each page."""
    folder = posixpath.dirname(page.file.src_uri)
    if folder == "adr":
        page.meta["search"] = {"boost": 0.1}  # a search shows what to do before why it is so
    text = LINK.sub(lambda link: _link(link, folder), markdown)
    text = OPTION_OF_A_FENCE.sub(r"\1", text)
    return DIAGRAM.sub(lambda diagram: _table(diagram[1]), text)


def on_page_content(html: str, **_: Any) -> str:
    """A page's HTML: long names in tables may go on in the next line, behind a point or an underscore."""
    return CELL.sub(lambda cell: CODE.sub(lambda code: re.sub(r"(?<=[._])(?=\w)", "<wbr>", code[0]), cell[0]), html)


def _link(link: re.Match[str], folder: str) -> str:
    """A link out of docs/ as the name of that file in the repository: the site has pages only."""
    target = posixpath.normpath(posixpath.join("docs", folder, link[2].partition("#")[0]))
    if target.startswith("docs/"):
        return link[0]
    words = link[1].strip("`")
    return f"`{target}`" if words in (target, posixpath.basename(target)) else f"{words} (`{target}`)"


def _table(diagram: str) -> str:
    """A state diagram of Mermaid as a table: drawing it takes a program from another host."""
    names = dict(NAME.findall(diagram))
    rows = ["| state | goes to | when |", "|---|---|---|"]
    for before, edges in groupby(EDGE.findall(diagram), key=lambda edge: edge[0]):
        for number, (_, after, when) in enumerate(edges):
            first = "" if number else names.get(before, before)
            rows.append(f"| {first} | {names.get(after, after)} | {when} |")
    return "\n".join(rows) + "\n"
