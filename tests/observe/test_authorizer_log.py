"""The file of the authorizer's log: bounded, whole, closed to others, and patient with a disk that refuses."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import OperatorError
from migrator.observe.authorizer_log import FILES, KEY, AuthorizerLog
from tests.patience import PATIENCE_SECONDS

BYTES = 1 << 20
HOSTILE = 'eve"\n{"principal":"User:admin"}\r\x1b[2J\u202e\udc80\'\\' + "x" * 32_768


@contextmanager
def log_at(path: Path, **bounds: int) -> Iterator[AuthorizerLog]:
    log = AuthorizerLog(path, bounds.pop("max_bytes", BYTES), **bounds)
    try:
        yield log
    finally:
        log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """Of all files, the oldest first; each line is an object."""
    files = [*sorted(path.parent.glob(f"{path.name}.*")), path]
    return [json.loads(line) for file in files for line in file.read_bytes().split(b"\n")[:-1]]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_no_content_forges_a_line_and_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch(0o644)
    with log_at(path) as log:
        log.put([{"principal": HOSTILE}, {"principal": "User:bob"}])
    first, second = lines(path)
    assert first["principal"] == HOSTILE.replace("\udc80", first["principal"][HOSTILE.index("\udc80")])
    assert second["principal"] == "User:bob"
    assert second["time"].endswith("Z")
    assert path.read_bytes().count(b"\n") == 2
    assert path.read_text().replace("\n", "").isprintable()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_all_files_together_stay_below_the_bound_and_the_oldest_lines_go_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(3):  # a process after another goes on where the one before ended
        with log_at(path) as log:
            for number in range(2_000):
                log.put([{"number": number, "text": "x" * 500}])
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == FILES
    assert BYTES * 0.8 < sum(sizes) <= BYTES
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    numbers = [line["number"] for line in lines(path)]
    assert numbers == [number % 2_000 for number in range(6_000)][-len(numbers) :]


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"principal":"User:bob"}\n{"principal":"Us')
    with log_at(path) as log:
        log.put([{"principal": "User:alice"}])
    whole, torn, after = path.read_bytes().splitlines()
    assert (whole, torn) == (b'{"principal":"User:bob"}', b'{"principal":"Us')
    assert json.loads(after)["principal"] == "User:alice"


def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with log_at(path) as log:
        log.put([{"number": 1}])
        until(lambda: path.stat().st_size > 0)
        path.rename(tmp_path / "taken")
        log.put([{"number": 2}])
    assert [line["number"] for line in lines(path)] == [2]


def test_while_the_disk_refuses_lines_wait_and_what_finds_no_room_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    with log_at(path, queue_bytes=5_000) as log:
        path.unlink()
        path.mkdir()  # as good as a full disk: whatever is tried, fails
        log.put([{"number": 1}])
        until(lambda: log.is_failing)
        log.put({"number": number, "text": "x" * 1_000} for number in range(2, 10))
        assert log.lost == 8 - 4
        assert "Requests are served; 0 lines are lost so far" in caplog.text
        path.rmdir()
        until(lambda: not log.is_failing)
        log.put([{"number": 10}])
    found = lines(path)
    assert [line.get("number", line.get("lost")) for line in found] == [1, 2, 3, 4, 5, 4, 10]
    assert "lost" in found[5]


@pytest.mark.parametrize("what", ["no directory", "a directory", "a pipe"])
def test_a_file_that_cannot_be_opened_is_named(what: str, tmp_path: Path) -> None:
    path = tmp_path / "a" / "log" if what == "no directory" else tmp_path / "log"
    if what == "a directory":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(OperatorError, match="cannot be opened") as caught:
        AuthorizerLog(path, BYTES)
    assert caught.value.where == f"{KEY}: {path}"


CHILD = """
import sys
from pathlib import Path
from migrator.observe.authorizer_log import AuthorizerLog
log = AuthorizerLog(Path(sys.argv[1]), 1 << 20)
number = int(sys.argv[2])
while True:
    if log._room > 1_000_000:
        log.put([{"number": number, "text": "x" * 300}])
        number += 1
"""


def test_a_process_that_is_killed_loses_nothing_that_was_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for start in range(4):
        with subprocess.Popen([sys.executable, "-c", CHILD, str(path), str(start * 10**9)]) as child:
            seen = path.stat().st_ino if path.exists() else 0
            until(lambda: path.exists() and path.stat().st_ino != seen)  # noqa: B023 - waited for here
            child.send_signal(signal.SIGKILL)
    whole = []
    files = [*sorted(tmp_path.glob("log.*")), *tmp_path.glob("log")]
    for file in files:
        for line in file.read_bytes().split(b"\n"):
            try:
                whole.append(json.loads(line)["number"])
            except json.JSONDecodeError:
                assert line == b"" or b'"x' in line or len(line) < 400
    assert whole == sorted(whole)
    starts = [number for number in whole if number % 10**9 == 0]
    assert len(files) <= FILES
    assert set(starts) <= {start * 10**9 for start in range(4)}
    gaps = [later - earlier for earlier, later in itertools.pairwise(whole) if later // 10**9 == earlier // 10**9]
    assert set(gaps) <= {1}
