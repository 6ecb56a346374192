"""Paths of directories in a property file. No shell reads the file, so nothing replaces ``~``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.config.settings import Settings
from migrator.config.types import entries_of

KEYS = ("log.dirs", "log.dir", "metadata.log.dir")


def home_directories(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong, and remedy: Kafka would make a directory with the name ``~``."""
    for key, name in _named(settings):
        if name.startswith("~"):
            what = f"{name!r} is not in your home directory: only a shell replaces ~, and no shell reads this file"
            yield key, what, "Write the whole path, from / on"


def relative_directories(settings: Settings) -> Iterator[str]:
    """A sentence for each: another start, from elsewhere, would find an empty directory."""
    for key, name in _named(settings):
        if not Path(name).is_absolute():
            yield (
                f"{key}: {name!r} depends on the directory that this program is started in; here it is "
                f"{Path(name).absolute()}. Write the whole path, from / on"
            )


def _named(settings: Settings) -> Iterator[tuple[str, str]]:
    for key in KEYS:
        for name in entries_of(settings.explicit.get(key, "")):
            yield key, name
