"""The log lines of Kafka's driver that runbooks look for: when they come, and that Kafka writes them so."""

from __future__ import annotations

import itertools
import logging
import re
import zipfile

import pytest

from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import TRANSITIONS
from migrator.node.migration.kafka_log import COMPLETED, DRIVER_STATES, ENTERING, STAYING, UNDER_WAY, KafkaLog
from migrator.parts.kafka import KafkaRelease
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState

AT = EpochOffset(7, 1234)
COPY = (
    State.INACTIVE,
    State.EXAMINING,
    State.WAITING_FOR_CONTROLLERS,
    State.WAITING_FOR_BROKERS,
    State.DECODING,
    State.EXAMINING,
    State.CLAIMING,
    State.COPYING,
    State.COMMITTING,
    State.RECONCILING,
    State.INFORMING_BROKERS,
    State.DUAL_WRITING,
)
DRIVER = "kafka-metadata-3.9.1.jar", "org/apache/kafka/metadata/migration/KRaftMigrationDriver"
ACTIVATION = "kafka-metadata-3.9.1.jar", "org/apache/kafka/controller/ActivationRecordsGenerator"


def said(caplog: pytest.LogCaptureFixture, path: tuple[State, ...], record: ZkMigrationState) -> list[str]:
    """The lines that are logged on the way."""
    kafka = KafkaLog(3000)
    with caplog.at_level(logging.INFO):
        for before, after in itertools.pairwise(path):
            kafka.entered(before, after, record, AT)
    return [line.getMessage() for line in caplog.records]


def test_a_copy_is_told_as_kafka_tells_it(caplog: pytest.LogCaptureFixture) -> None:
    where = "The current metadata offset is now 1234 with an epoch of 7."
    expected = [
        "3000 transitioning from INACTIVE to WAIT_FOR_CONTROLLER_QUORUM state",
        "Controller Quorum is ready for Zk to KRaft migration. Now waiting for ZK brokers.",
        "3000 transitioning from WAIT_FOR_CONTROLLER_QUORUM to WAIT_FOR_BROKERS state",
        "Zk brokers are registered and ready for migration",
        "3000 transitioning from WAIT_FOR_BROKERS to BECOME_CONTROLLER state",
        "Starting ZK migration",
        "3000 transitioning from BECOME_CONTROLLER to ZK_MIGRATION state",
        f"Completed migration of metadata from Zookeeper to KRaft. {where}",
        f"Completed migration of metadata from ZooKeeper to KRaft. {where}",
        "Finished initial migration of ZK metadata to KRaft",
        "Performing a full metadata sync from KRaft to ZK.",
        "3000 transitioning from ZK_MIGRATION to SYNC_KRAFT_TO_ZK state",
        "3000 transitioning from SYNC_KRAFT_TO_ZK to KRAFT_CONTROLLER_TO_BROKER_COMM state",
        "3000 transitioning from KRAFT_CONTROLLER_TO_BROKER_COMM to DUAL_WRITE state",
    ]
    lines = said(caplog, COPY, ZkMigrationState.PRE_MIGRATION)
    assert lines == [f"[KRaftMigrationDriver id=3000] {line}" for line in expected]


def test_a_new_leader_in_dual_write_says_that_it_stays_and_an_ended_copy_is_not_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = (State.INACTIVE, State.EXAMINING, State.CLAIMING, State.RECONCILING)
    text = "\n".join(said(caplog, path, ZkMigrationState.MIGRATION))
    assert STAYING in text
    assert UNDER_WAY in text
    assert "Completed migration" not in text


@pytest.mark.parametrize(("state", "lines"), ENTERING.items(), ids=[state.name for state in ENTERING])
def test_every_line_belongs_to_a_state_that_is_reached(state: State, lines: tuple[str, ...]) -> None:
    assert state in {after for ways in TRANSITIONS.values() for after in ways.values()}
    assert lines


def test_a_state_that_lasts_says_its_line_once(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, (State.COPYING, State.COPYING), ZkMigrationState.PRE_MIGRATION)[1:] == []


def test_the_record_is_told_in_the_words_of_both_releases(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        KafkaLog(1).replayed(ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)
    assert "Transitioning ZK migration state from PRE_MIGRATION to MIGRATION" in caplog.text
    assert (
        "Replayed a ZkMigrationStateRecord changing the migration state from PRE_MIGRATION to MIGRATION." in caplog.text
    )


@pytest.mark.lane("test-all")
def test_kafka_3_9_has_these_very_words() -> None:
    """In the classes of the release; a text there has {} where a value goes."""
    driver, activation = constants(*DRIVER), constants(*ACTIVATION)
    for state, lines in ENTERING.items():
        for line in lines:
            assert has(activation if state is State.COMPLETING else driver, line), line
    assert has(activation, STAYING)
    assert UNDER_WAY in driver
    assert COMPLETED.format("ZooKeeper") in driver
    states = constants(DRIVER[0], "org/apache/kafka/metadata/migration/MigrationDriverState")
    assert set(DRIVER_STATES.values()) <= set(re.findall(r"[A-Z_]{5,}", states))


def constants(jar: str, name: str) -> str:
    """The bytes of a class and of those inside it, as text."""
    with zipfile.ZipFile(KafkaRelease("3.9.1").fetch().jars / jar) as archive:
        names = [each for each in archive.namelist() if re.fullmatch(rf"{name}(\$\w+)?\.class", each)]
        assert names
        return "".join(archive.read(each).decode("latin-1") for each in names)


def has(texts: str, line: str) -> bool:
    """Whether a class has the line, as one text or as two that it puts together."""
    return any(line[:cut] in texts and line[cut:].removesuffix(".") in texts for cut in range(len(line)))
