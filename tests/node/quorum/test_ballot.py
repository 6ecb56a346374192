"""While a migration is under way, only a controller that may lead as it runs now gets a vote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.config.load import settings_from
from migrator.node.core import NodeCore, OpenedDirectory
from migrator.raft.messages import VoteRequest, VoteResponse
from migrator.records.metadata import MigrationReopening, ZkMigrationState, ZkMigrationStateRecord
from migrator.wire.api_versions import OUR_FEATURE, OUR_FEATURE_RANGE, Features
from migrator.wire.listener_settings import controller_security
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.schemas import VersionRange
from migrator.wire.server import KafkaListener
from migrator.wire.voters import VoterSignals
from tests.node.support.cluster import CLUSTER_ID, Cluster

CANDIDATE = 3
VOTER = 1
STOCK_OFF = Features({}, {})
STOCK_ON = Features({}, {}, zk_migration_ready=True)
OURS_OFF = Features({OUR_FEATURE: OUR_FEATURE_RANGE}, {})
OURS_OF_AN_OLD_RELEASE = Features({OUR_FEATURE: VersionRange(1, 1)}, {}, zk_migration_ready=True)


class Nobody:
    """Answers nothing but ApiVersions, which the listener does by itself."""

    async def handle(self, context: Any, body: Any) -> Any:
        raise NotImplementedError


class Election:
    """One voter of three, and a candidate that says of itself what `features` hold; None: it does not listen."""

    def __init__(self, node: NodeCore, signals: VoterSignals) -> None:
        self.node = node
        self._signals = signals
        self._epoch = 0

    async def grants(self, features: Features | None, *, again: bool = False) -> bool:
        """Whether a candidate that runs with these features gets the vote of a new epoch, or of the last one again."""
        self._epoch += 0 if again else 1000  # the voter stands for election too, meanwhile
        listener = KafkaListener("CONTROLLER", Nobody(), features=lambda: features or STOCK_OFF)
        port = await listener.start("127.0.0.1", 0)
        if features is None:
            await listener.close()
        at = {CANDIDATE: ListenerEndpoint("CONTROLLER", "127.0.0.1", port)}
        self._signals._endpoints = lambda: at
        try:
            request = VoteRequest(CLUSTER_ID, VOTER, self._epoch, CANDIDATE, self._epoch - 1, 1_000_000)
            response = await self.node.quorum.handle(request)
        finally:
            await listener.close()
        assert isinstance(response, VoteResponse)
        assert response.leader_epoch == self._epoch
        return response.vote_granted


@asynccontextmanager
async def election(directory: Path, flag: str) -> AsyncIterator[Election]:
    cluster = Cluster(directory, 3)
    cluster.format()
    keys = {
        "zookeeper.metadata.migration.enable": flag,
        "zookeeper.connect": "localhost:1",
        "controller.quorum.election.timeout.ms": "60000",
    }
    settings, _ = settings_from(dict(cluster.settings(VOTER).explicit) | keys, "test")
    signals = VoterSignals(settings, dict, controller_security(settings))
    node = NodeCore(
        settings,
        OpenedDirectory(settings),
        cluster.wires.to(VOTER),
        on_failure=cluster.failures.append,
        ask_voter=signals.ask_one,
    )
    node.boot()
    node.start()
    try:
        yield Election(node, signals)
    finally:
        await node.close()
        await signals.close()
    assert not cluster.failures


def say(node: NodeCore, state: ZkMigrationState, reopening: MigrationReopening | None = None) -> None:
    """Let the image at the log's end hold a state."""
    record = ZkMigrationStateRecord(state, reopening=reopening)
    node.metadata._loader.append(node.metadata._loader.end_offset, 1, 0, [record])
    node.metadata._loader.apply()


async def test_a_stock_candidate_without_the_flag_gets_no_vote(tmp_path: Path) -> None:
    async with election(tmp_path, "true") as voter:
        for state in (None, ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION):
            if state is not None:
                say(voter.node, state)
                assert voter.node.metadata.image.features.zk_migration_state is state
            assert not await voter.grants(STOCK_OFF)
            assert not await voter.grants(None), "silence is no permission"
            assert await voter.grants(STOCK_ON)
            assert await voter.grants(OURS_OFF)


