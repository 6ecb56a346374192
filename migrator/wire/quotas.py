"""Bounds on connections, their rate and their bytes, which all listeners of a process share. Pure: time is passed in.

Source of the rules: ``ConnectionQuotas`` of ``SocketServer`` (KIP-402, KIP-612). Beyond Kafka, connections that have
not logged in yet have their own bound, so that they cannot use up the connections of brokers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import field

from migrator.values import value
from migrator.wire.requests import Accounts

UNLIMITED = 2_147_483_647
RATE_SAMPLES = 11
RATE_WINDOW_SECONDS = 1.0
"""The defaults of ``quota.window.num`` and ``quota.window.size.seconds``: a rate is the average of some ten seconds."""


class TooManyConnectionsError(Exception):
    """The address already has the most connections that it may have."""


class ThrottledError(Exception):
    """The address connects too often. ``seconds``: how long its socket is held open before it is closed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@value
class ProcessLimits:
    """Bounds over all listeners. Each has the name of its configuration key."""

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """The limit of each address that has a separate limit."""
    max_connection_rate: int = UNLIMITED
    """New connections a second (``max.connection.creation.rate``)."""
    max_bytes_in_flight: int = 268_435_456
    """The bytes of all requests together, and of the objects made from them (``queued.max.request.bytes``, which has no
    bound in Kafka by default)."""
    max_login_bytes_in_flight: int = 16_777_216
    """Additional bytes for requests of connections that have not logged in. Kafka has no such key."""
    max_logins: int = 1_000
    """The most connections that have not logged in. One more closes the oldest (see `Logins`). Kafka has no such
    key."""


class ConnectionRate:
    """The average number of new connections a second, over the last seconds (``Rate`` over ``SampledStat``)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._samples: deque[list[float]] = deque()
        """Beginning and count of each window."""

    def record(self, now: float) -> float:
        """Count one more. Returns the seconds to wait to keep the rate, at most one window, as in Kafka."""
        if self.limit >= UNLIMITED:
            return 0.0
        self._forget(now)
        if not self._samples or now - self._samples[-1][0] >= RATE_WINDOW_SECONDS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += 1
        elapsed = max(now - self._samples[0][0], (RATE_SAMPLES - 1) * RATE_WINDOW_SECONDS)
        excess = sum(count for _, count in self._samples) / elapsed - self.limit
        return min(excess / max(self.limit, 1) * elapsed, RATE_WINDOW_SECONDS) if excess > 0 else 0.0

    def unrecord(self) -> None:
        """Take back the last `record`."""
        if self._samples:
            self._samples[-1][1] -= 1

    def idle(self, now: float) -> bool:
        """Whether every window is empty."""
        self._forget(now)
        return not self._samples

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= RATE_SAMPLES * RATE_WINDOW_SECONDS:
            self._samples.popleft()


@value
class ListenerBounds:
    """The bounds of one listener: connections, and new connections a second."""

    max_connections: int
    max_connection_rate: int


@value
class _Place:
    """A listener's own bounds."""

    max_connections: int
    rate: ConnectionRate


