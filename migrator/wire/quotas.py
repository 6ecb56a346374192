"""How many connections, how fast, and how many bytes of theirs: bounds that all listeners of a process share.

Pure but for nothing: time is passed in. Source of the rules: ``ConnectionQuotas`` of ``SocketServer`` (KIP-402,
KIP-612). Kafka has no bound of those that have not logged in yet; ours keeps them apart from the rest, so that
strangers cannot take the room of brokers.
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
"""``quota.window.num`` and ``quota.window.size.seconds`` by default: a rate is an average of some ten seconds."""


class TooManyConnectionsError(Exception):
    """This address has as many connections as it may have."""


class ThrottledError(Exception):
    """This address connects too often. ``seconds``: for how long its socket is to be held before it is closed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@value
class ProcessLimits:
    """Bounds over all listeners; each after the key that it comes from."""

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """By address."""
    max_connection_rate: int = UNLIMITED
    """A second (``max.connection.creation.rate``)."""
    max_bytes_in_flight: int = 268_435_456
    """In all requests together, and in what is made of them (``queued.max.request.bytes``, for which Kafka has no
    bound by default)."""
    max_login_bytes_in_flight: int = 16_777_216
    """Besides, in the requests of those that have not logged in yet; ours, no key of Kafka's."""
    max_logins: int = 1_000
    """Connections that have not logged in yet. One more costs the oldest its place; ours, no key of Kafka's."""


class ConnectionRate:
    """How many connections a second there were, over the last seconds (``Rate`` over ``SampledStat``)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._samples: deque[list[float]] = deque()
        """Beginning and count of each."""

    def record(self, now: float) -> float:
        """One more; gives the seconds to wait so that the rate is kept, at most one window, as Kafka does."""
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
        """The last one does not count."""
        if self._samples:
            self._samples[-1][1] -= 1

    def idle(self, now: float) -> bool:
        """Whether nothing is recorded any more."""
        self._forget(now)
        return not self._samples

    def _forget(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= RATE_SAMPLES * RATE_WINDOW_SECONDS:
            self._samples.popleft()


@value
class ListenerBounds:
    """Of one listener: connections, and new ones a second."""

    max_connections: int
    max_connection_rate: int


@value
class _Place:
    """A listener's own bounds."""

    max_connections: int
    rate: ConnectionRate


class Logins:
    """Connections that have not logged in yet.

    An honest peer logs in within a few round trips; one who wants to keep places waits, and takes many. So the oldest
    of the address with most of them goes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[object, str] = {}
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}
        """By address, the oldest first."""

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, who: object, address: str, evict: Callable[[], None]) -> None:
        """Wait from now on; ``evict`` closes this connection when its place is needed."""
        self._addresses[who] = address
        self._waiting.setdefault(address, {})[who] = evict
        if len(self) > self._most:
            oldest, gone = next(iter(max(self._waiting.values(), key=len).items()))
            self.leave(oldest)
            gone()

    def leave(self, who: object) -> None:
        """It has logged in, or is gone; harmless when it did not wait."""
        address = self._addresses.pop(who, None)
        if address is not None:
            del self._waiting[address][who]
            if not self._waiting[address]:
                del self._waiting[address]


class ConnectionQuotas:
    """Counts of one process.

    :param ip_rate: connections a second that an address may make, None without a quota: the cluster's dynamic quotas
        of IP entities, which stock controllers obey, too (``DynamicClientQuotaPublisher``).
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
        """Connections of all listeners."""
        return self._by_listener.total()

    def add_listener(self, name: str, max_connections: int, max_rate: int, freed: Callable[[], None]) -> None:
        """Count for this listener, too.

        :param freed: called whenever a connection of any listener has ended.
        """
        self._places[name] = _Place(max_connections, ConnectionRate(max_rate))
        self._freed.append(freed)

    def change(self, limits: ProcessLimits, listeners: Mapping[str, ListenerBounds]) -> None:
        """Other bounds from now on, but for those of bytes. Who connected too fast waits as long as was said then.

        :param listeners: those whose own bounds change, all of them added before.
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
        """How many connections there are beyond ``max.connections``, which was lowered meanwhile."""
        return max(0, self.total - self.limits.max_connections)

    def has_slot(self, listener: str) -> bool:
        """Whether the listener may accept. If not it waits, as in Kafka: who knocks waits in the socket's backlog."""
        own = self._by_listener[listener] < self._places[listener].max_connections
        return own and self.total < self.limits.max_connections

    def throttle(self, listener: str, now: float) -> float:
        """Count an accepted connection; gives the seconds for which the listener shall accept no other."""
        return max(self._rate.record(now), self._places[listener].rate.record(now))

    def admit(self, listener: str, address: str, now: float) -> None:
        """Count a connection of this address until it is released.

        :raises TooManyConnectionsError: it has too many; this one is not counted.
        :raises ThrottledError: it makes them too fast; this one is not counted.
        """
        self._check_rate(listener, address, now)
        most = self.limits.per_ip_overrides.get(address, self.limits.max_connections_per_ip)
        if self._by_ip[address] >= most:
            raise TooManyConnectionsError(f"{address} has {most} connections already")
        self._by_ip[address] += 1
        self._by_listener[listener] += 1

    def release(self, listener: str, address: str) -> None:
        """A connection that was admitted has ended."""
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
