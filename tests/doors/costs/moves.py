"""Attacks with a frame, repeated for as long as their process runs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from migrator.values import value
from tests.raw_frames import receive

RESTING_SECONDS = 0.2
"""Between two looks at a connection that is only held."""
REFUSED_SECONDS = 0.02
"""Before the next attempt, when a connection was refused."""
SMALL_BUFFER = 4096
PIPELINED = 50
ENDS = (0, 7, 8)
"""The first byte of TCP_INFO on Linux for an ended connection: unknown, CLOSE, CLOSE_WAIT."""


@value
class Attacker:
    """One of a process's threads.

    :param connect: a new connection, logged in as this kind of caller does.
    :param frame: with its size in front.
    :param counts: what all of them have done.
    """

    connect: Callable[[], Any]
    frame: bytes
    counts: Counter[str]

    def forever(self, move: Callable[[Attacker], None]) -> None:
        """Make the move again and again."""
        while True:
            try:
                move(self)
            except OSError:
                self.counts["refused"] += 1
                time.sleep(REFUSED_SECONDS)


def hang_up(self: Attacker) -> None:
    """Send all of it and be gone."""
    with self.connect() as connection:
        connection.sendall(self.frame)
        self.counts["sent"] += 1


def ask(self: Attacker) -> None:
    """Send, read the answer, send again on the same connection."""
    with self.connect() as connection:
        while True:
            connection.sendall(self.frame)
            self.counts["sent"] += 1
            if receive(connection) is None:
                raise ConnectionResetError
            self.counts["answered"] += 1


def ask_many(self: Attacker) -> None:
    """The same with `PIPELINED` requests at once."""
    frames = self.frame * PIPELINED
    with self.connect() as connection:
        while True:
            connection.sendall(frames)
            self.counts["sent"] += PIPELINED
            for _ in range(PIPELINED):
                if receive(connection) is None:
                    raise ConnectionResetError
            self.counts["answered"] += PIPELINED


def ask_once(self: Attacker) -> None:
    """On a new connection each time."""
    with self.connect() as connection:
        connection.sendall(self.frame)
        self.counts["sent"] += 1
        if receive(connection) is not None:
            self.counts["answered"] += 1


def never_read(self: Attacker) -> None:
    """Ask a few times and read nothing, until the connection is cut off."""
    with self.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        for _ in range(4):
            connection.sendall(self.frame)
            self.counts["sent"] += 1
        _until_closed(connection)


def half(self: Attacker) -> None:
    """Send all but the last byte, and hold the connection until it is cut off."""
    with self.connect() as connection:
        connection.sendall(self.frame[:-1])
        self.counts["sent"] += 1
        _until_closed(connection)


def drip(self: Attacker) -> None:
    """Send a frame a little faster than is too slow."""
    with self.connect() as connection:
        for start in range(0, len(self.frame), 40_000):
            connection.sendall(self.frame[start : start + 40_000])
            self.counts["sent"] += 1
            time.sleep(0.5)


def hold(self: Attacker) -> None:
    """Connect, and be silent until the connection is cut off."""
    with self.connect() as connection:
        self.counts["sent"] += 1
        _until_closed(connection)


def knock(self: Attacker) -> None:
    """Connect and be gone."""
    with self.connect():
        self.counts["sent"] += 1


def get(self: Attacker) -> None:
    """Send, and read until the other side closes."""
    with self.connect() as connection:
        connection.sendall(self.frame)
        self.counts["sent"] += 1
        while connection.recv(1 << 16):
            pass
        self.counts["answered"] += 1


def _until_closed(connection: socket.socket) -> None:
    while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] not in ENDS:
        time.sleep(RESTING_SECONDS)


MOVES: dict[str, Callable[[Attacker], None]] = {
    move.__name__: move for move in (hang_up, ask, ask_many, ask_once, never_read, half, drip, hold, knock, get)
}


def begin(attacker: Attacker, move: Callable[[Attacker], None], count: int) -> None:
    """In so many threads."""
    threading.stack_size(256 * 1024)
    for _ in range(count):
        with contextlib.suppress(RuntimeError):  # no more threads
            threading.Thread(target=attacker.forever, args=(move,), daemon=True).start()
