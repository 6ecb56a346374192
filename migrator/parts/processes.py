"""Child processes that never outlive the process that started them.

Each child leads a separate process group, writes its output to a file, and is watched by the guardian: one small
process that reads the groups of this process from a pipe and kills the remaining processes when the pipe closes. So
children end also when their parent is killed with -9, which no handler in the parent could see to. (Linux'
PR_SET_PDEATHSIG would be tied to the *thread* that started the child.)
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from migrator.errors import OperatorError

POLL_SECONDS = 0.02
TAIL_LINES = 30
PROBE_SECONDS = 2.0
DEAD_SECONDS = 300.0
"""How long a killed process may take to end: on a busy machine, one of low priority is slow."""

_GUARDIAN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class _Guardian:
    """The watching process of this process; started with the first child, ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start_child(
        self, argv: Sequence[str], output: Path, cwd: Path | None, env: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        with self._lock, output.open("ab") as sink:
            self._ensure_started()
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
            self._tell(f"+{child.pid}")
            return child

    def forget(self, pid: int) -> None:
        """The child was reaped: from now on its number may belong to another process."""
        with self._lock:
            self._tell(f"-{pid}")

    def end(self) -> None:
        """Let the guardian kill the remaining children, and end."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and process.stdin is not None:
                process.stdin.close()
                process.wait()

    def _ensure_started(self) -> None:
        if self._process is None:
            atexit.register(self.end)
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARDIAN],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


_guardian = _Guardian()


class StillRunningError(OperatorError):
    """A child had not ended in the time given to it."""


class ChildProcess:
    """One running child. Leaving its context stops it.

    :param name: its name in messages, e.g. ``zookeeper``.
    :param output: file that standard output and error are appended to.
    :param env: the whole environment; None for this process's own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        output: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.output = output
        output.parent.mkdir(parents=True, exist_ok=True)
        self._read_from = output.stat().st_size if output.exists() else 0
        try:
            self._process = _guardian.start_child(argv, output, cwd, env)
        except OSError as error:
            raise OperatorError(
                f"{name} could not be started: {error}",
                where=str(argv[0]),
                remedy="Check that the program exists, and that this user may run it",
            ) from error
        self._forgotten = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code; None while it runs, negative when a signal ended it."""
        code = self._process.poll()
        if code is not None and not self._forgotten:
            self._kill_group()
            _guardian.forget(self.pid)
            self._forgotten = True
        return code

    def output_text(self) -> str:
        """The output of this run so far, without that of earlier runs in the same file."""
        with self.output.open("rb") as source:
            source.seek(self._read_from)
            return source.read().decode("utf-8", "replace")

    def tail(self) -> str:
        """The last lines of the output, for messages."""
        return "\n".join(self.output_text().splitlines()[-TAIL_LINES:])

    def wait_until(self, condition: Callable[[], bool], what: str, *, timeout_seconds: float) -> None:
        """Wait until the condition holds while the child runs.

        :param what: names the condition, e.g. ``port 2181 open``.
        :raises OperatorError: when the child ends first or the time is over; with the output's tail.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            code = self.exit_code()
            if code is not None:
                raise self.failure(f"{self.name} ended with exit code {code} before: {what}")
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} did not do this in {timeout_seconds:.0f} s: {what}")
            time.sleep(POLL_SECONDS)

    def wait_for_output(self, pattern: str, *, timeout_seconds: float) -> None:
        """Wait until a line of this run's output matches the regular expression; errors as `wait_until`."""
        expression = re.compile(pattern)
        position = self._read_from

        def appeared() -> bool:
            nonlocal position
            with self.output.open("rb") as source:
                source.seek(position)
                text = source.read()
            position += text.rfind(b"\n") + 1  # each whole line is searched only once
            return expression.search(text.decode("utf-8", "replace")) is not None

        self.wait_until(appeared, f"output matching {pattern!r}", timeout_seconds=timeout_seconds)

    def wait(self, *, timeout_seconds: float) -> int:
        """Wait for its end.

        :returns: the exit code.
        :raises StillRunningError: it still runs after the time.
        """
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            message = f"{self.name} still runs after {timeout_seconds:.0f} s. Its last lines:\n{self.tail()}"
            raise StillRunningError(message, where=str(self.output)) from None
        code = self.exit_code()
        return -signal.SIGKILL if code is None else code

    def stop(self, *, grace_seconds: float = 10.0) -> int:
        """SIGTERM, and SIGKILL for the whole group when that was not enough.

        :returns: the exit code, ``-9`` when it had to be killed.
        """
        if self.exit_code() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self._process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                return self.kill()
        return self.wait(timeout_seconds=grace_seconds)

    def kill(self) -> int:
        """SIGKILL for the whole group; returns the exit code."""
        if self.exit_code() is None:
            self._kill_group()
        return self.wait(timeout_seconds=DEAD_SECONDS)

    def pause(self) -> None:
        """SIGSTOP: alive for the kernel, silent for its peers. Returns when it has stopped, because on a busy machine a
        thread may still answer after the signal. Does nothing when it has ended."""
        self.send(signal.SIGSTOP)
        with suppress(ChildProcessError):  # the process has ended and was reaped
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the child (not to its own children); nothing when it has ended."""
        self._process.send_signal(number)

    def failure(self, what: str) -> OperatorError:
        """An error about this child, with the tail of its output."""
        return OperatorError(f"{what}. Its last lines:\n{self.tail()}", where=str(self.output))

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it has ended; PermissionError: only zombies, on some systems
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_to_end(
    name: str,
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a command to its end.

    :returns: its output, standard error included.
    :raises StillRunningError: not ended in time; with the output's tail.
    :raises OperatorError: exit code other than 0; with the output's tail.
    """
    with (
        tempfile.TemporaryDirectory(prefix="migrator-") as directory,
        ChildProcess(name, argv, output=Path(directory) / f"{name}.log", cwd=cwd, env=env) as child,
    ):
        code = child.wait(timeout_seconds=timeout_seconds)
        if code != 0:
            raise child.failure(f"{name} ended with exit code {code}")
        return child.output_text()


