"""Which step comes next, for everything that can be seen."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from migrator.handover.plan import (
    Action,
    HandoverStep,
    LocalNode,
    MetadataDirectory,
    WantedHandover,
    Way,
    choose,
    migration_seen,
    next_step,
)
from migrator.records.versions import version_at
from migrator.rollout.ports import Observation
from migrator.rollout.target_release import GONE_IN_4, parse_target
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen

OURS, STOCK, AWAY = ControllerProgram.MIGRATOR, ControllerProgram.STOCK, None
LEVEL = 21
ROLLING = WantedHandover(parse_target("3.9.1"), Way.ROLLING)
BY_DIRECTORY = WantedHandover(parse_target("4.1.0"), Way.DIRECTORY)
HELD = MetadataDirectory(formatted=True, holds_log=True, finished=True, level=LEVEL)
EMPTY = MetadataDirectory(formatted=True)


def quorum(
    *programs: ControllerProgram | None,
    leader: int | None = 1,
    lags: tuple[int, ...] = (),
    finished: bool | None = True,
) -> Observation:
    """Voters 1, 2, ...; who answers has everything unless ``lags`` says otherwise."""
    voters = {
        number: ControllerSeen(
            number, program, lag_records=lags[number - 1] if lags else (-1 if program is None else 0)
        )
        for number, program in enumerate(programs, 1)
    }
    return Observation(
        quorum=QuorumSeen(leader, voters, ""),
        migration=None if finished is None else migration_seen(is_over=finished),
        metadata_version="" if finished is None else version_at(LEVEL).name,
    )


def step(
    seen: Observation,
    wanted: WantedHandover = ROLLING,
    *,
    node: int = 2,
    directory: MetadataDirectory = HELD,
    written: bool = True,
) -> HandoverStep:
    assert seen.quorum is not None
    in_use = seen.quorum.voters[node].program is not None
    return next_step(LocalNode(node, MetadataDirectory(in_use=True) if in_use else directory, written), seen, wanted)


def reassigned(target: str | None) -> Observation:
    """Three voters of ours, with a target of a reassignment."""
    seen = quorum(OURS, OURS, OURS)
    assert seen.quorum is not None
    return replace(seen, quorum=replace(seen.quorum, target=target))


def test_the_way_of_one_voter() -> None:
    assert step(quorum(OURS, OURS, OURS), written=False).action is Action.WRITE_FILE
    assert step(quorum(OURS, OURS, OURS)).action is Action.STOP
    assert step(quorum(OURS, AWAY, OURS), directory=MetadataDirectory(in_use=True)).action is Action.WAIT
    assert step(quorum(OURS, AWAY, OURS)).action is Action.START
    assert step(quorum(OURS, STOCK, OURS, lags=(0, 60, 0))).action is Action.WAIT
    assert step(quorum(OURS, STOCK, OURS)).action is Action.DONE


@pytest.mark.parametrize("wanted", [ROLLING, BY_DIRECTORY])
def test_nothing_is_begun_while_the_voters_are_reassigned(wanted: WantedHandover) -> None:
    found = step(reassigned("4,5,6"), wanted)
    assert found.action is Action.REFUSE
    assert "to 4,5,6 is under way" in found.why


@pytest.mark.parametrize("wanted", [ROLLING, BY_DIRECTORY])
def test_nothing_is_stopped_while_nobody_says_whether_the_voters_are_reassigned(wanted: WantedHandover) -> None:
    found = step(reassigned(None), wanted)
    assert found.action is Action.WAIT
    assert "being reassigned" in found.why


@pytest.mark.parametrize("wanted", [ROLLING, BY_DIRECTORY])
@pytest.mark.parametrize("programs", list(itertools.product((OURS, STOCK, AWAY), repeat=3)))
def test_nothing_is_begun_before_the_end_of_the_migration(
    programs: tuple[ControllerProgram | None, ...], wanted: WantedHandover
) -> None:
    assert step(quorum(*programs, finished=False), wanted).action is Action.REFUSE
    assert "not finished" in step(quorum(*programs, finished=False), wanted).why


@pytest.mark.parametrize(
    "seen",
    [
        quorum(OURS, OURS, AWAY),
        quorum(STOCK, OURS, OURS, lags=(60, 0, 0), leader=3),
        quorum(OURS, OURS, OURS, leader=None),
    ],
)
def test_no_voter_is_stopped_while_another_is_missed(seen: Observation) -> None:
    found = step(seen)
    assert found.action is Action.WAIT
    assert found.remedy


def test_who_is_down_is_started_whoever_else_is_down() -> None:
    assert step(quorum(AWAY, AWAY, OURS, leader=None, finished=None)).action is Action.START


def test_an_empty_directory_needs_all_the_others() -> None:
    for empty in (EMPTY, MetadataDirectory()):
        for behind in (quorum(OURS, AWAY, AWAY), quorum(OURS, AWAY, STOCK, lags=(0, -1, 1))):
            assert step(behind, directory=empty).action is Action.WAIT
        assert step(quorum(OURS, AWAY, OURS, leader=None), directory=empty).action is Action.WAIT
    assert step(quorum(OURS, AWAY, STOCK), directory=MetadataDirectory()).action is Action.FORMAT
    assert step(quorum(OURS, AWAY, STOCK), directory=EMPTY).action is Action.START


@pytest.mark.parametrize("empty", [EMPTY, MetadataDirectory()])
def test_an_empty_directory_waits_until_the_metadata_are_read(empty: MetadataDirectory) -> None:
    """A leader was found, but reading its log failed: so migration and metadata.version are unknown."""
    found = step(quorum(OURS, AWAY, STOCK, finished=None), directory=empty)
    assert found.action is Action.WAIT
    assert "whether the migration is finished" in found.why


def test_by_directory_nobody_starts_before_all_of_ours_are_stopped() -> None:
    assert step(quorum(OURS, OURS, AWAY), BY_DIRECTORY).action is Action.STOP
    assert step(quorum(OURS, AWAY, AWAY, leader=None), BY_DIRECTORY).action is Action.WAIT
    assert step(quorum(STOCK, AWAY, AWAY, leader=None, finished=None), BY_DIRECTORY).action is Action.START
    unknown = MetadataDirectory(formatted=True, holds_log=True, finished=False, level=LEVEL)
    alone = quorum(AWAY, AWAY, AWAY, leader=None, finished=None)
    assert step(alone, BY_DIRECTORY, directory=unknown).action is Action.REFUSE
    assert step(quorum(STOCK, STOCK, STOCK, leader=None), BY_DIRECTORY).action is Action.WAIT


def test_the_last_of_ours_says_itself_that_the_migration_is_finished() -> None:
    """When the others are stopped already nobody leads who could be asked."""
    seen = quorum(AWAY, OURS, AWAY, leader=None, finished=None)
    said = next_step(LocalNode(2, MetadataDirectory(in_use=True, finished=True), file_written=True), seen, BY_DIRECTORY)
    silent = next_step(LocalNode(2, MetadataDirectory(in_use=True), file_written=True), seen, BY_DIRECTORY)
    assert (said.action, silent.action) == (Action.STOP, Action.WAIT)


def test_releases() -> None:
    assert step(quorum(OURS, OURS, OURS), WantedHandover(parse_target("4.1.0"), Way.ROLLING)).action is Action.REFUSE
    old = replace(quorum(OURS, OURS, OURS), metadata_version=version_at(6).name)
    assert step(old, BY_DIRECTORY).action is Action.REFUSE
    assert "3.3-IV2" in step(old, BY_DIRECTORY).why
    assert step(old).action is Action.STOP
    for text in ("3.8.1", "5.0", "latest", ""):
        with pytest.raises(ValueError, match="not a release"):
            parse_target(text)
    assert parse_target("4.1.0").drops("zookeeper.connect")
    assert not parse_target("3.9.1").drops("inter.broker.protocol.version")
    assert all(map(parse_target("4.1.0").drops, GONE_IN_4))


def test_who_leads_is_stopped_last_and_who_is_down_comes_first() -> None:
    stops = [HandoverStep(node, Action.STOP) for node in (1, 2, 3)]
    assert choose(stops, (), 1, Way.ROLLING) == stops[1]
    assert choose(stops, (), 1, Way.ROLLING, first=3) == stops[2]
    assert choose([stops[0], HandoverStep(3, Action.START)], (), 1, Way.ROLLING) == HandoverStep(3, Action.START)
    refused = HandoverStep(3, Action.REFUSE)
    assert choose([stops[0], refused], (), 1, Way.ROLLING) == refused
    assert choose(stops[:1], (), 1, Way.ROLLING) == stops[0]


def test_nothing_else_is_done_while_a_step_does_not_show() -> None:
    stops = [HandoverStep(node, Action.STOP) for node in (1, 2, 3)]
    assert choose(stops, (2,), 1, Way.ROLLING) is None
    assert choose(stops, (2,), 1, Way.DIRECTORY) == stops[2]
    assert choose(stops, (1, 2, 3), 1, Way.DIRECTORY) is None
