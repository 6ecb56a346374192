"""Which nodes the end may do without."""

from __future__ import annotations

import pytest

from migrator.errors import OperatorError
from migrator.migration.machine.left_out import BrokerToLeaveOut, VoterToLeaveOut, vanished
from migrator.migration.machine.states import State, forceable_in
from migrator.observe.status import Force

GONE_VOTER = VoterToLeaveOut(3002, answers=False, fetches=False)
GONE_BROKER = BrokerToLeaveOut(7, in_zookeeper_mode=True, silent=True, in_zookeeper=False)


def test_what_is_gone_for_good_may_be_left_out() -> None:
    GONE_VOTER.check(State.FINISHING)
    GONE_BROKER.check(State.DUAL_WRITING)
    assert forceable_in(Force.FINISH) == (State.DUAL_WRITING, State.FINISHING)


@pytest.mark.parametrize(
    ("node", "state", "seen"),
    [
        (VoterToLeaveOut(3002, answers=True, fetches=False), State.FINISHING, "controller 3002 answers"),
        (VoterToLeaveOut(3002, answers=False, fetches=True), State.FINISHING, "controller 3002 fetches"),
        (GONE_VOTER, State.DUAL_WRITING, "'dual-writing', and then it does not wait"),
        (GONE_BROKER, State.FINISHING, "'finishing', this controller cannot see"),
        (BrokerToLeaveOut(7, False, True, False), State.DUAL_WRITING, "broker 7 is in KRaft mode"),
        (BrokerToLeaveOut(7, True, False, False), State.DUAL_WRITING, "broker 7 sends heartbeats"),
        (BrokerToLeaveOut(7, True, True, True), State.DUAL_WRITING, "broker 7 runs: /brokers/ids/7 exists"),
    ],
)
def test_a_node_that_shows_life_or_holds_up_nothing_is_refused_with_what_was_seen(
    node: VoterToLeaveOut | BrokerToLeaveOut, state: State, seen: str
) -> None:
    with pytest.raises(OperatorError, match=seen) as refusal:
        node.check(state)
    assert refusal.value.what.startswith("nothing was forced: ")
    assert refusal.value.remedy


def test_the_status_of_a_vanished_broker_names_the_command() -> None:
    assert "migrator force finish --without 7 --reason TEXT" in vanished(7).remedy
