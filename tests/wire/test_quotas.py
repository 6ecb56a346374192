"""The pure part of the bounds of connections: numbers, rates, bytes, and who waits to log in."""

from __future__ import annotations

import pytest

from migrator.wire.quotas import (
    RATE_SAMPLES,
    UNLIMITED,
    ConnectionQuotas,
    ConnectionRate,
    Logins,
    ProcessLimits,
    ThrottledError,
    TooManyConnectionsError,
)


def quotas(ip_rate: dict[str, float] | None = None, **limits: int | dict[str, int]) -> ConnectionQuotas:
    found = ConnectionQuotas(ProcessLimits(**limits), (ip_rate or {}).get)  # type: ignore[arg-type]
    for name in ("A", "B"):
        found.add_listener(name, UNLIMITED, UNLIMITED, lambda: None)
    return found


def test_a_rate_lets_a_burst_pass_and_then_slows_down() -> None:
    """Kafka's average is over ten seconds, and nobody waits for longer than one window."""
    rate = ConnectionRate(5)
    burst = 5 * (RATE_SAMPLES - 1)
    assert [rate.record(0.0) for _ in range(burst)] == [0.0] * burst
    waits = [rate.record(0.0) for _ in range(20)]
    assert waits[0] == pytest.approx(1 / 5)
    assert waits == sorted(waits)
    assert waits[-1] == 1.0
    assert rate.record(RATE_SAMPLES + 0.1) == 0.0


def test_without_a_rate_nothing_is_recorded() -> None:
    rate = ConnectionRate(UNLIMITED)
    assert not any(rate.record(0.0) for _ in range(1000))
    assert rate.idle(0.0)


def test_an_address_has_its_own_number() -> None:
    found = quotas(max_connections_per_ip=1, per_ip_overrides={"10.0.0.2": 2, "10.0.0.3": 0})
    found.admit("A", "10.0.0.1", 0.0)
    found.admit("A", "10.0.0.2", 0.0)
    found.admit("B", "10.0.0.2", 0.0)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        with pytest.raises(TooManyConnectionsError):
            found.admit("B", address, 0.0)
    assert found.total == 3
    found.release("B", "10.0.0.2")
    found.admit("A", "10.0.0.2", 0.0)


def test_a_listener_waits_for_its_own_bound_and_for_that_of_the_process() -> None:
    woken = []
    found = ConnectionQuotas(ProcessLimits(max_connections=3))
    found.add_listener("A", 1, UNLIMITED, lambda: woken.append("A"))
    found.add_listener("B", UNLIMITED, UNLIMITED, lambda: woken.append("B"))
    found.admit("A", "10.0.0.1", 0.0)
    assert (found.has_slot("A"), found.has_slot("B")) == (False, True)
    found.admit("B", "10.0.0.1", 0.0)
    found.admit("B", "10.0.0.1", 0.0)
    assert not found.has_slot("B")
    found.release("A", "10.0.0.1")
    assert woken == ["A", "B"]
    assert found.has_slot("A")
    assert found.has_slot("B")


def test_an_address_that_connects_too_fast_waits_and_costs_the_others_nothing() -> None:
    found = ConnectionQuotas(ProcessLimits(), {"10.0.0.1": 1.0}.get)
    found.add_listener("A", UNLIMITED, 100, lambda: None)
    for _ in range(RATE_SAMPLES - 1):
        assert found.throttle("A", 0.0) == 0.0
        found.admit("A", "10.0.0.1", 0.0)
    for _ in range(2000):
        assert found.throttle("A", 0.0) == 0.0, "what was refused does not count for the listener"
        with pytest.raises(ThrottledError) as refused:
            found.admit("A", "10.0.0.1", 0.0)
        assert 0 < refused.value.seconds <= 1
    found.admit("A", "10.0.0.2", 0.0)


def test_a_changed_quota_of_an_address_holds_at_once() -> None:
    rates = {"10.0.0.1": 1.0}
    found = ConnectionQuotas(ProcessLimits(), rates.get)
    found.add_listener("A", UNLIMITED, UNLIMITED, lambda: None)
    for _ in range(RATE_SAMPLES - 1):
        found.admit("A", "10.0.0.1", 0.0)
    with pytest.raises(ThrottledError):
        found.admit("A", "10.0.0.1", 0.0)
    rates["10.0.0.1"] = 1000.0
    found.admit("A", "10.0.0.1", 0.0)
    del rates["10.0.0.1"]
    for _ in range(20_000 // RATE_SAMPLES):
        found.admit("A", "10.0.0.1", 0.0)


def test_many_addresses_are_forgotten_again() -> None:
    found = ConnectionQuotas(ProcessLimits(max_logins=10), lambda _: 5.0)
    found.add_listener("A", UNLIMITED, UNLIMITED, lambda: None)
    for number in range(1000):
        found.admit("A", f"fd00::{number:x}", float(number))
    assert len(found._ip_rates) <= 4 * 10 + 1


def test_the_oldest_of_the_address_with_most_logins_gives_its_place() -> None:
    """Before, the oldest of all gave its place: a client with 1,000 connections in the time of a login shut out all."""
    logins, gone = Logins(3), []

    def enter(name: str, address: str) -> None:
        logins.enter(name, address, lambda: gone.append(name))

    enter("broker", "10.0.0.1")
    for name in ("a", "b"):
        enter(name, "10.0.0.2")
    logins.leave("a")
    logins.leave("a")
    enter("c", "10.0.0.2")
    assert gone == []
    enter("d", "10.0.0.2")
    enter("e", "10.0.0.2")
    assert gone == ["b", "c"]
    assert len(logins) == 3
