"""The machine of one controller, for one life of its process: what `migrator.machine.Machine` is in the simulation."""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO

from migrator.machine import FileState, Machine, context_on
from migrator.supervision import FailureBook
from migrator.wire.book import Book
from tests.simulation.whole import cells
from tests.simulation.whole.disk import Directory, File, Operation, SimulatedDisk
from tests.simulation.whole.loop import SimulatedLoop, Threads

if TYPE_CHECKING:
    import asyncio

    from tests.simulation.whole.network import ListeningSocket
    from tests.simulation.whole.world import World

EPOCH_NS = 1_700_000_000_000_000_000
FIRST_DESCRIPTOR = 1_000_000_000
"""The first number of simulated descriptors, so large that this process has no such descriptor."""
FAILING_SHARE = 0.5
"""The share of a failing disk's operations that fail."""
WALL_STEP_NS = 3600 * 10**9
"""By so much at most a wall clock goes forward or back when it is set."""
READING_NS = 200
"""The time of one look at the clock, so that a loop which waits for a time ends."""


class ProcessGoneError(BaseException):
    """Raised by every call to the machine of a process that is gone."""


@dataclass(frozen=True)
class SkewedClock:
    """How the clocks of one machine differ from the world's."""

    rate: float = 1.0
    offset_ns: int = 0
    wall_offset_ns: int = 0

    def world_seconds(self, local_seconds: float) -> float:
        return (local_seconds - self.offset_ns / 1e9) / self.rate


