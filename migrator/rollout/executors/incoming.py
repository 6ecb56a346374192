"""A file of a host as it arrives, piece by piece: bounded, and compared with the digest in the line before it."""

from __future__ import annotations

import hashlib
from typing import Protocol

from migrator.rollout.executors.scripts import DIGEST_LINE

HEAD_MAX = 128
"""Of the line with the digest."""


class Out(Protocol):
    """Takes the content."""

    def restart(self) -> None:
        """Forget what was written."""

    def write(self, data: bytes) -> object: ...


class TooLargeError(Exception):
    """More has come than is taken of a file."""


class Memory:
    """`Out` for small files."""

    def __init__(self) -> None:
        self.content = bytearray()

    def restart(self) -> None:
        """Forget what was written."""
        self.content.clear()

    def write(self, data: bytes) -> None:
        self.content += data


class Incoming:
    """What a command prints (`migrator.rollout.executors.bounded.Sink`): the line with the digest, and the content. A
    plain ``cat`` has no such line.

    :param limit: bytes of content.
    """

    def __init__(self, out: Out, limit: int) -> None:
        self._out = out
        self.limit = limit
        self.begin()

    def begin(self) -> None:
        """From the beginning, if another command printed before."""
        self._out.restart()
        self._digest = hashlib.sha256()
        self._size = 0
        self._wanted = ""
        self._head: bytes | None = b""
        """What came before it was clear whether there is a digest; None afterwards."""

    def add(self, chunk: bytes) -> None:
        """
        :raises TooLargeError: this is too much.
        """
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
        """Whether the content has the digest, now that nothing more comes."""
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
