"""``python -m migrator.drill.rollout.ask SOCKET ACTION NAME [WORDS...]``: how an executor reaches `Services`.

The drill's inventory has it as its commands. It sends one action to the drill's process and ends with the answer's exit
code; it ends, too, when the drill ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

MODULE = "migrator.drill.rollout.ask"
DONE, RUN = "done", "run"


def main(arguments: Sequence[str]) -> int:
    """Ask, and print the answer. ``run`` runs the words in this process instead, as long as the drill runs."""
    path, action, name, *words = arguments
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"{action} {name}\n".encode())
        if action == RUN:
            threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
            return subprocess.run(words, check=False).returncode
        with connection.makefile(encoding="utf-8") as file:
            outcome, _, text = file.read().partition(" ")
    if outcome == DONE:
        sys.stdout.write(text)
        return 0
    sys.stderr.write(f"{text or 'the drill does not answer'}\n")
    return 1


def _end_with(connection: socket.socket) -> None:
    """End with the drill: it never writes to this connection, so a read returns only at its end."""
    connection.recv(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
