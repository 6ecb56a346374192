"""Processor time: of our own processes, and of everybody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from migrator.parts.processors import ProcessorMeter

BUSY_SECONDS = 1.0
BUSY = f"import time; end = time.process_time() + {BUSY_SECONDS}\nwhile time.process_time() < end: pass"


def test_processor_time_of_an_ended_child_counts() -> None:
    meter = ProcessorMeter([os.getpid()])
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert meter.seconds > 0.2 * BUSY_SECONDS


def test_an_unrelated_process_is_somebody_else() -> None:
    begin, meter = time.monotonic(), ProcessorMeter(())
    script = '"$0" -c "$1" &'  # orphaned at once; it holds the pipe until it ends
    subprocess.run(["sh", "-c", script, sys.executable, BUSY], check=True, stdout=subprocess.PIPE)
    seconds = meter.others_share * (time.monotonic() - begin) * (psutil.cpu_count() or 1)
    assert seconds > 0.2 * BUSY_SECONDS  # machines that share processors count them differently for each
