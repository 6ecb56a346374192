"""A stock voter among voters that change, under writes and with real brokers, while whoever leads is killed at random.

The stock voter leads at times, and changes no voters. What has waited for a leader of ours then goes on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from migrator.drill.kafka.clients import Traffic, consume
from migrator.parts.kafka import KafkaRelease
from tests.interop.support.changing_voters import Writers
from tests.interop.support.cluster import Admin
from tests.interop.support.mixed_voters import Brokers, MixedVoters

TOPIC = "orders"
STOCK = 3
KEPT = (frozenset({2, 3, 4}), frozenset({1, 3, 4}), frozenset({1, 2, 3}))
"""Targets, one after the other, until the stock voter has led on the way; it stays in each of them."""
WITHOUT = frozenset({1, 2, 4})
CLIENTS = 4
ROUNDS_MAX = 5
LED_MIN = 2
"""In so many epochs, at least, the stock voter has to lead. Most plans take less time than an election."""


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("release", ["3.9.1", "4.1.1"])
async def test_a_stock_voter_stays_or_leaves_and_leads_at_times(tmp_path: Path, release: str) -> None:
    kafka, older, newer = (KafkaRelease(version).fetch() for version in (release, "3.9.1", "4.1.1"))
    quorum = MixedVoters(tmp_path, kafka, size=4, stock=STOCK)
    brokers = Brokers(tmp_path, (older, newer), quorum.servers)
    random, killed, moves = Random(release), [], 0
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        await asyncio.to_thread(brokers.start)
        await asyncio.to_thread(lambda: Admin(brokers.bootstrap, 2).create(TOPIC, 2, 2))
        writers = Writers(quorum, CLIENTS)
        traffic = Traffic(brokers.bootstrap, TOPIC)
        await asyncio.to_thread(traffic.start)
        try:
            for target in [*KEPT * ROUNDS_MAX, WITHOUT]:
                if target is not WITHOUT and moves >= len(KEPT) and len(quorum.sets_by_stock_epoch) >= LED_MIN:
                    continue
                await quorum.until_ours_leads(writers)
                await quorum.reassign(*sorted(target))
                killed += await quorum.follow(target, writers, random)
                moves += 1
            await asyncio.to_thread(quorum.controllers[STOCK].stop)
            written, sent = len(writers.acknowledged), len(traffic.acknowledged)
            await quorum.until(
                lambda _: len(writers.acknowledged) > written + 100 and len(traffic.acknowledged) > sent + 100
            )
        finally:
            await writers.end()
            await asyncio.to_thread(traffic.stop)
        assert writers.lost(await quorum.image()) == []
        assert traffic.errors == []
        values = await asyncio.to_thread(consume, brokers.bootstrap, TOPIC, "auditors", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
        assert len(quorum.sets_by_stock_epoch) >= LED_MIN
        assert all(len(voters) == 1 for voters in quorum.sets_by_stock_epoch.values()), "the plan rests under stock"
        print(  # noqa: T201 - shown with -rP
            f"{moves} moves, leaders killed: {killed}; the stock voter led {len(quorum.sets_by_stock_epoch)} epochs, "
            f"and plans rested with these voters: {quorum.rested}; "
            f"{len(writers.acknowledged)} writes acknowledged, 0 lost, longest pause {writers.longest_pause_ms()} ms; "
            f"{traffic.sent} records of brokers 3.9.1 and 4.1.1, 0 lost, longest pause {traffic.longest_pause():.1f} s"
        )
    finally:
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(quorum.close)
