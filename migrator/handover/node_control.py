"""Stops and starts processes for a hand-over, by the operator's commands, or by asking the operator.

`execute` calls `OperatorCommands`. A command runs without a shell and within a time-out. Its success proves nothing:
the caller looks whether the node has stopped or started, and may call again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from migrator.errors import OperatorError
from migrator.rollout.executors.bounded import CommandTimeoutError, run_bounded

COMMAND_SECONDS = 120.0
TAIL_BYTES = 2000


class OperatorCommands:
    """Runs the operator's command lines, without a shell. ``{node}`` and ``{file}`` stand for the node's id and the
    stock property file. Without a command, a message asks the operator to do it. Both methods may be called again for a
    node that is already stopped or started, and may return before the node is.

    :param tell: shows a sentence to the operator.
    :raises OperatorError: the quotes of a command line are not closed.
    """

    def __init__(self, stop: str | None, start: str | None, tell: Callable[[str], None]) -> None:
        self._stop = _words(stop, "--stop-command")
        self._start = _words(start, "--start-command")
        self._tell = tell

    async def stop(self, node_id: int) -> None:
        """Stop our controller, by a clean shutdown.

        :raises OperatorError: the stop can't be begun.
        """
        if not self._stop:
            self._tell(f"Now stop this program's service of controller {node_id}")
            return
        await _run(self._stop, node_id, None)

    async def start(self, node_id: int, property_file: Path) -> None:
        """Start Kafka's controller with this property file.

        :raises OperatorError: the start can't be begun.
        """
        if not self._start:
            self._tell(f"Now start Kafka's controller {node_id} with {property_file}")
            return
        await _run(self._start, node_id, property_file)


def _words(command: str | None, option: str) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise OperatorError(
            str(error), where=f"{option} {command}", remedy="Quote the command as for a shell"
        ) from error


async def _run(words: list[str], node_id: int, file: Path | None) -> None:
    """
    :raises OperatorError: the command can't be run, fails, or is too slow. When it fails, the message has the end of
        its output.
    """
    command = [word.replace("{node}", str(node_id)).replace("{file}", str(file or "")) for word in words]
    where = shlex.join(command)
    try:
        ended = await run_bounded(command, stdin=None, seconds=COMMAND_SECONDS, output_max=TAIL_BYTES)
    except OSError as error:
        raise OperatorError(
            f"the command cannot be run: {error}", where=where, remedy="Give its whole path; it runs without a shell"
        ) from error
    except CommandTimeoutError:
        raise OperatorError(
            f"the command still ran after {COMMAND_SECONDS:.0f} s",
            where=where,
            remedy="The command has to return as soon as the service was started or stopped",
        ) from None
    if ended.exit_code:
        tail = (ended.output + ended.errors)[-TAIL_BYTES:].decode("utf-8", "replace").strip()
        raise OperatorError(
            f"the command ended with exit code {ended.exit_code}: {tail}",
            where=where,
            remedy="Correct this, and repeat 'migrator handover run': it goes on from here",
        )
