"""``controller_mutation_rate``: how many partitions a client may create and delete per second (KIP-599).

Each client, as quotas distinguish them, has a bucket of tokens that fills at its rate. A strict quota refuses requests
while the bucket is below zero. A permissive one, for old request versions, grants everything and makes the client wait
afterwards. Both let a single request take the bucket any amount below zero.
Source: ``ControllerMutationQuotaManager``, ``ClientQuotaManager``, ``TokenBucket``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.image.model import MetadataImage, QuotaKey
from migrator.records.metadata import QuotaEntity

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
USER: Final = "user"
CLIENT_ID: Final = "client-id"
LONGEST_WAIT_MS: Final = 2**31 - 1
"""The longest throttle time that a response can hold."""
PRUNE_ABOVE: Final = 1_000
"""The number of buckets that are kept without a search for full ones."""

BucketKey = tuple[str, str]
"""User and client id; "" for the one that the quota does not name."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    updated_ms: int
    rate: float
    """Partitions per second."""
    burst: float
    """The most tokens that it holds."""

    def refill(self, now_ms: int) -> None:
        self.tokens = min(self.burst, self.tokens + self.rate * (now_ms - self.updated_ms) / 1000)
        self.updated_ms = now_ms

    @property
    def wait_ms(self) -> int:
        """The time until the bucket is at zero again; 0 when it is not below. A rate of zero or below may come from
        ZooKeeper, although no KRaft controller accepts it: that bucket never fills."""
        if not self.tokens < 0:
            return 0
        wait = -self.tokens / self.rate * 1000 + 0.5 if self.rate > 0 else math.inf
        return LONGEST_WAIT_MS if wait >= LONGEST_WAIT_MS else math.floor(wait)


class MutationQuota:
    """The quota of one request."""

    __slots__ = ("_bucket", "_strict", "throttle_ms")

    def __init__(self, bucket: _Bucket | None = None, *, strict: bool = True) -> None:
        self._bucket = bucket
        self._strict = strict
        self.throttle_ms = 0
        """How long the client has to wait, as of the last `charge`."""

    def charge(self, partitions: int) -> None:
        """Take tokens for partitions to be created or deleted.

        :raises RefusedError: THROTTLING_QUOTA_EXCEEDED; nothing was taken.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._strict and bucket.tokens < 0:
            self.throttle_ms = bucket.wait_ms
            raise RefusedError(ErrorCode.throttling_quota_exceeded)
        bucket.tokens -= partitions
        if not self._strict:
            self.throttle_ms = bucket.wait_ms


UNLIMITED: Final = MutationQuota()


class MutationBuckets:
    """The buckets of all clients with a quota: soft state of one controller."""

    __slots__ = ("_buckets", "_prune_above")

    def __init__(self) -> None:
        self._buckets: dict[BucketKey, _Bucket] = {}
        self._prune_above = PRUNE_ABOVE

    def __len__(self) -> int:
        return len(self._buckets)

    def quota_of(
        self, image: MetadataImage, user: str, client_id: str, *, strict: bool, burst_seconds: int, now_ms: int
    ) -> MutationQuota:
        """The quota of a request made now.

        :param user: the principal's name, without its type.
        :param client_id: as in the header of the request; "" for none.
        :param burst_seconds: the seconds for which an idle client saves up tokens.
        """
        found = _rate_of(image.quotas, user, client_id)
        if found is None:
            return UNLIMITED
        key, rate = found
        burst = rate * burst_seconds
        bucket = self._buckets.get(key)
        if bucket is None:
            self._prune(now_ms)
            bucket = self._buckets[key] = _Bucket(burst, now_ms, rate, burst)
        bucket.rate, bucket.burst = rate, burst
        bucket.refill(now_ms)
        return MutationQuota(bucket, strict=strict)

    def _prune(self, now_ms: int) -> None:
        """Drop full buckets, which equal new ones, when there are twice as many buckets as after the last time."""
        if len(self._buckets) < self._prune_above:
            return
        for key, bucket in tuple(self._buckets.items()):
            bucket.refill(now_ms)
            if bucket.tokens >= bucket.burst:
                del self._buckets[key]
        self._prune_above = max(PRUNE_ABOVE, 2 * len(self._buckets))


def _rate_of(quotas: Map[QuotaKey, Mapping[str, float]], user: str, client_id: str) -> tuple[BucketKey, float] | None:
    """The most specific quota of a client, and the key of its bucket; None without a quota."""
    for entity, key in _candidates(user, client_id):
        values = quotas.get(entity)
        if values is not None and CONTROLLER_MUTATION_RATE in values:
            return key, values[CONTROLLER_MUTATION_RATE]
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaKey, BucketKey]]:
    """Entities that a client belongs to, the most specific first. A client without an id has no quota by id."""
    both, alone, anybody = (user, client_id), (user, ""), ("", client_id)
    for owner in (user, None):
        if client_id:
            yield _entity(owner, client_id), both
            yield _entity(owner, None), both
        yield frozenset((QuotaEntity(USER, owner),)), alone
    if client_id:
        for name in (client_id, None):
            yield frozenset((QuotaEntity(CLIENT_ID, name),)), anybody


def _entity(user: str | None, client_id: str | None) -> QuotaKey:
    return frozenset((QuotaEntity(USER, user), QuotaEntity(CLIENT_ID, client_id)))
