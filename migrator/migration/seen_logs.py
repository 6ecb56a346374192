"""Decides which of several controllers' logs to use when the quorum is lost, and what may be missing in it. Pure.

A change is confirmed once a majority of the voters has it, and every elected leader has all confirmed changes. So the
newest log of any majority holds every confirmed change. The newest log is the one whose last batch has the highest
epoch, and the longest of these (Raft, section 5.4.1). It need not be the log of the last leader.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from migrator.errors import OperatorError
from migrator.raft.messages import EpochOffset
from migrator.values import value

VOTERS_KEY = "controller.quorum.voters"


@value
class SeenLog:
    """``end``: the epoch of the last batch, and the offset behind it."""

    node_id: int
    end: EpochOffset


@value
class SeenLogs:
    """``newest`` is the log to use. ``unread``: the voters whose logs were not read, while these may hold more; empty
    when nothing can be missing."""

    newest: SeenLog
    read: tuple[int, ...]
    unread: tuple[int, ...] = ()

    @property
    def doubt(self) -> str:
        """Records that may be missing, in words; "" when none can be."""
        if not self.unread:
            return ""
        end = self.newest.end
        return (
            f"only the log of {_names(self.read)} was read, which is no majority: changes that a leader confirmed with "
            f"{_names(self.unread)} after offset {end.offset - 1} of epoch {end.epoch} may be missing"
        )


def newest_of(logs: Sequence[SeenLog], voters: Collection[int], named_by: str = VOTERS_KEY) -> SeenLogs:
    """Choose the log to use.

    :param named_by: the source of the voters' ids, in words.

    :raises OperatorError: there is no log, a log belongs to no voter, or two logs to the same voter.
    """
    if not logs:
        raise OperatorError(
            "there is no metadata log", where="--log", remedy="Name the metadata directories of controllers with --log"
        )
    read = tuple(sorted(log.node_id for log in logs))
    for node_id in read:
        if node_id not in voters:
            raise OperatorError(
                f"a log is of node {node_id}, which is none of {named_by}",
                where="--log",
                remedy="Name the directories of these controllers only",
            )
        if read.count(node_id) > 1:
            raise OperatorError(
                f"two logs are of controller {node_id}", where="--log", remedy="Name each controller's log once"
            )
    newest = max(logs, key=lambda log: (log.end.epoch, log.end.offset))
    is_majority = len(read) > len(voters) // 2
    return SeenLogs(newest, read, () if is_majority else tuple(sorted(set(voters) - set(read))))


def _names(node_ids: tuple[int, ...]) -> str:
    return ("controllers " if len(node_ids) > 1 else "controller ") + ", ".join(map(str, node_ids))
