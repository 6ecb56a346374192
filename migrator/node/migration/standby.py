"""A standby prepares the comparison of a takeover: its next worker loads the image while another node leads."""

from __future__ import annotations

from pathlib import Path

from migrator.migration.copying.worker import LoadAhead
from migrator.migration.ports import MigratedCluster
from migrator.raft.messages import EpochOffset

LOOK_SECONDS = 10.0
AHEAD_RECORDS = 100_000
"""A takeover loads fewer records than that by itself: half a second's work."""


class Standby:
    """Keeps a worker ready with the newest image; one object per node.

    :param directory: the directory that holds the segments of the log.
    """

    def __init__(self, cluster: MigratedCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._loaded = -1
        """The last record that the worker has been told to load."""

    def look(self, at: EpochOffset | None) -> None:
        """Look at what a takeover would have to load. To be called while this node does not lead.

        :param at: the end of the published image; None when ZooKeeper does not follow the log.
        """
        if at is None and self._loaded >= 0:
            self._cluster.leave()
            self._loaded = -1
        elif at is not None and at.offset - self._loaded >= AHEAD_RECORDS:
            self._cluster.follow(LoadAhead(self._directory, at))
            self._loaded = at.offset

    def leads(self) -> None:
        """Note that this node leads. The worker gets its task now, and the worker after it has loaded nothing."""
        self._loaded = -1
