"""The directory of a drill, which belongs to one drill.

`migrator drill` uses `made` as a context. The kernel frees the lock when the drill's process ends, so the next drill
can say whether the earlier one still runs. A directory of another drill is refused, and nothing of others is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.drill.report import DATA
from migrator.errors import OperatorError

LOCK = "drill.lock"
"""The lock file below `DATA`. It holds the drill's process id, and the kernel frees the lock when that process ends."""
PID_BYTES_MAX = 20
_OTHER = "name another --dir"


@contextmanager
def made(directory: Path) -> Iterator[Callable[[], None]]:
    """The directory and, below it, an empty one for the cluster's data, which no other user may read. They belong to
    this drill while the block runs. Yields a function that removes both directories, for a drill that does not begin.

    :raises OperatorError: they cannot be made, or belong to another drill.
    """
    data = directory / DATA
    was_there = directory.is_dir()
    refuse_taken(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = _locked(data)
    except OSError as error:
        raise OperatorError(
            f"the drill's directory cannot be made: {error.strerror or error}",
            where=str(directory),
            remedy="Name another --dir",
        ) from error

    def forget() -> None:
        shutil.rmtree(data, ignore_errors=True)
        if not was_there:
            directory.rmdir()

    try:
        yield forget
    finally:
        os.close(lock)


def refuse_taken(directory: Path) -> None:
    """Refuse a directory of another drill, before anything is fetched or started.

    :raises OperatorError: another drill has the directory, or had it.
    """
    if os.path.lexists(directory / DATA):
        raise _taken(directory / DATA)


def _locked(data: Path) -> int:
    """Make the directory; it appears under its name with the lock in it and held, so nobody sees it unlocked.

    :returns: the descriptor that holds the lock.
    :raises OperatorError: another drill was faster.
    """
    new = Path(tempfile.mkdtemp(prefix=f".{data.name}-", dir=data.parent))
    lock = -1
    try:
        lock = os.open(new / LOCK, os.O_RDWR | os.O_CREAT, mode=0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, b"%d\n" % os.getpid())
        new.rename(data)  # replaces nothing, or an empty directory
    except BaseException as error:
        if lock >= 0:
            os.close(lock)
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError) and os.path.lexists(data):
            raise _taken(data) from None
        raise
    return lock


def _taken(data: Path) -> OperatorError:
    pid = _runs(data)
    if pid is None:
        return OperatorError("an earlier drill left its data there", where=str(data), remedy=f"Delete it, or {_OTHER}")
    return OperatorError(
        f"a drill runs there{f', as process {pid}' if pid else ''}",
        where=str(data),
        remedy=f"Wait until it has ended, or {_OTHER}",
    )


def _runs(data: Path) -> str | None:
    """The process id of the drill that runs there, "" if it cannot be read; None: none runs there."""
    try:
        lock = os.open(data / LOCK, os.O_RDONLY)
    except PermissionError:
        return ""  # another user's directory: this drill cannot say that it may be deleted
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = os.read(lock, PID_BYTES_MAX).decode("ascii", "replace").strip()
        return text if text.isdecimal() else ""
    else:
        return None
    finally:
        os.close(lock)
