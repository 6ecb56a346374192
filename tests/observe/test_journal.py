from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.machine import Machine, running_on, write_again
from migrator.observe.journal import FILE_NAME, OLD_SUFFIX, Journal


def texts(journal: Journal, after: int = 0) -> list[str]:
    return [event.text for event in journal.after(after)]


def test_events_survive_a_restart_with_their_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20)
    for number in range(3):
        assert journal.append(number, "transition", f"event {number}", who="me").sequence == number + 1
    journal.close()
    journal = Journal(tmp_path, 1 << 20)
    assert texts(journal) == ["event 0", "event 1", "event 2"]
    assert texts(journal, after=2) == ["event 2"]
    assert journal.append(9, "transition", "next").sequence == 4
    journal.close()


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_line_that_a_crash_cut_is_passed_over(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, 1 << 20)
    journal.append(1, "transition", "first")
    journal.append(2, "transition", "second")
    journal.close()
    file = tmp_path / FILE_NAME
    file.write_bytes(file.read_bytes()[:-cut])
    journal = Journal(tmp_path, 1 << 20)
    kept = texts(journal)
    assert kept == (["first", "second"] if cut == 1 else ["first"])
    journal.append(3, "transition", "third")
    journal.close()
    journal = Journal(tmp_path, 1 << 20)
    assert texts(journal) == [*kept, "third"]
    journal.close()


def test_the_files_are_bounded_and_one_older_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2_000)
    for number in range(200):
        journal.append(number, "transition", f"event {number}")
    journal.close()
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, FILE_NAME + OLD_SUFFIX}
    assert all(path.stat().st_size < 2_200 for path in tmp_path.iterdir())
    journal = Journal(tmp_path, 2_000)
    assert texts(journal)[-1] == "event 199"
    assert journal.append(0, "transition", "more").sequence == 201
    journal.close()


def test_a_directory_that_is_not_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        Journal(tmp_path / "missing", 1 << 20)
    assert str(tmp_path) in caught.value.where
    assert caught.value.remedy


