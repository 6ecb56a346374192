"""`migrator` on a terminal of its own: what a person sees there, and the keys that they press."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.people.support.commands import MIGRATOR

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]")
SIZE = (50, 160)
"""Lines and columns."""
SIZE_OF_OTHERS = ("LINES", "COLUMNS")
"""Whoever runs the tests may say how large its own terminal is; the command would believe it."""
KEPT = 1 << 18
"""So many of the last characters are looked at: a view that draws itself four times a second goes on for ever."""
PATIENCE_SECONDS = 60.0


class Terminal:
    """One command on it. `seen` is what was drawn since the last `shows`, without the control sequences."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._drawn = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        """The begin of a control sequence."""
        self.seen = ""
        self._drawn_raw = ""
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    async def shows(self, text: str) -> None:
        """Wait until it was drawn since the last call.

        :raises AssertionError: it was not.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while text not in self.seen:
                    self._drawn.clear()
                    await self._drawn.wait()
        except TimeoutError:
            raise AssertionError(f"not seen: {text}\n{re.sub(r' {3,}', '  ', self.seen)[-4000:]}") from None
        self.seen = ""

    async def to_the_end(self) -> str:
        """All that the command drew until it ended, with the control sequences."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._ended.wait()
        return self._drawn_raw

    def resize(self, lines: int, columns: int) -> None:
        """As somebody who pulls at the corner of the window."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press_ctrl_c(self) -> None:
        os.write(self._descriptor, b"\x03")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        try:
            new = self._decoder.decode(os.read(self._descriptor, 65536))
        except OSError:  # the command has ended
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._ended.set()
            new = ""
        self._drawn_raw = (self._drawn_raw + new)[-KEPT:]
        text = self._unfinished + new
        begin = text.rfind("\x1b")
        whole = len(text) if begin < 0 or CONTROL.match(text, begin) else begin
        self._unfinished = text[whole:]
        self.seen = (self.seen + CONTROL.sub("", text[:whole]))[-KEPT:]
        self._drawn.set()


@asynccontextmanager
async def on_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Terminal]:
    """Run it there; whatever still runs at the end is killed."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *MIGRATOR, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        env={key: text for key, text in os.environ.items() if key not in SIZE_OF_OTHERS}
        | {"TERM": "xterm-256color"} | dict(env or {}),
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(process, mine)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()
