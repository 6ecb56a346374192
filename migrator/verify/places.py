"""Places of archives: directories of this machine, or an object store of the S3 protocol.

The readers of both sides list a directory, ask for the size of a file, and read ranges of it. `place` gives them a
`pathlib.Path` for either, so they know nothing of stores. Region and login of a store are those that every program of
AWS takes: AWS_REGION, AWS_ACCESS_KEY_ID and others, or the files and roles behind them. AWS_ENDPOINT_URL names a store
of somebody else.
"""

from __future__ import annotations

import errno
import gzip
import io
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path, PosixPath
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import unquote

from migrator.errors import OperatorError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, S3FileSystem

STORE = "s3:"
WINDOW_BYTES = 1024 * 1024
"""The least number of bytes that one request of a sequential reader fetches."""
SMALL_BYTES = 128 * 1024 * 1024
"""A server allocates 64 MiB for a transaction log, and more if it needs more."""
CONNECT_SECONDS = 10
REQUEST_SECONDS = 60
ATTEMPTS = 5
"""How often a request is sent, with longer and longer pauses."""
_ANSWER = re.compile(r"AWS Error (\w+) during \w+ operation: ([^;(]*)")
_NUMBERS = {"ACCESS_DENIED": errno.EACCES, "NO_SUCH_BUCKET": errno.ENOENT, "NETWORK_CONNECTION": errno.EHOSTUNREACH}
_FILE = "file://"
_IN_STORE = re.compile(r"s3://[^/:]+(/.*)?", re.DOTALL)
"""Arrow takes a bucket with a colon for a scheme."""
_ENDPOINT = re.compile(r"(https?)://([^@\s]+?)/*", re.IGNORECASE)
_OTHER = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class StorePath(PosixPath):
    """A path ``s3://BUCKET/KEY``, for reading. A store has no directories: a path is one if a key continues it.

    Each method raises an `OSError`, as that of a file of this machine does.
    """

    def __str__(self) -> str:
        return f"{STORE}//{self._key}"

    def __fspath__(self) -> str:
        return str(self)

    @property
    def _key(self) -> str:
        return "/".join(self.parts[1:])

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 - a store has none
        """The size of the file, and the time of its last change."""
        found = self._info()
        if not found.is_file:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        times = {"st_mtime_ns": found.mtime_ns}
        return os.stat_result((stat.S_IFREG, 0, 0, 0, 0, 0, found.size, 0, 0, 0), times)

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - likewise
        """Whether the store has this key, or keys below this path."""
        return bool(self._info().type.name != "NotFound")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - likewise
        """Whether the store has keys below this path."""
        return bool(self._info().type.name == "Directory")

    def iterdir(self) -> Iterator[StorePath]:  # type: ignore[override]  # of this class, too
        """The paths directly below this one."""
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - a controller has no pyarrow

        with self._named_errors():
            listed = _store().get_file_info(FileSelector(self._key))
        return iter([self / found.base_name for found in listed])

    def open(self, mode: str = "rb", buffering: int = -1, *_: Any) -> BinaryIO:  # type: ignore[override]
        """Open a file to read at any position. ``buffering``: the least that one request fetches, in bytes."""
        if mode != "rb":
            raise OSError(errno.EROFS, "a store is only read", str(self))
        with self._named_errors():
            raw = cast("io.RawIOBase", _store().open_input_file(self._key))
        return cast("BinaryIO", io.BufferedReader(raw, max(buffering, WINDOW_BYTES)))

    def read_bytes(self) -> bytes:
        """Read the whole content."""
        with self.open() as file:
            return file.read()

    def _info(self) -> FileInfo:
        with self._named_errors():
            return _store().get_file_info(self._key)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Turn an error of Arrow into an OSError with the number that a local file would give."""
        try:
            yield
        except FileNotFoundError as error:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from error
        except OSError as error:
            said = _ANSWER.search(str(error))
            if said is None:
                raise
            number = _NUMBERS.get(said[1], errno.EIO)
            raise OSError(number, f"the store answers {said[1]}: {said[2].strip(' .')}", str(self)) from error


def place(text: str) -> Path:
    """The path that an operator names: a path of this machine, also as ``file://``, or ``s3://BUCKET/KEY``.

    :raises OperatorError: it is a place that cannot be read.
    """
    if _IN_STORE.fullmatch(text):
        return StorePath(text)
    if text.startswith(f"{_FILE}/"):
        return Path(unquote(text.removeprefix(_FILE)))
    if _OTHER.match(text):
        remedy = "Give a directory of this machine, also as file:///PATH, or s3://BUCKET/KEY"
        raise OperatorError("this place cannot be read", where=text, remedy=remedy)
    return Path(text)


def mapped(path: Path, *, changes: bool = False) -> mmap.mmap | bytes:
    """The content of a file, decompressed if its name ends with ``.gz``. It is in memory only where it is looked at.
    A file that is compressed, in a store, or changing is copied first: into memory if it is small, else into a
    temporary file without a name.

    :param changes: the file may be cut meanwhile, which would kill a process that has mapped it.
    :raises OSError: it cannot be read.
    :raises EOFError, zlib.error: it does not decompress; so does an `OSError` of class `gzip.BadGzipFile`.
    """
    is_packed = path.suffix == ".gz"
    if changes and not is_packed and path.stat().st_size <= SMALL_BYTES:
        return path.read_bytes()
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(path.open("rb"))
        if is_packed or changes or isinstance(path, StorePath):
            source = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_packed else file
            file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, file, WINDOW_BYTES)
            file.flush()
        size = file.seek(0, os.SEEK_END)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def read_range(path: Path, start: int, size: int) -> bytes:
    """Bytes of a file; of the decompressed content if its name ends with ``.gz``. Errors as in `mapped`."""
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(path.open("rb"))
        if path.suffix == ".gz":
            file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file)))
        file.seek(start)
        return file.read(size)


@cache
def _store() -> S3FileSystem:
    """One for the process: it keeps connections.

    :raises OperatorError: the address of the store is no such address; the message does not show it.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem  # noqa: PLC0415 - a controller has no pyarrow

    named = os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL", ""))
    endpoint = _ENDPOINT.fullmatch(named)
    if named and endpoint is None:
        what = "the address of the store is not a scheme, http or https, with host and port"
        raise OperatorError(what, where="AWS_ENDPOINT_URL", remedy="Set it as SCHEME://HOST:PORT, without a login")
    return S3FileSystem(
        scheme=None if endpoint is None else endpoint[1].lower(),
        endpoint_override=None if endpoint is None else endpoint[2],
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
