"""The text of `migrator status`, from given answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.machine.states import PublicState, State
from migrator.observe.printable import duration, number_ranges
from migrator.observe.problem_groups import groups_of
from migrator.observe.status import BrokerState, BrokerStatus, JournalEvent, Problem, WriteBehindStatus, silent_voters
from migrator.observe.status_page import Answers, Unreached, change_line, page_of, problems_of
from tests.observe.support.statuses import a_status, zookeeper_brokers

UNREGISTERED = "it runs, but has not registered"


def headline(answers: Answers) -> str:
    return "\n".join(page_of(answers).headline)


def test_a_voter_that_is_silent_is_named_with_how_long() -> None:
    status = a_status(heard={3002: 12_400, 3003: 500})
    assert [voter.node_id for voter in silent_voters(status)] == [3002]
    page = page_of(Answers(status, status))
    assert [row[2] for row in page.tables[0].rows] == ["leads", "12 s ago", "now"]
    (group,) = page.groups
    assert group.lines == ("controller 3002: last heard 12 s ago. Start it, or look at its log and at the network",)


def test_a_leader_that_was_just_elected_does_not_alarm() -> None:
    status = a_status(unheard={3002: 900})
    page = page_of(Answers(status, status))
    assert page.tables[0].rows[1][2] == "not by this leader"
    assert not page.groups


def test_a_voter_that_no_leader_since_the_election_has_heard_is_named() -> None:
    """Else a controller that died with the last leader was never missed."""
    status = a_status(unheard={3002: 12_400})
    assert [voter.node_id for voter in silent_voters(status)] == [3002]
    page = page_of(Answers(status, status))
    assert page.tables[0].rows[1][2] == "not for 12 s"
    (group,) = page.groups
    (line,) = group.lines
    assert line.startswith("controller 3002: not heard since the leader was elected 12 s ago. Start it")
    assert change_line(Answers(status, status)).endswith("; controller 3002: it is silent")


def test_a_broker_that_this_leader_never_heard_has_a_silence_of_its_own() -> None:
    dead = BrokerStatus(1, BrokerState.RUNNING, 1, in_zookeeper_mode=True, silent_ms=8_000)
    brokers = (dead, replace(dead, broker_id=2, silent_ms=100), replace(dead, broker_id=3, graced=True))
    status = a_status(brokers=brokers)
    rows = page_of(Answers(status, status)).tables[1].rows
    assert [row[3] for row in rows] == ["not for 8 s", "not by this leader", "not for 8 s, but answers"]


def test_a_follower_that_is_asked_gives_way_to_the_leader() -> None:
    leader, follower = a_status(), a_status(State.INACTIVE, node=3002)
    text = headline(Answers(leader, follower, others=(follower,)))
    assert text.startswith("(dual-writing for 7 s)")
    assert "controller 3002 does not lead; this is what controller 3001 says, which leads" in text


def test_a_follower_alone_says_whom_to_ask_and_no_age() -> None:
    follower = a_status(State.INACTIVE, node=3002, public=PublicState.DUAL_WRITE)
    answers = Answers(follower, follower)
    assert page_of(answers).state == "DualWrite"
    text = headline(answers)
    assert "as controller 3002 knows it, which follows controller 3001" in text
    assert "run this command on host-3001" in text
    assert "for 0 s" not in text
    assert page_of(answers).tables[0].columns == ("voter", "address"), "nothing that a follower does not know"


def test_a_leader_on_this_machine_is_asked_with_its_own_file() -> None:
    follower = a_status(State.INACTIVE, node=3002, public=PublicState.DUAL_WRITE)
    assert "run this command on host-3001 with the property file of controller 3001, or" in headline(
        Answers(follower, follower)
    )
    voters = tuple(replace(voter, host="127.0.0.1") for voter in follower.quorum.voters)
    here = replace(follower, quorum=replace(follower.quorum, voters=voters))
    assert "run this command with the property file of controller 3001, or" in headline(Answers(here, here))


def test_a_cluster_of_kraft_shows_nothing_of_a_migration() -> None:
    status = a_status(State.NOTHING_TO_MIGRATE)
    page = page_of(Answers(status, status))
    assert page.headline[0].startswith("(nothing to migrate for 7 s)")
    assert page.tables[0].columns == ("voter", "address", "last heard", "log end")


def test_a_controller_that_is_down_is_named_before_the_view_of_another() -> None:
    leader = a_status()
    text = headline(Answers(leader, None, unreached=(Unreached("/data/2", "the controller does not answer"),)))
    assert "/data/2: the controller does not answer" in text
    assert "this is what controller 3001 says, which leads" in text


def test_without_a_leader_it_shows_who_answers() -> None:
    status = a_status(State.INACTIVE, leader=-1, answers={3001: True, 3002: False})
    page = page_of(Answers(status, status))
    assert page.tables[0].columns == ("voter", "address", "answers")
    assert [row[2] for row in page.tables[0].rows] == ["yes", "no", "not asked"]
    assert "no controller leads" in change_line(Answers(status, status))


def test_an_empty_image_is_not_shown_as_the_truth() -> None:
    status = a_status(State.INACTIVE, leader=-1, is_blank=True)
    page = page_of(Answers(status, status))
    assert page.state == "Unknown"
    assert "no controller has been elected yet" in page.headline[0]
    assert "metadata.version" not in "".join(page.headline)
    assert "MigrationIneligible" not in change_line(Answers(status, status))


def test_a_node_that_loads_its_metadata_does_not_speak_of_a_first_election() -> None:
    status = a_status(State.INACTIVE, leader=-1, is_blank=True, is_loading=True)
    page = page_of(Answers(status, status))
    assert page.state == "Unknown"
    assert "no controller leads; this one knows no metadata yet" in page.headline[0]
    assert "before the first election" not in "".join(page.headline)


def test_directories_of_different_versions_are_named_before_the_first_election() -> None:
    mine = a_status(State.INACTIVE, leader=-1, is_blank=True)
    other = a_status(State.INACTIVE, node=3002, leader=-1, is_blank=True, formatted="3.7-IV4")
    third = a_status(State.INACTIVE, node=3003, leader=-1, is_blank=True)
    (problem,) = problems_of(Answers(mine, mine, others=(other, third)))
    assert "controller 3002 with 3.7-IV4; controllers 3001, 3003 with 3.9-IV0" in problem.what
    assert "--release-version" in problem.remedy
    assert problems_of(Answers(mine, mine, others=(third,))) == ()


def test_what_others_say_of_themselves_is_added() -> None:
    full = Problem("controller 3002", "its log refuses new records", "Free space", warning=True)
    apart = a_status(State.INACTIVE, node=3003, leader=-1)
    others = (a_status(State.INACTIVE, node=3002, problems=(full, Problem("migration", "old", ""))), apart)
    found = problems_of(Answers(a_status(), None, others=others))
    assert [problem.who for problem in found] == ["controller 3002", "controller 3003"]
    assert found[0] is full
    assert "hears no leader, while controller 3001 leads" in found[1].what


def test_what_is_out_of_reach_is_not_said_to_hold_everything() -> None:
    status = replace(a_status(), write_behind=WriteBehindStatus(0, 0, 0, 9))
    assert "ZooKeeper holds everything that the log holds" in headline(Answers(status, status))
    away = replace(status, problems=(Problem("ZooKeeper", "it is out of reach", "Start it"),))
    assert "nothing waits to be written to ZooKeeper, which has a problem" in headline(Answers(away, away))


def test_problems_are_grouped_by_remedy() -> None:
    problems = [Problem(f"broker {number}", UNREGISTERED, "Restart it.") for number in (1, 2, 3, 7)]
    problems += [
        Problem("broker 4", "it is offline", "Restart it."),
        Problem("controller 3002", "x", "y", warning=True),
    ]
    assert [group.lines for group in groups_of(reversed(problems))] == [
        (
            "broker 4: it is offline",
            "brokers 1-3, 7: each runs, but has not registered",
            "  for all of them: Restart it",
        ),
        ("controller 3002: x. y",),
    ]


def test_numbers_are_ranges() -> None:
    assert number_ranges("broker", [3]) == "broker 3"
    assert number_ranges("broker", [3, 1]) == "brokers 1, 3"
    assert number_ranges("broker", [5, 1, 2, 3, 9, 10]) == "brokers 1-3, 5, 9, 10"


def test_transitions_have_times() -> None:
    status = a_status(events=(JournalEvent(1, 1_700_000_000_000, "transition", "takes /controller"),))
    assert page_of(Answers(status, status)).events == ("2023-11-14 22:13:20Z transition: takes /controller",)


def test_no_column_that_alarms_for_nothing() -> None:
    finished = a_status(State.FINISHED, off=(3001, 3002, 3003), brokers=zookeeper_brokers((), (1,)))
    page = page_of(Answers(finished, finished))
    assert "migration" not in page.tables[0].columns
    assert not page.groups


def test_a_change_is_a_line_and_ages_are_no_change() -> None:
    brokers = zookeeper_brokers((1, 2, 3), ())
    for ages in ((100, 1_100), (5_000, 6_000)):
        lines = {change_line(Answers(seen, seen)) for age in ages for seen in [a_status(heard={3002: age})]}
        assert len(lines) == 1
    one = a_status(brokers=brokers)
    assert change_line(Answers(one, one)) == "DualWrite (dual-writing), controller 3001 leads; brokers 1-3 Running"


def test_durations() -> None:
    assert [duration(ms) for ms in (0, 59_999, 61_000, 3_660_000)] == ["0 s", "59 s", "1 min 1 s", "1 h 1 min"]


@pytest.mark.parametrize(("in_zookeeper", "phase"), [(True, "HYBRID_DUAL_WRITE"), (False, "PURE_DUAL_WRITE")])
def test_the_leader_says_its_state_in_kafkas_words_too(in_zookeeper: bool, phase: str) -> None:
    broker = BrokerStatus(1, BrokerState.RUNNING, 1, in_zookeeper_mode=in_zookeeper, silent_ms=100)
    status = a_status(brokers=(broker,))
    assert f"in Kafka's words: {phase}, DUAL_WRITE" in headline(Answers(status, status))
    follower = a_status(State.INACTIVE, node=3002, public=PublicState.DUAL_WRITE)
    assert "Kafka's words" not in headline(Answers(follower, follower))
