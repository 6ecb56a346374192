"""Legal topic names. Source: Kafka's ``Topic``."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
_INVALID: Final = "Topic name is invalid: "
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """The fault of a topic name, in Kafka's words, or None."""
    if not name:
        return f"{_INVALID}the empty string is not allowed"
    if name in (".", ".."):
        return f"{_INVALID}'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"{_INVALID}the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"{_INVALID}'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
