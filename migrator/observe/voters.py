"""Voters, wanted voters, and the way there, as values for operators.

The node makes them, the gRPC service carries them, and `migrator quorum` shows them. They refer to no state of the
node.
"""

from __future__ import annotations

from enum import Enum

from migrator.values import value


class VoterOrder(Enum):
    """An operator's order: exactly these voters; these in addition; without these; no change any more; or that the
    configured voters go into the log, so that they can change."""

    TO = "to"
    ADD = "add"
    REMOVE = "remove"
    CANCEL = "cancel"
    UPGRADE = "upgrade"


class PlanState(Enum):
    """``RESTING``: a target is set, but this controller does not lead, so it knows no more."""

    IDLE = "no target is set"
    MOVING = "the voters are changing"
    WAITING = "the plan waits"
    RESTING = "the leader knows how far the plan is"


@value
class VotersAnswer:
    """Targets as text, such as ``4,5,6``; "" without one. ``replaced``: the target until now."""

    target: str
    replaced: str
    warnings: tuple[str, ...]


@value
class ReplicaDescription:
    """A controller that fetches, or has fetched, from the leader. Ages and times in ms, -1 for never.

    ``rounds``: how often it has reached an end of the leader's log that was noted before. ``last_round_ms``: how long
    that took last time.
    """

    node_id: int
    directory_id: str
    address: str
    votes: bool
    shall_vote: bool
    log_end_offset: int
    lag_records: int
    fetched_ms_ago: int
    rounds: int
    last_round_ms: int
    caught_up: bool


@value
class VotersDescription:
    """The voters and the plan to change them. Only the leader knows ``replicas`` and the steps. ``leader_id``: -1 while
    no controller leads."""

    cluster_id: str
    node_id: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    kraft_version: int
    voters: str
    target: str
    state: PlanState
    waiting_for: str
    remedy: str
    next_steps: tuple[str, ...]
    replicas: tuple[ReplicaDescription, ...]
    stock_leader: bool = False
    """Whether this node knows that the leader is one of Kafka's controllers."""
