"""Saves a command's terminal output as an SVG that loads nothing from the network."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import RenderableType

from migrator.cli.terminal import console
from migrator.errors import OperatorError

WIDTH = 100
_FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
"""The fonts that a picture of `rich` would load from the network."""


def save_picture(path: Path, title: str, *shown: RenderableType) -> None:
    """
    :raises OperatorError: the file cannot be written.
    """
    recording = console(record=True, width=WIDTH, file=io.StringIO())
    recording.print(*shown, sep="\n")
    picture = _FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "monospace")
    try:
        recording.save_svg(str(path), title=title, code_format=picture)
    except OSError as error:
        raise OperatorError(
            f"the picture cannot be written ({error.strerror})", where=str(path), remedy="Name a file that can be made"
        ) from error
