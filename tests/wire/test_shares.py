"""Which of the big requests that wait is next: invariants after every step, and shares over a long time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.wire.shares import Caller, FairQueue, Share, Ticket, Work
from tests.lanes import examples

SLOTS, LIMIT = 4, 100

tickets = st.builds(
    lambda share, key, cost: Ticket(Work(Caller(share, key), cost)),
    st.sampled_from(Share),
    st.integers(0, 3),
    st.integers(0, 150),
)
steps = st.lists(st.one_of(tickets, st.integers(0, 1_000_000)), max_size=60)


def check(queue: FairQueue) -> None:
    running = queue.running
    callers = Counter(ticket.work.caller for ticket in running)
    assert len(running) <= SLOTS
    assert max(callers.values(), default=0) <= 1
    with_rights = [ticket.work.cost for ticket in running if ticket.work.caller.share.has_rights]
    without = [ticket.work.cost for ticket in running if not ticket.work.caller.share.has_rights]
    assert sum(without) <= LIMIT // 2 or len(without) == 1
    assert sum(with_rights) <= LIMIT or len(with_rights) == 1
    assert queue.cost <= LIMIT or 1 in (len(without), len(with_rights))
    assert len(without) <= SLOTS // 2


@settings(max_examples=examples(200))
@given(steps)
def test_the_invariants_hold_and_everybody_is_served(script: list[Ticket | int]) -> None:
    """A number ends one of the requests that wait or are worked on, by place; a ticket is a new one."""
    queue, alive, begun = FairQueue(SLOTS, LIMIT), [], set[Ticket]()
    for step in script:
        if isinstance(step, Ticket):
            queue.add(step)
            alive.append(step)
        elif alive:
            queue.withdraw(alive.pop(step % len(alive)))
        begun.update(queue.begin())
        check(queue)
    while alive:
        assert queue.running, "something waits, and nothing is worked on"
        done = next(iter(queue.running))
        queue.withdraw(done)
        queue.withdraw(done)
        alive.remove(done)
        begun.update(queue.begin())
        check(queue)
    assert (len(queue), queue.cost) == (0, 0)


def served(demand: dict[Caller, int], rounds: int) -> Counter[Caller]:
    """How often each caller is served, who asks again as soon as he is answered, with requests of this cost."""
    queue, found = FairQueue(1, LIMIT), Counter[Caller]()
    for caller, cost in demand.items():
        queue.add(Ticket(Work(caller, cost)))
    for _ in range(rounds):
        (ticket,) = queue.begin()
        found[ticket.work.caller] += 1
        queue.withdraw(ticket)
        queue.add(Ticket(ticket.work))
    return found


def test_each_share_gets_its_weight_and_each_caller_of_it_the_same() -> None:
    """A thousand brokers that register anew keep no operator waiting, and the other way round."""
    brokers = {Caller(Share.BROKERS, number): 10 for number in range(20)}
    operator, other = Caller(Share.OPERATORS, "admin"), Caller(Share.OTHERS, "app")
    found = served({**brokers, operator: 10, other: 10}, 9_000)
    assert abs(found[operator] - 3_000) <= 2
    assert abs(found[other] - 2_000) <= 2
    assert {abs(found[broker] - 200) <= 1 for broker in brokers} == {True}


def test_a_caller_with_expensive_requests_gets_fewer_of_them() -> None:
    cheap, dear = Caller(Share.OTHERS, "cheap"), Caller(Share.OPERATORS, "dear")
    found = served({cheap: 10, dear: 90}, 1_000)
    assert 5.5 <= found[cheap] / found[dear] <= 6.5, "9 times the price at 3/2 of the weight"


def test_a_share_that_was_idle_has_saved_nothing_up() -> None:
    queue = FairQueue(1, LIMIT)
    other, broker = Work(Caller(Share.OTHERS, "app"), 10), Work(Caller(Share.BROKERS, 1), 10)
    for _ in range(1_000):
        queue.add(Ticket(other))
        (ticket,) = queue.begin()
        queue.withdraw(ticket)
    order = []
    queue.add(Ticket(other))
    queue.add(Ticket(broker))
    for _ in range(12):
        (ticket,) = queue.begin()
        order.append(ticket.work.caller.share)
        queue.withdraw(ticket)
        queue.add(Ticket(ticket.work))
    assert order.count(Share.OTHERS) in range(3, 6), "2 of 6 by weight, and not none for the first 2,000"


def test_one_dear_request_without_rights_keeps_no_broker_waiting() -> None:
    """It was worked on alone, for as long as it waited for ZooKeeper, too."""
    queue = FairQueue(SLOTS, LIMIT)
    queue.add(Ticket(Work(Caller(Share.OTHERS, "app"), 10 * LIMIT)))
    assert len(list(queue.begin())) == 1
    for broker in range(SLOTS):
        queue.add(Ticket(Work(Caller(Share.BROKERS, broker), LIMIT // 2 // SLOTS)))
    assert len(list(queue.begin())) == SLOTS - 1
    queue.add(Ticket(Work(Caller(Share.OTHERS, "other app"), 1)))
    assert len(list(queue.begin())) == 0
