"""The account book: it bounds the memory and work that requests cause, from their first byte to their answer's last.

Each request is one `Charge`, and is in one `Room` at a time: it is read, waits for its turn and is worked on, waits for
something else (it is parked), and is answered. It moves on when the next room has space, and keeps its bytes until
then. The last room empties because peers read their answers, or are cut off, so no request waits for ever.

Pure: the time is passed in, and waiting requests are called back. `migrator.wire.requests` is the shell around it.

Invariants:
* A room, a caller and the book hold the sum of the charges that are open there.
* Callers with rights, callers without rights and connections that have not logged in have separate rooms. No group
  waits for memory that another group holds.
* A room holds no more than its limit, with two exceptions: one request that is bigger than the limit, when the others
  hold at most an eighth of it; and bytes that are in memory already (`Charge.hold`).
* When one caller holds half of a room, its next request waits, and another caller's does not.
* At most one request of each caller is worked on at a time, and no more requests than there are slots.
* A small request or answer of a caller with rights waits for no room: such a caller can harm the cluster anyway, and
  heartbeats, votes and fetches must not wait. Neither does a small request of a login: there are few connections in a
  login, and a client that shares an address with an attacker must be able to log in.
* Waiting shares are served by their weights, and the callers of a share in turn, so no caller waits for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from migrator.values import value

UNBOUNDED = 2**63
LEAST_COST = 4096
"""The least cost of a request, in bytes, when shares are weighed: a small request takes time, too."""
SMALL_BYTES = 16 * 1024
SMALL_LOGIN_BYTES = 4 * 1024


class Part(Enum):
    """A group of callers with separate rooms."""

    RIGHTS = "with rights on the cluster"
    REST = "without"
    LOGINS = "not logged in yet"

    __hash__ = object.__hash__  # Enum's own is written in Python, and every request looks up a few rooms


SMALL = {Part.RIGHTS: SMALL_BYTES, Part.REST: 0, Part.LOGINS: SMALL_LOGIN_BYTES}
"""A request or an answer of at most this many bytes waits for no room."""


class Share(Enum):
    """A group of callers that are served together, within a part. The weight is its share of the part when all shares
    have waiting requests."""

    BROKERS = (4, Part.RIGHTS)
    """Callers with CLUSTER_ACTION: brokers and controllers. Each connection is a caller, because brokers often share
    one principal."""
    OPERATORS = (3, Part.RIGHTS)
    """Callers that may alter or describe the cluster. Each principal is a caller."""
    OTHERS = (2, Part.REST)
    """All other callers that are authenticated. Each principal is a caller."""
    STRANGERS = (1, Part.REST)
    """Anonymous callers without rights, on a listener without authentication. Each address is a caller."""
    LOGINS = (1, Part.LOGINS)
    """Connections that are not authenticated yet. Each address is a caller."""

    __hash__ = object.__hash__

    def __init__(self, weight: int, part: Part) -> None:
        self.weight = weight
        self.part = part


class Stage(Enum):
    """The rooms of a part, in the order in which a request passes through them."""

    READING = "it arrives, or waits for its turn"
    WORKING = "it is decoded, decided or answered"
    PARKED = "it waits for something else than this process"
    ANSWERING = "its answer is on the way"

    __hash__ = object.__hash__


UNFINISHED = {Stage.READING: "send the rest of its request", Stage.ANSWERING: "read its answer"}
SIXTEENTHS = {
    Part.RIGHTS: {Stage.READING: 4, Stage.WORKING: 2, Stage.PARKED: 1, Stage.ANSWERING: 3},
    Part.REST: {Stage.READING: 2, Stage.WORKING: 2, Stage.PARKED: 1, Stage.ANSWERING: 1},
}
"""The limit of each room, in sixteenths of the memory for all requests."""
SLOTS = {Part.RIGHTS: 4, Part.REST: 2, Part.LOGINS: 8}
"""Requests that are worked on at a time. Python runs one thread at a time, so more of them would only hold memory."""


@value
class Caller:
    """A caller. ``key`` distinguishes the callers of one share."""

    share: Share
    key: Hashable


@dataclass(slots=True, eq=False)
class Want:
    """A charge that waits for room."""

    charge: Charge
    room: Room
    caller: Caller
    amount: int
    go_on: Callable[[], None]


class Charge:
    """One request.

    :param patience: seconds for which its peer may send or take nothing while others wait for the room.
    :param cut_off: ends its connection, with the reason.
    """

    def __init__(self, book: Book, caller: Caller, patience: float, cut_off: Callable[[str], None]) -> None:
        self._book = book
        self._want: Want | None = None
        self.caller = caller
        self.patience = patience
        self.cut_off = cut_off
        self.held = 0
        self.room = book.room(caller, Stage.READING)
        self.room.enter(self)

    def move(self, stage: Stage, amount: int, go_on: Callable[[], None], caller: Caller | None = None) -> None:
        """Move to a room when it has space. Until then the charge keeps its present room and bytes.

        :param amount: bytes to hold there.
        :param go_on: called after the move.
        :param caller: the caller, if it is only known now.
        """
        caller = caller or self.caller
        if stage is not self.stage:
            self.arrived()
        if stage is not Stage.WORKING and amount <= SMALL[caller.share.part]:
            self.hold(stage, amount, caller)
            go_on()
            return
        room = self._book.room(caller, stage)
        want = self._want = Want(self, room, caller, amount, go_on)
        room.wait(want)
        room.admit()
        if self._want is want:
            self._book.on_wait()

    def try_move(self, stage: Stage) -> bool:
        """Move to a room with the bytes that it holds, if there is space now. Returns whether it has moved."""
        room = self._book.room(self.caller, stage)
        if room.has_room(Want(self, room, self.caller, self.held, lambda: None)):
            self.hold(stage, self.held)
        return self.room is room

    def hold(self, stage: Stage, amount: int, caller: Caller | None = None) -> None:
        """Move to a room at once, beyond its limit if necessary: the bytes are in memory already, so waiting would not
        free any."""
        caller = caller or self.caller
        self._settle(self._book.room(caller, stage), caller, amount)

    def handed(self) -> None:
        """Note that the peer has to send or take the next part now; its patience begins."""
        self.arrived()
        self.room.in_hand[self] = self._book.clock()

    def arrived(self) -> None:
        """Note that this process has to act now, and no longer waits for the peer."""
        self.room.in_hand.pop(self, None)

    def granted(self) -> None:
        """Take the space that the room now has for this charge, and let the request go on."""
        want, self._want = self._want, None
        if want is not None:
            self._settle(want.room, want.caller, want.amount)
            want.go_on()

    def close(self) -> None:
        """End the charge in its room or queue. A second call does nothing."""
        if self._want is not None:
            want, self._want = self._want, None
            want.room.withdraw(want)
        if self.room.leave(self):
            self.room.admit()

    @property
    def stage(self) -> Stage:
        return self.room.stage

    @property
    def waits(self) -> bool:
        """Whether the charge waits for a room."""
        return self._want is not None

    def _settle(self, room: Room, caller: Caller, amount: int) -> None:
        before = self.room
        if room is before and caller == self.caller and before.change(self, amount):
            before.admit()
            return
        before.leave(self)
        self.room, self.caller, self.held = room, caller, amount
        room.enter(self)
        before.admit()


class Room:
    """One stage of one part: the charges in it, and those that wait for it.

    :param limit: in bytes.
    :param slots: the largest number of charges in it, each of another caller; None for any number.
    """

    def __init__(self, stage: Stage, limit: int, slots: int | None = None) -> None:
        self.stage = stage
        self.limit = limit
        self.held = 0
        self.most = 0
        """The highest value that `held` ever had."""
        self.cut_off = 0
        """The number of charges whose connections were cut off to make room."""
        self.charges: set[Charge] = set()
        self.in_hand: dict[Charge, float] = {}
        """The charges whose peers have to send or take the next part, and since when."""
        self._going: set[Charge] = set()
        """The charges whose connections were cut off and that are still in the room."""
        self._slots = slots
        self._by_caller: Counter[Caller] = Counter()
        self._waiting: dict[Share, dict[Caller, dict[Charge, Want]]] = {share: {} for share in Share}
        self._passed = dict.fromkeys(Share, 0.0)
        """The bytes given to each share, divided by its weight. The share with the least is next."""
        self._now = 0.0
        """The value in `_passed` of the share that was served last. A share that was idle begins from it."""
        self._admits = False

    @property
    def is_contested(self) -> bool:
        """Whether a charge waits for the room."""
        return any(self._waiting.values())

    def enter(self, charge: Charge) -> None:
        """Add a charge with the bytes that it holds."""
        self.charges.add(charge)
        self._count(charge.caller, charge.held)
        self.most = max(self.most, self.held)

    def leave(self, charge: Charge) -> bool:
        """Remove a charge; False when it was not in the room."""
        if charge not in self.charges:
            return False
        self.charges.discard(charge)
        self.in_hand.pop(charge, None)
        self._going.discard(charge)
        self._count(charge.caller, -charge.held)
        return True

    def change(self, charge: Charge, held: int) -> bool:
        """Change the bytes of a charge in the room; False when it was not there. The same as `leave` and `enter`."""
        if charge not in self.charges:
            return False
        self.in_hand.pop(charge, None)
        self._going.discard(charge)
        self._count(charge.caller, held - charge.held)
        charge.held = held
        self.most = max(self.most, self.held)
        return True

    def wait(self, want: Want) -> None:
        """Add a charge to the queue of its caller."""
        callers = self._waiting[want.caller.share]
        if not callers:  # an idle share does not save up bytes
            self._passed[want.caller.share] = max(self._passed[want.caller.share], self._now)
        callers.setdefault(want.caller, {})[want.charge] = want

    def withdraw(self, want: Want) -> None:
        """Remove a charge from the queue, and admit others that it kept waiting."""
        callers = self._waiting[want.caller.share]
        del callers[want.caller][want.charge]
        if not callers[want.caller]:
            del callers[want.caller]
        self.admit()

    def admit(self) -> None:
        """Admit all charges for which there is space."""
        if self._admits:  # a charge that was just admitted called this: the outer call goes on
            return
        self._admits = True
        try:
            while (want := self._first()) is not None and self.has_room(want):
                share = want.caller.share
                mine = self._waiting[share].pop(want.caller)
                del mine[want.charge]
                if mine:
                    self._waiting[share][want.caller] = mine  # it is now the last caller of this share
                self._now = max(self._now, self._passed[share])
                self._passed[share] += max(want.amount, LEAST_COST) / share.weight
                want.charge.granted()
        finally:
            self._admits = False

    def has_room(self, want: Want) -> bool:
        """Whether the room has space for the charge now."""
        others = self._others(want)
        return (others + want.amount <= self.limit or others <= self.limit // 8) and self._leaves_enough(want)

    def cut_off_slow(self, now: float) -> None:
        """Cut off peers that are slow beyond their patience, the slowest first, until the first waiting charge fits.
        When a caller waits because of its own charges, these are cut off."""
        first = self._first()
        for wants in [wants for callers in self._waiting.values() for wants in callers.values()]:
            want = next(iter(wants.values()), None)
            if want is None:
                continue
            if not self._leaves_enough(want):
                self._cut(want, self._other_bytes_of_caller(want) + want.amount - self.limit // 2, now, want.caller)
            elif want is first:
                self._cut(want, self._others(want) + want.amount - self.limit, now)

    def _cut(self, want: Want, needed: int, now: float, caller: Caller | None = None) -> None:
        """Cut off peers until ``needed`` bytes are free. Charges that wait themselves, with a part of their request,
        come last; if all are of that kind, they are cut off, too."""
        needed -= sum(charge.held for charge in self._going if caller in (None, charge.caller))
        for charge, since in sorted(self.in_hand.items(), key=lambda item: (item[0].waits, item[1])):
            if needed <= 0:
                return
            is_idle = charge.held and charge is not want.charge and since + charge.patience <= now
            if is_idle and caller in (None, charge.caller):
                needed -= charge.held
                self.cut_off += 1
                self.in_hand.pop(charge, None)
                self._going.add(charge)
                charge.cut_off(f"the client did not {UNFINISHED[self.stage]}, and other clients waited for the memory")

    def _first(self) -> Want | None:
        """The next charge to admit. No charge overtakes one that waits for memory, or a big one would wait for ever."""
        if self._slots is not None and len(self.charges) >= self._slots:
            return None
        firsts = [first for callers in self._waiting.values() if callers and (first := self._first_of(callers))]
        return min(firsts, key=lambda want: self._passed[want.caller.share], default=None)

    def _first_of(self, callers: dict[Caller, dict[Charge, Want]]) -> Want | None:
        firsts = (next(iter(wants.values())) for wants in callers.values())
        return next(filter(self._leaves_enough, firsts), None)

    def _leaves_enough(self, want: Want) -> bool:
        """Whether the charge's caller would leave enough space to the other callers."""
        mine = self._other_bytes_of_caller(want)
        return not mine or (self._slots is None and mine + want.amount <= self.limit // 2)

    def _other_bytes_of_caller(self, want: Want) -> int:
        same = want.charge.room is self and want.charge.caller == want.caller
        return self._by_caller[want.caller] - (want.charge.held if same else 0)

    def _count(self, caller: Caller, held: int) -> None:
        if not held:
            return
        self.held += held
        mine = self._by_caller[caller] + held
        if mine:
            self._by_caller[caller] = mine
        else:
            del self._by_caller[caller]

    def _others(self, want: Want) -> int:
        return self.held - (want.charge.held if want.charge.room is self else 0)


class Book:
    """All rooms of one controller.

    :param whole: bytes for all requests together, without logins.
    :param logins: additional bytes in each room for connections that have not logged in.
    :param clock: in seconds.
    :param on_wait: called when a charge has to wait. The caller then calls `cut_off_slow` until it returns False.
    """

    def __init__(
        self,
        whole: int = UNBOUNDED,
        logins: int = UNBOUNDED,
        clock: Callable[[], float] = lambda: 0.0,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.on_wait = on_wait
        self.rooms = {
            (part, stage): Room(
                stage,
                whole * SIXTEENTHS[part][stage] // 16 if part in SIXTEENTHS else logins,
                SLOTS[part] if stage is Stage.WORKING else None,
            )
            for part in Part
            for stage in Stage
        }

    @property
    def held(self) -> int:
        """The bytes that all requests hold."""
        return sum(room.held for room in self.rooms.values())

    def room(self, caller: Caller, stage: Stage) -> Room:
        return self.rooms[caller.share.part, stage]

    def cut_off_slow(self) -> bool:
        """Cut off slow peers in rooms for which charges wait. False when no charge waits."""
        contested = [room for room in self.rooms.values() if room.is_contested]
        for room in contested:
            room.cut_off_slow(self.clock())
        return bool(contested)


class Account:
    """The account of one connection, to which its requests are charged.

    :param patience: see `Charge`.
    """

    def __init__(self, book: Book, caller: Caller, patience: float) -> None:
        self.book = book
        self.caller = caller
        self.patience = patience

    def open(self, cut_off: Callable[[str], None]) -> Charge:
        """Open a charge for the request that begins to arrive."""
        return Charge(self.book, self.caller, self.patience, cut_off)