class SimulatedMachine(Machine):
    """One life: from the start of the process to its end.

    :ivar chance: of this life, for all that the seed decides about it.
    """

    def __init__(self, world: World, name: str, host: str, disk: SimulatedDisk, clock: SkewedClock, life: int) -> None:
        super().__init__()
        self.world = world
        self.name = name
        self.number = int(host.rpartition(".")[2])
        self.host = host
        self.disk = disk
        self.clock = clock
        self.life = life
        self.network = world.network
        self.chance = Random(f"{world.options.seed} {name} {life}")
        self._own_chance = Random(f"{world.options.seed} {name} {life} its own")
        self._wall_chance = Random(f"{world.options.seed} {name} {life} its wall clock")
        self.is_alive = True
        self.began_at = world.now
        self.busy_until = 0.0
        """When its next turn may begin; in the world's time."""
        self.hangs_until = 0.0
        self.next_due: float | None = None
        """When its loop turns next, in the world's time; None: has to be found out, see `due`."""
        self._spent_ns = 0
        """What the work that is under way has taken so far."""
        self._open: dict[int, File | Directory] = {}
        self._paths: dict[int, Path] = {}
        self._locks: dict[int, File] = {}
        self._descriptors = FIRST_DESCRIPTOR
        self._turn_seconds_max = world.options.turn_ms_max / 1000
        self.sync_seconds_max = world.options.sync_ms_max / 1000
        self.has_waited_for_disk = False
        """The time that an fsync takes is over, and all of it is durable only now."""
        self.was_refused = False
        """By its disk: it may stop for that."""
        self.crash_at_operation: int | None = None
        """The process is killed before that many further operations on its disk are done."""
        self.at_next_sync: Callable[[], None] | None = None
        """Called once, right before something becomes durable."""
        self.slowness = 1.0
        """By what the turns of its loop last longer: a processor that others use."""
        self.book: Book | None = None
        """What callers of its listener have set in motion, once there was one."""
        self.loop = SimulatedLoop(self)
        self.context = self.new_context()
        self.failures = self.own(FailureBook)
        self.complaints: list[str] = []
        self.asked_for: dict[str, Threads] = {}

    def new_context(self) -> Context:
        """That of a thread, or of the first task: nothing is in it but this machine."""
        return context_on(self)

    def unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the event loop's last resort is told."""
        if self.is_alive:
            error = context.get("exception")
            where = "".join(traceback.format_exception(error)) if error is not None else ""
            self.complaints.append(f"{context.get('message')}: {error!r}\n{where}")

    # Time.

    def measured(self, work: Callable[[], object]) -> float:
        """Do one piece of work; how many seconds it takes."""
        self._spent_ns = 0
        work()
        took, self._spent_ns = self._spent_ns / 1e9, 0
        return took

    def spend(self, seconds: float) -> None:
        """The work that is under way takes that much longer."""
        self._spent_ns += int(seconds * 1e9)

    def tell(self, callback: Callable[..., object], *args: Any) -> None:
        """Let its loop call something, if it still runs."""
        if self.is_alive:
            self.loop.from_outside(callback, *args)

    def later(self, at_least: float, at_most: float, action: Callable[[], object]) -> None:
        """Do something in this life, some seconds later."""
        delay = at_least if at_least == at_most else self.chance.uniform(at_least, at_most)
        self.world.after(self._spent_ns / 1e9 + delay, lambda: self.is_alive and action())

    def wall_ns(self) -> int:
        return EPOCH_NS + self.clock.wall_offset_ns + self.monotonic_ns()

    def monotonic_ns(self) -> int:
        self._spent_ns += READING_NS
        clock = self.clock
        return clock.offset_ns + int(self.world.now * clock.rate * 1e9) + self._spent_ns

    def since_boot_ns(self) -> int:
        return self.monotonic_ns()

    # Chance, threads, memory, network.

    def random(self) -> Random:
        return Random(self._own_chance.getrandbits(64))

    def threads(self, count: int, name: str) -> Executor:
        threads = self.asked_for[name] = Threads(self)
        return threads

    def freeze_live_objects(self) -> None:
        """The collector is off."""

    def host_name(self) -> str:
        return self.host

    def listen(self, address: Any, family: int, backlog: int) -> ListeningSocket:  # type: ignore[override]
        return self.network.listen(self, address[1])

    # Open files.

    def _step(self, operation: str = "", path: Path | None = None) -> None:
        """Before each operation on the disk: a process that is gone does none, and here one may be killed.

        :param operation: one that changes something, of the file at the path.
        """
        if not self.is_alive:
            raise ProcessGoneError
        self._spent_ns += 2_000
        if path is None:
            return
        if self.crash_at_operation is not None:
            self.crash_at_operation -= 1
        point = cells.crash_point(operation, path)
        if (self.crash_at_operation or 0) < 0 or self.world.chaos.wants_crash(self, point):
            self.world.count(point)
            self.world.crash_now(self)
            raise ProcessGoneError

    def _refuse(self, code: int) -> OSError:
        self.was_refused = True
        return OSError(code, os.strerror(code))

    def _attempt(self, operation: Operation) -> None:
        """
        :raises OSError: the disk fails at it this time.
        """
        if operation is self.disk.fails_at and self.chance.random() < FAILING_SHARE:
            self.world.count(f"failed {operation.value}")
            raise self._refuse(errno.EIO)

    def _check_writable(self) -> None:
        if self.disk.is_read_only:
            raise self._refuse(errno.EROFS)

    def _take(self, size: int) -> int:
        """Room for so many bytes, or for some of them."""
        try:
            return self.disk.take(size)
        except OSError:
            self.was_refused = True
            raise

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._step("create", path if flags & os.O_CREAT and self.disk.find(path) is None else None)
        if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY):
            self._check_writable()
        entry = self.disk.find(path)
        if entry is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._take(1)
            entry = File()
            entry.mode = mode
            self.disk.directory(path.parent).change((path.name, entry))
        elif flags & os.O_TRUNC and isinstance(entry, File) and entry.data:
            entry.truncate(0)
        return self._descriptor(entry, path)

    def open_new(self, directory: Path, prefix: str, suffix: str) -> tuple[int, Path]:
        path = directory / f"{prefix}{self.chance.getrandbits(40):010x}{suffix}"
        return self.open(path, os.O_RDWR | os.O_CREAT), path

    def _descriptor(self, entry: File | Directory, path: Path) -> int:
        self._descriptors += 1
        self._open[self._descriptors] = entry
        self._paths[self._descriptors] = path
        return self._descriptors

    def _entry(self, descriptor: int) -> File | Directory:
        try:
            return self._open[descriptor]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _file(self, descriptor: int) -> File:
        entry = self._entry(descriptor)
        if not isinstance(entry, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return entry

    @property
    def open_files(self) -> int:
        return len(self._open)

    def close(self, descriptor: int) -> None:
        self._step()
        self._entry(descriptor)
        del self._open[descriptor], self._paths[descriptor]
        locked = self._locks.pop(descriptor, None)
        if locked is not None:
            self.world.locks.pop(id(locked), None)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        self._step()
        self._attempt(Operation.READ)
        return bytes(self._file(descriptor).data[position : position + size])

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        self._step("write", self._paths.get(descriptor))
        self._check_writable()
        self._attempt(Operation.WRITE)
        file = self._file(descriptor)
        wanted = len(data)
        if self.disk.fails_at is Operation.WRITE:
            wanted = self.chance.randint(min(1, wanted), wanted)
        grows = min(wanted, max(0, position + wanted - len(file.data)))
        taken = wanted - grows + self._take(grows)
        file.write(bytes(data[:taken]), position)
        return taken

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate", self._paths.get(descriptor))
        self._check_writable()
        self._file(descriptor).truncate(size)

    def size(self, descriptor: int) -> int:
        self._step()
        return len(self._file(descriptor).data)

    def chmod(self, descriptor: int, mode: int) -> None:
        self._step()
        self._file(descriptor).mode = mode

    def sync(self, descriptor: int) -> None:
        path, entry = self._paths.get(descriptor), self._entry(descriptor)
        self._step("fsync", path)
        if self.at_next_sync is not None and not entry.is_durable:
            strike, self.at_next_sync = self.at_next_sync, None
            self.world.count(cells.crash_point("fsync", self._paths[descriptor]))
            strike()
            self._step()
        self.spend(50e-6 if self.has_waited_for_disk else self.chance.uniform(50e-6, self.sync_seconds_max))
        try:
            self._attempt(Operation.SYNC)
        except OSError:
            if isinstance(entry, File):
                entry.fail_sync()
            else:
                self.disk.is_read_only = True
            raise
        entry.sync()

    def lock(self, descriptor: int) -> None:
        self._step()
        file = self._file(descriptor)
        if self.world.locks.setdefault(id(file), self) is not self:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._locks[descriptor] = file

    # Names.

    def exists(self, path: Path) -> bool:
        self._step()
        return self.disk.find(path) is not None

    def is_directory(self, path: Path) -> bool:
        self._step()
        return isinstance(self.disk.find(path), Directory)

    def names(self, directory: Path) -> list[Path]:
        self._step()
        names = [directory / name for name in self.disk.directory(directory).names]
        self.chance.shuffle(names)
        return names

    def mode(self, path: Path) -> int:
        self._step()
        entry = self.disk.find(path)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return entry.mode | (stat.S_IFDIR if isinstance(entry, Directory) else stat.S_IFREG)

    def change_mode(self, path: Path, mode: int) -> None:
        self._step()
        entry = self.disk.find(path)
        if entry is not None:
            entry.mode = mode

    def content(self, path: Path) -> bytes:
        self._step()
        self._attempt(Operation.READ)
        return bytes(self.disk.file(path).data)

    def reader(self, path: Path) -> BinaryIO:
        return io.BytesIO(self.content(path))

    def file_size(self, path: Path) -> int:
        self._step()
        return len(self.disk.file(path).data)

    def file_state(self, path: Path) -> FileState:
        self._step()
        entry = self.disk.find(path)
        return (id(entry), 0, len(entry.data)) if isinstance(entry, File) else None

    def rename(self, path: Path, new: Path) -> None:
        self._step("rename", new)
        self._check_writable()
        if path.parent != new.parent:
            raise NotImplementedError("between directories")
        entry = self.disk.file(path)
        self.disk.directory(path.parent).change((path.name, None), (new.name, entry))

    def remove(self, path: Path) -> None:
        self._step("remove", path)
        self._check_writable()
        if self.disk.find(path) is not None:
            self.disk.directory(path.parent).change((path.name, None))

    def make_directory(self, path: Path, mode: int = 0o777) -> None:
        self._step("create", path)
        self._check_writable()
        if self.disk.find(path) is None:
            folder = Directory()
            folder.mode = mode
            self.disk.directory(path.parent).change((path.name, folder))

    def remove_directory(self, path: Path) -> None:
        self._step("remove", path)
        self._check_writable()
        if self.disk.directory(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self.disk.directory(path.parent).change((path.name, None))

    # Turns of the loop.

    def due(self) -> float:
        """When its loop turns next, in the world's time, or some time ago."""
        if self.next_due is None:
            when = 0.0
            if not self.loop._ready:
                timer = self.loop.next_timer()
                when = math.inf if timer is None else self.clock.world_seconds(timer)
            self.next_due = max(when, self.busy_until, self.hangs_until)
        return self.next_due

    def hang(self, until: float) -> None:
        """Its loop does not turn before; time goes on, and its wall clock is set anew, as that of a virtual machine."""
        self.hangs_until, self.next_due = until, None
        step_ns = int(self._wall_chance.uniform(-1, 1) * WALL_STEP_NS)
        self.clock = replace(self.clock, wall_offset_ns=self.clock.wall_offset_ns + step_ns)

    def turn(self) -> None:
        """Let its loop turn once, which takes a while: of the processor, of the disk, and up to a time to wait for."""
        self.world.let_run(self.loop)
        self._spent_ns = 0
        self.loop.turn()
        took = self._spent_ns / 1e9 + self.chance.uniform(10e-6, self._turn_seconds_max) * self.slowness
        self._spent_ns, self.next_due, self.busy_until = 0, None, self.world.now + took

    # The end.

    def die(self) -> None:
        """The process is gone: nothing of it runs on, not even what its ``finally`` would do."""
        self.is_alive = False
        for file in self._locks.values():
            self.world.locks.pop(id(file), None)
