"""When the worker of a standby loads the image in advance."""

from __future__ import annotations

from pathlib import Path

from migrator.migration.copying.worker import LoadAhead
from migrator.node.migration.cluster import NoCluster
from migrator.node.migration.standby import AHEAD_RECORDS, Standby
from migrator.raft.messages import EpochOffset


class Told(NoCluster):
    """Notes how far its worker has to load, and -1 when it has to end."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[int] = []

    def follow(self, load: LoadAhead) -> None:
        self.orders.append(load.at.offset)

    def leave(self) -> None:
        self.orders.append(-1)


def test_a_standby_loads_what_a_takeover_would_have_to_load_and_frees_it_after_the_migration() -> None:
    cluster = Told()
    standby = Standby(cluster, Path("/log"))
    few, many, more = 5, AHEAD_RECORDS, 2 * AHEAD_RECORDS
    for at in (None, few, many, more - 1, more, None, None, more):
        standby.look(None if at is None else EpochOffset(1, at))
    assert cluster.orders == [many, more, -1, more]
    standby.leads()
    standby.look(EpochOffset(2, more))
    assert cluster.orders[4:] == [more], "the worker was used up in the time as leader"
