"""Memory of a process and of its children, as the machine tells it."""

from __future__ import annotations

import subprocess
import sys

from migrator.parts.memory import PeakMemory

CHILD = 'kept = b"x" * 200_000_000; print(len(kept), flush=True); input()'


def test_memory_of_children_counts() -> None:
    with PeakMemory() as memory:
        memory.look()
        alone = memory.peak_bytes
        command = [sys.executable, "-c", CHILD]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            memory.look()
            child.communicate("\n")
    assert memory.peak_bytes - alone > 150_000_000
