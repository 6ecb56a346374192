"""Bounds of connections that change while this node runs, by configurations of this controller and of all nodes.

As in Kafka, the configuration of this node overrides that of all nodes, which overrides the property file. A value of a
wrong type counts as absent. If a listener's bound is 0, or ``max.connections.per.ip`` lets nobody in, all bounds stay
as they were. Source: ``ControllerServer`` (``DynamicConfigPublisher``), ``DynamicBrokerConfig``,
``SocketServer.reconfigure``, ``ListenerConnectionQuota``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from migrator.config.key_lists import DYNAMIC
from migrator.config.keys import KEYS
from migrator.config.settings import Settings
from migrator.config.types import parse
from migrator.errors import OperatorError
from migrator.image.model import ConfigResource, ImageDelta, MetadataImage
from migrator.node.access.connection_bounds import listener_limits, process_limits
from migrator.records.metadata import ConfigResourceType
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.wire.quotas import ConnectionQuotas, ListenerBounds, ProcessLimits

log = logging.getLogger(__name__)

FOLLOWING = TaskKind("connection-bounds", OnError.RESTART)
OF_LISTENERS: Final = ("max.connections", "max.connection.creation.rate")
_PREFIX: Final = re.compile(r"listener\.name\.[^.]*\.")

Bounds = tuple[ProcessLimits, dict[str, ListenerBounds]]


class Metadata(Protocol):
    """The part of `migrator.node.metadata.MetadataRuntime` that this file reads."""

    subscribers: list[Callable[[ImageDelta], None]]

    @property
    def published(self) -> MetadataImage: ...


class DynamicBounds:
    """Follows the published image.

    :param quotas: the counts of all listeners, which have begun.
    :param listeners: their names.
    """

    def __init__(
        self,
        settings: Settings,
        quotas: ConnectionQuotas,
        listeners: Iterable[str],
        metadata: Metadata,
        on_failure: OnFailure,
    ) -> None:
        self._settings = settings
        self._quotas = quotas
        self._listeners = tuple(listeners)
        self._metadata = metadata
        self._resources = tuple(ConfigResource(ConfigResourceType.BROKER, name) for name in ("", str(settings.node_id)))
        """The resources; a later one overrides an earlier one."""
        self._known: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._supervisor = Supervisor(on_failure)

    def start(self) -> None:
        """Apply the present configurations, and follow their changes."""
        self._changed.set()
        self._metadata.subscribers.append(self._published)
        self._supervisor.keep(FOLLOWING, self._follow)

    async def close(self) -> None:
        """Stop following."""
        await self._supervisor.close()

    def _published(self, delta: ImageDelta) -> None:
        if not delta.changes.configs.isdisjoint(self._resources):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            configs = self._metadata.published.configs
            wanted: dict[str, str] = {}
            for resource in self._resources:
                wanted |= usable(configs.get(resource, {}))
            if wanted == self._known:
                continue
            self._known = wanted
            try:
                # On a thread: the addresses of hosts in max.connections.per.ip.overrides may need a name server.
                limits, listeners = await asyncio.to_thread(bounds, self._settings, wanted, self._listeners)
            except OperatorError as error:
                log.warning(
                    "A dynamic configuration of this node is not applied, what counted before counts: %s", error
                )
                continue
            self._quotas.change(limits, listeners)
            shown = ", ".join(f"{key}={text}" for key, text in sorted(wanted.items()))
            log.info("Bounds of connections are now those of the file%s", f", but {shown}" if shown else "")


def usable(configs: Mapping[str, str]) -> dict[str, str]:
    """The configurations that are bounds of connections and have the right type."""
    found = {}
    for key, text in configs.items():
        prefix = _PREFIX.match(key)
        name = key if prefix is None else key.removeprefix(prefix[0])
        if name not in (DYNAMIC if prefix is None else OF_LISTENERS):
            continue
        try:
            parse(KEYS[name].kind, text, KEYS[name].valid)
        except ValueError as error:
            log.warning("The dynamic configuration %s=%r of this node is ignored: %s", key, text, error)
            continue
        found[key] = text
    return found


def bounds(settings: Settings, dynamic: Mapping[str, str], listeners: Iterable[str]) -> Bounds:
    """The bounds with these configurations.

    :raises OperatorError: they contradict each other.
    """
    source = "kafka-configs --entity-type brokers" if dynamic else settings.source
    typed: dict[str, Any] = {
        key.replace(".", "_"): parse(KEYS[key].kind, dynamic[key], KEYS[key].valid) for key in DYNAMIC if key in dynamic
    }
    changed = replace(settings, source=source, explicit={**settings.explicit, **dynamic}, **typed)
    own = {}
    for name in listeners:
        limits = listener_limits(changed, name)
        own[name] = ListenerBounds(limits.max_connections, limits.max_connection_rate)
    return process_limits(changed), own
