"""The logs of a quorum whose controllers have ended, as far as their directories are at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.meta_properties import read_meta_properties
from migrator.migration.seen_logs import SeenLog
from migrator.verify.kraft.files import last_of_log


def logs_in(directories: Iterable[Path], cluster_id: str | None = None) -> Mapping[SeenLog, Path]:
    """Whose log each metadata directory holds, and how far it goes.

    :param cluster_id: what they have to be of; None: all of one cluster.
    :raises OperatorError: a directory has no log, cannot be read, or is another cluster's.
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
