"""`migrator` on a terminal of its own: what a person sees there, and the keys that they press."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.people.support.commands import MIGRATOR

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]")
SIZE = (50, 160)
"""Lines and columns."""
PATIENCE_SECONDS = 60.0


class Terminal:
    """One command on it. `seen` is all that was drawn so far, without the control sequences."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._drawn = asyncio.Event()
        self._bytes = bytearray()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    @property
    def seen(self) -> str:
        return CONTROL.sub("", self._bytes.decode(errors="replace"))

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
            raise AssertionError(f"not seen: {text}\n{self.seen[-4000:]}") from None
        self._bytes.clear()

    def press_ctrl_c(self) -> None:
        os.write(self._descriptor, b"\x03")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        try:
            self._bytes += os.read(self._descriptor, 65536)
        except OSError:  # the command has ended
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._drawn.set()


@asynccontextmanager
async def on_terminal(*arguments: str) -> AsyncIterator[Terminal]:
    """Run it there; whatever still runs at the end is killed."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *MIGRATOR, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        env={**os.environ, "TERM": "xterm-256color"},
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
