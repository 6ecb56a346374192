"""Base 64 as Java's ``Base64.getDecoder`` reads it. Kafka reads credentials and passwords with that."""

from __future__ import annotations

import base64
import re

_TEXT = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")
"""Padding may be missing, but not half of it."""


def decode_base64(text: str) -> bytes:
    """:raises ValueError: Java would refuse the text. The message does not quote it: it may be a secret."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError("not base64")
    return base64.b64decode(text + "=" * (-len(text) % 4))
