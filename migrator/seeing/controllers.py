"""The controllers of a quorum as a look has seen them: values only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from migrator.values import value

CANCEL_REASSIGNMENT = "Wait until 'migrator quorum describe' shows no target, or run 'migrator quorum cancel'"


class ControllerProgram(Enum):
    """Which program runs as a voter."""

    MIGRATOR = "this program"
    STOCK = "Kafka"


@value
class ControllerSeen:
    """One voter. ``program`` is None when the voter does not answer, ``migration_on`` is None when it is unknown.
    ``lag_records``: how many records it is behind the high watermark of the look before; -1 unknown."""

    node_id: int
    program: ControllerProgram | None
    migration_on: bool | None = None
    lag_records: int = -1


@value
class QuorumSeen:
    """``leader_id`` is None while no controller leads. ``voters``: by id, also those that do not answer. ``target``:
    the voters that a reassignment is moving to; "" without a reassignment (a stock leader carries none out), None
    unknown."""

    leader_id: int | None
    voters: Mapping[int, ControllerSeen]
    target: str | None = None
