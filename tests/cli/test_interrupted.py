"""Signals that end a command as Ctrl-C does."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest

from migrator.cli.interrupted import LEFT, asked_to_stop, terminated_as_interrupted, what_is_left
from migrator.cli.main import COMMANDS, migrator

READS = {
    "ask",
    *("preflight", "controller", "status", "top", "gates", "log dump", "man", "completion", "handover check"),
    *("quorum describe", "rollout plan", "rollout status", "rollout history", "rollout report", "rollout schema"),
}
""" `controller` ends in good order by itself."""


@contextmanager
def handled(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_is_as_ctrl_c(number: signal.Signals) -> None:
    with handled(number, signal.SIG_DFL):
        with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_goes_away_does_not_interrupt_the_end(first: signal.Signals) -> None:
    """The kernel tells a shell and its jobs, and the shell tells its jobs again."""
    with handled(signal.SIGHUP, signal.SIG_DFL), terminated_as_interrupted():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        signal.raise_signal(signal.SIGHUP)


def test_a_command_under_nohup_goes_on() -> None:
    with handled(signal.SIGHUP, signal.SIG_IGN), terminated_as_interrupted():
        signal.raise_signal(signal.SIGHUP)


def test_sigterm_ends_a_command_in_the_background_of_a_script() -> None:
    """Where Ctrl-C is not for it."""
    with handled(signal.SIGINT, signal.SIG_IGN), pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)


async def test_after_a_run_that_could_be_asked_to_stop_a_signal_does_what_it_did_before() -> None:
    """The event loop would leave SIGTERM to the kernel, which asks nobody to clean up."""
    with handled(signal.SIGTERM, signal.SIG_DFL), terminated_as_interrupted():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        asked: list[str] = []
        with asked_to_stop(lambda: asked.append("stop"), "It stops"):
            assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
        assert {number: signal.getsignal(number) for number in before} == before


async def test_a_second_signal_ends_a_command_that_the_order_did_not_reach() -> None:
    """As where another user has made the file that gives it."""
    loop, failed = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(lambda *_: failed.set())

    def refused() -> None:
        raise PermissionError

    with handled(signal.SIGTERM, signal.SIG_DFL), terminated_as_interrupted(), asked_to_stop(refused, "It stops"):
        before = signal.getsignal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        await failed.wait()
        assert signal.getsignal(signal.SIGTERM) is not before


def every_command() -> Iterator[str]:
    for name in COMMANDS:
        command = migrator.get_command(click.Context(migrator), name)
        yield from (f"{name} {each}" for each in command.commands) if isinstance(command, click.Group) else [name]


@pytest.mark.parametrize("command", [*every_command()])
def test_only_a_command_that_changes_something_says_that_something_is_left(command: str) -> None:
    said = what_is_left(["-h", *command.split(), "-i", "file"])
    assert (said == "Nothing was changed") is (command in READS)


def test_each_word_is_of_a_command() -> None:
    known = [*every_command()]
    assert [words for words in LEFT if not any(f"{each} ".startswith(f"{words} ") for each in known)] == []


def test_who_removes_znodes_hears_where_they_are_kept() -> None:
    said = what_is_left(["rollout", "remove-znodes", "-i", "file"])
    assert "may be gone from ZooKeeper" in said
    assert "keep it" in said
    assert "restarted" not in said
