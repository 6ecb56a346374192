"""The end of a command by Ctrl-C, SIGTERM or SIGHUP: an exit code, and a sentence about what the command leaves.

`main` prints the sentence, and long commands use the contexts here: within `terminated_as_interrupted` the three
signals end a command in the same way, with its children and its temporary files. A command that may leave something
behind has a line in `LEFT`.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from migrator.cli.terminal import say_error

INTERRUPTED = 130
"""128 + SIGINT, as in shells."""
_NOTHING = "Nothing was changed"
_QUORUM = "If the order was given, the quorum carries it out: see 'migrator quorum describe'"
_ORDER = "If the order was given, the controller carries it out: see 'migrator status'"
_ROLLOUT = (
    "If a rollout was under way, 'migrator rollout resume' goes on from where it was. A node that was being "
    "restarted may be down until then, and with too many controllers down nobody leads: see 'migrator rollout status'"
)
LEFT = {
    "repair": "Each topic is repaired whole or not at all. Run the command again: it goes on with the others",
    "format": "Run the command again with --ignore-formatted: it formats the directories that are left",
    "pause": _ORDER,
    "resume": _ORDER,
    "force": _ORDER,
    "reopen": _ORDER,
    "close-way-back": _ORDER,
    "rollback": "Run the command again: it goes on where it was. If the claim is deleted, brokers elect a controller",
    "rehearse": "ZooKeeper was not changed",
    "verify": "Neither side was changed, unless a repair was ordered: see 'migrator status'",
    "rollout apply": _ROLLOUT,
    "rollout resume": _ROLLOUT,
    "rollout rollback": _ROLLOUT,
    "rollout abort": "If the order was given, the command that runs stops: see 'migrator rollout status'",
    "rollout unlock": "The lock may be broken already: 'migrator rollout status' says who holds it",
    "rollout remove-znodes": "If you had typed the name, a part of the znodes may be gone from ZooKeeper. What is "
    "removed is in the file that 'kept:' names, beside the journal: keep it. Run the command again: it goes on",
    "handover run": "Run the command again: it looks where the handover is, and goes on from there",
    **{f"quorum {order}": _QUORUM for order in ("reassign", "add", "remove", "cancel", "upgrade", "rollout-lock")},
    "quorum unregister": "Run the command again: it says whether the broker is still registered",
    "quorum recover": "Run the command again: it goes on where it was",
    "drill": "The data of the drill are deleted, unless you gave a directory",
}
"""The remains of an interrupted command, by its name and, if they differ, subcommand. Other commands only read."""


def what_is_left(arguments: Sequence[str]) -> str:
    """The sentence for an operator who has just pressed Ctrl-C."""
    command, subcommand = [*(each for each in arguments if not each.startswith("-")), "", ""][:2]
    return LEFT.get(f"{command} {subcommand}") or LEFT.get(command) or _NOTHING


@contextmanager
def at_once() -> Iterator[None]:
    """Let Ctrl-C interrupt at once. Asyncio would wait for the next turn of a blocked event loop."""
    before = signal.signal(signal.SIGINT, _interrupt)  # asyncio replaces only Python's own handler
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closed terminal, end the command as Ctrl-C does, with its children and its temporary
    files. Otherwise a service manager, 'timeout' or a broken ssh session would leave these behind. SIGHUP may come
    several times, so it never interrupts the end itself; a command under ``nohup`` ignores it. Only the main thread
    gets signals: on other threads nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends = False

    def end(number: int, _frame: object) -> None:
        nonlocal ends
        if ends and number == signal.SIGHUP:
            return
        ends = True
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # it runs in the background of a script
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    is_heard = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    numbers = (signal.SIGTERM, signal.SIGHUP) if is_heard else (signal.SIGTERM,)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def asked_to_stop(ask: Callable[[], None], words: str) -> Iterator[None]:
    """The first signal asks for an end, which ``words`` announce; a second one ends the command at once. SIGHUP of a
    closed terminal only asks, also when it comes several times; a command under ``nohup`` ignores it."""
    loop = asyncio.get_running_loop()
    signals = [signal.SIGINT, signal.SIGTERM]

    def stop() -> None:
        for each in signals:  # first: a second signal ends the command also where the order cannot be given
            loop.remove_signal_handler(each)
        ask()
        with suppress(OSError):
            say_error(words)

    before = {each: signal.getsignal(each) for each in (*signals, signal.SIGHUP)}
    for each in signals:
        loop.add_signal_handler(each, stop)
    if before[signal.SIGHUP] is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, ask)
    try:
        yield
    finally:
        for each, handler in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)  # the loop drops this handler


@contextmanager
def at_a_question() -> Iterator[None]:
    """Let the operator end the command at a question, at once, because nothing is under way. The question is asked on
    the main thread, and the event loop is blocked meanwhile: another thread would still wait for a line after the
    end."""
    with at_once(), terminated_as_interrupted():
        yield


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
