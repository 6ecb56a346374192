"""One screen of `migrator top`, from answers that were given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import BrokerState, BrokerStatus, Problem
from migrator.observe.status_page import Answers
from migrator.observe.top_page import LINES_MAX, ROAD, Rates, StageMark, TopPage, sparkline, top_page_of
from tests.observe.support.statuses import a_status, zookeeper_brokers


def screen(*args: object, **options: object) -> TopPage:
    status = a_status(*args, **options)  # type: ignore[arg-type]
    return top_page_of(Answers(status, status), Rates())


def test_the_road_has_every_public_state_and_no_other() -> None:
    assert tuple(state.label for state in PublicState) == ROAD


@pytest.mark.parametrize("public", list(PublicState))
def test_the_road_shows_where_the_migration_is(public: PublicState) -> None:
    road = screen(public=public).road
    if public is PublicState.FINISHED:
        assert {stage.mark for stage in road} == {StageMark.DONE}
        return
    assert [stage.name for stage in road if stage.mark is StageMark.NOW] == [public.label]
    assert [stage.mark for stage in road] == sorted((stage.mark for stage in road), key=list(StageMark).index)


def test_a_cluster_of_kraft_has_no_road() -> None:
    assert screen(State.NOTHING_TO_MIGRATE).road == ()


def test_three_hundred_brokers_take_a_line_for_each_thing_that_they_do() -> None:
    brokers = list(zookeeper_brokers(tuple(range(1, 200)), tuple(range(200, 301))))
    brokers[41] = BrokerStatus(42, BrokerState.FENCED, 1, in_zookeeper_mode=True, heartbeat_age_ms=20_000)
    table = screen(brokers=tuple(brokers)).brokers
    assert table is not None
    assert table.rows == (
        ("42", "1", "ZooKeeper", "Fenced"),
        ("200-300", "101", "KRaft", "Running"),
        ("1-41, 43-199", "198", "ZooKeeper", "Running"),
    )


def test_a_follower_does_not_claim_to_know_what_brokers_do() -> None:
    follower = a_status(State.INACTIVE, node=3002, brokers=zookeeper_brokers((1, 2), ()))
    table = top_page_of(Answers(follower, follower), Rates()).brokers
    assert table is not None
    assert table.rows == (("1, 2", "2", "ZooKeeper", "not known"),)


def test_what_holds_the_migration_up_is_not_pushed_out_by_warnings() -> None:
    problems = tuple(Problem("topic", f"warning {n}", f"do {n}", warning=True) for n in range(100))
    found = screen(problems=(*problems, Problem("broker 1", "it has not registered", "restart it"))).problems
    assert found[0] == ("broker 1: it has not registered. restart it", False)
    assert len(found) == LINES_MAX
    assert found[-1][0] == "and 90 more lines: see 'migrator status'"


def test_rates_are_shown_when_they_are_known() -> None:
    status = a_status()
    answers = Answers(status, replace(status))
    assert top_page_of(answers, Rates()).rates == ()
    assert top_page_of(answers, Rates(12.4, 7, (0, 5, 10))).rates == (
        "committed: 12 records/s  ▁▅█",
        "ZooKeeper follows: 7 records/s",
    )


def test_a_line_without_figures_is_empty_and_a_quiet_one_is_low() -> None:
    assert sparkline(()) == ""
    assert sparkline((0, 0)) == "▁▁"
