"""The clocks of the machine. Pure rooms are handed the time; all others read it here."""

from __future__ import annotations

from datetime import UTC, datetime

from migrator.machine import machine


def wall_ms() -> int:
    """The time of day since 1970, in ms, as it stands in records and files. It may jump, backwards too."""
    return machine().wall_ns() // 1_000_000


def wall_seconds() -> float:
    return machine().wall_ns() / 1e9


def wall_time() -> datetime:
    """The same as certificates have it."""
    return datetime.fromtimestamp(wall_seconds(), UTC)


def monotonic_ms() -> int:
    """The clock of consensus, sessions and time-outs, in ms. It never jumps. Another process cannot use its values."""
    return machine().monotonic_ns() // 1_000_000


def monotonic_seconds() -> float:
    return machine().monotonic_ns() / 1e9


def since_boot_ms() -> int:
    """Like `monotonic_ms`, but it goes on while the machine sleeps: how old something is, in ms."""
    return machine().since_boot_ns() // 1_000_000
