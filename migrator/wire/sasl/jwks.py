"""The keys that an identity provider publishes (JWKS), kept, and fetched again off the event loop.

Known keys stay in use while the provider is unreachable. A token that names an unknown key causes an earlier fetch, at
most one in `UNKNOWN_SECONDS`, so that clients cannot make this node ask too often. Source: Kafka's
``RefreshingHttpsJwks``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable

from migrator.clock import monotonic_seconds
from migrator.errors import OperatorError
from migrator.wire.aside import lanes
from migrator.wire.sasl.exchange import NotReadyError
from migrator.wire.sasl.jwt_tokens import PublicKey, public_keys

log = logging.getLogger(__name__)

UNKNOWN_SECONDS = 60.0
STALE = 2
"""Keys that are this many refresh intervals old are used only while the provider cannot be asked."""


class KeySet:
    """A `PublishedKeys`.

    :param where: the address, for messages.
    :param fetch: returns the document, or raises OSError.
    :param refresh_s: seconds between two fetches (``sasl.oauthbearer.jwks.endpoint.refresh.ms``).
    :param backoff_s: the first and the longest wait after a failure, in seconds.
    """

    def __init__(
        self,
        where: str,
        fetch: Callable[[], bytes],
        refresh_s: float,
        backoff_s: tuple[float, float],
        clock: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._where = where
        self._fetch = fetch
        self._refresh_s = refresh_s
        self._backoff_s = backoff_s
        self._clock = clock
        self._lane = lanes().of_provider()
        self._lock = threading.Lock()
        self._fetching = False
        self._keys: tuple[PublicKey, ...] = ()
        self._loaded_at: float | None = None
        self._failures = 0
        self._next_at = clock()
        self._unknown_at: float | None = None

    def load(self) -> None:
        """Fetch the keys now, and wait for them.

        :raises OperatorError: the document cannot be fetched, or has no keys.
        """
        try:
            self._take(self._fetch())
        except (OSError, ValueError) as error:
            raise OperatorError(
                f"no keys can be read there: {error}",
                where=self._where,
                remedy="Name a readable JSON Web Key Set of the identity provider",
            ) from error

    def refresh(self) -> None:
        """Begin to fetch the keys on a thread, if it is time."""
        with self._lock:
            if self._fetching or self._clock() < self._next_at:
                return
            self._fetching = True
            self._lane.begin(self._work)

    def fitting(self, algorithm: str, key_id: str | None) -> Iterable[PublicKey]:
        """The published keys that fit a token with this header (see `PublishedKeys`)."""
        self.refresh()
        loaded_at, failures = self._loaded_at, self._failures
        if loaded_at is None:
            raise NotReadyError(f"the keys at {self._where} are not loaded yet")
        if failures == 0 and self._clock() - loaded_at > STALE * self._refresh_s:
            raise NotReadyError(f"the keys at {self._where} are too old, and are being fetched again")
        found = [key for key in self._keys if key.fits(algorithm, key_id)]
        if not found and key_id is not None:
            self._expedite()
        return found

    def _expedite(self) -> None:
        now = self._clock()
        with self._lock:
            if self._unknown_at is not None and now - self._unknown_at < UNKNOWN_SECONDS:
                return
            self._unknown_at = self._next_at = now
        self.refresh()

    def _work(self) -> None:
        try:
            self._take(self._fetch())
        except (OSError, ValueError) as error:
            self._failures += 1
            first, longest = self._backoff_s
            wait = min(longest, first * 2 ** min(self._failures - 1, 30))
            self._next_at = self._clock() + wait
            kept = "the previous keys stay in use" if self._loaded_at is not None else "no token is accepted"
            log.warning("The keys at %s cannot be fetched; %s: %s", self._where, kept, error)
        except Exception:  # the top of a thread: no caller would see the error
            self._next_at = self._clock() + self._backoff_s[1]
            log.exception("The keys at %s cannot be fetched", self._where)
        finally:
            self._fetching = False

    def _take(self, document: bytes) -> None:
        try:
            self._keys = public_keys(json.loads(document))
        except RecursionError as error:
            raise ValueError("the document is nested too deep") from error
        self._failures, self._loaded_at = 0, self._clock()
        self._next_at = self._loaded_at + self._refresh_s
