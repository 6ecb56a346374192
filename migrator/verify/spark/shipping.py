"""This package on its way to the workers of a Spark cluster, whose Python need not have it.

What is pure Python goes along in one archive: this package and the packages of `PURE`. What is compiled can't: the
workers' Python must have it, in the versions of this one; docs/verify.md lists it.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

from migrator.errors import OperatorError

PURE = ("migrator", "kazoo", "kio", "tenacity", "jwt")
ARCHIVE_NAME = "kraft-migrator.zip"


def write_archive(directory: Path) -> Path:
    """An archive that Spark's ``addPyFile`` takes."""
    archive = directory / ARCHIVE_NAME
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in PURE:
            root = _root(name)
            for source in sorted(root.rglob("*.py")):
                file.write(source, source.relative_to(root.parent))
    return archive


def _root(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise OperatorError(
            f"the Python package {name} is not installed",
            where="the Python environment",
            remedy="Install migrator again, with the extra 'verify'",
        )
    return Path(spec.origin).parent
