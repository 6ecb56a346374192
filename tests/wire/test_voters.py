"""A voter's answer about itself comes in time for a vote over a slow, secured link, and is of the running process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.node.quorum.ballot import Ballot
from migrator.wire.api_versions import Features
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.security import PLAINTEXT, ListenerSecurity
from migrator.wire.server import KafkaListener
from migrator.wire.voters import VoterAnswer, VoterSignals
from tests.node.support.cluster import Cluster
from tests.node.support.slow_link import slow_link
from tests.patience import PATIENCE_SECONDS
from tests.wire.test_security import PLAIN_USERS, sasl, tls_keys

VOTER = 2
ONE_WAY_SECONDS = 0.1
ON, OFF = Features({}, {}, zk_migration_ready=True), Features({}, {})
SECURITIES = {
    "plaintext": PLAINTEXT,
    "TLS and PLAIN": sasl("PLAIN", PLAIN_USERS, "SASL_SSL", **tls_keys("controller")),
    "TLS and SCRAM": sasl("SCRAM-SHA-512", "username=broker password=pencil", "SASL_SSL", **tls_keys("controller")),
}


class Nobody:
    """Answers nothing but ApiVersions, which the listener does by itself."""

    async def handle(self, context: Any, body: Any) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def voter(features: Features, security: ListenerSecurity = PLAINTEXT, port: int = 0) -> AsyncIterator[int]:
    listener = KafkaListener("CONTROLLER", Nobody(), features=lambda: features, security=security)
    bound = await listener.start("127.0.0.1", port)
    try:
        yield bound
    finally:
        await listener.close(grace=0)


@asynccontextmanager
async def asking(folder: Path, port: int, security: ListenerSecurity = PLAINTEXT) -> AsyncIterator[VoterSignals]:
    settings = Cluster(folder, 3).settings(1)
    signals = VoterSignals(settings, lambda: {VOTER: ListenerEndpoint("CONTROLLER", "localhost", port)}, security)
    try:
        yield signals
    finally:
        await signals.close()


@pytest.mark.parametrize("security", SECURITIES.values(), ids=SECURITIES)
async def test_an_answer_comes_in_time_for_a_vote_over_a_slow_link(tmp_path: Path, security: ListenerSecurity) -> None:
    patience = Ballot(Cluster(tmp_path, 3).settings(1), _no_image, _nobody, frozenset).patience_seconds
    async with voter(ON, security) as port, slow_link(port, ONE_WAY_SECONDS) as link:
        async with asking(tmp_path, link.port, security) as signals, asyncio.timeout(PATIENCE_SECONDS):
            answers = [await signals.ask_one(VOTER, patience)]
            if security is not PLAINTEXT:
                assert answers == [None], "else this shows nothing: the first connection takes longer than a vote may"
            while answers[-1] is None:  # for ever, if each question made a connection of its own
                answers.append(await signals.ask_one(VOTER, patience))
        assert answers[-1] == VoterAnswer(migrating=True, is_ours=False)


def _no_image() -> Any:
    raise NotImplementedError


async def _nobody(_voter: int, _seconds: float) -> None:
    return


async def test_a_voter_that_was_restarted_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    async with voter(ON) as port, asking(tmp_path, port) as signals:
        assert await signals.ask_one(VOTER) == VoterAnswer(migrating=True, is_ours=False)
        assert await signals.ask_one(VOTER) == VoterAnswer(migrating=True, is_ours=False)
    async with asking(tmp_path, port) as signals:
        for features in (ON, OFF, ON):
            async with voter(features, port=port):
                answer = await signals.ask_one(VOTER)
                assert answer == VoterAnswer(migrating=features.zk_migration_ready, is_ours=False)
        assert await signals.ask_one(VOTER) is None, "silence is no answer"


async def test_nobody_is_asked_under_an_unknown_id(tmp_path: Path) -> None:
    async with voter(ON) as port, asking(tmp_path, port) as signals:
        assert await signals.ask_one(VOTER + 1) is None


async def test_voters_that_have_all_moved_are_asked_at_once(tmp_path: Path) -> None:
    """Voters change one by one, and may all be others when they are asked next."""
    settings = Cluster(tmp_path, 3).settings(1)
    async with voter(ON) as one, voter(ON) as two, voter(OFF) as other, voter(OFF) as another:
        ports = {2: one, 3: two}
        signals = VoterSignals(
            settings, lambda: {it: ListenerEndpoint("CONTROLLER", "localhost", ports[it]) for it in ports}, PLAINTEXT
        )
        assert (await signals.ask())[3] == VoterAnswer(migrating=True, is_ours=False)
        ports = {2: other, 3: another}
        answers = await signals.ask()
        assert {answers[2], answers[3]} == {VoterAnswer(migrating=False, is_ours=False)}
        await signals.close()


async def test_a_question_whose_voter_moves_meanwhile_has_no_answer_and_ends_nobody(tmp_path: Path) -> None:
    """A node that asks another voter then drops the old connection. A cancelled question would silently end the task of
    a plan or of a migration, for as long as this controller leads."""
    settings = Cluster(tmp_path, 3).settings(1)
    held = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.set()
        while await reader.read(1024):
            pass
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    silent: int = server.sockets[0].getsockname()[1]
    async with voter(ON) as other:
        ports = {2: silent, 3: other}
        signals = VoterSignals(
            settings, lambda: {it: ListenerEndpoint("CONTROLLER", "localhost", ports[it]) for it in ports}, PLAINTEXT
        )
        waiting = [asyncio.ensure_future(signals.ask_one(2, 60)) for _ in range(2)]
        await held.wait()
        ports = {2: 1, 3: other}
        assert await signals.ask_one(3) == VoterAnswer(migrating=True, is_ours=False)
        assert await asyncio.gather(*waiting) == [None, None]
        await signals.close()
    server.close()
