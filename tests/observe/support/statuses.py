"""Statuses of a controller, built from a few facts, for tests of the pages and lines that show them."""

from __future__ import annotations

from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    JournalEvent,
    MigrationStatus,
    NodeRole,
    Problem,
    QuorumStatus,
    Status,
    VoterStatus,
)

VOTERS = (3001, 3002, 3003)


def zookeeper_brokers(zookeeper: tuple[int, ...], kraft: tuple[int, ...]) -> tuple[BrokerStatus, ...]:
    """Brokers that run, by their mode."""
    return tuple(
        BrokerStatus(number, BrokerState.RUNNING, 1, number in zookeeper, 100) for number in sorted(zookeeper + kraft)
    )


def a_status(
    state: State = State.DUAL_WRITING,
    *,
    node: int = 3001,
    leader: int = 3001,
    brokers: tuple[BrokerStatus, ...] = (),
    off: tuple[int, ...] = (),
    heard: dict[int, int] | None = None,
    unheard: dict[int, int] | None = None,
    answers: dict[int, bool] | None = None,
    problems: tuple[Problem, ...] = (),
    events: tuple[JournalEvent, ...] = (),
    formatted: str = "3.9-IV0",
    is_blank: bool = False,
    is_loading: bool = False,
    public: PublicState | None = None,
) -> Status:
    """Of one of three controllers. ``heard``: ages by voter, else all are there. ``unheard``: voters that this leader
    never heard, and for how long. ``is_loading``: it is blank, and its log is not."""
    leads = node == leader
    ages, silences = heard or {}, unheard or {}
    voters = tuple(
        VoterStatus(
            voter,
            f"host-{voter}",
            9093,
            10 if leads else -1,
            zk_migration_ready=None if is_blank else voter not in off,
            heard_ms_ago=ages.get(voter, 0) if leads and voter not in silences else -1,
            answers=(answers or {}).get(voter),
            silent_ms=silences.get(voter, ages.get(voter, 0)) if leads else -1,
        )
        for voter in VOTERS
    )
    active = leads and state is not State.INACTIVE
    return Status(
        cluster_id="cluster",
        node_id=node,
        version="0",
        time_ms=1_700_000_000_000,
        quorum=QuorumStatus(
            NodeRole.LEADER if leads else NodeRole.FOLLOWER,
            leader,
            4,
            0,
            0 if is_blank and not is_loading else 10,
            9,
            voters,
        ),
        migration=MigrationStatus(
            (public or state.properties.public).label, state.value, 7_000 if active else -1, active
        ),
        brokers=brokers,
        problems=problems,
        metadata_version="" if is_blank else "3.9-IV0",
        recent_events=events,
        formatted_version=formatted,
        is_blank=is_blank,
    )
