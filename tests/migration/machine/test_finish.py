"""The rules of the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.config.keys import FLAG
from migrator.errors import ExitCode, OperatorError
from migrator.migration.machine.finish import (
    FinishInputs,
    VerdictContext,
    decide,
    decide_before_copy,
    objection,
    refuse_start_with_flag_off,
    zk_mode_brokers,
)
from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import Finding
from migrator.node.migration.verdicts import Verdicts
from migrator.observe.status import VerdictReport
from tests.migration.support.builders import broker, cluster


@pytest.mark.parametrize(
    ("inputs", "finding", "successor", "words"),
    [
        (FinishInputs({1: False, 2: False, 3: False}, ()), Finding.MAY_FINISH, -1, "turned off"),
        (FinishInputs({1: False, 2: True, 3: False}, ()), Finding.WAIT, -1, "controller 2 still has"),
        (FinishInputs({1: False, 2: None, 3: False}, ()), Finding.WAIT, -1, "controller 2 does not answer"),
        (FinishInputs({1: False, 2: False}, (7,)), Finding.WAIT, -1, "brokers 7"),
        (FinishInputs({1: False, 2: True}, (7,), caught_up=(2,)), Finding.HAND_OVER, 2, "brokers 7"),
        (FinishInputs({1: False, 2: True, 3: True}, (7,), caught_up=(1, 3, 2)), Finding.HAND_OVER, 3, "controller 3"),
        (FinishInputs({1: False, 2: None}, (7,), caught_up=(2,)), Finding.WAIT, -1, "brokers 7"),
        (
            FinishInputs({1: False, 2: False}, (), different=frozenset({2})),
            Finding.WAIT,
            -1,
            "metadata of controller 2",
        ),
        (FinishInputs({1: False}, (), verified=False), Finding.WAIT, -1, "verification"),
        (FinishInputs({1: False}, (), verified=True), Finding.MAY_FINISH, -1, "turned off"),
    ],
)
def test_what_a_leader_with_the_flag_off_does(
    inputs: FinishInputs, finding: Finding, successor: int, words: str
) -> None:
    decision = decide(inputs)
    assert (decision.finding, decision.successor) == (finding, successor)
    assert words in decision.reason


@pytest.mark.parametrize(
    ("inputs", "finding", "successor"),
    [
        (FinishInputs({1: False, 2: True}, (), caught_up=(2,)), Finding.HAND_OVER, 2),
        (FinishInputs({1: False, 2: True}, ()), Finding.WAIT, -1),
        (FinishInputs({1: False, 2: False}, (), caught_up=(2,)), Finding.MAY_FINISH, -1),
        (FinishInputs({1: False, 2: False}, (), verified=False), Finding.MAY_FINISH, -1),
    ],
)
def test_what_was_reopened_ends_again_only_when_the_flag_is_off_everywhere(
    inputs: FinishInputs, finding: Finding, successor: int
) -> None:
    """Before, a leader whose flag is off hands over: otherwise it would wait for the others to turn theirs off."""
    decision = decide(inputs, reopened=True)
    assert (decision.finding, decision.successor) == (finding, successor)


@pytest.mark.parametrize(
    ("inputs", "left_out", "finding", "command"),
    [
        (FinishInputs({1: False, 2: None}, ()), {}, Finding.WAIT, "--without 2"),
        (FinishInputs({1: False, 2: None}, ()), {2}, Finding.MAY_FINISH, None),
        (FinishInputs({1: False, 2: None, 3: None}, ()), {2}, Finding.WAIT, "--without 3"),
        (FinishInputs({1: False, 2: None}, (), fetching=frozenset({2})), {2}, Finding.WAIT, None),
        (FinishInputs({1: False, 2: True}, ()), {2}, Finding.WAIT, None),
        (FinishInputs({1: False, 2: None}, (7,)), {2, 7}, Finding.WAIT, None),
        (FinishInputs({1: False, 2: None}, (), different=frozenset({2})), {2}, Finding.MAY_FINISH, None),
        (FinishInputs({1: False, 2: None}, (), verified=False), {2}, Finding.WAIT, None),
    ],
)
def test_a_voter_that_is_left_out_counts_only_if_it_shows_life(
    inputs: FinishInputs, left_out: set[int], finding: Finding, command: str | None
) -> None:
    """The command is named only for a voter that does not. Nothing else that delays the end is overridden."""
    decision = decide(inputs, frozenset(left_out))
    assert decision.finding is finding
    assert ("--without" in decision.remedy) is (command is not None)
    assert command is None or command in decision.remedy
    assert ("the operator has left out: controller 2" in decision.reason) is (finding is Finding.MAY_FINISH)


@pytest.mark.parametrize(
    ("inputs", "finding", "successor", "words"),
    [
        (FinishInputs({1: False, 2: False, 3: None}, ()), Finding.WAIT, -1, "off on controllers 1, 2"),
        (
            FinishInputs({1: False, 2: True}, (7,), caught_up=(2,)),
            Finding.HAND_OVER,
            2,
            "controller 2, which has it on",
        ),
        (FinishInputs({1: False, 2: True}, (7,), caught_up=()), Finding.WAIT, -1, "off on controller 1"),
    ],
)
def test_what_a_leader_with_the_flag_off_does_before_the_copy(
    inputs: FinishInputs, finding: Finding, successor: int, words: str
) -> None:
    decision = decide_before_copy(inputs)
    assert (decision.finding, decision.successor) == (finding, successor)
    assert words in decision.reason
    assert FLAG in decision.remedy


def test_a_node_does_not_start_with_the_flag_off_while_zookeeper_brokers_are_registered() -> None:
    left = zk_mode_brokers(cluster([broker(2), broker(1), broker(3, migrating=False)], []))
    assert left == (1, 2)
    with pytest.raises(OperatorError, match="brokers 1, 2 are still in ZooKeeper mode") as refusal:
        refuse_start_with_flag_off(left, source="the leader, controller 3001,", current=True)
    assert refusal.value.exit_code == ExitCode.REFUSED
    refuse_start_with_flag_off((), source="the leader", current=True)


REPORT = VerdictReport("cluster", 5, 900, 4, 0x17, equal=True, differences=0)
STANDING = VerdictContext("cluster", 5, State.FINISHING, 4)


@pytest.mark.parametrize(
    ("report", "standing", "words"),
    [
        (REPORT, STANDING, ""),
        (REPORT, replace(STANDING, state=State.STEPPING_DOWN), ""),
        (replace(REPORT, cluster_id="other"), STANDING, "of cluster other"),
        (replace(REPORT, equal=False, differences=3), STANDING, "differ in 3 rows"),
        (REPORT, replace(STANDING, state=State.DUAL_WRITING), "dual-writing"),
        (REPORT, replace(STANDING, state=State.INACTIVE), "inactive"),
        (REPORT, replace(STANDING, leader_epoch=6), "began in leader epoch 5, this is epoch 6"),
        (REPORT, replace(STANDING, offset_epoch=3), "does not hold offset 900 with epoch 4"),
        (REPORT, replace(STANDING, offset_epoch=None), "does not hold offset 900"),
    ],
)
def test_which_verdict_counts(report: VerdictReport, standing: VerdictContext, words: str) -> None:
    against = objection(report, standing)
    assert bool(against) == bool(words)
    assert words in against


def test_only_the_newest_verdict_counts_and_only_in_its_epoch() -> None:
    verdicts = Verdicts()
    assert (verdicts.last(5), verdicts.cover(5)) == (-1, False)
    assert verdicts.take(REPORT, STANDING).counts
    assert verdicts.cover(5)
    assert not verdicts.cover(6)
    assert not verdicts.cover(None)
    assert not verdicts.take(replace(REPORT, equal=False), STANDING).counts
    assert (verdicts.last(5), verdicts.cover(5)) == (0, False)
    assert (verdicts.last(6), verdicts.last(None)) == (-1, -1)
