"""Several real ZooKeeper servers that elect a leader among them; leaving the context stops all."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions


class ZooKeeperEnsemble:
    """Several servers that elect a leader among them; leaving its context stops all."""

    def __init__(self, directory: Path, *, size: int = 3, options: ZooKeeperOptions | None = None) -> None:
        ports = [free_port() for _ in range(3 * size)]
        members = {n: f"127.0.0.1:{ports[3 * n - 2]}:{ports[3 * n - 1]}" for n in range(1, size + 1)}
        self.servers = [
            EmbeddedZooKeeper(
                directory / f"zookeeper-{n}", port=ports[3 * n - 3], options=options, server_id=n, members=members
            )
            for n in members
        ]

    @property
    def hosts(self) -> str:
        """Connection string of all servers."""
        return ",".join(server.hosts for server in self.servers)

    def leader(self) -> EmbeddedZooKeeper | None:
        """The server that leads now."""
        return next((server for server in self.servers if server.mode() == "leader"), None)

    def start(self) -> None:
        """Start all and wait until all serve; errors as `EmbeddedZooKeeper.start`."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_serving()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
