"""``config.providers``: values that stand elsewhere, ``${provider:path:key}``.

Kafka's own three providers are carried out here; a provider in any other Java class is refused. Source: KIP-297,
KIP-421, ``FileConfigProvider``, ``DirectoryConfigProvider``, ``EnvVarConfigProvider``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from migrator.config.properties import parse_properties
from migrator.config.types import split_list
from migrator.errors import OperatorError

PLACEHOLDER = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
Lookup = Callable[[str, str, str], str]
"""(path, key, where the placeholder stands) -> value."""
JAVA_PACKAGE = "org.apache.kafka.common.config.provider."


def resolve_placeholders(raw: dict[str, str], where: str) -> dict[str, str]:
    """Replace every placeholder whose provider ``config.providers`` names; other text is left alone, as in Kafka.

    :raises OperatorError: for a provider class that is not one of Kafka's three, or a value that can't be had.
    """
    names = split_list(raw.get("config.providers", ""))
    lookups = {name: _provider(raw, name, where) for name in names}

    def replace(match: re.Match[str]) -> str:
        lookup = lookups.get(match.group(1))
        return match.group(0) if lookup is None else lookup(match.group(3) or "", match.group(4), where)

    return {key: PLACEHOLDER.sub(replace, text) for key, text in raw.items()} if lookups else raw


def _provider(raw: dict[str, str], name: str, where: str) -> Lookup:
    class_name = raw.get(f"config.providers.{name}.class", "")
    found = PROVIDERS.get(class_name.removeprefix(JAVA_PACKAGE))
    if found is None:
        raise OperatorError(
            f"the provider class {class_name!r} is Java and can't be used",
            where=f"{where}: config.providers.{name}.class",
            remedy=f"Write the values out, or use one of {', '.join(PROVIDERS)}",
        )
    return found


def _from_file(path: str, key: str, where: str) -> str:
    try:
        values = parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OperatorError(f"a value is kept in {path}, which can't be read: {error}", where=where) from error
    if key not in values:
        raise OperatorError(f"a value is kept in {path} under {key!r}, which is not there", where=where)
    return values[key]


def _from_directory(path: str, key: str, where: str) -> str:
    try:
        return (Path(path) / key).read_text(encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"a value is kept in {path}/{key}, which can't be read: {error}", where=where) from error


def _from_environment(_path: str, key: str, where: str) -> str:
    if key not in os.environ:
        raise OperatorError(f"a value is kept in the environment variable {key}, which is not set", where=where)
    return os.environ[key]


PROVIDERS: dict[str, Lookup] = {
    "FileConfigProvider": _from_file,
    "DirectoryConfigProvider": _from_directory,
    "EnvVarConfigProvider": _from_environment,
}
