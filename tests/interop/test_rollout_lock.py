"""The lock of a rollout in the metadata: Kafka's controllers load it, and lead with it; brokers pass over it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from migrator.controller.rollout_lock import KEY, lock_text
from migrator.drill.cluster import ControllerProcess
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.kafka import KafkaRelease
from migrator.rollout.lock.places import LockEntry, encoded
from migrator.rollout.ports import LockHolder
from migrator.verify.kraft.files import read_image
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.changing_voters import ChangingVoters, Writers
from tests.interop.support.cluster import Admin
from tests.interop.support.mixed_voters import Brokers, MixedVoters
from tests.patience import PATIENCE_SECONDS

HOLDER = LockHolder("ab12cd34", "olivia", "ops-1.example", 1_790_000_000_000)
LOCK = encoded(LockEntry(HOLDER, "0123456789abcdef")).decode()
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "300"}
LONG = pytest.mark.lane("test-long")
NODE, STOCK = 1, 3
TOPIC = "orders"


async def lock_of(quorum: ChangingVoters, *words: str) -> dict[str, object]:
    """The output of `migrator quorum rollout-lock` on the leader's machine."""
    answer: dict[str, object] = json.loads(await quorum.order("rollout-lock", *words))
    return answer


async def take(quorum: ChangingVoters) -> None:
    assert await lock_of(quorum, "--move", "", LOCK) == {"held": LOCK, "moved": True}


async def give_back(quorum: ChangingVoters) -> None:
    assert await lock_of(quorum) == {"held": LOCK, "moved": False}
    assert await lock_of(quorum, "--move", LOCK, "") == {"held": "", "moved": True}


def snapshots_with_lock(controller: ControllerProcess) -> set[Path]:
    files = (controller.metadata_directory / DIRECTORY_NAME).glob("*.checkpoint")
    return {path for path in files if KEY.encode() in path.read_bytes()}


async def until_snapshot_with_lock(controller: ControllerProcess, known: set[Path]) -> None:
    """Until there is one that is not among the known ones."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not snapshots_with_lock(controller) - known:
            await asyncio.sleep(0.05)


async def create(brokers: Brokers, topic: str) -> None:
    await asyncio.to_thread(lambda: Admin(brokers.bootstrap, len(brokers.nodes)).create(topic, 1, len(brokers.nodes)))


@pytest.mark.parametrize(
    ("release", "in_snapshot"),
    [
        ("3.9.1", True),
        *(pytest.param(*case, marks=LONG) for case in (("3.9.1", False), ("4.1.1", True), ("4.1.1", False))),
    ],
)
async def test_a_stock_controller_leads_in_a_directory_whose_lock_is_held(
    tmp_path: Path, release: str, in_snapshot: bool
) -> None:
    kafka = KafkaRelease(release).fetch()
    quorum = ChangingVoters(tmp_path, size=1, voters=1)
    ours = quorum.controllers[NODE]
    ours.properties |= OFTEN if in_snapshot else {}
    stock = StockController(kafka, ours)
    brokers = Brokers(tmp_path, (kafka,), f"127.0.0.1:{quorum.ports[NODE]}")
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await take(quorum)
        if in_snapshot:
            writers = Writers(quorum, 1)
            await until_snapshot_with_lock(ours, set())
            await writers.end()
        await asyncio.to_thread(ours.stop)
        known = snapshots_with_lock(ours)
        assert bool(known) is in_snapshot
        quorum.controllers = {NODE: stock}
        await asyncio.to_thread(stock.start)
        await quorum.until(lambda found: found.leader_id == NODE)
        await asyncio.to_thread(brokers.start)
        await create(brokers, TOPIC)
        if in_snapshot:
            await until_snapshot_with_lock(stock, known)
        await asyncio.to_thread(stock.stop)
        image = read_image(ours.metadata_directory)
        assert (lock_text(image), image.topics.by_name(TOPIC) is not None) == (LOCK, True)
        quorum.controllers = {NODE: ours}
        await asyncio.to_thread(ours.start)
        await give_back(quorum)
        image = await quorum.image()
        assert (lock_text(image), image.topics.by_name(TOPIC) is not None) == ("", True)
    finally:
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(stock.kill)
        await asyncio.to_thread(quorum.close)


@LONG
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
async def test_a_stock_voter_beside_ours_leads_while_the_lock_is_held(tmp_path: Path, release: str) -> None:
    kafka, older, newer = (KafkaRelease(version).fetch() for version in (release, "3.9.1", "4.1.1"))
    quorum = MixedVoters(tmp_path, kafka, size=3, stock=STOCK)
    brokers = Brokers(tmp_path, (older, newer), quorum.servers)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        await asyncio.to_thread(brokers.start)
        writers = Writers(quorum, 1)
        try:
            await quorum.until_ours_leads(writers)
            await take(quorum)
            while (found := await quorum.until(lambda _: True)).leader_id != STOCK:
                await quorum.kill(found.leader_id, writers)
            await create(brokers, TOPIC)
            await quorum.until_ours_leads(writers)
            await create(brokers, f"{TOPIC}-2")
            await give_back(quorum)
        finally:
            await writers.end()
        image = await quorum.image()
        assert lock_text(image) == ""
        assert {TOPIC, f"{TOPIC}-2"} <= {*image.topics.ids}
        assert writers.lost(image) == []
    finally:
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(quorum.close)