@pytest.mark.parametrize("flag", ["true", "false"])
async def test_a_reopened_migration_is_led_only_by_who_knows_what_that_is(tmp_path: Path, flag: str) -> None:
    async with election(tmp_path, flag) as voter:
        say(voter.node, ZkMigrationState.MIGRATION, MigrationReopening(3001, 1, "why"))
        assert not await voter.grants(STOCK_ON)
        assert not await voter.grants(OURS_OF_AN_OLD_RELEASE)
        assert await voter.grants(OURS_OFF)
        say(voter.node, ZkMigrationState.MIGRATION)
        assert await voter.grants(OURS_OF_AN_OLD_RELEASE)


@pytest.mark.parametrize("flag", ["true", "false"])
async def test_a_log_that_may_lag_behind_a_reopening_gives_no_vote_to_who_does_not_know_it(
    tmp_path: Path, flag: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A majority may have reopened the migration without this voter. All of them have the flag on then. Where two such
    controllers and a stock voter remain, nobody may lead: then the operator has to act. Without the flag this voter
    would elect a stranger, which takes the reopened migration for any other one and lets brokers in too early."""
    async with election(tmp_path, flag) as voter:
        say(voter.node, ZkMigrationState.POST_MIGRATION)
        for stranger in (STOCK_ON, STOCK_OFF, OURS_OF_AN_OLD_RELEASE, None):
            assert await voter.grants(stranger) is (flag == "false")
        assert await voter.grants(OURS_OFF)
    said = [line for line in caplog.messages if "refuses its vote" in line]
    remedy = "start the other voters; only if nobody has ordered 'migrator reopen' since the end, turn the flag off"
    assert [remedy in line for line in said] == ([True] if flag == "true" else [])


async def test_before_the_image_is_known_nobody_says_that_there_is_no_migration(tmp_path: Path) -> None:
    async with election(tmp_path, "true") as voter:
        say(voter.node, ZkMigrationState.NONE)
        assert await voter.grants(STOCK_OFF)
        voter.node.metadata._is_followed = False  # as while it loads its disk
        assert not await voter.grants(STOCK_OFF)
        assert not await voter.grants(STOCK_ON), "its disk may say that the migration was reopened"
        assert not await voter.grants(OURS_OF_AN_OLD_RELEASE)
        assert await voter.grants(OURS_OFF)
    async with election(tmp_path / "off", "false") as voter:
        voter.node.is_admitted = False
        assert not await voter.grants(STOCK_OFF)
        assert await voter.grants(OURS_OFF)
        voter.node.admit()
        assert await voter.grants(STOCK_OFF)


async def test_a_stranger_gets_no_vote(tmp_path: Path) -> None:
    async with election(tmp_path, "true") as voter:
        response = await voter.node.quorum.handle(VoteRequest(CLUSTER_ID, VOTER, 9000, 77, 8999, 1_000_000))
        assert isinstance(response, VoteResponse)
        assert not response.vote_granted


async def test_the_answer_is_a_fresh_one(tmp_path: Path) -> None:
    async with election(tmp_path, "true") as voter:
        assert await voter.grants(STOCK_ON)
        assert not await voter.grants(STOCK_OFF, again=True), "it was restarted with the vote of this epoch"
        assert await voter.grants(STOCK_ON, again=True)
        assert not await voter.grants(STOCK_OFF)


async def test_who_is_not_migrating_asks_nobody(tmp_path: Path) -> None:
    async with election(tmp_path / "off", "false") as voter:
        say(voter.node, ZkMigrationState.MIGRATION)
        assert await voter.grants(STOCK_OFF)
        say(voter.node, ZkMigrationState.POST_MIGRATION)
        assert await voter.grants(None)
    async with election(tmp_path / "on", "true") as voter:
        say(voter.node, ZkMigrationState.NONE)
        assert await voter.grants(None)
