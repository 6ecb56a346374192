"""``config.providers``: values from other places, ``${provider:path:key}``.

Kafka's own three providers are implemented here; any other Java class is refused. In some cases Kafka leaves a
placeholder in place (a path that is not allowed, a missing key). Then the file is refused: the text of a placeholder
must not become a password. Source: KIP-297, KIP-421, KIP-993, ``AllowedPaths``, ``FileConfigProvider``,
``DirectoryConfigProvider``, ``EnvVarConfigProvider``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from migrator.config.java_regex import java_pattern
from migrator.config.keys import KEYS
from migrator.config.properties import parse_properties, read_text
from migrator.config.sensitive import is_sensitive, kind_of
from migrator.config.types import split_list, trimmed
from migrator.errors import OperatorError
from migrator.looked_up import remember, words_of
from migrator.values import value

PROVIDERS_KEY = "config.providers"
PLACEHOLDER = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
Lookup = Callable[[str, str, str], str]
"""(path, key, where the placeholder stands) -> value."""
_WORDS_OF_KAFKA = frozenset(
    word for key in KEYS.values() for word in words_of(f"{key.name} {key.kind} {key.default} {key.valid} User")
)
"""The words of Kafka's keys and their values, and User, the type of every principal."""
JAVA_PACKAGE = "org.apache.kafka.common.config.provider."


@value
class _Kind:
    """One of Kafka's providers: its only parameter, and the function that makes a lookup from the parameter's text."""

    parameter: str
    make: Callable[[str | None], Lookup]


def resolve_placeholders(raw: dict[str, str], where: str, keys: Collection[str] | None = None) -> dict[str, str]:
    """Replace every placeholder whose provider ``config.providers`` names; other text is left alone, as in Kafka.

    :param keys: the keys whose values are resolved.
    :raises OperatorError: for a provider class that is not one of Kafka's three, a parameter that it does not have or
        cannot use, or a value that can't be read.
    """
    lookups = {name: _provider(raw, name, where) for name in split_list(raw.get(PROVIDERS_KEY, ""))}
    if not lookups:
        return raw
    public = _WORDS_OF_KAFKA.union(*(words_of(f"{key} {text}") for key, text in raw.items()))

    def replace(match: re.Match[str], *, by_entry: bool) -> str:
        lookup = lookups.get(match.group(1))
        if lookup is None:
            return match.group(0)
        found = lookup(match.group(3) or "", match.group(4), where)
        remember(found, match.group(0), public, by_entry=by_entry)
        return found

    def resolved(key: str) -> str:
        by_entry = not is_sensitive(kind_of(key))
        text = PLACEHOLDER.sub(partial(replace, by_entry=by_entry), raw[key])
        if text != raw[key]:  # also a value of which only a part was looked up
            remember(text, raw[key], public, by_entry=by_entry)
        return text

    return {key: resolved(key) for key in (raw if keys is None else keys)}


def files_of(text: str, raw: Mapping[str, str]) -> Iterator[Path]:
    """The files that the placeholders in ``text`` are read from; ``raw`` is the file around it."""
    names = split_list(raw.get(PROVIDERS_KEY, ""))
    for match in PLACEHOLDER.finditer(text):
        name, path, key = match.group(1), match.group(3) or "", match.group(4)
        if name in names and path:
            kind = trimmed(raw.get(f"{PROVIDERS_KEY}.{name}.class", "")).removeprefix(JAVA_PACKAGE)
            yield Path(path) / key if kind == "DirectoryConfigProvider" else Path(path)


def refuse_unknown_providers(raw: Mapping[str, str], where: str) -> None:
    """Check the providers of a file whose placeholders are not resolved here.

    :raises OperatorError: as in `resolve_placeholders`, for a class or a parameter.
    """
    for name in split_list(raw.get(PROVIDERS_KEY, "")):
        _kind(raw, name, where)


def _provider(raw: Mapping[str, str], name: str, where: str) -> Lookup:
    kind = _kind(raw, name, where)
    parameter = f"{PROVIDERS_KEY}.{name}.param.{kind.parameter}"
    try:
        return kind.make(raw.get(parameter))
    except (ValueError, OSError) as error:
        raise OperatorError(str(error), where=f"{where}: {parameter}", remedy="Correct the value") from error


