"""``python -m migrator.drill.rollout.ask SOCKET ACTION NODE``: what an executor runs to reach `Services`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

MODULE = "migrator.drill.rollout.ask"


def main(arguments: Sequence[str]) -> int:
    """Ask, and print what was answered."""
    path, action, node = arguments
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw", encoding="utf-8") as file:
        connection.connect(path)
        file.write(f"{action} {node}\n")
        file.flush()
        outcome, _, text = file.read().partition(" ")
    if outcome == "done":
        sys.stdout.write(text)
        return 0
    sys.stderr.write(f"{text or 'the drill does not answer'}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
