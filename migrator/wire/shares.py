"""Fair shares: which of the big requests that wait is worked on next.

A big request takes a thread for a while and makes many objects of its bytes. So each waits here until it may begin, and
holds a place until its answer has room (`migrator.wire.answers`). Pure: no clock, no thread.
`migrator.wire.big_requests` is the shell around it.

Invariants:
* At most `slots` requests are worked on, and one of each caller.
* Callers without rights have at most half of the slots and of the limit, so a place for all others is free soon.
* What those without rights cost together is within their half, or one of them is worked on and no other of them. The
  same holds for those with rights, and for what the half of the others leaves them.
* A share that has work gets its weight of it; no share waits for ever, whatever the others ask for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum

from migrator.values import value


class Share(Enum):
    """Whose requests are served together. The weight is the part of the work that a share gets when all ask."""

    BROKERS = 4
    """Who may act for the cluster (CLUSTER_ACTION): brokers and controllers. Each connection is a caller of its own,
    because brokers often have one principal for all."""
    OPERATORS = 3
    """Who may alter the cluster or describe it. Each principal is a caller."""
    OTHERS = 2
    """Everybody else who has proved a name. Each principal is a caller."""
    STRANGERS = 1
    """Who has proved no name. Each address is a caller."""

    @property
    def has_rights(self) -> bool:
        """Whether the cluster depends on the work of this share."""
        return self in (Share.BROKERS, Share.OPERATORS)


@value
class Caller:
    """Who asks. ``key`` tells callers of one share apart."""

    share: Share
    key: Hashable


@value
class Work:
    """What a request needs. ``cost``: bytes of memory that it takes to work on it, about."""

    caller: Caller
    cost: int


@dataclass(slots=True, eq=False)
class Ticket:
    """One request, from the moment that it waits until its place is free again."""

    work: Work


class FairQueue:
    """Decides who is next (stride scheduling between shares, one after another within a share).

    :param slots: how many requests may be worked on at a time.
    :param limit: what they may cost together.
    """

    def __init__(self, slots: int, limit: int) -> None:
        self._slots = slots
        self._limit = limit
        self._waiting: dict[Share, dict[Hashable, deque[Ticket]]] = {share: {} for share in Share}
        self._running: set[Ticket] = set()
        self._passed = dict.fromkeys(Share, 0.0)
        """By share, what it has had, divided by its weight: the share with the least is next."""
        self._clock = 0.0
        """The most that a share had had when it was served."""

    def __len__(self) -> int:
        """How many wait."""
        return sum(len(tickets) for callers in self._waiting.values() for tickets in callers.values())

    @property
    def running(self) -> frozenset[Ticket]:
        """What is worked on."""
        return frozenset(self._running)

    @property
    def cost(self) -> int:
        """Of what is worked on."""
        return sum(ticket.work.cost for ticket in self._running)

    def add(self, ticket: Ticket) -> None:
        """This request waits from now on."""
        callers = self._waiting[ticket.work.caller.share]
        if not callers:  # a share that had nothing to do has saved nothing up
            self._passed[ticket.work.caller.share] = max(self._passed[ticket.work.caller.share], self._clock)
        callers.setdefault(ticket.work.caller.key, deque()).append(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """This request is over, whether it waits or is worked on. Harmless when it is over already."""
        self._running.discard(ticket)
        callers = self._waiting[ticket.work.caller.share]
        tickets = callers.get(ticket.work.caller.key, deque())
        if ticket in tickets:
            tickets.remove(ticket)
            if not tickets:
                del callers[ticket.work.caller.key]

    def begin(self) -> Iterator[Ticket]:
        """All that may be worked on now; each counts as being worked on from here."""
        while (ticket := self._next()) is not None:
            callers = self._waiting[ticket.work.caller.share]
            tickets = callers.pop(ticket.work.caller.key)
            tickets.popleft()
            if tickets:
                callers[ticket.work.caller.key] = tickets  # behind the other callers of this share
            self._clock = max(self._clock, self._passed[ticket.work.caller.share])
            self._passed[ticket.work.caller.share] += max(ticket.work.cost, 1) / ticket.work.caller.share.value
            self._running.add(ticket)
            yield ticket

    def _next(self) -> Ticket | None:
        """The next one. Nobody overtakes a request that waits for memory, or a big one would wait for ever; but those
        with rights and those without wait for nothing that the other ones have."""
        if len(self._running) >= self._slots:
            return None
        heads = filter(None, (self._head(has_rights=True), self._head(has_rights=False)))
        return min(heads, key=self._had, default=None)

    def _head(self, *, has_rights: bool) -> Ticket | None:
        """Who is next of those with rights, or of those without; None when there is nobody, or no room."""
        firsts = [first for share in Share if share.has_rights is has_rights and (first := self._first(share))]
        ticket = min(firsts, key=self._had, default=None)
        same = [each.work.cost for each in self._running if each.work.caller.share.has_rights is has_rights]
        if ticket is None or not same:
            return ticket
        others = min(self.cost - sum(same), self._limit // 2) if has_rights else self._limit - self._limit // 2
        return ticket if sum(same) + ticket.work.cost <= self._limit - others else None

    def _had(self, ticket: Ticket) -> float:
        return self._passed[ticket.work.caller.share]

    def _first(self, share: Share) -> Ticket | None:
        if not share.has_rights and self._without_rights() >= max(1, self._slots // 2):
            return None
        busy = {ticket.work.caller for ticket in self._running}
        for key, tickets in self._waiting[share].items():
            if Caller(share, key) not in busy:
                return tickets[0]
        return None

    def _without_rights(self) -> int:
        return sum(1 for ticket in self._running if not ticket.work.caller.share.has_rights)
