"""Two voters of ours and a stock one: a new quorum starts without an order, and lost disks elect no empty log.

What a stock voter tells of its log without being asked for its vote differs: see `migrator.raft.census`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from migrator.drill.cluster import ControllerProcess
from migrator.log.empty_mark import EmptyMark, EmptyReason
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.kafka import KafkaRelease
from tests.interop.support.mixed_voters import MixedVoters
from tests.patience import PATIENCE_SECONDS

OURS, STOCK = (1, 2), 3
WAITS = "takes no part in elections.*"


def mixed(tmp_path: Path, release: str, *, configured: bool) -> MixedVoters:
    quorum = MixedVoters(tmp_path, KafkaRelease(release).fetch(), size=3, stock=STOCK, configured=configured)
    for node in OURS:
        quorum.controllers[node].properties["migrator.quorum.require.bootstrap"] = "true"
    return quorum


def log_directory(controller: ControllerProcess) -> Path:
    return controller.metadata_directory / DIRECTORY_NAME


def has_said(controller: ControllerProcess, pattern: str) -> bool:
    return controller.process is not None and re.search(pattern, controller.process.output_text()) is not None


def is_gone(mark: EmptyMark) -> bool:
    return mark.read() is None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.1)


async def starts_without_an_order(quorum: MixedVoters) -> None:
    await asyncio.to_thread(quorum.format_and_start)
    await quorum.until_caught_up()
    for node in OURS:
        mark = EmptyMark(log_directory(quorum.controllers[node]))
        await until(partial(is_gone, mark))


@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
async def test_a_new_quorum_whose_voters_are_in_the_log_needs_no_order(tmp_path: Path, release: str) -> None:
    quorum = mixed(tmp_path, release, configured=False)
    try:
        await starts_without_an_order(quorum)
    finally:
        await asyncio.to_thread(quorum.close)


@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
async def test_two_lost_disks_wait_for_the_log_of_a_stock_voter(tmp_path: Path, release: str) -> None:
    """Configured voters start without an order. Then stock alone has the log, and no majority any more. It is asked,
    and neither votes for an empty log nor is carried into a higher epoch by the question; an operator then starts one
    of the two with --bootstrap. A mark that is left in the directory of the stock voter disturbs nobody."""
    quorum = mixed(tmp_path, release, configured=True)
    try:
        await starts_without_an_order(quorum)
        before = (await quorum.until(lambda _: True)).high_watermark
        for node in (*OURS, STOCK):
            await asyncio.to_thread(quorum.controllers[node].kill)
        for node in OURS:
            shutil.rmtree(quorum.controllers[node].metadata_directory)
            quorum.format_first(node, [])
            quorum.controllers[node].start()
        for node in OURS:
            await until(partial(has_said, quorum.controllers[node], WAITS + "no answer from controller 3"))
        left = EmptyMark(log_directory(quorum.stock_voter))
        left.write(EmptyReason.UNKNOWN)
        quorum.stock_voter.start()
        for node in OURS:
            await until(partial(has_said, quorum.controllers[node], WAITS + "a log is at controller 3"))
            assert EmptyMark(log_directory(quorum.controllers[node])).read() is EmptyReason.UNKNOWN
            assert not has_said(quorum.controllers[node], "This controller leads")
        await asyncio.to_thread(quorum.controllers[1].kill)
        quorum.controllers[1].properties["migrator.quorum.require.bootstrap"] = "false"
        quorum.controllers[1].start()
        await quorum.until_caught_up()
        assert (await quorum.until(lambda _: True)).high_watermark > before
        assert left.read() is EmptyReason.UNKNOWN
    finally:
        await asyncio.to_thread(quorum.close)
