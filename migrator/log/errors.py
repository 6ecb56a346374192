"""Errors of the disk, as messages for the operator.

Code that reads or writes files wraps system calls in `storage_errors`: an `OSError` becomes a `StorageError` that names
the file, the action and, for the usual causes, a remedy. A full disk is a `NoSpaceError` only where the caller can go
on.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.errors import OperatorError


class StorageError(OperatorError):
    """A file could not be read, written or made durable, or its content is wrong."""


class NoSpaceError(StorageError):
    """The disk is full. The file is as it was before."""


_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_REMEDIES = {
    errno.ENOSPC: "Free space on this file system. Nothing that was acknowledged is lost",
    errno.EDQUOT: "Raise the quota or free space; nothing that was acknowledged is lost",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "The file system is read-only. Find out why (dmesg), mount the file system for writing, and start "
    "this process again",
    errno.EIO: "The disk or its driver failed. Check the kernel log (dmesg), and replace the disk. For a "
    "controller, format an empty directory for the same cluster.id and node.id, and start it again",
    errno.EACCES: "Give the user that runs this process the right to do that",
    errno.EPERM: "Give the user that runs this process the right to do that",
    errno.EEXIST: "A file has this name. Look at it with 'ls -l', then move it away or name another directory",
    errno.ENOENT: "Check this path",
    errno.ENOTDIR: "A part of this path is a file: look with 'ls -l', then correct the path",
    errno.EMFILE: "Raise the limit on open files (ulimit -n)",
}


@contextmanager
def storage_errors(doing: str, path: Path, *, no_space: type[StorageError] = StorageError) -> Iterator[None]:
    """Turn an `OSError` into a `StorageError` that names the file.

    :param doing: the action that failed, for example "cannot append".
    :param no_space: the error for a full disk. An fsync that fails on a full disk is as fatal as any other, so it
        keeps the default.
    """
    try:
        yield
    except OSError as error:
        kind = no_space if error.errno in _NO_SPACE else StorageError
        remedy = _REMEDIES.get(error.errno or 0, "")
        where = error.filename if error.errno == errno.EEXIST and error.filename else path  # it may be a parent of path
        raise kind(f"{doing}: {error.strerror or error}", where=str(where), remedy=remedy) from error
