"""Memory of a process and of its children, as the machine tells it."""

from __future__ import annotations

import subprocess
import sys

import psutil

from migrator.parts.memory import PeakMemory

CHILD = 'kept = b"x" * 200_000_000; print(len(kept), flush=True); input()'
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_memory_of_children_counts() -> None:
    """Of a process whose only other children are none of this test run's."""
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        with PeakMemory(parent.pid) as memory:
            memory.look()
            alone = psutil.Process(parent.pid).memory_info().rss
        parent.communicate("\n")
    assert memory.peak_bytes - alone > 150_000_000
