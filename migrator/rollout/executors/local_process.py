"""Finds, stops and starts a process of this machine that no service manager looks after (`python -m`).

A process is found by its command line: one argument is the property file, and one is a mark, such as Java's main class.
Any user can start a process with such a command line, so a process counts only if its user could start or stop the
server anyway: the caller, the owner of the property file or of its directory, or a user whom the inventory names. A
program that changes its user (``sudo``) does not count, although root runs it.

A start script may run for a while before the server process shows, and goes on when the caller is killed. So each
property file has a lock that the script inherits. Until the process shows, no second one is started, and the server
does not count as stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil

POLL_SECONDS = 0.05
SHOWS_SECONDS = 60.0
"""How long it may take from the command until the process shows; start scripts take their time."""
MODULE = "migrator.rollout.executors.local_process"
"""A process with this module in its command line, such as sudo or ssh, only carries our command; it is not the
server."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
APPENDS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
"""Flags for opening the output's file. If it is a link or a pipe, which the owner of the directory may have made,
nothing is started, because the caller may be root."""
LOCK_SUFFIX, OUTPUT_SUFFIX = ".starting", ".out"
LOG_BYTES = 1 << 13
"""Bytes from the end of what the process has printed."""
USERS = "--users="
NAMED_MAX = 3


def find(path: str, marks: Sequence[str], users: Collection[int] = ()) -> list[psutil.Process]:
    """The processes that run with this property file, without their own children. A process that has ended and waits
    for its parent does not count.

    :param users: ids of users whose processes count, too.
    """
    wanted, counted = os.path.realpath(path), {*_users_of(path), *users}
    found: dict[int, psutil.Process] = {}
    for process, words in _marked(marks):
        with contextlib.suppress(psutil.Error):
            if not _is_of(process, counted):
                continue
            if any(file == wanted for file in _files(process, words, Path(wanted).name)) and _runs(process):
                found[process.pid] = process
    return [process for process in found.values() if _parent(process) not in found]


def others(path: str, marks: Sequence[str], users: Collection[int] = ()) -> str:
    """Names processes with such a command line that do not count; "" without any. Their files are not opened, because a
    look at a file of another user may never return."""
    same, counted = {path, os.path.realpath(path)}, {*_users_of(path), *users}
    named = []
    for process, words in _marked(marks):
        with contextlib.suppress(psutil.Error):
            if not _is_of(process, counted) and not same.isdisjoint(words) and _runs(process):
                named.append(f"process {process.pid} of user {_name(process.uids().real)}")
    if not named:
        return ""
    more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return f"not counted: {', '.join(named[:NAMED_MAX])}{more}; 'users' can name whose processes count"


def incarnation(process: psutil.Process) -> str:
    """A name that changes with each start, also across a restart of the machine."""
    with contextlib.suppress(OSError, IndexError):
        ticks = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return f"{process.pid}-{ticks}-{BOOT.read_text(encoding='ascii').strip()[:8]}"
    return f"{process.pid}-{process.create_time()}"


def stop(path: str, marks: Sequence[str], users: Collection[int] = ()) -> None:
    """Ask the process to end, and wait until it has ended. The caller bounds the time.

    :raises StartUnderWayError: a start is under way, and its process cannot be ended yet.
    """
    running = _settled(path, marks, users)
    for process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    while any(map(_runs, running)):
        time.sleep(POLL_SECONDS)


def start(path: str, marks: Sequence[str], output: str, command: Sequence[str], users: Collection[int] = ()) -> str:
    """Start the process, independent of this one, unless it runs.

    :returns: what went wrong; "" for nothing.
    """
    with _lock(path, marks, users, create=True) as lock:
        if lock is None:
            return ""
        runs = bool(find(path, marks, users))
        wrong = "" if runs else _start(path, marks, output, command, users, lock)
        if not wrong:
            _give_up(path, lock)
        return wrong


def _start(
    path: str, marks: Sequence[str], output: str, command: Sequence[str], users: Collection[int], lock: int
) -> str:
    sink = output or f"{path}{OUTPUT_SUFFIX}"
    descriptor = os.open(sink, APPENDS if output else APPENDS | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(descriptor)
    if not output and (not stat.S_ISREG(found.st_mode) or found.st_nlink != 1):
        os.close(descriptor)
        return f"{sink} is no file of its own; remove it, or name another one with 'output'"
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            pass_fds=(lock,),
        )
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + SHOWS_SECONDS
    while not find(path, marks, users):
        if child.poll():
            return f"the command ended at once with exit code {child.returncode}; its output is in {sink}"
        if time.monotonic() > deadline:
            return f"no process with {path} and one of {', '.join(marks)} in its command line shows; see {sink}"
        time.sleep(POLL_SECONDS)
    return ""


def trial(path: str, marks: Sequence[str], output: str, command: Sequence[str], users: Collection[int] = ()) -> str:
    """Whether `stop` and `start` could do their work, as far as can be seen without doing it.

    :returns: what would go wrong; "" for nothing.
    """
    if shutil.which(command[0]) is None:
        return f"there is no program {command[0]}"
    for process in find(path, marks, users):
        try:
            os.kill(process.pid, 0)
        except PermissionError:
            return f"this user may not end process {process.pid}"
        except ProcessLookupError:
            continue
    sink = Path(output or f"{path}{OUTPUT_SUFFIX}")
    if not os.access(sink if sink.exists() else sink.parent, os.W_OK):
        return f"this user may not write {sink}"
    return ""


class StartUnderWayError(Exception):
    """An earlier start has neither ended nor become a visible process."""


