"""From Kafka's keys to the bounds of connections, and the cluster's quotas of addresses."""

from __future__ import annotations

import resource

import pytest

from migrator.config.load import settings_from
from migrator.errors import OperatorError
from migrator.node.access.connection_bounds import (
    ENOUGH_FILES,
    OWN_FILES,
    IpRates,
    connection_quotas,
    ip_rates,
    listener_limits,
    raise_limit_of_open_files,
)
from migrator.records.metadata import QuotaEntity
from migrator.wire.hosts import peer_host
from migrator.wire.quotas import ConnectionQuotas
from migrator.wire.server import ListenerLimits
from tests.config.test_settings import MINIMAL

LOOPBACK = peer_host("::1")


def quotas(**changes: str) -> ConnectionQuotas:
    return connection_quotas(settings_from(MINIMAL | keys(changes), "f")[0], lambda _: None)


def limits(**changes: str) -> ListenerLimits:
    return listener_limits(settings_from(MINIMAL | keys(changes), "f")[0], "CONTROLLER")


def keys(changes: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in changes.items()}


def test_every_key_of_connections_reaches_the_bounds() -> None:
    found = quotas(
        max_connections="70",
        max_connections_per_ip="5",
        max_connections_per_ip_overrides="localhost:7, 10.1.2.3 : 9,::ffff:10.1.2.4:11,[::1]:13",
        max_connection_creation_rate="30",
        socket_request_max_bytes="1000",
        queued_max_request_bytes="2000",
    ).limits
    assert (found.max_connections, found.max_connections_per_ip, found.max_connection_rate) == (70, 5, 30)
    addresses = dict(found.per_ip_overrides)
    assert addresses.pop("127.0.0.1", 7) == 7
    assert addresses | {LOOPBACK: 13} == {"10.1.2.3": 9, "10.1.2.4": 11, LOOPBACK: 13}
    assert found.max_bytes_in_flight == 2000
    own = limits(
        connections_max_idle_ms="6",
        connection_failed_authentication_delay_ms="8",
        socket_request_max_bytes="1000",
        socket_listen_backlog_size="9",
    )
    assert (own.max_idle_ms, own.failed_login_delay_ms, own.max_request_bytes, own.backlog) == (6, 8, 1000, 9)


def test_a_listener_may_have_bounds_of_its_own() -> None:
    everywhere = {"max_connections": "70", "max_connection_creation_rate": "30"}
    assert (limits(**everywhere).max_connections, limits(**everywhere).max_connection_rate) == (70, 30)
    own = {f"listener.name.controller.{name}": "3" for name in ("max.connections", "max.connection.creation.rate")}
    found = limits(**everywhere, **own)
    assert (found.max_connections, found.max_connection_rate) == (3, 3)
    # The bound of the process stays the key without a prefix.
    assert quotas(**everywhere, **own).limits.max_connections == 70


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"max_connections_per_ip_overrides": "10.0.0.1"}, "max.connections.per.ip.overrides"),
        ({"max_connections_per_ip_overrides": "10.0.0.1:many"}, "max.connections.per.ip.overrides"),
        ({"max_connections_per_ip_overrides": "10.0.0.1:-1"}, "max.connections.per.ip.overrides"),
        ({"max_connections_per_ip_overrides": "no..such..host:1"}, "max.connections.per.ip.overrides"),
        ({"max_connections_per_ip": "0"}, "max.connections.per.ip"),
        ({"queued_max_request_bytes": "1"}, "queued.max.request.bytes"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_key(changes: dict[str, str], where: str) -> None:
    with pytest.raises(OperatorError) as caught:
        quotas(**changes)
    assert caught.value.where == f"f: {where}"
    assert caught.value.remedy


def test_a_bound_of_one_listener_that_is_no_number_is_refused() -> None:
    with pytest.raises(OperatorError) as caught:
        limits(**{"listener.name.controller.max.connections": "0"})
    assert "listener.name.controller.max.connections" in caught.value.where


def test_connections_leave_files_for_the_log() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = quotas().limits.max_connections
    assert limit == resource.RLIM_INFINITY or most in (limit - OWN_FILES, limit // 2)


def test_the_limit_of_open_files_is_raised_as_java_does() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        raise_limit_of_open_files()
        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert most == before[1]
        assert limit == ENOUGH_FILES or limit == most < ENOUGH_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_clusters_quotas_of_addresses_are_found_in_any_spelling() -> None:
    def key(name: str | None, kind: str = "ip") -> frozenset[QuotaEntity]:
        return frozenset({QuotaEntity(kind, name)})

    rate = {"connection_creation_rate": 5.0}
    image = {
        key("10.0.0.1"): rate,
        key("::1"): {"connection_creation_rate": 6.0},
        key("broker.example.org"): rate,
        key("alice", "user"): rate,
        key("10.0.0.2"): {"something.else": 1.0},
    }
    assert ip_rates(image) == {"10.0.0.1": 5.0, LOOPBACK: 6.0}
    held = [image]
    rates = IpRates(lambda: held[0])
    assert [rates(address) for address in ("10.0.0.1", LOOPBACK, "10.0.0.9")] == [5.0, 6.0, None]
    held[0] = {key(None): {"connection_creation_rate": 7.0}}
    assert rates("10.0.0.1") == 7.0
