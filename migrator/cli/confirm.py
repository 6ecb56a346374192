"""The confirmation of acts that cannot be undone: the operator types the cluster's id."""

from __future__ import annotations

from migrator.cli.terminal import ask_for
from migrator.errors import OperatorError


def confirm_cluster_id(cluster_id: str, given: str | None, *, whose: str) -> None:
    """Check that the operator means this cluster.

    :param given: the id from the option ``--yes-cluster-id``; None to ask.
    :param whose: the owner of this id, in words.
    :raises OperatorError: the operator means another cluster.
    """
    typed = (
        ask_for("Type the cluster id to go on (cluster.id in meta.properties of a broker)") if given is None else given
    )
    if typed != cluster_id:
        raise OperatorError(
            f"{whose} has the id {cluster_id}, not {typed}",
            where="" if given is None else "--yes-cluster-id",
            remedy="Nothing was written. Make sure that you are on the right machine",
        )
