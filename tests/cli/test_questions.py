"""A person may end a command at each question, at once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

ASKS = """
import asyncio, contextlib, sys
import click
from migrator.cli.interrupted import asked_to_stop, at_a_question
from migrator.cli.terminal import ask

async def work():
    is_running = sys.argv[1] == "running"
    with asked_to_stop(lambda: print("asked to stop"), "words") if is_running else contextlib.nullcontext():
        await asyncio.sleep(0)
        with at_a_question():
            print("yes" if ask("Go back?") else "no", flush=True)

try:
    asyncio.run(work())
except (KeyboardInterrupt, click.Abort):
    sys.exit(130)
"""
SECONDS = 30


def until(terminal: int, words: bytes) -> bytes:
    """The terminal's text up to these words."""
    shown = b""
    while words not in shown:
        shown += os.read(terminal, 1024)
    return shown


@pytest.mark.parametrize("state", ["running", "before"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_question(state: str, number: signal.Signals) -> None:
    """A thread that reads would wait for one more line of input."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", ASKS, state], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        ) as asked:
            try:
                until(ours, b"Go back?")
                deadline = time.monotonic() + SECONDS
                while asked.poll() is None:  # one between the prompt and the read is seen with the next one
                    assert time.monotonic() < deadline
                    asked.send_signal(number)
                    with suppress(subprocess.TimeoutExpired):
                        asked.wait(0.5)
            finally:
                asked.kill()  # else a failed test waits for it for ever
            assert asked.returncode == 130
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_answer_is_an_answer() -> None:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", ASKS, "running"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        ) as asked:
            until(ours, b"Go back?")
            os.write(ours, b"y\n")
            assert b"yes" in until(ours, b"yes")
            assert asked.wait(SECONDS) == 0
    finally:
        os.close(ours)
        os.close(theirs)
