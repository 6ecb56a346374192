"""The machine that a controller runs on: its clocks, chance, threads, files, and the addresses that it listens on.

All code that `migrator.node.node.run_node` starts gets these from `machine()`, and timers and connections from the
event loop. So tests can run whole controllers on simulated machines (docs/adr/0044-the-machine.md). Each controller has
its machine in a context variable, which its tasks and callbacks inherit; commands have `THIS_MACHINE`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, ContextVar
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")

READ_BUFFER_BYTES = 1024 * 1024

FileState = tuple[int, int, int] | None


class Machine:
    """The resources that one controller runs on. Files are named by paths and descriptors, as POSIX names them; each
    method raises the `OSError` of the call of POSIX that it is."""

    def __init__(self) -> None:
        self._owned: dict[type, Any] = {}

    def own(self, kind: type[T]) -> T:
        """The one object of this class that all code on this machine shares; the first call makes it. Ask in a
        constructor: threads have no context, so they would be given that of the process."""
        owned: T | None = self._owned.get(kind)
        return owned if owned is not None else self._owned.setdefault(kind, kind())

    # Clocks, in nanoseconds: see `migrator.clock`.

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def since_boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    # Chance.

    def random(self) -> Random:
        """A new source for each caller."""
        return SystemRandom()

    # Threads and memory.

    def threads(self, count: int, name: str) -> Executor:
        """A thread pool for `loop.run_in_executor`; the caller shuts it down."""
        return ThreadPoolExecutor(count, thread_name_prefix=name)

    def freeze_live_objects(self) -> None:
        """Exempt all present objects from the garbage collector, see `migrator.observe.loop_health`."""
        gc.collect(1)
        gc.freeze()

    # Network calls outside of the event loop.

    def host_name(self) -> str:
        """The host name by which other machines reach this one."""
        return socket.getfqdn()

    def listen(self, address: Any, family: int, backlog: int) -> socket.socket:
        """A listening socket. The empty host is every interface, of IPv4 and IPv6 where there is any.

        :param address: as `socket.getaddrinfo` gives it.
        """
        if address[0]:
            return socket.create_server(address, family=family, backlog=backlog)
        if socket.has_dualstack_ipv6():
            return socket.create_server(address, family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        return socket.create_server(address, backlog=backlog)

    # Open files.

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def open_new(self, directory: Path, prefix: str, suffix: str) -> tuple[int, Path]:
        """A new file under a unique name."""
        descriptor, path = tempfile.mkstemp(suffix, prefix, directory)
        return descriptor, Path(path)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        """The number of bytes that were written."""
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def chmod(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def sync(self, descriptor: int) -> None:
        """Content and size of a file, or the names in a directory, are durable on return."""
        os.fsync(descriptor)

    def lock(self, descriptor: int) -> None:
        """Take the file's lock for this process, until the descriptor is closed.

        :raises OSError: another process holds it.
        """
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    # Names.

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def names(self, directory: Path) -> list[Path]:
        """The entries of a directory, in no order."""
        return list(directory.iterdir())

    def mode(self, path: Path) -> int:
        """The mode of a file; of a link itself if the path is one."""
        return path.lstat().st_mode

    def change_mode(self, path: Path, mode: int) -> None:
        path.chmod(mode)

    def content(self, path: Path) -> bytes:
        return path.read_bytes()

    def reader(self, path: Path) -> BinaryIO:
        """Open a file to read it from beginning to end."""
        return path.open("rb", buffering=READ_BUFFER_BYTES)

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def file_state(self, path: Path) -> FileState:
        """A value that changes when the file changes, or when a symbolic link leads to another file; None while the
        file cannot be looked at."""
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def rename(self, path: Path, new: Path) -> None:
        """Replaces the file that has the new name, if there is one."""
        path.replace(new)

    def remove(self, path: Path) -> None:
        """A file, if it is there."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        """Make a directory unless it exists. Its parent must exist."""
        path.mkdir(mode, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()


def write_again(descriptor: int) -> None:
    """Write the contents of a file once more, for the next fsync.

    Linux marks the pages as clean even when an fsync fails. The next process reads them from memory, later
    fsyncs skip them, and a power cut loses them. Writing makes them dirty again. See "Can Applications Recover from
    fsync Failures?" (Rebello et al., USENIX ATC 2020).
    """
    on, position, size = machine(), 0, machine().size(descriptor)
    while position < size:
        data = on.read(descriptor, min(READ_BUFFER_BYTES, size - position), position)
        if not data:
            return  # the file was truncated meanwhile
        position += on.write(descriptor, data, position)


THIS_MACHINE = Machine()
"""The machine for commands, which run no controller."""
_MACHINE: ContextVar[Machine] = ContextVar("machine", default=THIS_MACHINE)


def machine() -> Machine:
    """The machine of the running task, thread or callback."""
    return _MACHINE.get()


def context_on(other: Machine) -> Context:
    """A new context on a machine, which inherits nothing from the caller's context."""
    context = Context()
    context.run(_MACHINE.set, other)
    return context


@contextmanager
def running_on(other: Machine) -> Iterator[None]:
    """Calls and new tasks inside the block run on this machine."""
    token = _MACHINE.set(other)
    try:
        yield
    finally:
        _MACHINE.reset(token)
