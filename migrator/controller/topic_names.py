"""Legal topic names. Source: Kafka's ``Topic``."""

from __future__ import annotations

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """What is wrong with a topic name, or None."""
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "must not be . or .."
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return "has a character other than ASCII letters, digits, dot, underscore and hyphen"
    return None
