"""A file of a host as it arrives, piece by piece: bounded, and checked against the digest in its first line."""

from __future__ import annotations

import hashlib
from typing import Protocol

from migrator.rollout.executors.scripts import DIGEST_LINE

HEAD_MAX = 128
"""Bytes of the line with the digest."""


class Out(Protocol):
    """Where the content goes."""

    def restart(self) -> None:
        """Forget what was written."""

    def write(self, data: bytes) -> object: ...


class TooLargeError(Exception):
    """More bytes arrived than a file may have."""


class Memory:
    """An `Out` in memory, for small files."""

    def __init__(self) -> None:
        self.content = bytearray()

    def restart(self) -> None:
        self.content.clear()

    def write(self, data: bytes) -> None:
        self.content += data


class Incoming:
    """What a command prints (`migrator.rollout.executors.bounded.Sink`): the line with the digest, then the content.
    The output of a plain ``cat`` has no such line.

    :param limit: the most bytes of content.
    """

    def __init__(self, out: Out, limit: int) -> None:
        self._out = out
        self.limit = limit
        self.begin()

    def begin(self) -> None:
        """Begin anew, after the output of an earlier command."""
        self._out.restart()
        self._digest = hashlib.sha256()
        self._size = 0
        self._wanted = ""
        self._head: bytes | None = b""
        """The bytes so far, while it is not clear whether the first line has a digest; None afterwards."""

    def add(self, chunk: bytes) -> None:
        """:raises TooLargeError: the content is longer than the limit."""
        if self._head is None:
            self._take(chunk)
            return
        self._head += chunk
        if not self._head.startswith(DIGEST_LINE[: len(self._head)]):
            self._begin_content("", self._head)
        elif b"\n" in self._head or len(self._head) > HEAD_MAX:
            line, _, content = self._head.partition(b"\n")
            self._begin_content(line.removeprefix(DIGEST_LINE).decode("ascii", "replace") or "none", content)

    def is_whole(self) -> bool:
        """Whether the content has the digest, after the last byte."""
        if self._head is not None and not self._head.startswith(DIGEST_LINE):
            self._begin_content("", self._head)
        return self._head is None and self._wanted in ("", self._digest.hexdigest())

    def _begin_content(self, wanted: str, content: bytes) -> None:
        self._wanted, self._head = wanted, None
        self._take(content)

    def _take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self.limit:
            raise TooLargeError
        self._digest.update(chunk)
        self._out.write(chunk)
