"""Failed logins on every door of a controller: counted, and logged at a limited rate.

A client decides how often it tries and with which name, and so the size of a log without a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from migrator.clock import monotonic_seconds
from migrator.observe.printable import printable, quoted

log = logging.getLogger(__name__)

BURST = 20
"""Lines that one door may log at once."""
PER_SECOND = 0.2
"""Lines that one door may log in the long run."""
REASON_CHARACTERS = 400


class LineRate:
    """A bucket of log lines: it holds `BURST`, and fills at `PER_SECOND`."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._lines = float(BURST)
        self._at = clock()
        self._left_out = 0

    def take(self) -> int | None:
        """How many lines were left out before this one; None when this line is left out, too."""
        now = self._clock()
        self._lines = min(BURST, self._lines + (now - self._at) * PER_SECOND)
        self._at = now
        if self._lines < 1:
            self._left_out += 1
            return None
        self._lines -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out

    def spend(self, lines: float) -> None:
        """The line just taken was as long as this many more lines; the next lines wait for them."""
        self._lines -= lines


class LoginBook:
    """Failed logins and expired sessions by door, for example ``listener CONTROLLER``. Any thread may read it."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._failed: dict[str, int] = {}
        self._expired: dict[str, int] = {}
        self._rates: dict[str, LineRate] = {}

    def open(self, door: str) -> None:
        """Show this door from now on, with its failures so far."""
        self._failed.setdefault(door, 0)
        self._expired.setdefault(door, 0)

    def failed(self, door: str, peer: str, reason: str, principal: str | None = None) -> None:
        """Count one failed login.

        :param peer: the client's address.
        :param principal: the name that the client gave, if it came that far.
        """
        self._failed[door] = self._failed.get(door, 0) + 1
        left_out = self._rates.setdefault(door, LineRate(self._clock)).take()
        if left_out is None:
            return
        who = "" if principal is None else f" as {quoted(principal)}"
        log.warning("%s: login from %s%s failed: %s", door, peer, who, reason_of(reason))
        if left_out:
            log.warning("%s: %d more failed logins were not logged", door, left_out)

    def expired(self, door: str) -> None:
        """Count one connection that was closed because its client did not log in again in time (KIP-368)."""
        self._expired[door] = self._expired.get(door, 0) + 1

    def read_expired(self) -> Mapping[str, int]:
        """How many sessions have expired since the controller started."""
        return dict(self._expired)

    def read(self) -> Mapping[str, int]:
        """How many logins have failed since the controller started."""
        return dict(self._failed)


def reason_of(text: str) -> str:
    """The reason why a peer is refused, for a log: short, on one line. What the peer has sent is `quoted`."""
    return printable(text[:REASON_CHARACTERS])
