"""Reads the logs of a quorum whose controllers have stopped, from those of their directories that are available."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.meta_properties import read_meta_properties
from migrator.migration.seen_logs import SeenLog
from migrator.verify.kraft.files import last_of_log


def logs_in(directories: Iterable[Path], cluster_id: str | None = None) -> Mapping[SeenLog, Path]:
    """Read whose log each metadata directory holds, and its end.

    :param cluster_id: the cluster of all logs; None when it only has to be the same for all.
    :raises OperatorError: a directory has no log, cannot be read, or belongs to another cluster.
    """
    found: dict[SeenLog, Path] = {}
    for directory in directories:
        identity = read_meta_properties(directory)
        if identity is None:
            raise OperatorError(
                "there is no meta.properties, so the log cannot be assigned to a controller",
                where=str(directory),
                remedy="Give the complete metadata directory of a controller, or a complete copy of it",
            )
        cluster_id = identity.cluster_id if cluster_id is None else cluster_id
        if identity.cluster_id != cluster_id:
            raise OperatorError(
                f"the log is of cluster {identity.cluster_id}, not of {cluster_id}",
                where=str(directory),
                remedy="Give logs of one quorum only",
            )
        found[SeenLog(identity.node_id, last_of_log(directory))] = directory
    return found
