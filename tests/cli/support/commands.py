"""The command `migrator` of `tests.cli.support.patient`, many times, each time as a process of its own.

A process imports what the commands need, and is forked for each: the imports take most of a second of a processor.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Self

from migrator.cli.main import main
from tests.cli.support.patient import be_patient

IMPORTED = ("close_way_back", "force", "gates", "pause", "quorum", "reopen", "resume", "status")
REQUEST_BYTES = 1 << 16


class Commands:
    """Runs commands until its context is left."""

    def __enter__(self) -> Self:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            program = [sys.executable, "-m", "tests.cli.support.commands", str(theirs.fileno())]
            self._process = subprocess.Popen(
                program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.wait()

    async def run(self, *words: str, answer: str = "") -> tuple[int, str]:
        """Exit code, and everything that was printed, also on standard error."""
        return await asyncio.to_thread(self._run, words, answer)

    def _run(self, words: tuple[str, ...], answer: str) -> tuple[int, str]:
        (given, gives), (takes, output), (hears, code) = os.pipe(), os.pipe(), os.pipe()
        socket.send_fds(self._requests, [json.dumps(words).encode()], [given, output, code])
        for theirs in (given, output, code):
            os.close(theirs)
        with suppress(BrokenPipeError), os.fdopen(gives, "w") as typed:
            typed.write(answer)
        with os.fdopen(takes) as printed, os.fdopen(hears) as ended:
            said = printed.read()
            return int(ended.read()), said


def serve(requests: socket.socket) -> None:
    """Fork a process for each request. Returns when there will be no more requests, and in each command at its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            become(json.loads(request), *descriptors)
            return
        for each in descriptors:
            os.close(each)


def become(words: list[str], given: int, output: int, code: int) -> None:
    """Fork the command, and report its exit code. Returns in the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        os.close(given)
        os.close(output)
        _, status = os.waitpid(command, 0)
        os.write(code, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.dup2(given, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for each in (given, output, code):
        os.close(each)
    sys.argv = ["migrator", *words]
    main()


if __name__ == "__main__":
    be_patient()
    for name in IMPORTED:
        importlib.import_module(f"migrator.cli.{name}")
    serve(socket.socket(fileno=int(sys.argv[1])))
