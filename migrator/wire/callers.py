"""The port through which a listener learns the rights of its callers before it works on a request.

A node implements `Callers` (`migrator.node.access.callers`). A listener asks it for each request: who calls, must the
request wait, and how many elements may it have. Limits bound the memory that one request can take.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from migrator.wire.book import Caller, Share
from migrator.wire.principal import Principal

MAX_REQUEST_ELEMENTS = 2_000_000
"""The most elements in the arrays of one request of any size."""
ELEMENT_BYTES = 150
"""The approximate memory of one decoded element."""
LEAST_ELEMENT_BYTES = 3
"""The bytes of a small element in a request."""


class Callers(Protocol):
    """Maps a request to its caller, and the caller to its bounds."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        """The caller with its present rights. While these are unknown, it counts as a caller without rights.

        :param key: distinguishes brokers with the same principal.
        """

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        """Whether a request of ``size`` bytes waits for its turn."""

    def max_elements(self, share: Share, api_key: int, size: int) -> int:
        """The most elements that the arrays of a request of ``size`` bytes may have."""


class Trusted:
    """The callers of a listener that only trusted programs can reach."""

    def caller(self, principal: Principal, host: str, key: Hashable) -> Caller:
        """A caller with the share of a broker: every caller here is trusted."""
        del principal, host
        return Caller(Share.BROKERS, key)

    def waits(self, share: Share, api_key: int, size: int) -> bool:
        """No request waits."""
        del share, api_key, size
        return False

    def max_elements(self, share: Share, api_key: int, size: int) -> int:
        """The general limit."""
        del share, api_key, size
        return MAX_REQUEST_ELEMENTS


def cost(size: int, max_elements: int) -> int:
    """The approximate memory, in bytes, of a request of ``size`` bytes while it is worked on."""
    return size + min(size // LEAST_ELEMENT_BYTES, max_elements) * ELEMENT_BYTES
