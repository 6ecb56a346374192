"""Processor time: of our own processes, and of everybody else's."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from migrator.parts.usage import PeakMemory, ProcessorMeter
from tests.patience import PATIENCE_SECONDS

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


BUSY_SECONDS = 0.3
BUSY = f"import time; end = time.process_time() + {BUSY_SECONDS}\nwhile time.process_time() < end: pass"
SEES_OTHERS = f"""
import time, psutil
from migrator.parts.usage import ProcessorMeter
begin, meter, cores = time.monotonic(), ProcessorMeter(()), psutil.cpu_count() or 1
while meter.others_share * (time.monotonic() - begin) * cores < {BUSY_SECONDS}:
    psutil.cpu_percent(interval=0.1)
"""


def test_processor_time_of_an_ended_child_counts() -> None:
    meter = ProcessorMeter([os.getpid()])
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert meter.seconds > 0.2 * BUSY_SECONDS  # machines that share processors count them differently for each


def test_an_unrelated_process_is_somebody_else() -> None:
    """The two are siblings: an orphan would be this process's own child (see ``tests/conftest.py``)."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            subprocess.run([sys.executable, "-c", SEES_OTHERS], check=True, timeout=PATIENCE_SECONDS)
        finally:
            busy.kill()
