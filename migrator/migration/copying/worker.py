"""Long work in a separate process: the first reading, the copy, the comparison of ZooKeeper with the image.

The event loop of a controller must not stall for a second because 200,000 partitions are decoded. A worker is spawned
for one task, streams its results through a pipe, and ends. The pipe bounds the results under way: a slow reader slows
the worker down. The reader always learns of the end: by the last message, by `WorkerFailure`, or by the end of the
pipe. The worker reports its progress in every phase (`progress`), and does not outlive its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Self

from migrator.clock import wall_ms
from migrator.errors import InvariantViolation, MigratorError
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.migration.copying.compare import ReconcileEnd, WriteChunk, compare
from migrator.migration.copying.local_image import OnBytes, bytes_to_load, load_image
from migrator.migration.copying.local_image import ignore as nothing
from migrator.migration.copying.permissions import forbidden_to
from migrator.migration.copying.reading import Copy, CopyBatch, CopyEnd, Decoded, decode_all
from migrator.migration.machine.progress import REPORT_SECONDS, Meter, MeteredSource, Working, WorkPhase
from migrator.migration.translate.target import Target
from migrator.raft.messages import EpochOffset
from migrator.values import value
from migrator.zookeeper.bulk import RETRY_SECONDS, BulkReader
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes.passwords import PasswordEncoder

DEAD_SECONDS = 5.0
"""How long to wait for the exit code of a process that has closed its pipe."""


@value
class DecodeTask:
    """The first reading; sends `Decoded` messages. ``may_write``: also test whether our identity may write; a missing
    permission is a fault, too. The test sends multis that must fail, so it changes nothing."""

    may_write: bool = True


@value
class CopyTask:
    """The copy itself; sends `CopyBatch` messages, then `CopyEnd`."""

    level: int
    batch_records: int


@value
class CompareTask:
    """Compares ZooKeeper with the image at ``at``, loaded from the log in ``directory``; sends `WriteChunk` messages,
    then `ReconcileEnd`. ``allowed``: the digest of the deletes that an operator has allowed, however many there are."""

    directory: Path
    at: EpochOffset
    zk_epoch: int
    max_deletes: int
    allowed: str = ""


Task = DecodeTask | CopyTask | CompareTask


@value
class LoadAhead:
    """An order without a task: load the image at ``at``. A later `CompareTask` loads only the records since."""

    directory: Path
    at: EpochOffset


@value
class Tools:
    """The input of every task. It reaches the process by pickle and not on the command line, because it holds secrets.
    ``retry_seconds``: how long a reading is repeated after lost connections; ``report_seconds``: the least time between
    two reports of progress."""

    session: SessionOptions
    passwords: PasswordEncoder
    retry_seconds: float = RETRY_SECONDS
    report_seconds: float = REPORT_SECONDS


@value
class WorkerFailure:
    """The task ended early; ``expected`` is False for a defect of this program."""

    reason: str
    expected: bool


@value
class Up:
    """The process has imported what it needs and waits for its task."""


ORPHANED = 3
"""The exit code of a worker that has lost its parent; nobody is there to read it."""

OnProgress = Callable[[Working], None]


def ignore(_working: Working) -> None:
    """An `OnProgress` that does nothing."""


Message = Decoded | CopyBatch | CopyEnd | WriteChunk | ReconcileEnd
LAST_MESSAGES = (CopyEnd, ReconcileEnd)


class WorkerFailedError(MigratorError):
    """A worker ended before its work was done; the message says why. ``is_defect``: the reason is a defect of this
    program."""

    def __init__(self, reason: str, *, is_defect: bool = False) -> None:
        super().__init__(reason)
        self.is_defect = is_defect


def results(task: Task, tools: Tools, report: OnProgress, known: MetadataImage = EMPTY_IMAGE) -> Iterator[Message]:
    """Do a task in this process.

    :param report: called with the progress, between two pieces of work.
    :param known: the image that was loaded in advance.
    :raises MigratorError: when ZooKeeper or the log cannot be read, or holds what cannot be decoded.
    """
    meter = Meter(report, time.monotonic, tools.report_seconds)
    image = _load(task, meter, known) if isinstance(task, CompareTask) else None
    with ZooKeeperSession(tools.session) as session:
        yield from _results(task, tools, session, image, meter)


def _load(task: CompareTask, meter: Meter, known: MetadataImage) -> MetadataImage:
    meter.begin(WorkPhase.LOAD, bytes_to_load(task.directory, task.at, known))
    return load_image(task.directory, task.at, meter.did, known)


def loaded_ahead(order: LoadAhead, known: MetadataImage, on_bytes: OnBytes = nothing) -> MetadataImage:
    """The ordered image, or the known one when the log cannot be read: the next task reports that error."""
    try:
        return load_image(order.directory, order.at, on_bytes, known)
    except MigratorError:
        return known


def _results(
    task: Task, tools: Tools, session: ZooKeeperSession, image: MetadataImage | None, meter: Meter
) -> Iterator[Message]:
    reader = BulkReader(session, retry_seconds=tools.retry_seconds)
    source, random = MeteredSource(reader, meter), Random(os.urandom(16))

    def begin(phase: WorkPhase) -> None:
        """Begin a phase. The server of this session may be behind the server that granted the claim, so catch up."""
        meter.begin(phase)
        reader.catch_up()

    match task:
        case DecodeTask(may_write):
            begin(WorkPhase.DECODE)
            more = partial(forbidden_to, session, reader) if may_write else tuple
            yield from decode_all(source, passwords=tools.passwords, random=random, more_faults=more)
        case CopyTask(level, batch_records):
            copy = Copy(
                source,
                passwords=tools.passwords,
                random=random,
                level=level,
                batch_records=batch_records,
                now_ms=wall_ms,
            )
            yield from copy.run(begin)
        case CompareTask() if image is not None:
            begin(WorkPhase.COMPARE)
            target = Target(image, passwords=tools.passwords, controller_epoch=task.zk_epoch)
            yield from compare(source, target, task.max_deletes, task.allowed)


def main(pipe: Connection) -> None:
    """The worker process: waits for its task, does it, ends; until then it may load an image in advance. Signals of the
    terminal are its parent's business.

    The garbage collector is off: there are hardly any cycles, and it would visit every znode again and again, for a
    third of the time.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    gc.disable()
    try:
        pipe.send(Up())
        known, meter = EMPTY_IMAGE, Meter(lambda working: _tell_waiting(pipe, working), time.monotonic)
        while isinstance(order := pipe.recv(), LoadAhead):
            known = loaded_ahead(order, known, meter.did)
        task, tools = order
        for message in results(task, tools, pipe.send, known):
            pipe.send(message)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended, or has closed the pipe
        return
    except MigratorError as error:
        _tell(pipe, WorkerFailure(str(error), expected=not isinstance(error, InvariantViolation)))
    except Exception as error:  # noqa: BLE001 - the top of a process: its parent has to hear of everything
        _tell(pipe, WorkerFailure(f"{type(error).__name__}: {error}", expected=False))


