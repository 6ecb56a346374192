"""Stops, starts and names a process of this machine that no service manager looks after (`python -m`).

A process is found by its command line, whoever started it: one of its arguments is the property file, and one is a
mark, such as Java's main class.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

POLL_SECONDS = 0.05
SHOWS_SECONDS = 60.0
"""How long the command of a start may take until the process shows; starting scripts think first."""
MODULE = "migrator.rollout.executors.local_process"
"""In the command line of whoever brings these words here, such as sudo or ssh: that is not the process."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


def find(path: str, marks: Sequence[str]) -> list[psutil.Process]:
    """Those that run with this property file, without their own children; one that has ended and waits for its parent
    does not run."""
    wanted, own = os.path.realpath(path), os.getpid()
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if process.pid == own or MODULE in words or not any(mark in words for mark in marks):
                continue
            if any(file == wanted for file in _files(process, words, Path(wanted).name)) and _runs(process):
                found[process.pid] = process
    return [process for process in found.values() if _parent(process) not in found]


def incarnation(process: psutil.Process) -> str:
    """Changes with each start, also across a restart of the machine."""
    with contextlib.suppress(OSError, IndexError):
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return f"{process.pid}-{ticks}-{BOOT.read_text(encoding='ascii').strip()[:8]}"
    return f"{process.pid}-{process.create_time()}"


def stop(path: str, marks: Sequence[str]) -> None:
    """Ask it to end, and wait until it has; whoever runs this bounds the time."""
    running = find(path, marks)
    for process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    while any(map(_runs, running)):
        time.sleep(POLL_SECONDS)


def start(path: str, marks: Sequence[str], output: str, command: Sequence[str]) -> str:
    """Start it, apart from this process, unless it runs.

    :returns: what went wrong; "" if nothing did.
    """
    if find(path, marks):
        return ""
    sink = output or f"{path}.out"
    descriptor = os.open(sink, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + SHOWS_SECONDS
    while not find(path, marks):
        if child.poll():
            return f"the command ended at once with exit code {child.returncode}; its output is in {sink}"
        if time.monotonic() > deadline:
            return f"no process with {path} and one of {', '.join(marks)} in its command line shows; see {sink}"
        time.sleep(POLL_SECONDS)
    return ""


def main(arguments: Sequence[str]) -> int:
    """``stop PATH MARKS``, ``incarnation PATH MARKS``, ``start PATH MARKS OUTPUT COMMAND...``; marks with commas."""
    action, path, marks, *more = arguments
    names = marks.split(",")
    if action == "stop":
        try:
            stop(path, names)
        except psutil.AccessDenied as error:
            sys.stderr.write(f"this user may not end process {error.pid}\n")
            return 1
    elif action == "start":
        output, *command = more
        try:
            wrong = start(path, names, output, command)
        except OSError as error:
            wrong = f"it cannot be started: {error}"
        if wrong:
            sys.stderr.write(f"{wrong}\n")
            return 1
    else:
        running = find(path, names)
        if len(running) > 1:
            sys.stderr.write(f"{len(running)} processes run with {path}: {', '.join(str(p.pid) for p in running)}\n")
            return 1
        sys.stdout.writelines(f"{incarnation(process)}\n" for process in running)
    return 0


def _files(process: psutil.Process, words: Sequence[str], name: str) -> Iterator[str]:
    """The arguments that may be that file, as absolute paths."""
    for word in words:
        if not word.endswith(name):
            continue
        for text in {word, word.partition("=")[2]}:
            if text:
                with contextlib.suppress(psutil.Error):
                    yield os.path.realpath(text if text.startswith("/") else Path(process.cwd()) / text)


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return -1


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