def _settled(path: str, marks: Sequence[str], users: Collection[int] = ()) -> list[psutil.Process]:
    """Like `find`, after any start that is under way has ended, because its result is not known before.

    :raises StartUnderWayError: that takes too long.
    """
    found = find(path, marks, users)
    if not found:
        with contextlib.suppress(FileNotFoundError), _lock(path, marks, users, create=False):
            found = find(path, marks, users)
    return found


@contextlib.contextmanager
def _lock(path: str, marks: Sequence[str], users: Collection[int], *, create: bool) -> Iterator[int | None]:
    """Takes the lock of a start; None if the process runs already.

    :raises FileNotFoundError: no start has ever taken the lock, and ``create`` is False.
    :raises StartUnderWayError: another start holds it for too long.
    """
    deadline = time.monotonic() + SHOWS_SECONDS
    while not find(path, marks, users):
        lock = _open_lock(path, create=create)
        try:
            if _takes(path, lock):
                yield lock
                return
        finally:
            os.close(lock)
        if time.monotonic() > deadline:
            raise StartUnderWayError(
                f"an earlier start with {path} is under way for more than {SHOWS_SECONDS:.0f} s, and no process shows: "
                f"end the programs that have {path}{LOCK_SUFFIX} open, then try again"
            )
        time.sleep(POLL_SECONDS)
    yield None


def _open_lock(path: str, *, create: bool) -> int:
    """The lock is a file beside the property file, because every change replaces the property file itself. Where this
    user may not write a file, the property file is the lock."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    own, real = _lock_files(path)
    if os.path.lexists(own) or (create and os.access(own.parent, os.W_OK)):
        return os.open(own, flags | (os.O_CREAT if create else 0), 0o600)
    return os.open(real, flags)


def _lock_files(path: str) -> tuple[Path, Path]:
    real = os.path.realpath(path)
    return Path(f"{real}{LOCK_SUFFIX}"), Path(real)


def _takes(path: str, lock: int) -> bool:
    """Take the lock. False when another start holds it, or when its file is gone: that was the file of a start whose
    process has shown since."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return any(file.exists() and os.path.samestat(file.stat(), os.fstat(lock)) for file in _lock_files(path))


def _give_up(path: str, lock: int) -> None:
    """Give the lock up, also for the process, which has inherited it."""
    with contextlib.suppress(OSError):
        _lock_files(path)[0].unlink()
    fcntl.flock(lock, fcntl.LOCK_UN)


def main(arguments: Sequence[str]) -> int:
    """Arguments: ``[--users=NAMES]``, then ``stop PATH MARKS``, ``incarnation PATH MARKS``, ``log PATH MARKS OUTPUT``
    or ``start`` and ``trial PATH MARKS OUTPUT COMMAND...``. Names and marks are separated by commas."""
    named = arguments[0].removeprefix(USERS) if arguments[0].startswith(USERS) else None
    action, path, marks, *more = arguments if named is None else arguments[1:]
    names, note = marks.split(","), ""
    try:
        users = [_id(name.strip()) for name in (named or "").split(",") if name.strip()]
        wrong = _act(action, path, names, more, users)
        note = others(path, names, users)
    except KeyError as error:
        wrong = f"this machine has no user {error.args[0]}"
    except StartUnderWayError as error:
        wrong = str(error)
    except OSError as error:
        wrong = f"this user may not look at {error.filename}: {error.strerror}"
    sys.stderr.writelines(f"{line}\n" for line in (wrong, note) if line)
    return 1 if wrong else 0


def _act(action: str, path: str, marks: Sequence[str], more: Sequence[str], users: Collection[int]) -> str:
    """Do what `main` was asked for.

    :returns: what went wrong.
    """
    if action == "stop":
        try:
            stop(path, marks, users)
        except psutil.AccessDenied as error:
            return f"this user may not end process {error.pid}"
        return ""
    if action == "start":
        output, *command = more
        try:
            return start(path, marks, output, command, users)
        except OSError as error:
            return f"it cannot be started: {error}"
    if action == "trial":
        output, *command = more
        return trial(path, marks, output, command, users)
    if action == "log":
        with Path(more[0] or f"{path}{OUTPUT_SUFFIX}").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            sys.stdout.write(file.read().decode("utf-8", "replace"))
        return ""
    running = _settled(path, marks, users)
    if len(running) > 1:
        return f"{len(running)} processes run with {path}: {', '.join(str(p.pid) for p in running)}"
    sys.stdout.writelines(f"{incarnation(process)}\n" for process in running)
    return ""


def _users_of(path: str) -> set[int]:
    """The users who could start or stop the server anyway.

    :raises PermissionError: the caller may not look at the file. Without its owner, it is unknown what runs.
    """
    real = Path(os.path.realpath(path))
    found = {os.geteuid()}
    for owned in (real, real.parent):
        with contextlib.suppress(FileNotFoundError):
            found.add(owned.stat().st_uid)
    return found


def _is_of(process: psutil.Process, users: Collection[int]) -> bool:
    """Whether one of these users started it. A setuid program such as sudo counts for none of them: by then it may be
    root's in every respect, although another user has started it."""
    user = process.uids().real
    return user in users and (user != 0 or not _changes_user(process.pid))


def _changes_user(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/exe").stat().st_mode & stat.S_ISUID)
    except OSError:  # only root may look; another caller cannot end it either, and is told so
        return False


def _id(name: str) -> int:
    """:raises KeyError: there is no such user."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise KeyError(name) from None


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _marked(marks: Sequence[str]) -> Iterator[tuple[psutil.Process, list[str]]]:
    """Processes with one of the marks, and their arguments."""
    own = os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if process.pid != own and MODULE not in words and any(mark in words for mark in marks):
                yield process, words


def _files(process: psutil.Process, words: Sequence[str], name: str) -> Iterator[str]:
    """The arguments that may be the file, as absolute paths."""
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
