"""What a listener has to know of its callers before it works on a request: the port that the node fills."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from migrator.wire.book import Caller, Share
from migrator.wire.principal import Principal

MAX_REQUEST_ELEMENTS = 2_000_000
"""In the arrays of one request, whatever its size."""
ELEMENT_BYTES = 150
"""Memory of one decoded element, about."""
LEAST_ELEMENT_BYTES = 3
"""Bytes of a small element in a request."""


class Callers(Protocol):
    """Who asks, and what that allows."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        """Who that is now; without rights, too, while nobody can tell.

        :param key: tells brokers apart.
        """

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        """Whether a request of so many bytes waits for its turn."""

    def max_elements(self, share: Share, api_key: int, size: int) -> int:
        """How many elements the arrays of a request of so many bytes may have."""


class Trusted:
    """Callers of a listener that only its own programs reach."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        """All of them are trusted."""
        del principal, host
        return Caller(Share.BROKERS, key)

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        """Nobody waits."""
        del share, api_key, size
        return False

    def max_elements(self, share: Share, api_key: int, size: int) -> int:
        """As many as anybody may send."""
        del share, api_key, size
        return MAX_REQUEST_ELEMENTS


def cost(size: int, max_elements: int) -> int:
    """Bytes of memory that a request of so many bytes takes while it is worked on, about."""
    return size + min(size // LEAST_ELEMENT_BYTES, max_elements) * ELEMENT_BYTES
