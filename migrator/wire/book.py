"""The account book: what every caller has set in motion, from the first byte of a request to the last of its answer.

Each request is one `Charge`, and is in one room at a time: it is read, waits for its turn and is worked on, waits for
something else (it is parked), and is answered. It goes on to the next room when there is space, and keeps what it holds
until then. The last room is emptied by the peers who read, or who are cut off, so nobody waits for ever.

Pure: the time is passed in, and whoever waits is called back. `migrator.wire.requests` is the shell around it.

Invariants:
* What a room, a caller and the book hold is the sum of the charges that are alive there.
* Callers with rights, callers without and those who have not logged in yet have rooms of their own: none of them waits
  for anything that another one holds.
* A room holds no more than its limit. Two things may exceed it: one request that is bigger, when the others hold an
  eighth of the limit at most; and what is there already (`Charge.hold`).
* Where one caller holds half of a room, its next request waits and the next caller's does not.
* Of the requests that are worked on, one is of each caller, and there are no more than slots.
* A small request or answer of a caller with rights waits for no room. Whoever may command the cluster needs no bound,
  and heartbeats, votes and fetches shall wait for nothing. Nor does a small request of a login: there are few
  connections in a login, and who shares an address with an attacker shall get in.
* A share that waits gets its weight, and the callers of a share take turns: nobody waits for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from migrator.values import value

UNBOUNDED = 2**63
LEAST_COST = 4096
"""What a request costs at least, where shares are weighed: a small one takes time, too."""
SMALL_BYTES = 16 * 1024
SMALL_LOGIN_BYTES = 4 * 1024


class Part(Enum):
    """Whose rooms are apart from those of the others."""

    RIGHTS = "with rights on the cluster"
    REST = "without"
    LOGINS = "not logged in yet"

    __hash__ = object.__hash__  # Enum's own is a call of Python, and every request looks up a few rooms


SMALL = {Part.RIGHTS: SMALL_BYTES, Part.REST: 0, Part.LOGINS: SMALL_LOGIN_BYTES}
"""Up to so many bytes, a request or an answer waits for no room."""


class Share(Enum):
    """Whose requests are served together. The weight is what a share gets of its part when all ask."""

    BROKERS = (4, Part.RIGHTS)
    """Who may act for the cluster (CLUSTER_ACTION): brokers and controllers. Each connection is a caller of its own,
    because brokers often have one principal for all."""
    OPERATORS = (3, Part.RIGHTS)
    """Who may alter the cluster or describe it. Each principal is a caller."""
    OTHERS = (2, Part.REST)
    """Everybody else who has proved a name. Each principal is a caller."""
    STRANGERS = (1, Part.REST)
    """Who needs no name here, and has no rights. Each address is a caller."""
    LOGINS = (1, Part.LOGINS)
    """Who has not proved a name yet. Each address is a caller."""

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


LEFT_UNDONE = {Stage.READING: "send the rest of its request", Stage.ANSWERING: "read its answer"}
SIXTEENTHS = {
    Part.RIGHTS: {Stage.READING: 4, Stage.WORKING: 2, Stage.PARKED: 1, Stage.ANSWERING: 3},
    Part.REST: {Stage.READING: 2, Stage.WORKING: 2, Stage.PARKED: 1, Stage.ANSWERING: 1},
}
"""Of all memory for requests: what each room may hold."""
SLOTS = {Part.RIGHTS: 4, Part.REST: 2, Part.LOGINS: 8}
"""Requests that are worked on at a time. Python runs one thread at a time: more of them would only hold memory."""


@value
class Caller:
    """Who asks. ``key`` tells callers of one share apart."""

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

    :param patience: for how many seconds its peer may send or take nothing while others wait for the room.
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
        """Hold so much there as soon as there is room, and then go on; until then hold what is held.

        :param caller: whose work it turned out to be; as before by default.
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
            self._book.somebody_waits()

    def try_move(self, stage: Stage) -> bool:
        """Go there with what it holds, if there is room at once."""
        room = self._book.room(self.caller, stage)
        if room.has_room(Want(self, room, self.caller, self.held, lambda: None)):
            self.hold(stage, self.held)
        return self.room is room

    def hold(self, stage: Stage, amount: int, caller: Caller | None = None) -> None:
        """Hold so much there from now on: it is there already, and to wait with it would free nothing."""
        caller = caller or self.caller
        self._settle(self._book.room(caller, stage), caller, amount)

    def handed(self) -> None:
        """From now on it is for the peer to send, or to take, the next part."""
        self.arrived()
        self.room.in_hand[self] = self._book.clock()

    def arrived(self) -> None:
        """From now on it is for this process to go on."""
        self.room.in_hand.pop(self, None)

    def granted(self) -> None:
        """There is room for what it waits for."""
        want, self._want = self._want, None
        if want is not None:
            self._settle(want.room, want.caller, want.amount)
            want.go_on()

    def close(self) -> None:
        """It is over, wherever it was and whatever it waited for. Harmless when it is over already."""
        if self._want is not None:
            want, self._want = self._want, None
            want.room.withdraw(want)
        if self.room.leave(self):
            self.room.admit()

    @property
    def stage(self) -> Stage:
        """Where it is."""
        return self.room.stage

    @property
    def waits(self) -> bool:
        """Whether it waits for room."""
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
    """One stage of one part: who is there, and who waits to get in.

    :param limit: in bytes.
    :param slots: how many charges may be there, each of another caller; None: any number.
    """

    def __init__(self, stage: Stage, limit: int, slots: int | None = None) -> None:
        self.stage = stage
        self.limit = limit
        self.held = 0
        self.most = 0
        """The highest that `held` ever was."""
        self.cut_off = 0
        """Charges whose peers had to go."""
        self.charges: set[Charge] = set()
        self.in_hand: dict[Charge, float] = {}
        """Which of them wait for their peers, or have sent a part of their request; and since when."""
        self._going: set[Charge] = set()
        """Whose peers were cut off, and who are here still."""
        self._slots = slots
        self._by_caller: Counter[Caller] = Counter()
        self._waiting: dict[Share, dict[Caller, dict[Charge, Want]]] = {share: {} for share in Share}
        self._passed = dict.fromkeys(Share, 0.0)
        """By share, what it has had, divided by its weight: the share with the least is next."""
        self._now = 0.0
        """The most that a share had had when it was served."""
        self._admits = False

    @property
    def is_contested(self) -> bool:
        """Whether somebody waits."""
        return any(self._waiting.values())

    def enter(self, charge: Charge) -> None:
        """It is here from now on, with what it holds."""
        self.charges.add(charge)
        self._count(charge.caller, charge.held)
        self.most = max(self.most, self.held)

    def leave(self, charge: Charge) -> bool:
        """It is here no longer; False when it was not."""
        if charge not in self.charges:
            return False
        self.charges.discard(charge)
        self.in_hand.pop(charge, None)
        self._going.discard(charge)
        self._count(charge.caller, -charge.held)
        return True

    def change(self, charge: Charge, held: int) -> bool:
        """It stays here, and holds so much from now on; False when it was not here. As if it left and came back."""
        if charge not in self.charges:
            return False
        self.in_hand.pop(charge, None)
        self._going.discard(charge)
        self._count(charge.caller, held - charge.held)
        charge.held = held
        self.most = max(self.most, self.held)
        return True

    def wait(self, want: Want) -> None:
        """It waits from now on, behind the others of its caller."""
        callers = self._waiting[want.caller.share]
        if not callers:  # a share that had nothing to do has saved nothing up
            self._passed[want.caller.share] = max(self._passed[want.caller.share], self._now)
        callers.setdefault(want.caller, {})[want.charge] = want

    def withdraw(self, want: Want) -> None:
        """It waits no longer, and others may be next."""
        callers = self._waiting[want.caller.share]
        del callers[want.caller][want.charge]
        if not callers[want.caller]:
            del callers[want.caller]
        self.admit()

    def admit(self) -> None:
        """Let in all who may come in."""
        if self._admits:  # called back by somebody who was let in: whoever lets in goes on
            return
        self._admits = True
        try:
            while (want := self._first()) is not None and self.has_room(want):
                share = want.caller.share
                mine = self._waiting[share].pop(want.caller)
                del mine[want.charge]
                if mine:
                    self._waiting[share][want.caller] = mine  # behind the other callers of this share
                self._now = max(self._now, self._passed[share])
                self._passed[share] += max(want.amount, LEAST_COST) / share.weight
                want.charge.granted()
        finally:
            self._admits = False

    def has_room(self, want: Want) -> bool:
        """Whether the charge may hold that here as things are."""
        others = self._others(want)
        return (others + want.amount <= self.limit or others <= self.limit // 8) and self._may(want)

    def press(self, now: float) -> None:
        """Cut off as many of those who keep the first waiting as it takes: the longest first, after their patience.
        Where a caller keeps itself waiting, it is one of its own."""
        first = self._first()
        for wants in [wants for callers in self._waiting.values() for wants in callers.values()]:
            want = next(iter(wants.values()), None)
            if want is None:
                continue
            if not self._may(want):
                self._cut(want, self._mine(want) + want.amount - self.limit // 2, now, want.caller)
            elif want is first:
                self._cut(want, self._others(want) + want.amount - self.limit, now)

    def _cut(self, want: Want, needed: int, now: float, caller: Caller | None = None) -> None:
        """Last come those who wait for room themselves with a part of their request: all of them may have one."""
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
                charge.cut_off(f"the client did not {LEFT_UNDONE[self.stage]}, and other clients waited for the memory")

    def _first(self) -> Want | None:
        """Who is next. Nobody overtakes a request that waits for memory, or a big one would wait for ever."""
        if self._slots is not None and len(self.charges) >= self._slots:
            return None
        firsts = [first for callers in self._waiting.values() if callers and (first := self._first_of(callers))]
        return min(firsts, key=lambda want: self._passed[want.caller.share], default=None)

    def _first_of(self, callers: dict[Caller, dict[Charge, Want]]) -> Want | None:
        firsts = (next(iter(wants.values())) for wants in callers.values())
        return next(filter(self._may, firsts), None)

    def _may(self, want: Want) -> bool:
        """Whether its caller leaves enough to the other callers."""
        mine = self._mine(want)
        return not mine or (self._slots is None and mine + want.amount <= self.limit // 2)

    def _mine(self, want: Want) -> int:
        """What the others of its caller hold."""
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
    """Every room.

    :param whole: bytes that all requests may hold together.
    :param logins: how many more in each room of those who have not logged in yet.
    :param clock: in seconds.
    :param somebody_waits: called when there is no room: `press` is to be called until nobody waits.
    """

    def __init__(
        self,
        whole: int = UNBOUNDED,
        logins: int = UNBOUNDED,
        clock: Callable[[], float] = lambda: 0.0,
        somebody_waits: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.somebody_waits = somebody_waits
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
        """By all requests."""
        return sum(room.held for room in self.rooms.values())

    def room(self, caller: Caller, stage: Stage) -> Room:
        """Where requests of this caller are in that stage."""
        return self.rooms[caller.share.part, stage]

    def press(self) -> bool:
        """Make room where somebody waits for peers that are slow; False when nobody waits."""
        contested = [room for room in self.rooms.values() if room.is_contested]
        for room in contested:
            room.press(self.clock())
        return bool(contested)


class Account:
    """One connection: on whose account its requests are.

    :param patience: see `Charge`.
    """

    def __init__(self, book: Book, caller: Caller, patience: float) -> None:
        self.book = book
        self.caller = caller
        self.patience = patience

    def open(self, cut_off: Callable[[str], None]) -> Charge:
        """For the request that begins to arrive."""
        return Charge(self.book, self.caller, self.patience, cut_off)
