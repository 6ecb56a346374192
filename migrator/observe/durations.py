"""How long something has lasted, as a person says it."""

from __future__ import annotations


def duration(ms: int) -> str:
    """``45 s``, ``12 min 5 s``, ``3 h 10 min``."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
