"""Standard output that takes nothing: one line, or none, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MIGRATOR = Path(sys.executable).with_name("migrator")
MORE = pytest.mark.lane("test-all")
CASES = pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("--help", ""),
        ("--help", "1"),
        pytest.param("rollout apply --help", "1", marks=MORE),
        pytest.param("rollout schema", "", marks=MORE),
        pytest.param("man", "", marks=MORE),
    ],
)
"""Short and long outputs. One that fits in the buffer fails at the end of the process, or unbuffered at once."""


@CASES
def test_a_full_disk_is_said_in_one_line(words: str, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        ended = subprocess.run(
            [MIGRATOR, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("migrator: standard output: the output cannot be written: No space left on device. ")


@CASES
def test_a_pipe_that_nobody_reads_ends_a_command_without_a_word(words: str, unbuffered: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        ended = subprocess.run(
            [MIGRATOR, *words.split()], stdout=writes, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    finally:
        os.close(writes)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
