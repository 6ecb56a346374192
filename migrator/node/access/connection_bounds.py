"""Turns Kafka's keys into the bounds of listeners: how many connections this node takes, how fast, and what they may
hold.

`node.node` calls it at the start, and `dynamic_bounds` after a change of a dynamic config. Names and defaults are
Kafka's. A value that cannot be used is an `OperatorError` before the listener opens. Files for the log are set aside,
so that connections never take the last one.

``connection_creation_rate``: how many connections a second each address may open, by the cluster's quotas (KIP-612).

Stock controllers obey it on their own listeners, too. Source: ``ClientQuotaMetadataManager``.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Mapping

from migrator.config.endpoints import parse_per_ip
from migrator.config.settings import Settings
from migrator.config.types import parse
from migrator.controller.quotas import CONNECTION_CREATION_RATE, IP
from migrator.errors import OperatorError
from migrator.image.model import QuotaKey
from migrator.wire.hosts import peer_host
from migrator.wire.listener_keys import ListenerKeys
from migrator.wire.quotas import UNLIMITED, ConnectionQuotas, ProcessLimits
from migrator.wire.server import ListenerLimits

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


ENOUGH_FILES = 100_000
"""The limit of open files that Kafka's documentation recommends."""
OWN_FILES = 256
"""Open files for the log, for worker processes, and for connections to peers."""


def listener_limits(settings: Settings, name: str) -> ListenerLimits:
    """Bounds of one listener. As in Kafka, some keys can be set for the listener alone:
    ``listener.name.<name>.max.connections``.

    :raises OperatorError: such a key is no number.
    """
    keys = ListenerKeys(settings.explicit, name)
    return ListenerLimits(
        max_request_bytes=settings.socket_request_max_bytes,
        max_idle_ms=settings.connections_max_idle_ms,
        max_connections=_own_bound(settings, keys, "max.connections", settings.max_connections),
        max_connection_rate=_own_bound(
            settings, keys, "max.connection.creation.rate", settings.max_connection_creation_rate
        ),
        backlog=settings.socket_listen_backlog_size,
        failed_login_delay_ms=settings.connection_failed_authentication_delay_ms,
    )


def _own_bound(settings: Settings, keys: ListenerKeys, key: str, default: int) -> int:
    text = keys.own(key)
    if text is None:
        return default
    try:
        return int(str(parse("int", text, "[1,...]")))
    except ValueError as error:
        raise OperatorError(
            f"{text!r} is no number above 0",
            where=f"{settings.source}: {keys.find(key)[0]}",
            remedy=f"Set a number, or remove the key: then {key} counts",
        ) from error


def connection_quotas(settings: Settings, ip_rate: Callable[[str], float | None]) -> ConnectionQuotas:
    """Counts over all listeners of this process.

    :param ip_rate: connections a second that the cluster's quotas allow to an address; None for any number.
    :raises OperatorError: as `process_limits`.
    """
    return ConnectionQuotas(process_limits(settings), ip_rate)


def process_limits(settings: Settings) -> ProcessLimits:
    """Bounds over all listeners of this process.

    :raises OperatorError: ``max.connections.per.ip.overrides`` or a related key is invalid.
    """
    overrides = per_ip_overrides(settings)
    if settings.max_connections_per_ip == 0 and not overrides:
        raise OperatorError(
            "the key is 0, and max.connections.per.ip.overrides is empty: nobody could connect",
            where=f"{settings.source}: max.connections.per.ip",
            remedy="Set the addresses of brokers and controllers in max.connections.per.ip.overrides",
        )
    bytes_in_flight = settings.queued_max_request_bytes
    if 0 < bytes_in_flight < settings.socket_request_max_bytes:
        raise OperatorError(
            f"{bytes_in_flight} is less than socket.request.max.bytes, {settings.socket_request_max_bytes}",
            where=f"{settings.source}: queued.max.request.bytes",
            remedy="Set at least as much, or -1",
        )
    most = {"max_bytes_in_flight": bytes_in_flight} if bytes_in_flight > 0 else {}
    return ProcessLimits(
        max_connections=min(settings.max_connections, open_files_for_connections()),
        max_connections_per_ip=settings.max_connections_per_ip,
        per_ip_overrides=overrides,
        max_connection_rate=settings.max_connection_creation_rate,
        **most,
    )


def per_ip_overrides(settings: Settings) -> dict[str, int]:
    """``max.connections.per.ip.overrides``: ``host:number``, separated by commas, by the host's address.

    :raises OperatorError: a part has another form, or a host is not known.
    """
    found = {}
    text = settings.max_connections_per_ip_overrides
    try:
        for host, number in parse_per_ip(text).items():
            found[peer_host(socket.getaddrinfo(host.strip("[]"), None)[0][4][0])] = number  # type: ignore[arg-type]
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"{text!r} cannot be used: {error}",
            where=f"{settings.source}: max.connections.per.ip.overrides",
            remedy="Write host:number, separated by commas; the hosts must be known where this node runs",
        ) from error
    return found


def raise_limit_of_open_files() -> None:
    """Raise the limit of open files, as Java does at its start: each broker holds several connections, and a shell's
    usual limit is 1,024."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if most == resource.RLIM_INFINITY else min(most, ENOUGH_FILES)
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def open_files_for_connections() -> int:
    """How many connections this process can take and still have enough files for its log."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if limit == resource.RLIM_INFINITY else max(limit - OWN_FILES, limit // 2)
