"""The last log line of a controller that stops: whether ZooKeeper has everything, to the controller's knowledge. Pure.

`status` makes a `Farewell` from what is known at the end. It never says that ZooKeeper has everything unless this node
knows it.
"""

from __future__ import annotations

from migrator.records.metadata import ZkMigrationState
from migrator.values import value


@value
class Farewell:
    """``migration``: None while this node has not read what the quorum had committed before its start. ``led``: this
    node was the active controller when it was told to stop, and ZooKeeper had to follow it. ``lacks``: what ZooKeeper
    lacked after this node had waited for it; ``lacks_since``: what it lacked when the node gave up the leadership
    afterwards. ``leader``: the controller that leads now, None while unknown."""

    migration: ZkMigrationState | None
    turned_off: bool
    led: bool
    lacks: str = ""
    lacks_since: str = ""
    leader: int | None = None

    @property
    def sentence(self) -> str:
        """The farewell as a line for the log."""
        if self.lacks:
            return f"Stopped, ZooKeeper does not have everything: {self.lacks}"
        if self.migration is None:
            return (
                "Stopped before this controller knew the metadata of the quorum: it does not know what ZooKeeper lacks"
            )
        if self.migration is ZkMigrationState.POST_MIGRATION:
            return "Stopped; the migration is finished, and ZooKeeper is not written any more"
        if self.migration is not ZkMigrationState.MIGRATION:
            return "Stopped; nothing has been copied yet, so ZooKeeper lacks nothing"
        if self.turned_off:
            return "Stopped; the migration is turned off on this controller, which does not write to ZooKeeper"
        if self.led and not self.lacks_since:
            return "Stopped, ZooKeeper has everything"
        if self.led:
            return (
                "Stopped; ZooKeeper had everything except for the last changes, which the next leader writes: "
                f"{self.lacks_since}"
            )
        if self.leader is not None:
            return f"Stopped; controller {self.leader} leads, and writes to ZooKeeper"
        return "Stopped; no controller leads, and this one does not know what ZooKeeper lacks"
