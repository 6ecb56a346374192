"""The door that big requests pass: `migrator.wire.shares` on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from migrator.wire.shares import FairQueue, Ticket, Work

SLOTS = 4
"""Big requests that are worked on at a time. Python runs one thread at a time: more of them would only hold memory."""
LIMIT_BYTES = 48 * 1024 * 1024
"""What they may cost together. One of a broker that costs more is worked on without another of those with rights."""


class Place:
    """Where a request is worked on.

    :param leave: frees the place for the next request; harmless when it is free already.
    :ivar has_rights: whether the cluster depends on this request, or its caller may alter or describe the cluster.
    """

    def __init__(self, leave: Callable[[], None] = lambda: None, *, has_rights: bool = True) -> None:
        self.leave = leave
        self.has_rights = has_rights


NO_PLACE = Place()
"""Of a small request."""
PLACE: ContextVar[Place] = ContextVar("PLACE", default=NO_PLACE)
"""Of the request that this task works on. A request that only waits from now on should leave its place. All do once
their answers have room."""


class BigRequests:
    """Big requests of all listeners of a process."""

    def __init__(self, slots: int = SLOTS, limit: int = LIMIT_BYTES) -> None:
        self.queue = FairQueue(slots, limit)
        self._begun: dict[Ticket, asyncio.Future[None]] = {}

    @contextlib.contextmanager
    def place(self, work: Work) -> Iterator[asyncio.Future[None]]:
        """A place for one request: work on it may begin once the future is done. The request holds the place until this
        context ends, or until it leaves `PLACE`."""
        ticket = Ticket(work)

        def leave() -> None:
            self.queue.withdraw(ticket)
            self._begun.pop(ticket, None)
            self._go_on()

        begun = self._begun[ticket] = asyncio.get_running_loop().create_future()
        before = PLACE.set(Place(leave, has_rights=work.caller.share.has_rights))
        self.queue.add(ticket)
        self._go_on()
        try:
            yield begun
        finally:
            PLACE.reset(before)
            leave()

    def _go_on(self) -> None:
        for ticket in self.queue.begin():
            begun = self._begun[ticket]
            if not begun.done():
                begun.set_result(None)
