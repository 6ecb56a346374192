"""An index of delegation tokens by HMAC, and of their bytes by owner.

A request to renew a token has only the HMAC, and every authenticated client may send one. Without the index each such
request would compute the HMACs of all tokens. Source: ``DelegationTokenCache``.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Mapping

from migrator.records.metadata import DelegationTokenRecord

TOKEN_BYTES, NAME_BYTES = 1_024, 64


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """The HMAC that a client needs to use a token."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def size_of(owner: str, requester: str, renewers: Iterable[str]) -> int:
    """The approximate memory of a token in bytes. Each name is a separate string."""
    return TOKEN_BYTES + sum(NAME_BYTES + len(name.encode()) for name in (owner, requester, *renewers))


class TokenIndex:
    """The index of one image, which follows it.

    :param secret: the cluster's secret key; without it no token is found.
    """

    __slots__ = ("_by_owner", "_ids", "_secret", "_sizes")

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret
        self._ids: dict[bytes, str] = {}
        self._sizes: dict[str, tuple[str, int]] = {}
        """Owner and bytes, by token id."""
        self._by_owner: Counter[str] = Counter()

    def follow(self, after: Mapping[str, DelegationTokenRecord], changed: Iterable[str]) -> None:
        """Update the tokens that may have changed."""
        if self._secret is None:
            return
        for token_id in changed:
            digest = token_hmac(self._secret, token_id)
            token, before = after.get(token_id), self._sizes.pop(token_id, None)
            if before is not None:
                self._by_owner[before[0]] -= before[1]
            if token is not None:
                size = size_of(token.owner, token.requester, token.renewers)
                self._ids[digest] = token_id
                self._sizes[token_id] = token.owner, size
                self._by_owner[token.owner] += size
            else:
                self._ids.pop(digest, None)

    def find(self, digest: bytes) -> str | None:
        """The id of the token with that HMAC."""
        return self._ids.get(digest)

    def bytes_of(self, owner: str) -> int:
        return self._by_owner[owner]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenIndex) and (self._secret, self._ids) == (other._secret, other._ids)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TokenIndex({len(self._ids)} tokens)"
