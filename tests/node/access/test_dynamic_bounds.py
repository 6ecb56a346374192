"""Bounds of connections that change while a node runs. At real controllers: tests/differential."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from immutables import Map

from migrator.config.load import typed_settings
from migrator.image.model import EMPTY_IMAGE, ConfigResource, ImageDelta, MetadataImage
from migrator.node.access.connection_bounds import connection_quotas, listener_limits
from migrator.node.access.dynamic_bounds import DynamicBounds
from migrator.records.metadata import ConfigResourceType
from migrator.wire.quotas import ConnectionQuotas
from tests.config.test_settings import MINIMAL
from tests.image.support.differences import changes_between
from tests.patience import PATIENCE_SECONDS

OWN, EVERY = "3000", ""
FILE = MINIMAL | {"max.connections": "70", "listener.name.controller.max.connections": "60"}
PREFIX = "listener.name.controller."


class Published:
    """Images as a node publishes them."""

    def __init__(self) -> None:
        self.subscribers: list[Callable[[ImageDelta], None]] = []
        self.published: MetadataImage = EMPTY_IMAGE

    def change(self, name: str, **configs: str) -> None:
        resource = ConfigResource(ConfigResourceType.BROKER, name)
        values = Map({key.replace("_", "."): text for key, text in configs.items()})
        before, after = self.published, replace(self.published, configs=self.published.configs.set(resource, values))
        self.published = after
        for subscriber in self.subscribers:
            subscriber(ImageDelta(before, after, changes_between(before, after)))


class Node:
    """The bounds that a node combines from it."""

    def __init__(self) -> None:
        settings = typed_settings(FILE, "f")
        self.metadata = Published()
        self.quotas = connection_quotas(settings, lambda _: None)
        self.freed = asyncio.Event()
        limits = listener_limits(settings, "CONTROLLER")
        self.quotas.add_listener("CONTROLLER", limits.max_connections, limits.max_connection_rate, self.freed.set)
        self.bounds = DynamicBounds(settings, self.quotas, ["CONTROLLER"], self.metadata, self.failed)

    def failed(self, error: BaseException) -> None:
        raise AssertionError(error)

    async def until(self, holds: Callable[[ConnectionQuotas], bool]) -> None:
        """Tasks that wait for a place are woken at each change."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(self.quotas):
                self.freed.clear()
                await self.freed.wait()


async def test_every_bound_follows_its_key() -> None:
    node = Node()
    node.bounds.start()
    try:
        node.metadata.change(EVERY, max_connections="50", max_connections_per_ip="5", max_connection_creation_rate="7")
        await node.until(lambda it: it.limits.max_connections == 50)
        assert (node.quotas.limits.max_connections_per_ip, node.quotas.limits.max_connection_rate) == (5, 7)
        node.metadata.change(OWN, max_connections="40", max_connections_per_ip_overrides="10.0.0.1:9")
        await node.until(lambda it: it.limits.max_connections == 40)
        assert node.quotas.limits.per_ip_overrides == {"10.0.0.1": 9}
        assert node.quotas.limits.max_connections_per_ip == 5, "that of all nodes, where the node has none"
        node.metadata.change(OWN)
        node.metadata.change(EVERY)
        await node.until(lambda it: it.limits.max_connections == 70)
        assert node.quotas.limits.per_ip_overrides == {}
    finally:
        await node.bounds.close()


async def test_a_listeners_own_bounds_follow_theirs() -> None:
    node = Node()
    node.bounds.start()
    try:
        assert [node.quotas.has_slot("CONTROLLER"), node.quotas.excess] == [True, 0]
        node.quotas.admit("CONTROLLER", "10.0.0.1", 0.0)
        node.quotas.admit("CONTROLLER", "10.0.0.1", 0.0)
        node.metadata.change(EVERY, **{f"{PREFIX}max.connections": "2"})
        await node.until(lambda it: not it.has_slot("CONTROLLER"))
        assert node.quotas.excess == 0, "it is the bound of the listener, which closes nobody"
        node.metadata.change(OWN, **{f"{PREFIX}max.connections": "3"})
        await node.until(lambda it: it.has_slot("CONTROLLER"))
        node.metadata.change(OWN, max_connections="1", **{f"{PREFIX}max.connections": "3"})
        await node.until(lambda it: not it.has_slot("CONTROLLER"))
        assert node.quotas.excess == 1
    finally:
        await node.bounds.close()


@pytest.mark.parametrize(
    "configs",
    [
        {"max_connections_per_ip": "0"},
        {"max_connections_per_ip_overrides": "10.0.0.1"},
        {f"{PREFIX}max.connections": "0"},
    ],
)
async def test_what_does_not_go_together_changes_nothing(
    configs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    node.bounds.start()
    try:
        node.metadata.change(OWN, max_connections="40")
        await node.until(lambda it: it.limits.max_connections == 40)
        before = node.quotas.limits
        node.metadata.change(OWN, max_connections="30", **configs)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "is not applied" not in caplog.text:
                await asyncio.sleep(0)
        assert node.quotas.limits is before
        node.metadata.change(OWN, max_connections="30")
        await node.until(lambda it: it.limits.max_connections == 30)
    finally:
        await node.bounds.close()


async def test_what_is_no_number_is_as_if_it_were_not_there(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.bounds.start()
    try:
        node.metadata.change(OWN, max_connections="many", max_connections_per_ip="4", ssl_keystore_password="s")
        await node.until(lambda it: it.limits.max_connections_per_ip == 4)
        assert node.quotas.limits.max_connections == 70
        assert "max.connections='many'" in caplog.text
    finally:
        await node.bounds.close()


async def test_a_rate_that_is_lowered_counts_from_then_on() -> None:
    node = Node()
    node.bounds.start()
    try:
        assert node.quotas.throttle("CONTROLLER", 0.0) == 0.0
        node.metadata.change(EVERY, max_connection_creation_rate="1")
        await node.until(lambda it: it.limits.max_connection_rate == 1)
        assert [node.quotas.throttle("CONTROLLER", 0.0) > 0 for _ in range(11)] == [False] * 10 + [True]
    finally:
        await node.bounds.close()