def _kind(raw: Mapping[str, str], name: str, where: str) -> _Kind:
    prefix = f"{PROVIDERS_KEY}.{name}."
    class_name = trimmed(raw.get(f"{prefix}class", ""))
    kind = _KINDS.get(class_name.removeprefix(JAVA_PACKAGE))
    if kind is None:
        raise OperatorError(
            f"the provider class {class_name!r} is Java and cannot run here" if class_name else "the key is not set",
            where=f"{where}: {prefix}class",
            remedy=f"Write the values into this file, or use one of {', '.join(_KINDS)}",
        )
    parameter = f"{prefix}param.{kind.parameter}"
    for key in raw:
        if key.startswith(prefix) and key not in (f"{prefix}class", parameter):
            raise OperatorError(
                f"{class_name.removeprefix(JAVA_PACKAGE)} has no such setting",
                where=f"{where}: {key}",
                remedy=f"The only parameter is {parameter}",
            )
    return kind


_READABLE = "Correct the path in the placeholder, or let the user that runs this process read that file"


def _from_files(allowed: str | None) -> Lookup:
    paths = _AllowedPaths(allowed)

    def look_up(path: str, key: str, where: str) -> str:
        file = paths.check(path, where)
        try:
            values = parse_properties(read_text(file))
        except (OSError, ValueError) as error:
            raise OperatorError(
                f"a value is kept in {path}, which cannot be read: {error}", where=where, remedy=_READABLE
            ) from error
        if key not in values:
            raise OperatorError(
                f"a value is kept in {path} under {key!r}, which is not there",
                where=where,
                remedy="Write the key into that file, or correct the placeholder",
            )
        return values[key]

    return look_up


def _from_directories(allowed: str | None) -> Lookup:
    paths = _AllowedPaths(allowed)

    def look_up(path: str, key: str, where: str) -> str:
        if Path(key).name != key:
            raise OperatorError(
                f"a value is kept in {path} under {key!r}, which is no file's name",
                where=where,
                remedy="Write ${name:DIRECTORY:FILE}",
            )
        file = Path(path) / key
        try:
            return read_text(paths.check(str(file), where))
        except (OSError, ValueError) as error:
            raise OperatorError(
                f"a value is kept in {file}, which cannot be read: {error}", where=where, remedy=_READABLE
            ) from error

    return look_up


def _from_environment(pattern: str | None) -> Lookup:
    allowed = java_pattern(".*" if pattern is None else pattern)

    def look_up(path: str, key: str, where: str) -> str:
        if path:
            raise OperatorError(f"the environment has no path {path!r}", where=where, remedy="Write ${name:KEY}")
        if not allowed.fullmatch(key):
            raise OperatorError(
                f"a value is kept in the environment variable {key}, which {pattern} does not allow",
                where=where,
                remedy="Correct the placeholder, or allowlist.pattern",
            )
        if key not in os.environ:
            raise OperatorError(
                f"a value is kept in the environment variable {key}, which is not set",
                where=where,
                remedy="Set this variable for the user that runs this process, or correct the placeholder",
            )
        return os.environ[key]

    return look_up


_KINDS: Mapping[str, _Kind] = {
    "FileConfigProvider": _Kind("allowed.paths", _from_files),
    "DirectoryConfigProvider": _Kind("allowed.paths", _from_directories),
    "EnvVarConfigProvider": _Kind("allowlist.pattern", _from_environment),
}


class _AllowedPaths:
    """``allowed.paths``. As in Kafka, ``..`` is resolved before a path is compared. Unlike in Kafka, a link may not
    lead out of the allowed paths.

    :raises ValueError: an allowed path is not absolute, or does not exist.
    """

    def __init__(self, text: str | None) -> None:
        names = split_list(text or "")
        self._allowed = tuple(Path(os.path.normpath(name)) for name in names)
        for name, path in zip(names, self._allowed, strict=True):
            if not path.is_absolute() or not path.exists():
                raise ValueError(f"{name!r} is not {'there' if path.is_absolute() else 'an absolute path'}")

    def check(self, path: str, where: str) -> Path:
        """The path to open.

        :raises OperatorError: the path is not allowed.
        """
        if not self._allowed:
            return Path(path)
        normal = Path(os.path.normpath(path))
        target = normal.resolve()
        is_within = any(normal.is_relative_to(each) for each in self._allowed)
        if not is_within or not any(target.is_relative_to(each.resolve()) for each in self._allowed):
            leads = f", and leads to {target}" if is_within else ""
            raise OperatorError(
                f"a value is kept in {path}{leads}, which allowed.paths does not allow",
                where=where,
                remedy="Correct the placeholder, or add the directory to allowed.paths",
            )
        return normal
