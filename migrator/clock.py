"""The clocks of the process, in milliseconds. Pure rooms are handed the time; all others read it here."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """The time of day since 1970, in ms, as it stands in records and files. It may jump, backwards too."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Of consensus, sessions and time-outs, in ms: it never jumps, and means nothing to another process."""
    return time.monotonic_ns() // 1_000_000


def since_boot_ms() -> int:
    """Like `monotonic_ms`, but it goes on while the machine sleeps: how old something is, in ms."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
