"""Looking at controllers from outside: what they write to ZooKeeper, how much memory they take, how long they stall."""

from __future__ import annotations

import contextlib
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import WatchedEvent

from migrator.parts.usage import Sampler
from migrator.values import value
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import decode_controller
from migrator.zookeeper.znodes.migration import decode_migration

SCRAPE_SECONDS = 1.0
STALL_GAUGE = "migrator_event_loop_stall_ms"
_STALL = re.compile(rf"^{STALL_GAUGE}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


@value
class Claim:
    """A KRaft controller became the controller in ZooKeeper's eyes, at that monotonic time."""

    at: float
    node_id: int
    kraft_epoch: int


class ZooKeeperWatch:
    """Notes when `/controller` and `/migration` come to say what they say."""

    def __init__(self, client: KazooClient) -> None:
        self.claims: list[Claim] = []
        self.copied_at: float | None = None
        """When `/migration` first said that the copy is complete: its End is committed by then."""
        self._client = client
        for path in (paths.CONTROLLER, paths.MIGRATION):
            self._look(path)

    def _on_event(self, event: WatchedEvent) -> None:
        if event.path is not None:
            self._look(event.path)

    def _look(self, path: str) -> None:
        if self._client.exists(path, watch=self._on_event) is None:
            return
        with contextlib.suppress(NoNodeError):
            self._note(path, self._client.get(path)[0])

    def _note(self, path: str, data: bytes) -> None:
        if path == paths.MIGRATION:
            state = decode_migration(path, data)
            if state is not None and state.copied and self.copied_at is None:
                self.copied_at = time.monotonic()
            return
        claim = decode_controller(path, data)
        known = self.claims[-1].kraft_epoch if self.claims else -1
        if claim.is_kraft and claim.kraft_epoch > known:
            self.claims.append(Claim(time.monotonic(), claim.broker_id, claim.kraft_epoch))


class StallSampler(Sampler):
    """Longest turns of event loops in ms, by node, from their metrics. A node that serves none is left out."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        super().__init__(SCRAPE_SECONDS)
        self.longest_ms: dict[int, float] = {}
        self._ports = dict(ports)

    def look(self) -> None:
        """Scrape each once."""
        for node_id, port in self._ports.items():
            if (stall_ms := longest_stall_ms(port)) is not None:
                self.longest_ms[node_id] = max(self.longest_ms.get(node_id, 0.0), stall_ms)


def longest_stall_ms(port: int) -> float | None:
    """Of the last minute, from a node's metrics; None when it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2.0) as response:
            return stall_in(response.read().decode())
    except (urllib.error.URLError, OSError):
        return None


def stall_in(exposition: str) -> float | None:
    """The gauge's value in Prometheus' text format; None without it."""
    return max(map(float, _STALL.findall(exposition)), default=None)


class Arrival:
    """Watches for znodes that are to appear; looks at each only until it is there."""

    def __init__(self, client: KazooClient, expected: Iterable[str]) -> None:
        self._client = client
        self._missing = list(expected)

    def complete(self) -> bool:
        """Whether all are there by now."""
        while self._missing:
            if self._client.exists(self._missing[-1]) is None:
                return False
            self._missing.pop()
        return True
