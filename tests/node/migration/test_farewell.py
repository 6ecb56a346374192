"""The last line of a controller's log says that ZooKeeper has everything only when that is known."""

from __future__ import annotations

import pytest

from migrator.node.migration.farewell import Farewell
from migrator.records.metadata import ZkMigrationState

MIGRATED = ZkMigrationState.MIGRATION
EVERYTHING = "Stopped, ZooKeeper has everything"


def farewell(
    migration: ZkMigrationState | None = MIGRATED,
    *,
    turned_off: bool = False,
    led: bool = True,
    lacks: str = "",
    lacks_since: str = "",
    leader: int | None = None,
) -> str:
    return Farewell(migration, turned_off, led, lacks, lacks_since, leader).sentence


def test_a_leader_that_has_waited_for_zookeeper_says_so() -> None:
    assert farewell() == EVERYTHING


@pytest.mark.parametrize(
    ("sentence", "named"),
    [
        (farewell(lacks="3 records"), "does not have everything: 3 records"),
        (farewell(lacks_since="1 record"), "except for the last changes, which the next leader writes: 1 record"),
        (farewell(led=False, leader=3002), "controller 3002 leads, and writes to ZooKeeper"),
        (farewell(led=False), "does not know what ZooKeeper lacks"),
        (farewell(None, led=False), "does not know what ZooKeeper lacks"),
        (farewell(None, led=False, leader=3002), "does not know what ZooKeeper lacks"),
        (farewell(turned_off=True, led=False), "turned off"),
        (farewell(ZkMigrationState.PRE_MIGRATION), "nothing has been copied yet"),
        (farewell(ZkMigrationState.NONE), "nothing has been copied yet"),
        (farewell(ZkMigrationState.POST_MIGRATION, led=False), "the migration is finished"),
    ],
)
def test_nobody_else_does(sentence: str, named: str) -> None:
    assert named in sentence
    assert EVERYTHING not in sentence
