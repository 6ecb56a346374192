"""The files of this repository, each read and parsed once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = {".py", ".md", ".toml", ".yml", ".proto", ".lock", ""}


class Source:
    """``name``: its path below the root."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def tracked() -> Sequence[Source]:
    """All that people write: what git knows or would add, but for golden files."""
    command = ("git", "ls-files", "-co", "--exclude-standard")
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [Path(name) for name in names if "golden" not in Path(name).parts]
    kept = [path for path in paths if path.suffix in TEXT and (ROOT / path).is_file()]
    return [Source(str(path), (ROOT / path).read_text(encoding="utf-8")) for path in kept]


def below(folder: str, sources: Sequence[Source]) -> Sequence[Source]:
    """The Python files there."""
    return [source for source in sources if source.name.startswith(f"{folder}/") and source.name.endswith(".py")]
