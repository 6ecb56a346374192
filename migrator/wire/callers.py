"""What a listener has to know of its callers before it works on a request: the port that the node fills."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from migrator.wire.principal import Principal
from migrator.wire.shares import Work

MAX_REQUEST_ELEMENTS = 2_000_000
"""In the arrays of one request, whatever its size."""


class Callers(Protocol):
    """Who asks, and what that allows."""

    def work(self, frame: bytearray, principal: Principal, host: str, connection: Hashable) -> Work | None:
        """The place that a request has to wait for; None: it is small, and is worked on at once.

        :raises PeerError: the frame is no request.
        """

    def has_rights(self, principal: Principal, host: str) -> bool:
        """Whether the cluster depends on this caller, or it may alter or describe the cluster; False, too, while nobody
        can tell."""

    def max_elements(self, api_key: int, size: int, principal: Principal, host: str) -> int:
        """How many elements the arrays of a request of so many bytes may have."""


class Trusted:
    """Callers of a listener that only its own programs reach."""

    def work(self, frame: bytearray, principal: Principal, host: str, connection: Hashable) -> Work | None:
        """Nobody waits."""
        del frame, principal, host, connection
        return None

    def has_rights(self, principal: Principal, host: str) -> bool:
        """All of them are trusted."""
        del principal, host
        return True

    def max_elements(self, api_key: int, size: int, principal: Principal, host: str) -> int:
        """As many as anybody may send."""
        del api_key, size, principal, host
        return MAX_REQUEST_ELEMENTS
