"""Options of `migrator rollout` that cannot be meant: refused before anything is begun. A yes that is kept at once."""

from __future__ import annotations

import json

import pytest

from migrator.errors import ExitCode, OperatorError
from migrator.rollout.journal.journal import Event, read_journal
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model_pieces import DUAL_WRITE
from tests.rollout.test_commands import Desk, desk
from tests.rollout.test_reports import ASKS

__all__ = ["desk"]

WRONG = [
    ("--pause-after nosuch", "there is no step nosuch"),
    ("--pause-after nosuch --canary broker-2", "there is no step nosuch"),
    ("--pause-after nosuch --until DualWrite", "there is no step nosuch"),
    ("--pause-after leave-kraft/broker-1", "there is no step leave-kraft/broker-1"),
    ("--canary broker-9 --pause-after kraft/broker-2", "there is no broker broker-9"),
    ("--until nosuch --canary broker-2", "there is no state nosuch"),
    ("--without-node broker-9 --reason disk", "there is no node broker-9"),
    ("--without-node broker-2 --reason disk --pause-after kraft/broker-2", "there is no step kraft/broker-2"),
    ("--without-node broker-2 --reason disk --canary broker-2", "there is no broker broker-2"),
    ("--with-node broker-2", "broker-2 is not left out"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_mistyped_option_begins_nothing(desk: Desk, options: str, message: str) -> None:
    assert message in desk.refused(f"apply {options}")
    assert not desk.state.exists()
    assert desk.lock.owner is None


@pytest.mark.parametrize(("options", "message"), [each for each in WRONG if "--canary" not in each[0]])
def test_a_mistyped_option_changes_nothing_of_what_is_under_way(desk: Desk, options: str, message: str) -> None:
    desk.printed("apply --until MigrationIneligible")
    journal = desk.printed("history")
    assert message in desk.refused(f"apply {options}")
    assert message in desk.refused(f"resume {options}")
    assert desk.printed("history") == journal


def test_a_mistyped_step_of_the_way_back_changes_nothing(desk: Desk) -> None:
    desk.printed("apply --until kraft")
    desk.cluster.exit_codes["rollback"] = 2
    desk.refused("rollback --yes")
    journal = desk.printed("history")
    assert "there is no step kraft/broker-1" in desk.refused("resume --pause-after kraft/broker-1")
    assert desk.printed("history") == journal


def test_another_canary_is_taken_as_long_as_nothing_was_changed(desk: Desk) -> None:
    desk.cluster.exit_codes["preflight"] = 1
    desk.refused("apply --canary broker-3")
    refused = desk.refused("apply")
    assert "preflight has found blockers" in refused
    assert "keys of 'brokers.settings' in the inventory" in refused, "the files do not have them yet"
    rollout = progress_of(read_journal(desk.state)).rollout
    desk.cluster.exit_codes.clear()
    assert "it waits after this step" in desk.printed("apply --canary broker-2")
    assert [name for name, mode in desk.cluster.modes().items() if mode is BrokerMode.MIGRATING] == ["broker-2"]
    assert desk.lock.owner is not None
    assert desk.lock.owner.rollout == rollout
    assert "has the canary broker-2" in desk.refused("apply --canary broker-3")
    assert "the rollout is complete" in desk.printed("apply --canary 2 --yes") + desk.printed("resume --yes")


class KilledError(BaseException):
    """As the kernel ends a process."""


@pytest.mark.parametrize("words", ["rollback --yes", "rollback"])
def test_a_yes_to_the_way_back_is_kept_before_anything_else(
    desk: Desk, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed as its first line is shown, or right behind the answer."""
    desk.printed("apply --until kraft")
    agreed = "--yes" in words

    def shows(_: str) -> None:
        if agreed:
            raise KilledError

    def answers(*_: object, **__: object) -> bool:
        nonlocal agreed
        agreed = True
        return True

    observe = desk.cluster.observe

    async def looks(*, partitions: bool = True) -> object:
        if agreed and "--yes" not in words:
            raise KilledError
        return await observe(partitions=partitions)

    with monkeypatch.context() as patched:
        patched.setattr("migrator.cli.rollout.say", shows)
        patched.setattr("migrator.cli.rollout.ask", answers)
        patched.setattr(desk.cluster, "observe", looks)
        with pytest.raises(KilledError):
            desk.type(words)
    assert [entry.event for entry in read_journal(desk.state)].count(Event.TURNED) == 1
    desk.printed("resume --yes")
    assert set(desk.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


def test_a_no_to_the_way_back_is_not_kept(desk: Desk) -> None:
    desk.printed("apply --until kraft")
    journal = desk.printed("history")
    assert desk.type("rollback", answer="n\n").exit_code == 1
    assert desk.printed("history") == journal


def test_an_operator_decides_about_warnings_of_preflight_at_the_terminal(desk: Desk) -> None:
    """Without an answer and after a no, the next command asks again."""
    desk.cluster.prints["preflight"] = json.dumps(ASKS)
    unanswered = desk.refused("apply")
    assert "the question has no answer" in unanswered
    assert "'migrator rollout resume --until preflight --yes'" in unanswered
    said = desk.printed("status", exit_code=1)
    assert "do: 'migrator rollout resume' goes on" in said
    assert "failed" not in said
    refused = desk.type("resume", answer="n\n")
    assert isinstance(refused.exception, OperatorError)
    assert (refused.exception.what, refused.exception.exit_code) == (
        "the answer was no, so the rollout ends before its first step",
        ExitCode.DIFFERENT,
    )
    assert "Warnings of preflight that you decide about: 1 (DECIDE, above). Go on?" in refused.output
    assert "it is as far as was asked for" in desk.printed("resume --until preflight --yes")
    assert "the question has no answer" in desk.refused("resume")
    assert desk.cluster.state == DUAL_WRITE
