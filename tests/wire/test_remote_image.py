"""A big snapshot is read over several looks, on a slow line, from leaders that change, forget and lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from migrator.image.model import ConfigResource, MetadataImage
from migrator.image.replay import replay_snapshot
from migrator.raft.messages import EpochOffset, FetchResponse, FetchSnapshotResponse, RaftResponse
from migrator.raft.transport import UnreachableError
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import ConfigRecord, ConfigResourceType
from migrator.turns import TURN_RECORDS
from migrator.wire import remote_image
from migrator.wire.observer import FIRST_PART_BYTES, NoAnswerError, Observer
from migrator.wire.remote_image import RemoteImage, read_remote_image
from tests.wire.support.snapshot_leader import LEVEL, NEW, OLD, RECORDS, SnapshotLeader, snapshot_bytes

SIZE = len(snapshot_bytes("controller 1, 100"))


def look(leader: SnapshotLeader, *peers: int) -> Observer:
    return Observer(leader, peers or (1, 2), None, patience_seconds=0, gives_up=True)


def words(image: MetadataImage) -> set[str]:
    """Whose snapshot that is, and which."""
    found = [image.configs[ConfigResource(ConfigResourceType.TOPIC, f"t{each}")]["k"] for each in range(RECORDS)]
    return set(found)


async def cut_off(image: RemoteImage, leader: SnapshotLeader) -> None:
    """A look whose time is over while it waits for the rest of the snapshot."""
    leader.silent_from = 1
    reading = asyncio.create_task(image.advance(look(leader)))
    silence = asyncio.create_task(leader.is_silent.wait())
    await asyncio.wait([reading, silence], return_when=asyncio.FIRST_COMPLETED)
    assert silence.done(), "else it was not cut off"
    reading.cancel()
    await asyncio.wait([reading])
    leader.silent_from = 2**63
    leader.is_silent.clear()


async def test_a_snapshot_is_fetched_on_where_a_look_was_cut_off() -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    await cut_off(image, leader)
    assert image.progress == f"0.1 of {SIZE / 1e6:.1f} MB of the leader's snapshot have come"
    assert words(await image.advance(look(leader))) == {"controller 1, 100"}
    ends = [0, *(start + size for start, size in leader.asked)]
    assert [start for start, _ in leader.asked] == ends[:-1], "nothing was sent twice"
    assert ends[-1] == SIZE


async def test_a_snapshot_is_applied_on_where_a_look_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    begun: list[int] = []

    def counted(offset: int, *more: Any) -> Iterator[MetadataImage | None]:
        begun.append(offset)
        return replay_snapshot(offset, *more)

    monkeypatch.setattr(remote_image, "replay_snapshot", counted)
    shown: list[str] = []
    for _ in range(3):
        reading = asyncio.create_task(image.advance(look(leader)))
        while image.progress in ("record 0 of 0", *shown) or not image.progress.endswith("are applied"):
            assert not reading.done()
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        shown.append(image.progress)
    assert shown == sorted(set(shown))
    assert words(await image.advance(look(leader))) == {"controller 1, 100"}
    assert sum(size for _, size in leader.asked) == SIZE, "it was sent once"
    assert begun == [OLD.offset], "and replayed once"


async def test_a_large_batch_is_applied_in_turns_and_on_where_a_look_was_cut_off() -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    await image.advance(look(leader))
    changed = [ConfigRecord(ConfigResourceType.TOPIC, f"t{each}", "k", "changed") for each in range(RECORDS)]
    batch = build_batch(encode_all(changed, LEVEL), timestamp_ms=0, base_offset=OLD.offset, leader_epoch=1)
    end, turns = OLD.offset + RECORDS, list[int]()

    def with_log(answer: RaftResponse) -> RaftResponse:
        records = batch if image._offset < end else b""
        return replace(answer, records=records, high_watermark=end) if isinstance(answer, FetchResponse) else answer

    leader.told = with_log
    for patience in (5, 10, 1_000):
        reading = asyncio.create_task(image.advance(look(leader)))
        for turn in range(patience):
            if reading.done():
                break
            turns.append(turn)
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
    assert words(reading.result()) == {"changed"}
    assert len(turns) > 3 * RECORDS / TURN_RECORDS, "decoded, applied and published in turns"


async def test_a_newer_snapshot_does_not_make_the_reading_begin_again() -> None:
    """A leader that makes one quicker than we read would never be read to the end."""
    leader, image = SnapshotLeader(), RemoteImage()
    await cut_off(image, leader)
    leader.newest = NEW
    assert words(await image.advance(look(leader))) == {"controller 1, 200"}
    assert [start for start, _ in leader.asked].count(0) == 2, "of the old one, the rest; then the new one"
    assert sum(size for _, size in leader.asked) == SIZE + len(snapshot_bytes("controller 1, 200"))


async def test_another_leaders_snapshot_is_read_from_its_begin() -> None:
    """The snapshot has the same id, and may have other bytes."""
    leader, image = SnapshotLeader(), RemoteImage()
    await cut_off(image, leader)
    leader.leading = 2
    assert words(await image.advance(look(leader))) == {"controller 2, 100"}


async def test_the_leader_changes_in_the_middle_of_a_snapshot() -> None:
    leader = SnapshotLeader()

    def resigns(answer: RaftResponse) -> RaftResponse:
        leader.leading = 2 if isinstance(answer, FetchSnapshotResponse) else leader.leading
        return answer

    leader.told = resigns
    assert words(await read_remote_image(look(leader))) == {"controller 2, 100"}


async def test_a_snapshot_that_is_deleted_meanwhile_gives_way_to_the_newest() -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    await cut_off(image, leader)
    leader.newest = NEW
    leader.held = {NEW}
    assert words(await image.advance(look(leader))) == {"controller 1, 200"}


async def test_a_leader_that_is_away_for_a_look_sends_nothing_twice() -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    await cut_off(image, leader)

    class Away(SnapshotLeader):
        async def send(self, *_: Any) -> RaftResponse:
            raise UnreachableError("away")

    with pytest.raises(NoAnswerError):
        await image.advance(look(Away()))
    await image.advance(look(leader))
    assert sum(size for _, size in leader.asked) == SIZE


async def test_a_slow_line_gets_smaller_parts_and_no_more_time() -> None:
    leader = SnapshotLeader()
    leader.slow_above = 2 * FIRST_PART_BYTES
    assert words(await read_remote_image(look(leader))) == {"controller 1, 100"}
    assert max(size for _, size in leader.asked) == FIRST_PART_BYTES


async def test_a_stock_leaders_log_which_comes_in_large_answers_gets_more_time() -> None:
    leader = SnapshotLeader()
    leader.log_seconds = 10
    with pytest.raises(NoAnswerError):
        await read_remote_image(look(leader))
    await read_remote_image(Observer(leader, (1,), None, patience_seconds=0, fetch_seconds=15))


async def test_a_quick_line_gets_larger_parts() -> None:
    leader = SnapshotLeader()
    await read_remote_image(Observer(leader, (1,), None, patience_seconds=0, request_seconds=3600))
    assert [start for start, _ in leader.asked] == [0, FIRST_PART_BYTES]


def lying(**lie: Any) -> Callable[[RaftResponse], RaftResponse]:
    return lambda answer: replace(answer, **lie) if isinstance(answer, FetchSnapshotResponse) else answer


def growing(answer: RaftResponse) -> RaftResponse:
    if not isinstance(answer, FetchSnapshotResponse):
        return answer
    return replace(answer, size=answer.position + 2 * FIRST_PART_BYTES)


def other_way(answer: RaftResponse) -> RaftResponse:
    if not isinstance(answer, FetchResponse):
        return answer
    return replace(answer, snapshot_id=None, diverging=EpochOffset(1, 0))


@pytest.mark.parametrize(
    "told",
    [
        lying(size=2**62), lying(size=1), lying(size=-5), lying(position=7), lying(data=b""), growing, other_way,
    ],
    ids=["huge", "too small", "negative", "elsewhere", "empty", "grows", "always diverging"],
)  # fmt: skip
async def test_a_broken_leader_is_not_read_for_ever(told: Callable[[RaftResponse], RaftResponse]) -> None:
    leader = SnapshotLeader()
    leader.told = told
    with pytest.raises(NoAnswerError):
        await read_remote_image(look(leader))


async def test_a_leader_that_names_one_snapshot_after_the_other_is_not_read_for_ever() -> None:
    leader = SnapshotLeader()
    leader.newest = EpochOffset(1, 10**9)

    def older(answer: RaftResponse) -> RaftResponse:
        return replace(answer, snapshot_id=OLD) if isinstance(answer, FetchResponse) else answer

    leader.told = older
    with pytest.raises(NoAnswerError, match="lets nobody read its log to the end"):
        await read_remote_image(look(leader))


async def test_a_log_that_came_damaged_is_read_again() -> None:
    """A record that was not applied is not passed over."""
    leader, image = SnapshotLeader(), RemoteImage()
    await image.advance(look(leader))
    batch = build_batch([b"\xff"], timestamp_ms=0, base_offset=OLD.offset, leader_epoch=1)

    def damaged(answer: RaftResponse) -> RaftResponse:
        return replace(answer, records=batch, high_watermark=101) if isinstance(answer, FetchResponse) else answer

    leader.told = damaged
    with pytest.raises(CorruptRecordsError):
        await image.advance(look(leader))
    leader.told = SnapshotLeader().told
    await image.advance(look(leader))
    assert [start for start, _ in leader.asked].count(0) == 2


async def test_a_snapshot_that_came_damaged_is_fetched_again() -> None:
    leader, image = SnapshotLeader(), RemoteImage()
    leader.told = lambda answer: (
        replace(answer, data=b"\xff" * len(answer.data)) if isinstance(answer, FetchSnapshotResponse) else answer
    )
    with pytest.raises(CorruptRecordsError):
        await image.advance(look(leader))
    leader.told = SnapshotLeader().told
    assert words(await image.advance(look(leader))) == {"controller 1, 100"}
