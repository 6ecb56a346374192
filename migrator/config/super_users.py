"""Entries of ``super.users`` that no principal can ever match. Kafka starts with them, and compares whole names.

A principal is made by ``DefaultKafkaPrincipalBuilder``: its type is always ``User``, its name that of a login, or the
subject of a certificate without blanks between its parts (RFC 2253), as ``ssl.principal.mapping.rules`` rewrite it.
Source: ``StandardAuthorizer.getConfiguredSuperUsers``, ``SecurityUtils.parseKafkaPrincipal``, KIP-371.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrator.config.open_doors import OpenDoor
from migrator.config.settings import Settings
from migrator.config.types import trimmed

KEY = "super.users"
_USER = "User"
_COMMENT = re.compile(r"\s(#|//)(?=\s|[^=]*$).*", re.DOTALL)
"""A comment after an entry. After the subject of a certificate, a blank has to follow the sign: ``CN=room #5,O=bank``
is a name."""
_BLANKS_IN_SUBJECT = re.compile(r"\w+=.*(?<!\\),\s+[\w.]+\s*=", re.DOTALL)


def unmatchable_entries(settings: Settings) -> Iterator[OpenDoor]:
    """The entries in a controller's file that match no principal. `migrator.config.checks` finds the entries that Kafka
    refuses."""
    for what, remedy in unmatchable_entries_of(settings.super_users or "", mapped=settings.ssl_principal_mapping_rules):
        yield KEY, what, remedy


def unmatchable_entries_of(text: str, *, mapped: str = "DEFAULT") -> Iterator[tuple[str, str]]:
    """The fault and the remedy of each entry that matches no principal.

    :param text: a value of ``super.users``.
    :param mapped: ``ssl.principal.mapping.rules``: with rules, a subject can become any name.
    """
    for entry in text.split(";"):
        name = trimmed(entry)
        kind, separator, rest = name.partition(":")
        if not (kind and separator and rest):
            continue
        reason = _of_kind(kind) or _of_name(rest, mapped)
        if reason:
            what, instead = reason
            yield f"{name!r} names nobody: {what}", instead or f"Write {_USER}:{rest}"


def _of_kind(kind: str) -> tuple[str, str] | None:
    if kind == _USER:
        return None
    return f"the type of every principal is {_USER}, and {kind!r} is another one", ""


def _of_name(name: str, mapped: str) -> tuple[str, str] | None:
    bare = name.strip()
    if name == "*":
        return "there are no wildcards here: each name is taken as it is written", "Write each name in full"
    if _COMMENT.search(name):
        before = _COMMENT.sub("", name).strip()
        return "a property file has no comments behind a value", f"Write {_USER}:{before}, and the comment above it"
    if name != bare or not name.isprintable():
        return "it has blanks or invisible characters", f"Write {_USER}:{bare}, typed again"
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        return "quotation marks count as part of the name", f"Write {_USER}:{name[1:-1]}"
    if trimmed(mapped) in ("", "DEFAULT") and _BLANKS_IN_SUBJECT.match(name):
        subject = re.sub(r"(?<!\\),\s+", ",", name)
        return "Kafka writes the subject of a certificate without blanks behind commas", f"Write {_USER}:{subject}"
    return None