class Hesitant(Machine):
    """Takes a line in parts, and notes which names are durable."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[set[str]] = []

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        return super().write(descriptor, data[:7], position)

    def sync(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self.durable.append(set(os.listdir(descriptor)))
        super().sync(descriptor)


def test_a_line_is_whole_and_its_file_has_a_durable_name(tmp_path: Path) -> None:
    """A short write left the line torn, and the next one was glued to it; a power cut could take the file."""
    hesitant = Hesitant()
    with running_on(hesitant):
        journal = Journal(tmp_path, max_bytes=1)
        assert hesitant.durable[-1] == {FILE_NAME}
        journal.append(1, "kind", "one")
        journal.append(2, "kind", "two")
        assert hesitant.durable[-1] == {FILE_NAME, FILE_NAME + OLD_SUFFIX}
        journal.close()
        assert texts(Journal(tmp_path, max_bytes=1)) == ["one", "two"]


class FullDisk(Machine):
    """Takes so many bytes, and a few of them at a time."""

    room = 1 << 20

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "full")
        part = data[: min(50, self.room)]
        self.room -= len(part)
        return super().write(descriptor, part, position)


def test_a_disk_that_is_full_in_the_middle_of_a_line_costs_that_line_only(tmp_path: Path) -> None:
    disk = FullDisk()
    with running_on(disk):
        journal = Journal(tmp_path, 1 << 20)
        journal.append(1, "order", "first")
        disk.room = 60
        with pytest.raises(OperatorError, match="full"):
            journal.append(2, "order", "lost")
        disk.room = 1 << 20
        journal.append(3, "order", "third")
        journal.close()
        journal = Journal(tmp_path, 1 << 20)
        assert texts(journal) == ["first", "third"]
        journal.close()


class ForgetfulDisk(Machine):
    """Fails at fsyncs when told. As Linux, it then counts the pages as written: a power cut takes them."""

    fails = keeps = False

    def __init__(self) -> None:
        self.written: list[tuple[int, bytes]] = []
        self.durable = bytearray()

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        self.written.append((position, bytes(data)))
        return super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        written, self.written = self.written, []
        if self.fails:
            raise OSError(errno.EIO, "failed")
        size = os.fstat(descriptor).st_size
        self.durable = self.durable[:size].ljust(size, b"\0")
        for position, data in written:
            self.durable[position : position + len(data)] = data

    def truncate(self, descriptor: int, size: int) -> None:
        if self.keeps:
            raise OSError(errno.EIO, "failed")
        super().truncate(descriptor, size)

    def lose_power(self, path: Path) -> None:
        path.write_bytes(self.durable)


@pytest.mark.parametrize("keeps", [False, True])
def test_what_an_fsync_has_failed_for_does_not_count_later_and_costs_no_other_line(tmp_path: Path, keeps: bool) -> None:
    """A disk that ``keeps`` what it has does not let it be cut away either."""
    disk = ForgetfulDisk()
    with running_on(disk):
        journal = Journal(tmp_path, 1 << 20)
        journal.append(1, "order", "first")
        disk.fails, disk.keeps = True, keeps
        with pytest.raises(OperatorError, match="failed"):
            journal.append(2, "order", "refused")
        disk.fails = disk.keeps = False
        journal.append(3, "order", "third")
        journal.close()
        disk.lose_power(tmp_path / FILE_NAME)
        journal = Journal(tmp_path, 1 << 20)
        assert texts(journal) == ["first", "third"]
        journal.close()


def test_what_is_shown_at_a_start_is_durable_after_it(tmp_path: Path) -> None:
    """The process before had a failed fsync, and no time to cut the line."""
    disk = ForgetfulDisk()
    with running_on(disk):
        (tmp_path / FILE_NAME).write_bytes(b'{"sequence":1,"time_ms":1,"kind":"k","text":"one","details":{}}\n{"torn')
        journal = Journal(tmp_path, 1 << 20)
        journal.append(2, "order", "two")
        journal.close()
        disk.lose_power(tmp_path / FILE_NAME)
        journal = Journal(tmp_path, 1 << 20)
        assert texts(journal) == ["one", "two"]
        journal.close()


def test_what_happens_by_itself_waits_for_room_and_an_order_is_refused(tmp_path: Path) -> None:
    """A leader that steps down because its disk is full stopped, as it could not note that it steps down."""
    disk = FullDisk()
    with running_on(disk):
        journal = Journal(tmp_path, 1 << 20)
        disk.room = 0
        journal.note(1, "transition", "steps down")
        with pytest.raises(OperatorError, match="full"):
            journal.append(2, "order", "refused")
        assert texts(journal, after=-1) == ["steps down"]
        assert texts(journal) == [], "without a number: after a kill the next event would have the same"
        disk.room = 1 << 20
        journal.append(3, "order", "given")
        journal.close()
        journal = Journal(tmp_path, 1 << 20)
        assert texts(journal) == ["steps down", "given"]
        assert [event.sequence for event in journal.after(-1)] == [1, 2]
        journal.close()


def test_the_last_chance_of_what_waits_is_the_end(tmp_path: Path) -> None:
    disk = FullDisk()
    with running_on(disk):
        journal = Journal(tmp_path, 1 << 20)
        disk.room = 0
        journal.note(1, "transition", "steps down")
        disk.room = 1 << 20
        journal.close()
        journal = Journal(tmp_path, 1 << 20)
        assert texts(journal) == ["steps down"]
        journal.close()


def test_a_full_journal_goes_on_where_no_new_file_can_be_made(tmp_path: Path) -> None:
    class NoNewFiles(Machine):
        refuses = False

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            if self.refuses and not path.exists():
                raise OSError(errno.ENOSPC, "full")
            return super().open(path, flags, mode)

    disk = NoNewFiles()
    with running_on(disk):
        journal = Journal(tmp_path, 10)
        journal.append(1, "order", "one")
        disk.refuses = True
        with pytest.raises(OperatorError, match="full"):
            journal.append(2, "order", "refused")
        disk.refuses = False
        journal.append(3, "order", "two")
        journal.close()
        journal = Journal(tmp_path, 10)
        assert texts(journal) == ["one", "two"]
        journal.close()


class Shrinking(Machine):
    """Another process cuts a file between the look at its size and the read."""

    def size(self, descriptor: int) -> int:
        return super().size(descriptor) + 1


def test_a_file_that_is_cut_meanwhile_does_not_hold_up_a_start(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"line")
    with running_on(Shrinking()):
        write_again(descriptor)
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"line"


class CountedDisk(Machine):
    """Its fsyncs of files fail; it counts what is open."""

    open_now = 0

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self.open_now += 1
        return super().open(path, flags, mode)

    def close(self, descriptor: int) -> None:
        self.open_now -= 1
        super().close(descriptor)

    def sync(self, descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "failed")


def test_a_start_that_fails_leaves_no_file_open(tmp_path: Path) -> None:
    disk = CountedDisk()
    with running_on(disk), pytest.raises(OperatorError, match="failed"):
        Journal(tmp_path, 1 << 20)
    assert disk.open_now == 0


class HalfRotated(Machine):
    """Once told, makes new files that are not durable, and gives none its name back."""

    fails = False

    def sync(self, descriptor: int) -> None:
        if self.fails and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "no room")
        super().sync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        if self.fails and old.name.endswith(OLD_SUFFIX):
            raise OSError(errno.EIO, "no room")
        super().rename(old, new)


def test_a_full_journal_is_written_on_while_no_new_file_can_be_made(tmp_path: Path) -> None:
    """Every order was refused meanwhile; and where a new file was there but not durable, it took the place of the full
    one."""
    disk = HalfRotated()
    with running_on(disk):
        journal = Journal(tmp_path, max_bytes=200)
        written = [journal.append(number, "order", "o" * 120).sequence for number in range(1, 3)]
        disk.fails = True
        for number in range(3, 9):
            with suppress(OperatorError):
                written.append(journal.append(number, "order", "o" * 120).sequence)
        assert written == [1, 2, 3], "up to twice its size"
        disk.fails = False
        journal.append(9, "order", "later")
        journal.append(10, "order", "last")
        journal.close()
        assert len(texts(Journal(tmp_path, 1 << 20))) == 5
