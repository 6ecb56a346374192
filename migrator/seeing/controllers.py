"""What is seen of the controllers of a quorum, as values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from migrator.values import value

CANCEL_REASSIGNMENT = "Wait until 'migrator quorum describe' shows no target, or run 'migrator quorum cancel'"


class ControllerProgram(Enum):
    """What runs as a voter."""

    MIGRATOR = "this program"
    STOCK = "Kafka"


@value
class ControllerSeen:
    """``program`` is None when it does not answer, ``migration_on`` when nobody knows. ``lag_records``: behind what was
    committed at the look before, -1 unknown."""

    node_id: int
    program: ControllerProgram | None
    migration_on: bool | None = None
    lag_records: int = -1


@value
class QuorumSeen:
    """``leader_id`` is None while nobody leads. Voters by id, those that do not answer too. ``target``: of a
    reassignment of the voters that is under way, "" without one, None unknown; a stock leader carries none out."""

    leader_id: int | None
    voters: Mapping[int, ControllerSeen]
    target: str | None = None
