"""The templates of pages: they escape everything that comes from a cluster, and write invisible characters in ASCII.

Every HTML page is made by `template` and saved by `write`. A page loads nothing from outside.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from migrator.errors import OperatorError
from migrator.observe.printable import printable


@cache
def template(path: Path) -> Template:
    """The template in this file, compiled once. It may include files of the page's directory, and of this one."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda text: printable(text) if type(text) is str else text,  # but not the markup that a macro returns
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = "{:,}".format
    return environment.get_template(path.name)


def write(page: Path, text: str) -> None:
    """Write the page to its file.

    :raises OperatorError: the file can't be written.
    """
    try:
        page.write_text(text, "utf-8")
    except OSError as error:
        raise OperatorError(
            f"the page cannot be written: {error.strerror}",
            where=str(page),
            remedy="Name a file with --page, in a directory that you may write to",
        ) from error
