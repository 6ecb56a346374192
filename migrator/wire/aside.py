"""Python work that would make a turn of the event loop long: big messages, and what is decided about them.

It runs on threads of its own, a few lanes of one thread each: work of one kind waits for work of its own kind, and not
for a frame of 100 MB that somebody sent. Threads take short turns in
holding the interpreter (`take_short_turns`), so that the loop goes on meanwhile at half its speed, and no turn of it
takes long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from migrator.machine import machine
from migrator.wire.shapes import shapes_of

T = TypeVar("T")

INLINE_BYTES: Final = 16 * 1024
"""Bigger messages are decoded aside: Python decodes some megabytes a second."""
INLINE_ELEMENTS: Final = 200
"""Messages with more elements in their arrays are worked on and encoded aside."""
BIG_BYTES: Final = 1024 * 1024
"""Bigger messages have a lane of their own."""


class Lane:
    """One thread, and the work that waits for it."""

    def __init__(self, name: str) -> None:
        self._executor = machine().threads(1, name)

    def begin(self, work: Callable[[], None]) -> None:
        """Do it, and tell nobody of its end."""
        self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, or the exception that it raises. If the task is cancelled, work that waits never begins,
        and work that runs is waited for: until then, what it was given is in memory."""
        future = self._executor.submit(work)
        done = asyncio.wrap_future(future)
        done.add_done_callback(_is_known)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            while not (future.cancel() or future.done()):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((done,))
            raise
        finally:
            del (
                future,
                done,
            )  # both hold an error that was raised, and it holds this frame, and so all that it came through

    def close(self) -> None:
        """End the thread, after the work that it has begun; what waits never begins."""
        self._executor.shutdown(cancel_futures=True)


def _is_known(done: asyncio.Future[Any]) -> None:
    """Its error is no news for the event loop's last resort: who waited for it may have been cancelled."""
    if not done.cancelled():
        done.exception()


class Lanes:
    """Those of one controller.

    :ivar decisions: for who holds the right to write: nothing else may keep the writers waiting.
    :ivar without_rights: for messages of callers without rights on the cluster, whatever their size: an operator waited
        two seconds for them.
    :ivar own_logins: for logins of our own: an identity provider may have to be asked for a token.
    :ivar proofs: for logins that take long; others do not wait for them.
    """

    def __init__(self) -> None:
        self.decisions = Lane("decisions")
        self._messages, self._big_messages = Lane("messages"), Lane("big-messages")
        self.without_rights = Lane("messages-without-rights")
        self.own_logins = Lane("own-logins")
        self.proofs = Lane("proofs")
        self._of_providers: list[Lane] = []

    def of_provider(self) -> Lane:
        """A lane of its own for the published keys of one identity provider: one that does not answer keeps out nobody
        but those that it vouches for."""
        self._of_providers.append(lane := Lane("jwks"))
        return lane

    def of_size(self, size: int = 0) -> Lane:
        """Where a message of so many bytes is worked on."""
        return self._messages if size <= BIG_BYTES else self._big_messages

    async def close(self) -> None:
        """End the threads, after the work that they have begun. Nobody may ask for more."""
        lanes = [lane for lane in vars(self).values() if isinstance(lane, Lane)]
        await asyncio.gather(*(asyncio.to_thread(lane.close) for lane in (*lanes, *self._of_providers)))


def lanes() -> Lanes:
    """Those of whoever asks."""
    return machine().own(Lanes)


def is_big(message: Any, limit: int = INLINE_ELEMENTS) -> bool:
    """Whether the arrays of one of kio's messages have more than ``limit`` elements together, however deep. The bytes
    of records and snapshots, which are passed on as they are, do not count."""
    elements, entities = 0, [message]
    while entities:
        entity = entities.pop()
        entity_type: Any = type(entity)
        for shape in shapes_of(entity_type):
            if not shape.is_array and shape.entity is None:
                continue
            content = getattr(entity, shape.name)
            if content is None:
                continue
            if not shape.is_array:
                entities.append(content)
                continue
            elements += len(content)
            if elements > limit:
                return True
            if shape.entity is not None:
                entities.extend(content)
    return False