class _OwnPorts:
    """Ports that neither `free_port` nor the kernel gives to another process, as long as this process lives.

    The kernel gives ports of one range (from 32768 on Linux, from 49152 on macOS) to connections, and to servers
    that ask for any port. A server with a port of that range may find it taken after it was down, or while it starts
    slowly.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._ports: Iterator[int] = iter(())

    def next(self) -> int:
        with self._lock:
            if self._owner != os.getpid():  # the first call, or the first one after a fork
                self._ports, self._owner = itertools.cycle(self._take_block()), os.getpid()
            for port in itertools.islice(self._ports, _PORTS_IN_BLOCK - 1):
                if (unused := _bound(port)) is not None:
                    unused.close()
                    return port
        raise OperatorError(
            "there is no free port",
            where=f"127.0.0.1, {_PORTS.start} to {_PORTS.stop - 1}",
            remedy="End processes that listen there, or wait a minute until the ports of closed connections are free",
        )

    @staticmethod
    def _take_block() -> range:
        """Reserve ports for this process. The port before them stays bound until the process ends, as the mark for
        other processes."""
        blocks = len(_PORTS) // _PORTS_IN_BLOCK
        for number in range(blocks):
            first = _PORTS[(os.getpid() + number) % blocks * _PORTS_IN_BLOCK]
            if (mark := _bound(first)) is not None:
                mark.detach()
                return range(first + 1, first + _PORTS_IN_BLOCK)
        return range(0)


_PORTS = range(12_000, 32_000)
_PORTS_IN_BLOCK = 200
_own_ports = _OwnPorts()


def _bound(port: int) -> socket.socket | None:
    """A socket bound to the port; None while the port is used, or was used a minute ago."""
    bound = socket.socket()
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    return bound


def free_port() -> int:
    """A free TCP port of 127.0.0.1, which stays reserved for a server that stops and starts again."""
    return _own_ports.next()


def probe(port: int, host: str = "127.0.0.1") -> bool | None:
    """Whether a process accepts connections there; None when the machine does not answer or is unknown."""
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return None
    return True


def port_is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a process certainly accepts connections there."""
    return probe(port, host) is True
