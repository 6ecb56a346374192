"""The account book: its figures are those of the objects that are alive, and waiting callers are served in turn."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from migrator.wire.book import (
    SLOTS,
    SMALL,
    SMALL_BYTES,
    Account,
    Book,
    Caller,
    Charge,
    Part,
    Room,
    Share,
    Stage,
)
from migrator.wire.frames import LARGEST_STEP, WRITE_SLICE, FrameStream
from tests.lanes import examples

WHOLE = 64 * SMALL_BYTES
PATIENCE = 5.0
PASSED = st.sampled_from((Stage.WORKING, Stage.ANSWERING))


class Played:
    """A request, and what it holds as its owner sees it."""

    def __init__(self, charge: Charge, connection: int) -> None:
        self.charge = charge
        self.connection = connection
        self.held = 0
        self.stage = Stage.READING
        self.waits = False
        self.forced = False

    def there(self, stage: Stage, held: int) -> Callable[[], None]:
        """Called when the book lets it in; twice is a mistake."""

        def go_on() -> None:
            assert self.waits
            self.waits, self.stage, self.held = False, stage, held

        return go_on


class Requests(RuleBasedStateMachine):
    """Requests of some connections come, go on, wait, are cut off and end, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = Book(WHOLE, WHOLE // 16, lambda: self.now)
        self.alive: list[Played] = []

    def one(self, data: st.DataObject) -> Played:
        return data.draw(st.sampled_from(self.alive))

    def end(self, played: Played) -> None:
        played.charge.close()
        self.alive.remove(played)

    @rule(share=st.sampled_from(Share), key=st.integers(0, 2), connection=st.integers(0, 3))
    def begin(self, share: Share, key: int, connection: int) -> None:
        found: list[Played] = []
        account = Account(self.book, Caller(share, key), PATIENCE)
        found.append(Played(account.open(lambda _: self.end(found[0])), connection))
        self.alive.append(found[0])

    @precondition(lambda self: any(not played.waits for played in self.alive))
    @rule(data=st.data(), stage=st.sampled_from(Stage), amount=st.integers(1, WHOLE // 4))
    def go_on(self, data: Any, stage: Stage, amount: int) -> None:
        played = data.draw(st.sampled_from([each for each in self.alive if not each.waits]))
        if stage is Stage.WORKING and played.stage is Stage.WORKING:
            return
        if stage is Stage.PARKED:
            if played.charge.try_move(stage):
                played.stage = stage
            return
        played.waits = True
        played.charge.move(stage, amount, played.there(stage, amount))
        if not played.waits and stage is not Stage.WORKING:
            played.charge.handed()

    @precondition(lambda self: any(not played.waits for played in self.alive))
    @rule(data=st.data(), amount=st.integers(0, WHOLE // 8))
    def hold_what_is_there(self, data: Any, amount: int) -> None:
        played = data.draw(st.sampled_from([each for each in self.alive if not each.waits]))
        stage = data.draw(st.sampled_from((Stage.PARKED, Stage.ANSWERING)))
        played.charge.hold(stage, amount)
        played.stage, played.held, played.forced = stage, amount, True

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def end_one(self, data: Any) -> None:
        played = self.one(data)
        self.end(played)
        played.charge.close()

    @rule(connection=st.integers(0, 3))
    def end_a_connection(self, connection: int) -> None:
        for played in [each for each in self.alive if each.connection == connection]:
            self.end(played)

    @rule(seconds=st.floats(0, 2 * PATIENCE))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.book.cut_off_slow()

    @invariant()
    def what_is_held_is_what_is_alive(self) -> None:
        rooms, callers = Counter[Room](), Counter[tuple[Room, Caller]]()
        for played in self.alive:
            assert (played.charge.stage, played.charge.held) == (played.stage, played.held)
            rooms[played.charge.room] += played.held
            callers[played.charge.room, played.charge.caller] += played.held
        assert self.book.held == sum(played.held for played in self.alive)
        for room in self.book.rooms.values():
            assert room.held == rooms[room] >= 0
            assert {caller: held for (where, caller), held in callers.items() if where is room and held} == dict(
                room._by_caller
            )

    @invariant()
    def nobody_has_more_than_its_room(self) -> None:
        for (part, stage), room in self.book.rooms.items():
            assert all(charge.caller.share.part is part for charge in room.charges)
            waited = [charge for charge in room.charges if charge.held > SMALL[part]]
            if not any(played.forced for played in self.alive):
                most = max((charge.held for charge in waited), default=0)
                small = sum(charge.held for charge in room.charges if charge not in waited)
                assert room.held - small <= max(room.limit, most + room.limit // 8)
            if stage is Stage.WORKING:
                assert len(room.charges) <= SLOTS[part]
                assert max(Counter(charge.caller for charge in room.charges).values(), default=0) <= 1

    @invariant()
    def somebody_goes_on(self) -> None:
        """No caller waits for an empty room."""
        assert not any(room.is_contested and not room.charges for room in self.book.rooms.values())

    def teardown(self) -> None:
        """Everybody who waits is served, when the others end one after another."""
        while self.alive:
            going_on = [played for played in self.alive if not played.waits]
            if going_on:
                self.end(going_on[0])
            else:
                count = len(self.alive)
                self.time_passes(2 * PATIENCE)
                assert len(self.alive) < count or not all(played.waits for played in self.alive)
            self.what_is_held_is_what_is_alive()
        assert self.book.held == 0
        assert not any(room.is_contested or room.charges or room.in_hand for room in self.book.rooms.values())


Requests.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestRequests = Requests.TestCase


def no_cut_off(reason: str) -> None:
    raise AssertionError(reason)


class Worker:
    """Lets requests be worked on, one after another."""

    def __init__(self, part: Part, slots: int = 1) -> None:
        self.book = Book(1 << 40)
        self.room = self.book.rooms[part, Stage.WORKING] = Room(Stage.WORKING, 1 << 30, slots)
        self.begun: list[tuple[Caller, Charge]] = []

    def ask(self, caller: Caller, cost: int) -> None:
        charge = Account(self.book, caller, PATIENCE).open(no_cut_off)
        charge.move(Stage.WORKING, cost, lambda: self.begun.append((caller, charge)))

    def next(self) -> Caller:
        caller, charge = self.begun.pop()
        charge.close()
        return caller

    def served(self, demand: dict[Caller, int], rounds: int) -> Counter[Caller]:
        """How often each caller is served, who asks again as soon as he is answered, with requests of this cost."""
        found = Counter[Caller]()
        for caller, cost in demand.items():
            self.ask(caller, cost)
        for _ in range(rounds):
            (caller, charge) = self.begun.pop()
            found[caller] += 1
            self.ask(caller, demand[caller])
            charge.close()
        return found


COST = 10 * SMALL_BYTES


def test_each_share_gets_its_weight_and_each_caller_of_it_the_same() -> None:
    """A thousand brokers that register anew keep no operator waiting, and the other way round."""
    brokers = {Caller(Share.BROKERS, number): COST for number in range(20)}
    operator = Caller(Share.OPERATORS, "admin")
    found = Worker(Part.RIGHTS).served({**brokers, operator: COST}, 7_000)
    assert abs(found[operator] - 3_000) <= 2
    assert {abs(found[broker] - 200) <= 1 for broker in brokers} == {True}


def test_a_caller_with_expensive_requests_gets_fewer_of_them() -> None:
    cheap, dear = Caller(Share.STRANGERS, "cheap"), Caller(Share.OTHERS, "dear")
    found = Worker(Part.REST).served({cheap: COST, dear: 9 * COST}, 1_000)
    assert 4.0 <= found[cheap] / found[dear] <= 5.0, "9 times the price at twice the weight"


def test_a_share_that_was_idle_has_saved_nothing_up() -> None:
    worker = Worker(Part.REST)
    other, stranger = Caller(Share.OTHERS, "app"), Caller(Share.STRANGERS, 1)
    assert worker.served({other: COST}, 1_000)[other] == 1_000
    worker.ask(stranger, COST)
    order = []
    for _ in range(12):
        caller, charge = worker.begun.pop()
        order.append(caller.share)
        worker.ask(caller, COST)
        charge.close()
    assert order.count(Share.OTHERS) in range(6, 10), "2 of 3 by weight, and not none for the first 1,000"


def test_nothing_that_those_without_rights_hold_keeps_those_with_rights_waiting() -> None:
    book, begun = Book(WHOLE), []
    for stage in (Stage.READING, Stage.WORKING, Stage.ANSWERING):
        for share in (Share.OTHERS, Share.STRANGERS):
            for key in range(10):
                Account(book, Caller(share, key), PATIENCE).open(no_cut_off).move(stage, WHOLE, lambda: None)
    for stage in (Stage.READING, Stage.WORKING, Stage.ANSWERING):
        charge = Account(book, Caller(Share.BROKERS, stage), PATIENCE).open(no_cut_off)
        charge.move(stage, WHOLE // 16, lambda stage=stage: begun.append(stage))  # type: ignore[misc]
    assert begun == [Stage.READING, Stage.WORKING, Stage.ANSWERING]


def test_a_caller_leaves_half_of_a_room_to_the_others() -> None:
    book, found = Book(16 * WHOLE), []
    greedy, other = Caller(Share.OTHERS, "greedy"), Caller(Share.OTHERS, "other")
    for caller in (*[greedy] * 20, other):
        charge = Account(book, caller, PATIENCE).open(no_cut_off)
        charge.move(Stage.READING, WHOLE // 8, lambda caller=caller: found.append(caller))  # type: ignore[misc]
    room = book.room(greedy, Stage.READING)
    assert (found.count(greedy), found[-1]) == (room.limit // 2 // (WHOLE // 8), other)


def test_only_who_is_in_its_peers_hands_for_long_has_to_go_and_no_more_than_are_needed() -> None:
    now, gone = [0.0], []
    book = Book(WHOLE, clock=lambda: now[0])
    size = book.rooms[Part.REST, Stage.ANSWERING].limit // 4
    charges: dict[str, Charge] = {}

    def cut_off(name: str) -> Callable[[str], None]:
        return lambda _: gone.append(name)

    for name in ("reading", "stalled", "making", "stalled too"):
        charges[name] = Account(book, Caller(Share.OTHERS, name), PATIENCE).open(cut_off(name))
        charges[name].move(Stage.ANSWERING, size, lambda: None)
        if name != "making":
            charges[name].handed()
    now[0] = PATIENCE
    charges["reading"].handed()
    served: list[str] = []
    waiting = Account(book, Caller(Share.OTHERS, "next"), PATIENCE).open(no_cut_off)
    waiting.move(Stage.ANSWERING, size, lambda: served.append("next"))
    assert book.cut_off_slow()
    assert book.cut_off_slow()
    assert (gone, served) == (["stalled"], []), "who was cut off has not given its memory back yet, and one is enough"
    charges["stalled"].close()
    assert served == ["next"]
    assert not book.cut_off_slow()


def test_a_small_request_of_a_login_waits_for_no_big_ones_of_its_address() -> None:
    """With 1,000 frames of 39 KB that did not end, a login from the same address took 6 seconds."""
    book, let_in = Book(WHOLE, WHOLE // 16), []
    account = Account(book, Caller(Share.LOGINS, "127.0.0.1"), PATIENCE)
    for _ in range(10):
        account.open(lambda _: None).move(Stage.READING, WHOLE // 40, lambda: None)
    assert book.room(account.caller, Stage.READING).is_contested
    account.open(lambda _: None).move(Stage.READING, 100, lambda: let_in.append(True))
    assert let_in


async def test_whose_frame_comes_steadily_has_not_stopped_sending() -> None:
    now, size = [0.0], 16 * LARGEST_STEP
    book = Book(16 * size, clock=lambda: now[0])
    stream = FrameStream(size, account=Account(book, Caller(Share.OTHERS, "steady"), PATIENCE))
    stream.get_buffer(0)[:4] = struct.pack(">i", size)
    stream.buffer_updated(4)
    while len(stream.get_buffer(0)) < LARGEST_STEP:
        stream.buffer_updated(len(stream.get_buffer(0)))
    for name in ("next", "behind"):
        waiting = Account(book, Caller(Share.OTHERS, name), PATIENCE).open(no_cut_off)
        waiting.move(Stage.READING, 2 * size, lambda: None)
    for _ in range(LARGEST_STEP // WRITE_SLICE - 1):
        now[0] += PATIENCE / 2
        stream.buffer_updated(WRITE_SLICE)
        assert book.cut_off_slow()
        assert not stream.ended
    stream.buffer_updated(1)
    now[0] += PATIENCE
    assert book.cut_off_slow()
    assert stream.ended
