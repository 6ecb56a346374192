"""A group notices records that it never got, and commits that the cluster forgot."""

from __future__ import annotations

from migrator.drill.kafka.traffic import GroupProgress


def after(*offsets: int, committed: int = 0) -> GroupProgress:
    progress = GroupProgress()
    progress.acknowledge(0, committed)
    for offset in offsets:
        progress.take(0, offset)
    return progress


def test_in_order_is_no_fault() -> None:
    progress = after(0, 1, 2)
    progress.take(1, 0)
    assert (progress.faults, progress.read_again, progress.next) == ([], 0, {0: 3, 1: 1})


def test_a_jump_ahead_lost_records() -> None:
    assert after(0, 1, 3).faults == ["partition 0: read offset 3 after 1"]
    assert after(1).faults == ["partition 0: read offset 1 after -1"]


def test_a_jump_back_is_one_only_behind_what_was_committed() -> None:
    again = after(0, 1, 2, 1, 2, 3, committed=1)
    assert (again.faults, again.read_again) == ([], 2)
    assert after(0, 1, 2, 0, committed=1).faults == ["partition 0: read offset 0 again, 1 was committed"]


def test_an_older_commit_does_not_undo_a_newer_one() -> None:
    progress = after(committed=5)
    progress.acknowledge(0, 3)
    assert progress.committed == {0: 5}
