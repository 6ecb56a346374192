"""Dangerous rights: of the process itself, and of other users on its files. Every start warns of them, and preflight
finds them. Stock Kafka checks neither.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from migrator.config.open_doors import OpenDoor
from migrator.config.settings import Settings

ROOT = 0


def rights_of_process(settings: Settings) -> Iterator[OpenDoor]:
    """The dangerous rights of this process, and on its files.

    :raises ValueError: no directory is set.
    """
    if os.geteuid() == ROOT:
        yield (
            "(the process)",
            "it runs as root, so an attacker who breaks into it owns this machine",
            "Run it as a user of its own, which owns the metadata directory and nothing else",
        )
    directory = settings.metadata_directory
    key = "metadata.log.dir" if settings.metadata_log_dir else "log.dirs"
    for path in changed_by_others(directory):
        what = f"every user of this machine may replace this log, because everybody may write to {path}"
        yield key, what, f"chmod o-w {path}"


def changed_by_others(directory: Path) -> Iterator[Path]:
    """The directory and its parents, as far as every user may rename the files of others there."""
    for path in (directory.absolute(), *directory.absolute().parents):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            yield path


def read_by_others(directory: Path) -> bool:
    """Whether every user may enter the directory and its parents, so that only each file's own mode protects it.

    False when it cannot be examined.
    """
    path = directory.absolute()
    try:
        return all(it.stat().st_mode & stat.S_IXOTH for it in (path, *path.parents))
    except OSError:
        return False
