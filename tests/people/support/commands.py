"""`migrator`, as a person runs it: what it printed, and its exit code."""

from __future__ import annotations

import asyncio
import sys

from migrator.values import value

MIGRATOR = (sys.executable, "-c", "from migrator.cli.main import main; main()")


@value
class Said:
    """Lines are joined as a wide terminal would show them."""

    code: int
    text: str

    def __contains__(self, text: str) -> bool:
        return text in " ".join(self.text.split())


async def migrator(*arguments: str) -> Said:
    """Run it without a terminal."""
    process = await asyncio.create_subprocess_exec(
        *MIGRATOR, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return Said(process.returncode, output.decode())
