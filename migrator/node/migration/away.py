"""Logs that ZooKeeper is out of reach: one sentence a minute, with hosts and duration.

The migration runs `keep_telling` as a task. A short change of servers is not reported. It decides nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from migrator.clock import monotonic_ms
from migrator.observe.printable import duration

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
PATIENCE_MS = 2_000
"""A connection that is back within this time was moved from one server to another, and is not reported."""
REPEAT_MS = 60_000


class AwayNotes:
    """Decides when to log what; asked about once a second.

    :param hosts: as in zookeeper.connect.
    """

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._since_ms: int | None = None
        self._said_ms: int | None = None

    def look(self, now_ms: int, *, connected: bool, why: str) -> str | None:
        """The sentence to log now; None for nothing.

        :param why: the known reason of the missing connection.
        """
        if connected:
            return self._back(now_ms)
        if self._since_ms is None:
            self._since_ms = now_ms
        since, said = self._since_ms, self._said_ms
        if now_ms - since < PATIENCE_MS or (said is not None and now_ms - said < REPEAT_MS):
            return None
        self._said_ms = now_ms
        return (
            f"ZooKeeper ({self._hosts}) has been out of reach for {duration(now_ms - since)}: {why}. Changes wait in "
            f"the log, and this controller tries again all the time"
        )

    def _back(self, now_ms: int) -> str | None:
        since, said = self._since_ms, self._said_ms
        self._since_ms = self._said_ms = None
        if since is None or said is None:
            return None
        return f"ZooKeeper ({self._hosts}) answers again, after {duration(now_ms - since)}"


async def keep_telling(hosts: str, connected: Callable[[], bool], why: Callable[[], str]) -> None:
    """Log each second whether ZooKeeper is out of reach, if there is news, until cancelled."""
    notes = AwayNotes(hosts)
    while True:
        is_connected = connected()
        sentence = notes.look(monotonic_ms(), connected=is_connected, why="" if is_connected else why())
        if sentence is not None:
            log.log(logging.INFO if is_connected else logging.WARNING, "%s", sentence)
        await asyncio.sleep(POLL_SECONDS)
