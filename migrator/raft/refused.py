"""The permanent traces of recoveries of a lost majority: replicas that are refused, records that stay in the log.

`migrator.raft.recovery` decides on a recovery; docs/adr/0024-a-lost-majority.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable

from migrator.raft.voter_set import ReplicaKey
from migrator.records.uuid import Uuid
from migrator.values import value

EVERY_EPOCH = 2**31 - 1


@value
class Recovered:
    """``refused``: the replicas that were given up. ``epoch``: that of the last recovery's records; ``end_offset``: the
    offset after them; both are 0 without a recovery. ``read_epoch``: the epoch of the last record that has been read
    for this value, so it does not know recoveries in later epochs."""

    refused: frozenset[ReplicaKey] = frozenset()
    epoch: int = 0
    end_offset: int = 0
    read_epoch: int = EVERY_EPOCH

    def refuses(self, node_id: int, directory_id: Uuid) -> bool:
        """Whether a replica was given up; the same id on another disk was not."""
        return bool(self.refused) and ReplicaKey(node_id, directory_id) in self.refused

    def has_lost(self, node_id: int) -> bool:
        """Whether a replica with that id was given up."""
        return any(key.node_id == node_id for key in self.refused)


NOTHING_RECOVERED = Recovered()


def nothing_recovered() -> Recovered:
    """The default of ``RaftConfig.recovered``: the majority was never lost."""
    return NOTHING_RECOVERED


def merged(parts: Iterable[Recovered]) -> Recovered:
    """One value for several recoveries: all refused replicas, and the last recovery's place in the log."""
    known = [part for part in parts if part is not NOTHING_RECOVERED]
    if not known:
        return NOTHING_RECOVERED  # the usual case comes first: each message calls this
    last = max(known, key=lambda part: (part.epoch, part.end_offset))
    return Recovered(frozenset().union(*(part.refused for part in known)), last.epoch, last.end_offset)