def _tell_waiting(pipe: Connection, working: Working) -> None:
    """Report the progress of loading ahead once a task waits in the pipe; before that, nobody reads reports."""
    if pipe.poll():
        pipe.send(working)


def _end_with_parent() -> None:
    """End this process when its parent has ended. A killed parent closes the pipe, too, but a computing worker rarely
    looks there."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(ORPHANED)


def _tell(pipe: Connection, failure: WorkerFailure) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.send(failure)


class WorkerProcess:
    """A process that is up and waits for its one task. Methods block."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, self._theirs = context.Pipe()
        self.process = context.Process(target=main, args=(self._theirs,), name="migrator-worker", daemon=True)

    def start(self) -> None:
        """Start the process, which then imports its modules by itself."""
        self.process.start()
        self._theirs.close()

    def wait_up(self, seconds: float) -> None:
        """Wait until the process waits for its task or has died, but no longer than so many seconds."""
        self.pipe.poll(seconds)

    def kill(self) -> None:
        """Kill the process, and wait for its end. It leaves nothing to clean up."""
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        """Free the process and the pipe. To be called when the process has ended and no thread reads the pipe."""
        self.process.close()
        self.pipe.close()


def _started() -> WorkerProcess:
    process = WorkerProcess()
    process.start()
    return process


