"""``connection_creation_rate``: how many connections a second each address may open, by the cluster's quotas (KIP-612).

Stock controllers obey it on their own listeners, too. Source: ``ClientQuotaMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from migrator.controller.quotas import CONNECTION_CREATION_RATE, IP
from migrator.image.model import QuotaKey
from migrator.wire.hosts import peer_host

Quotas = Mapping[QuotaKey, Mapping[str, float]]


def ip_rates(quotas: Quotas) -> dict[str | None, float]:
    """The rates by address; None stands for every other address. Host names are left out, because a name server would
    decide who waits."""
    found: dict[str | None, float] = {}
    for entities, values in quotas.items():
        if len(entities) != 1 or CONNECTION_CREATION_RATE not in values:
            continue
        (entity,) = entities
        if entity.entity_type != IP:
            continue
        try:
            address = None if entity.entity_name is None else peer_host(entity.entity_name)
        except ValueError:
            continue
        found[address] = values[CONNECTION_CREATION_RATE]
    return found


class IpRates:
    """The quota of an address, from the published image."""

    def __init__(self, quotas: Callable[[], Quotas]) -> None:
        self._quotas = quotas
        self._known: Quotas = {}
        self._rates: dict[str | None, float] = {}

    def __call__(self, address: str) -> float | None:
        quotas = self._quotas()
        if quotas is not self._known:
            self._known, self._rates = quotas, ip_rates(quotas)
        return self._rates.get(address, self._rates.get(None))
