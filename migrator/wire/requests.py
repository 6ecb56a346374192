"""The account book on the event loop, and the request that a task works on.

A connection makes a `Request` for each frame; handlers reserve memory through it and say when they only wait. Bytes are
counted from the frame's arrival until the socket has taken the answer. A request with records in the log can no longer
be refused. The rules of sharing are in `migrator.wire.book` (docs/adr/0041-one-account-book.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from migrator.clock import monotonic_seconds
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.aside import Lane, lanes
from migrator.wire.book import Account, Book, Caller, Charge, Part, Stage
from migrator.wire.principal import Principal

SLOW_PEERS = TaskKind("slow-peers", OnError.DROP)
LOOK_SECONDS = 0.25
"""The seconds between two searches for slow peers that keep others waiting."""


class Session:
    """Notes about one connection, until it ends."""

    __slots__ = ("has_acted",)

    def __init__(self) -> None:
        self.has_acted = False
        """Whether its first CLUSTER_ACTION has been logged."""


@value
class RequestContext:
    """The facts about a request that a handler gets with the body. ``peer_host``: see `migrator.wire.hosts`.
    ``session``: None for a request that a broker has forwarded."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    principal: Principal
    listener: str
    peer_host: str
    session: Session | None = None


class Accounts(Book):
    """The book of one controller.

    Parameters as `migrator.wire.book.Book`.
    """

    def __init__(self, whole: int, logins: int) -> None:
        super().__init__(whole, logins, monotonic_seconds, self._look_soon)
        self._supervisor = Supervisor()
        self._looks = False

    def _look_soon(self) -> None:
        if not self._looks:
            self._looks = True
            self._supervisor.call_later(SLOW_PEERS, LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looks = False
        if self.cut_off_slow():
            self._look_soon()


class Request:
    """One request of a connection.

    :param account: that of the connection that gets the answer, also for a forwarded request.
    :param abandonable: a context in which the task is cancelled when the connection ends.
    """

    def __init__(
        self, charge: Charge, account: Account, abandonable: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._charge = charge
        self._account = account
        self.abandonable = abandonable

    def lane(self, size: int = 0) -> Lane:
        """The lane whose thread works on the request; ``size``: the bytes to decode."""
        has_rights = self._charge.caller.share.part is not Part.REST
        return lanes().of_size(size) if has_rights else lanes().without_rights

    @property
    def is_contested(self) -> bool:
        """Whether other answers wait for memory. A handler then gives a small answer where the client can use one."""
        return self._account.book.room(self._account.caller, Stage.ANSWERING).is_contested

    async def begin(self, cost: int, caller: Caller) -> None:
        """Wait until the request may be worked on, which takes ``cost`` bytes. It waits at least for the next turn of
        the event loop, so that no more requests than slots are worked on in one turn."""
        await self._move(Stage.WORKING, cost, caller)

    def begun(self, cost: int) -> None:
        """Note that the request is worked on without waiting, and takes ``cost`` bytes."""
        self._charge.hold(Stage.READING, cost, self._account.caller)

    async def reserve(self, size: int) -> None:
        """Wait for memory for the answer, unless the request has some already. The bytes are held until the socket has
        taken the answer; the request's own bytes are released."""
        if self._charge.stage is Stage.ANSWERING:
            self._charge.hold(Stage.ANSWERING, size)
        else:
            await self._move(Stage.ANSWERING, size, self._account.caller)

    def handed(self) -> None:
        """Note that the peer has to take the next part of the answer now."""
        self._charge.handed()

    def park(self) -> bool:
        """The request waits for an event outside this process, and frees its slot. False if too many requests are
        parked already."""
        return self._charge.try_move(Stage.PARKED)

    def appended(self) -> None:
        """Note that the records are in the log. The request waits for the quorum now and cannot be refused any more."""
        self._charge.hold(Stage.PARKED, self._charge.held)

    async def _move(self, stage: Stage, amount: int, caller: Caller) -> None:
        there = asyncio.Event()
        with self.abandonable():
            self._charge.move(stage, amount, there.set, caller)
            if stage is Stage.WORKING and there.is_set():
                await asyncio.sleep(0)
            await there.wait()


class _Uncounted:
    """A request of another interface (gRPC). Its callers are few and known, so no bytes are counted."""

    is_contested = False
    abandonable = staticmethod(nullcontext)

    def lane(self, size: int = 0) -> Lane:
        """Like `Request.lane`."""
        return lanes().of_size(size)

    async def reserve(self, size: int) -> None:
        """Do nothing: no bytes are counted."""

    def park(self) -> bool:
        """Do nothing: no bytes are counted."""
        return True

    def appended(self) -> None:
        """Do nothing: no bytes are counted."""


REQUEST: ContextVar[Request | _Uncounted] = ContextVar("REQUEST", default=_Uncounted())  # noqa: B039 - holds nothing
"""The request that the present task works on."""
