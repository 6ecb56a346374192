"""A quorum that is seen from outside: no figure that only its leader could know."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.describe_quorum.v1.response import PartitionData, ReplicaState
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64

from migrator.image.model import EMPTY_IMAGE
from migrator.observe.status import BrokerState, NodeRole, silent_voters
from migrator.observe.status_page import Answers, page_of, problems_of
from migrator.records.metadata import ZkMigrationState
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from migrator.seeing.quorum import QuorumLook
from migrator.seeing.quorum_status import status_of
from migrator.wire.raft_codec import ListenerEndpoint
from tests.migration.support.builders import broker, cluster

NOW = 1_700_000_000_000
AT = {voter: ListenerEndpoint("CONTROLLER", f"host-{voter}", 9093) for voter in (1, 2, 3)}


def row(voter: int, *, fetched: int = -1, caught_up: int = -1) -> ReplicaState:
    return ReplicaState(
        replica_id=BrokerId(voter), log_end_offset=i64(100 - voter), last_fetch_timestamp=i64(fetched),
        last_caught_up_timestamp=i64(caught_up),
    )  # fmt: skip


def look(record: ZkMigrationState = ZkMigrationState.MIGRATION, *voters: ReplicaState) -> QuorumLook:
    """Controller 1 leads 2, which fetches, and 3, which this leader has never heard; broker 8 is fenced."""
    rows = voters or (row(1, caught_up=NOW), row(2, fetched=NOW - 400), row(3))
    described = PartitionData(
        partition_index=i32(0), error_code=ErrorCode.none, leader_id=BrokerId(1), leader_epoch=i32(5),
        high_watermark=i64(98), current_voters=rows, observers=(),
    )  # fmt: skip
    seen = {
        voter: ControllerSeen(voter, None if voter == 3 else ControllerProgram.STOCK, None if voter == 3 else True)
        for voter in (1, 2, 3)
    }
    brokers = cluster([broker(7), replace(broker(8, migrating=False), fenced=True)], [])
    image = replace(
        EMPTY_IMAGE, cluster=brokers, features=replace(EMPTY_IMAGE.features, zk_migration_state=record)
    )  # fmt: skip
    return QuorumLook(QuorumSeen(1, seen), image, 98, (), described, AT)


def test_ages_are_those_of_the_leaders_clock_and_a_voter_that_it_never_heard_is_named() -> None:
    status = status_of(look(), known_ms=12_000, time_ms=5)
    assert [(voter.heard_ms_ago, voter.silent_ms) for voter in status.quorum.voters] == [
        (-1, 12_000), (400, 400), (-1, 12_000)
    ]  # fmt: skip
    assert [voter.node_id for voter in silent_voters(status)] == [3]
    table = page_of(Answers(status, status)).tables[0]
    assert table.columns == ("voter", "address", "last heard", "log end", "migration")
    assert [cells[2] for cells in table.rows] == ["leads", "now", "not for 12 s"]
    assert table.rows[2] == ("3", "host-3:9093", "not for 12 s", "97", "not known")


def test_a_leader_that_is_seen_for_the_first_time_has_no_silent_voters() -> None:
    status = status_of(look(), known_ms=0, time_ms=5)
    assert problems_of(Answers(status, status)) == ()


@pytest.mark.parametrize(
    ("record", "public", "internal"),
    [
        (ZkMigrationState.NONE, "MigrationIneligible", "nothing to migrate"),
        (ZkMigrationState.PRE_MIGRATION, "MigrationIneligible", "waiting for brokers"),
        (ZkMigrationState.MIGRATION, "DualWrite", "dual-writing"),
        (ZkMigrationState.POST_MIGRATION, "Finished", "finished"),
    ],
)
def test_the_record_of_the_log_says_the_state_and_nobody_says_since_when(
    record: ZkMigrationState, public: str, internal: str
) -> None:
    status = status_of(look(record), known_ms=0, time_ms=5)
    page = page_of(Answers(status, status))
    assert (page.state, page.headline[0]) == (public, f"({internal})")


def test_brokers_are_those_of_the_log() -> None:
    status = status_of(look(), known_ms=0, time_ms=5)
    assert [(each.broker_id, each.state, each.in_zookeeper_mode) for each in status.brokers] == [
        (7, BrokerState.RUNNING, True), (8, BrokerState.FENCED, False)
    ]  # fmt: skip


def test_while_nobody_leads_it_says_who_answers() -> None:
    seen = look().seen
    assert seen is not None
    leaderless = QuorumLook(replace(seen, leader_id=None), None, 98, ("no controller leads the quorum",), None, AT)
    status = status_of(leaderless, known_ms=9_000, time_ms=5)
    assert (status.quorum.leader_id, status.quorum.role, status.is_blank) == (-1, NodeRole.UNATTACHED, True)
    assert [voter.answers for voter in status.quorum.voters] == [True, True, False]
    answers = Answers(status, status)
    assert not answers.has_leader
    assert "no controller leads the quorum" in [problem.what for problem in problems_of(answers)]
