"""Reads what `make_zookeeper_dump` left: a cluster in ZooKeeper mode, and what stock Kafka's migration made of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from migrator.values import value
from migrator.zookeeper.ops import Stat, Znode


@value
class StockMigration:
    """The files of one migration by stock Kafka."""

    version: str

    @property
    def directory(self) -> Path:
        return Path(__file__).parent / f"stock-{self.version}"

    @property
    def before(self) -> Path:
        """ZooKeeper before the migration; read it with `read_dump`."""
        return self.directory / "zookeeper.jsonl"

    @property
    def after(self) -> Path:
        """ZooKeeper when the stock controller dual-wrote."""
        return self.directory / "zookeeper-after.jsonl"

    @property
    def log(self) -> Path:
        """The controller's log segment, from offset 0."""
        return self.directory / "migrated.log"

    @property
    def checkpoint(self) -> Path:
        """Its snapshot after the copy."""
        return self.directory / "migrated.checkpoint"

    @property
    def settings_file(self) -> Path:
        """The cluster's id and the secrets that both sides used."""
        return self.directory / "cluster.properties"

    def settings(self) -> dict[str, str]:
        lines = self.settings_file.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


STOCK_391 = StockMigration("3.9.1")


def read_dump(file: Path) -> list[Znode]:
    """The znodes of a dump, sorted by path."""
    return [_znode(json.loads(line)) for line in file.read_text().splitlines()]


def _znode(row: dict[str, object]) -> Znode:
    data, stat = row["data"], row["stat"]
    assert isinstance(stat, dict)
    return Znode(
        path=str(row["path"]),
        data=None if data is None else base64.b64decode(str(data)),
        stat=Stat(
            czxid=stat["czxid"],
            mzxid=stat["mzxid"],
            version=stat["version"],
            children_version=stat["cversion"],
            ephemeral_owner=stat["ephemeralOwner"],
            data_length=stat["dataLength"],
            children_count=stat["numChildren"],
            pzxid=stat["pzxid"],
        ),
    )
