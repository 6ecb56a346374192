"""Processor time: of our own processes, and of everybody else's."""

from __future__ import annotations

import os
import subprocess
import sys

from migrator.parts.processors import ProcessorMeter
from tests.patience import PATIENCE_SECONDS

BUSY_SECONDS = 1.0
BUSY = f"import time; end = time.process_time() + {BUSY_SECONDS}\nwhile time.process_time() < end: pass"
SEES_OTHERS = f"""
import time, psutil
from migrator.parts.processors import ProcessorMeter
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
