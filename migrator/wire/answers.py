"""Room for the answers that are on their way, and what happens to those who do not read theirs.

A small answer costs no more than its connection does. A bigger one needs room before its bytes are there, and holds it
until the socket has the last of them. Who comes first is served first. When all room is held, those go whose sockets
have taken nothing for longest: an honest reader takes some within a moment. Whoever waits goes on only when memory has
come back. Kafka has no such bound: its answers to a Fetch are files, and its heap holds none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

SMALL_BYTES = 16 * 1024
"""Up to so many an answer needs no room."""


class _Waiter:
    """Who waits for room."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.has_room = False
        self.news = asyncio.Event()


class AnswerRoom:
    """What a group of connections holds in answers.

    :param limit: in bytes; a bigger answer finds room when nobody else has any.
    :param patience_seconds: for how long a socket may take nothing while others wait.
    """

    def __init__(self, limit: int, patience_seconds: float) -> None:
        self.limit = limit
        self.held = 0
        self.most = 0
        """The highest that `held` ever was."""
        self.cut_off = 0
        """Answers whose readers had to go."""
        self._patience = patience_seconds
        self._waiting: deque[_Waiter] = deque()
        self._wanted = 0
        """Bytes that they wait for."""
        self._sending: dict[Answer, float] = {}
        """Since when the socket has taken nothing, on the loop's clock; the longest first."""
        self._going: set[Answer] = set()
        """Who was cut off, and has not given back yet."""

    @property
    def is_contested(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def take(self, count: int) -> None:
        """Hold so many more bytes, once there is room for them and nobody waits who came before."""
        if not self._waiting and self._fits(count):
            self.hold(count)
            return
        waiter = _Waiter(count)
        self._waiting.append(waiter)
        self._wanted += count
        try:
            while not waiter.has_room:
                waiter.news.clear()
                seconds = self._press() if self._waiting[0] is waiter else None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await waiter.news.wait()
        except asyncio.CancelledError:
            if waiter.has_room:
                self.give_back(count)
            else:
                self._waiting.remove(waiter)
                self._wanted -= count
                self._admit()
            raise

    def hold(self, count: int) -> None:
        """Hold so many more bytes, which are there already."""
        self.held += count
        self.most = max(self.most, self.held)

    def give_back(self, count: int) -> None:
        """Hold so many fewer."""
        self.held -= count
        self._admit()

    def progressed(self, answer: Answer) -> None:
        """From now on it is for the peer to take the next part of this answer."""
        self._sending.pop(answer, None)
        self._sending[answer] = asyncio.get_running_loop().time()

    def ended(self, answer: Answer) -> None:
        """Nothing more of it is to be taken."""
        self._sending.pop(answer, None)
        self._going.discard(answer)

    def _fits(self, count: int) -> bool:
        return self.held + count <= self.limit or self.held == 0

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0].count):
            waiter = self._waiting.popleft()
            waiter.has_room = True
            self._wanted -= waiter.count
            self.hold(waiter.count)
            waiter.news.set()
        if self._waiting:
            self._waiting[0].news.set()

    def _press(self) -> float:
        """Cut off as many of the slow as it takes for those who wait. Gives the seconds after which to look again."""
        now = asyncio.get_running_loop().time()
        free = self.limit - self.held + sum(answer.held for answer in self._going)
        while self._sending and free < self._wanted:
            slowest, since = next(iter(self._sending.items()))
            if since + self._patience > now:
                return since + self._patience - now
            del self._sending[slowest]
            self._going.add(slowest)
            free += slowest.held
            self.cut_off += 1
            slowest.cut_off("the client did not read its answer, and other clients waited for the memory")
        return self._patience


class Answer:
    """One answer, from before its bytes are there until the socket has them.

    :param cut_off: ends its connection, with the reason.
    """

    def __init__(self, room: AnswerRoom, cut_off: Callable[[str], None]) -> None:
        self._room = room
        self.held = 0
        self.cut_off = cut_off

    @property
    def is_contested(self) -> bool:
        """Whether others wait for room: then who can do with a small answer shall get one."""
        return self._room.is_contested

    async def reserve(self, size: int) -> None:
        """Hold as many bytes as that from now on. Waits for its turn and for room, unless it has some already."""
        size = size if size > SMALL_BYTES else 0
        if not self.held and size:
            await self._room.take(size)
        elif size > self.held:
            self._room.hold(size - self.held)  # its bytes are here: to wait for room with them would free none
        elif size < self.held:
            self._room.give_back(self.held - size)
        self.held = size

    def progressed(self) -> None:
        """The socket is handed another part."""
        if self.held:
            self._room.progressed(self)

    def end(self) -> None:
        """The socket has all of it, or will never have it."""
        self._room.ended(self)
        if self.held:
            self._room.give_back(self.held)
        self.held = 0


class _Uncounted:
    """The answer to whoever is few and known: no other door has a bound of its answers."""

    is_contested = False

    async def reserve(self, size: int) -> None:
        """Holds nothing."""


_UNCOUNTED = _Uncounted()
ANSWER: ContextVar[Answer | _Uncounted] = ContextVar("ANSWER", default=_UNCOUNTED)
"""To the request that this task works on; for whoever knows a size before the bytes are there."""