class Worker:
    """A running worker. Use it as an asynchronous context manager: after the block the process has ended, in every
    case.

    :param obtain: returns the started process; blocks.
    """

    def __init__(self, task: Task, tools: Tools, obtain: Callable[[], WorkerProcess] = _started) -> None:
        self._assignment = (task, tools)
        self._obtain = obtain
        self._held: WorkerProcess | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="worker-pipe")
        self._ender = ThreadPoolExecutor(1, thread_name_prefix="worker-end")
        """A separate thread, because the reader's thread may wait long for a message of the worker."""

    async def __aenter__(self) -> Self:
        try:
            await _run_uninterrupted(self._reader, self._begin)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the process."""
        if self._held is not None:
            try:
                await _run_uninterrupted(self._ender, self._held.kill)
            finally:
                await _run_uninterrupted(self._reader, self._held.close)
        self._reader.shutdown(wait=False)
        self._ender.shutdown(wait=False)

    def _begin(self) -> None:
        self._held = self._obtain()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `messages` reports how it ended
            self._held.pipe.send(self._assignment)

    @property
    def _process(self) -> WorkerProcess:
        if self._held is None:
            raise InvariantViolation("a worker is used before it was entered")
        return self._held

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return self._process.process.pid

    async def messages(self, on_progress: OnProgress = ignore) -> AsyncIterator[Message]:
        """Yield results as they come. A slow reader slows the worker down.

        :param on_progress: called with the progress. A worker that reports nothing for long hangs.
        :raises WorkerFailedError: when it fails or dies before its last message.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                message = await loop.run_in_executor(self._reader, self._process.pipe.recv)
            except (EOFError, OSError):
                raise WorkerFailedError(await loop.run_in_executor(self._ender, self._how_it_ended)) from None
            match message:
                case WorkerFailure(reason, expected):
                    raise WorkerFailedError(reason, is_defect=not expected)
                case Working():
                    on_progress(message)
                case Up():
                    pass
                case _:
                    yield message
                    if isinstance(message, LAST_MESSAGES) or (isinstance(message, Decoded) and message.done):
                        return

    def _how_it_ended(self) -> str:
        process = self._process.process
        process.join(DEAD_SECONDS)
        code = process.exitcode
        if code is not None and code < 0:
            return f"the worker process was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"the worker process ended early, with code {code}"


async def _run_uninterrupted(executor: Executor, call: Callable[[], None]) -> None:
    """Run the call to its end, even if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    running = asyncio.get_running_loop().run_in_executor(executor, call)
    cancelled = False
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelled = True
    running.result()
    if cancelled:
        raise asyncio.CancelledError


class Workers:
    """Provides workers, and keeps one process started in advance: a new interpreter and its imports take most of a
    second, a large part of a takeover."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="worker-start")
        self._spare: Future[WorkerProcess] | None = None

    def prepare(self, load: LoadAhead | None = None) -> None:
        """Start a process in advance, unless there is one, and have it load an image in advance."""
        if self._spare is None:
            self._spare = self._starter.submit(_started)
        if load is not None:
            self._starter.submit(_order, self._spare, load)

    def wait_up(self, seconds: float) -> None:
        """Wait until the prepared process is up; blocks."""
        if self._spare is not None:
            self._spare.result().wait_up(seconds)

    def worker(self, task: Task) -> Worker:
        """A worker for the task; the next one is started meanwhile."""
        self.prepare()
        spare, self._spare = self._spare, None
        self.prepare()
        return Worker(task, self._tools, _started if spare is None else partial(_usable, spare))

    def release(self) -> None:
        """Stop keeping a process in advance."""
        spare, self._spare = self._spare, None
        if spare is not None:
            self._starter.submit(_end, spare)

    def close(self) -> None:
        """End the waiting process; blocks."""
        self.release()
        self._starter.shutdown()


def _usable(spare: Future[WorkerProcess]) -> WorkerProcess:
    """The process kept in advance, or a new one if that process has been killed meanwhile."""
    process = spare.result()
    if process.process.is_alive():
        return process
    process.close()
    return _started()


def _order(spare: Future[WorkerProcess], load: LoadAhead) -> None:
    with contextlib.suppress(OSError):  # it was killed, or has its task by now
        spare.result().pipe.send(load)


def _end(spare: Future[WorkerProcess]) -> None:
    if spare.exception() is None:
        process = spare.result()
        process.kill()
        process.close()
