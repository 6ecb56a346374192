"""Runs long work off the event loop: decoding of big messages, and decisions about them.

There are a few lanes of one thread each. Work waits only for other work in its lane, so a frame of 100 MB does not
delay an operator's request. The threads hold the interpreter for short times only (`take_short_turns`): the event loop
continues at half its speed, without long pauses.
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
"""Messages with more bytes are decoded on a lane: Python decodes some megabytes a second."""
INLINE_ELEMENTS: Final = 200
"""Messages with more elements in their arrays are worked on and encoded on a lane."""
BIG_BYTES: Final = 1024 * 1024
"""Bigger messages have a separate lane."""


class Lane:
    """One thread, and the work that waits for it."""

    def __init__(self, name: str) -> None:
        self._executor = machine().threads(1, name)

    def begin(self, work: Callable[[], None]) -> None:
        """Run ``work`` and ignore its result."""
        self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, or its exception. When the calling task is cancelled, work that has not begun is
        dropped, and running work is awaited: its input stays in memory, and must stay counted, until it ends."""
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
            )  # both refer to a raised error, and its traceback to this frame: break that cycle

    def close(self) -> None:
        """End the thread after its running work. Waiting work is dropped."""
        self._executor.shutdown(cancel_futures=True)


def _is_known(done: asyncio.Future[Any]) -> None:
    """Read the error, so that the event loop does not report it as unhandled: the waiting task may be cancelled."""
    if not done.cancelled():
        done.exception()


class Lanes:
    """The lanes of one controller.

    :ivar decisions: for the holder of the right to write. No other work may delay it.
    :ivar without_rights: for messages of any size from callers without rights on the cluster. In a common lane an
        operator waited two seconds for them.
    :ivar own_logins: for this node's own logins, which may ask an identity provider for a token.
    :ivar proofs: for checks of logins that take long.
    """

    def __init__(self) -> None:
        self.decisions = Lane("decisions")
        self._messages, self._big_messages = Lane("messages"), Lane("big-messages")
        self.without_rights = Lane("messages-without-rights")
        self.own_logins = Lane("own-logins")
        self.proofs = Lane("proofs")
        self._of_providers: list[Lane] = []

    def of_provider(self) -> Lane:
        """A lane for the published keys of one identity provider. A provider that does not answer then delays only the
        clients with its tokens."""
        self._of_providers.append(lane := Lane("jwks"))
        return lane

    def of_size(self, size: int = 0) -> Lane:
        return self._messages if size <= BIG_BYTES else self._big_messages

    async def close(self) -> None:
        """End the threads after their running work. No work may be added afterwards."""
        lanes = [lane for lane in vars(self).values() if isinstance(lane, Lane)]
        await asyncio.gather(*(asyncio.to_thread(lane.close) for lane in (*lanes, *self._of_providers)))


def lanes() -> Lanes:
    """The lanes of the controller whose task calls this."""
    return machine().own(Lanes)


def is_big(message: Any, limit: int = INLINE_ELEMENTS) -> bool:
    """Whether the arrays of a kio message have more than ``limit`` elements together, at any depth. Bytes of records
    and snapshots do not count: they are passed on without decoding."""
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