class Logins:
    """Connections that have not logged in yet.

    An honest peer logs in within a few round trips. An attacker opens many connections and waits. So when there are too
    many, the oldest connection of the address with most of them is closed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[object, str] = {}
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}
        """The waiting connections of each address, the oldest first."""

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, who: object, address: str, evict: Callable[[], None]) -> None:
        """Add a connection. ``evict`` is called to close it when its place is needed."""
        self._addresses[who] = address
        self._waiting.setdefault(address, {})[who] = evict
        if len(self) > self._most:
            oldest, gone = next(iter(max(self._waiting.values(), key=len).items()))
            self.leave(oldest)
            gone()

    def leave(self, who: object) -> None:
        """Remove a connection that has logged in or has ended. If it is not there, this does nothing."""
        address = self._addresses.pop(who, None)
        if address is not None:
            del self._waiting[address][who]
            if not self._waiting[address]:
                del self._waiting[address]


class ConnectionQuotas:
    """Counts the connections of one process.

    :param ip_rate: the connections a second that an address may make; None without a quota. These are the cluster's
        dynamic quotas of IP entities, as in stock controllers (``DynamicClientQuotaPublisher``).
    """

    def __init__(
        self, limits: ProcessLimits | None = None, ip_rate: Callable[[str], float | None] = lambda _: None
    ) -> None:
        self.limits = limits or ProcessLimits()
        self.book = Accounts(self.limits.max_bytes_in_flight, self.limits.max_login_bytes_in_flight)
        self.logins = Logins(self.limits.max_logins)
        self._ip_rate = ip_rate
        self._rate = ConnectionRate(self.limits.max_connection_rate)
        self._ip_rates: dict[str, tuple[float, ConnectionRate]] = {}
        self._places: dict[str, _Place] = {}
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._freed: list[Callable[[], None]] = []

    @property
    def total(self) -> int:
        return self._by_listener.total()

    def add_listener(self, name: str, max_connections: int, max_rate: int, freed: Callable[[], None]) -> None:
        """Count the connections of this listener, too.

        :param freed: called whenever a connection of any listener has ended.
        """
        self._places[name] = _Place(max_connections, ConnectionRate(max_rate))
        self._freed.append(freed)

    def change(self, limits: ProcessLimits, listeners: Mapping[str, ListenerBounds]) -> None:
        """Change the bounds, except those of bytes. A peer that is being held for connecting too fast is held as long
        as before.

        :param listeners: the listeners whose own bounds change. All of them have been added before.
        """
        self.limits = limits
        self._rate.limit = limits.max_connection_rate
        for name, bounds in listeners.items():
            place = self._places[name]
            place.rate.limit = bounds.max_connection_rate
            self._places[name] = _Place(bounds.max_connections, place.rate)
        for freed in self._freed:
            freed()

    @property
    def excess(self) -> int:
        """The number of connections beyond ``max.connections``, after it was lowered."""
        return max(0, self.total - self.limits.max_connections)

    def has_slot(self, listener: str) -> bool:
        """Whether the listener may accept a connection. If not, new connections wait in the socket's backlog, as in
        Kafka."""
        own = self._by_listener[listener] < self._places[listener].max_connections
        return own and self.total < self.limits.max_connections

    def throttle(self, listener: str, now: float) -> float:
        """Count an accepted connection. Returns the seconds for which the listener must accept no other one."""
        return max(self._rate.record(now), self._places[listener].rate.record(now))

    def admit(self, listener: str, address: str, now: float) -> None:
        """Count a connection of this address until it is released.

        :raises TooManyConnectionsError: the address has too many; this one is not counted.
        :raises ThrottledError: the address connects too fast; this one is not counted.
        """
        self._check_rate(listener, address, now)
        most = self.limits.per_ip_overrides.get(address, self.limits.max_connections_per_ip)
        if self._by_ip[address] >= most:
            raise TooManyConnectionsError(f"{address} has {most} connections already")
        self._by_ip[address] += 1
        self._by_listener[listener] += 1

    def release(self, listener: str, address: str) -> None:
        """An admitted connection has ended."""
        self._by_listener[listener] -= 1
        self._by_ip[address] -= 1
        if not self._by_ip[address]:
            del self._by_ip[address]
        for freed in self._freed:
            freed()

    def _check_rate(self, listener: str, address: str, now: float) -> None:
        limit = self._ip_rate(address)
        if limit is None:
            self._ip_rates.pop(address, None)
            return
        if len(self._ip_rates) > 4 * self.limits.max_logins:
            self._ip_rates = {ip: kept for ip, kept in self._ip_rates.items() if not kept[1].idle(now)}
        known, rate = self._ip_rates.get(address, (None, ConnectionRate(int(limit))))
        if known != limit:
            rate = ConnectionRate(int(limit))
        self._ip_rates[address] = (limit, rate)
        seconds = rate.record(now)
        if seconds > 0:
            rate.unrecord()
            self._rate.unrecord()
            self._places[listener].rate.unrecord()
            raise ThrottledError(seconds)
