"""The account book on the event loop: what a task may ask of the request that it works on."""

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
"""How often somebody looks for peers who keep others waiting."""


class Session:
    """What is remembered of one connection for as long as it stands."""

    __slots__ = ("has_acted",)

    def __init__(self) -> None:
        self.has_acted = False
        """Whether its first CLUSTER_ACTION has been logged."""


@value
class RequestContext:
    """What the handler knows about a request besides its body. ``peer_host``: see `migrator.wire.hosts`. ``session``:
    None of a request that a broker has forwarded."""

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
        if self.press():
            self._look_soon()


class Request:
    """One request of a connection.

    :param account: of the connection, which reads the answer, whoever has asked.
    :param abandonable: a context in which the task ends when the connection does.
    """

    def __init__(
        self, charge: Charge, account: Account, abandonable: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._charge = charge
        self._account = account
        self.abandonable = abandonable

    def lane(self, size: int = 0) -> Lane:
        """Where it is worked on beside the event loop; ``size``: of what there is to decode."""
        has_rights = self._charge.caller.share.part is not Part.REST
        return lanes().of_size(size) if has_rights else lanes().without_rights

    @property
    def is_contested(self) -> bool:
        """Whether others wait with their answers: then who can do with a small answer shall get one."""
        return self._account.book.room(self._account.caller, Stage.ANSWERING).is_contested

    async def begin(self, cost: int, caller: Caller) -> None:
        """Wait until it may be worked on, which takes so many bytes: at least for the next turn of the event loop, so
        that no more requests are worked on in one turn than there are slots."""
        await self._move(Stage.WORKING, cost, caller)

    def begun(self, cost: int) -> None:
        """It waits for nobody, and takes so many bytes."""
        self._charge.hold(Stage.READING, cost, self._account.caller)

    async def reserve(self, size: int) -> None:
        """Hold the bytes of the answer from now on, until the socket has them all; what the request held is over. Waits
        for its turn and for room, unless it has some already."""
        if self._charge.stage is Stage.ANSWERING:
            self._charge.hold(Stage.ANSWERING, size)
        else:
            await self._move(Stage.ANSWERING, size, self._account.caller)

    def handed(self) -> None:
        """It is for the peer to take the next part of the answer."""
        self._charge.handed()

    def park(self) -> bool:
        """It waits for something else than this process from now on, and nobody waits for its place. False if too many
        do so already."""
        return self._charge.try_move(Stage.PARKED)

    def appended(self) -> None:
        """What it asked for is in the log: it waits for the quorum, and cannot be refused any more."""
        self._charge.hold(Stage.PARKED, self._charge.held)

    async def _move(self, stage: Stage, amount: int, caller: Caller) -> None:
        there = asyncio.Event()
        with self.abandonable():
            self._charge.move(stage, amount, there.set, caller)
            if stage is Stage.WORKING and there.is_set():
                await asyncio.sleep(0)
            await there.wait()


class _Uncounted:
    """The request of somebody who is known and one of few: other doors count no bytes."""

    is_contested = False
    abandonable = staticmethod(nullcontext)

    def lane(self, size: int = 0) -> Lane:
        """As `Request.lane`."""
        return lanes().of_size(size)

    async def reserve(self, size: int) -> None:
        """Holds nothing."""

    def park(self) -> bool:
        """Holds nothing."""
        return True

    def appended(self) -> None:
        """Holds nothing."""


REQUEST: ContextVar[Request | _Uncounted] = ContextVar("REQUEST", default=_Uncounted())  # noqa: B039 - holds nothing
"""That this task works on."""
