"""Notes which requests to peers are outstanding, and when the next one may be sent (Kafka's ``RequestManager``).

`quorum.Quorum` holds it. The roles ask it before each `Send`, and `core` tells it of each answer and failure. A peer
has one outstanding request at most. It is forgotten after the request time-out, and a failed one is followed by a
pause. Only an answer with the correlation of the outstanding request counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from migrator.raft.states import NEVER


@dataclass(slots=True)
class _Peer:
    correlation: int | None = None
    timeout_at: int = NEVER
    backoff_until: int = 0
    is_away: bool = False


class Peers:
    """The counterpart of ``RequestManager`` in Kafka. Times are milliseconds on the clock of ``step``."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[int, _Peer] = {}
        self._correlations = 0

    def ready_at(self, peer: int) -> int:
        """When a request may be sent to ``peer``: after its back-off, or when its outstanding request times out."""
        known = self._peers.get(peer)
        if known is None:
            return 0
        return known.timeout_at if known.correlation is not None else known.backoff_until

    def is_ready(self, peer: int, now: int) -> bool:
        """Whether a request may be sent now."""
        return self.ready_at(peer) <= now

    def is_outstanding(self, peer: int) -> bool:
        """Whether an answer is expected (or overdue)."""
        known = self._peers.get(peer)
        return known is not None and known.correlation is not None

    def sent(self, peer: int, now: int) -> int:
        """Note a request; returns its correlation."""
        self._correlations += 1
        known = self._peers.setdefault(peer, _Peer())
        known.correlation, known.timeout_at = self._correlations, now + self._request_timeout_ms
        return self._correlations

    def answered(self, peer: int, correlation: int) -> bool:
        """Note an answer. False when no request waits for it: it is late, doubled or made up."""
        known = self._peers.get(peer)
        if known is None or known.correlation != correlation:
            return False
        known.correlation, known.is_away = None, False
        return True

    def failed(self, peer: int, now: int) -> None:
        """Note that a request failed, and back off."""
        self.back_off(peer, now)
        self._peers[peer].is_away = True

    def is_away(self, peer: int) -> bool:
        """Whether the last request to the peer failed."""
        known = self._peers.get(peer)
        return known is not None and known.is_away

    def back_off(self, peer: int, now: int, at_least_ms: int = 0) -> None:
        """Send nothing to a peer for the back-off time, or for ``at_least_ms`` if that is longer."""
        wait_ms = max(self._retry_backoff_ms, at_least_ms)
        self._peers.setdefault(peer, _Peer()).backoff_until = now + wait_ms

    def forget_overdue(self, peer: int, now: int) -> None:
        """Forget an outstanding request whose time is over."""
        known = self._peers.get(peer)
        if known is not None and known.timeout_at <= now:
            known.correlation = None

    def forget_all(self) -> None:
        """Forget all requests and back-offs: they belonged to another role or epoch."""
        self._peers.clear()
