"""A broker that comes back during the copy may not register before its end; that it asks is enough to count on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.node.endpoint import ControllerEndpoint
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord, RegisterBrokerRecord
from migrator.wire.principal import ANONYMOUS
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, request_type
from tests.controller.support.leading_controller import some_uuid
from tests.node.support.cluster import running

BROKER = 7
REGISTRATION = (62, 4)


def registration(*, migrating: bool) -> Any:
    return build(request_type(*REGISTRATION), broker_id=BROKER, cluster_id="x", is_migrating_zk_broker=migrating)


@pytest.mark.parametrize("migrating", [True, False])
async def test_only_a_broker_in_migration_mode_that_was_told_to_wait_counts(tmp_path: Path, migrating: bool) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        unused: Any = None
        settings = cluster.settings(1)
        endpoint = ControllerEndpoint(
            settings,
            leader.metadata,
            leader.controller,
            unused,
            quorum_answers={},
            read_context=unused,
            on_failure=cluster.failures.append,
        )
        context = RequestContext(*REGISTRATION, 1, "broker", ANONYMOUS, "CONTROLLER", "127.0.0.1")
        sessions = leader.keeper.sessions
        await endpoint.handle(context, registration(migrating=migrating))
        assert sessions.asking(monotonic_ms()) == frozenset(), "no copy is under way: it may register"
        epoch = leader.quorum.epoch
        await leader.controller.append(epoch, (BeginTransactionRecord("copy"),))
        answer = await endpoint.handle(context, registration(migrating=migrating))
        assert answer.error_code is ErrorCode.not_controller
        now = monotonic_ms()
        assert sessions.asking(now) == (frozenset({BROKER}) if migrating else frozenset())
        assert sessions.asking(now + 1_000_000) == frozenset(), "it has gone again"
        await leader.controller.append(epoch, (AbortTransactionRecord("test"),))


@pytest.mark.parametrize(
    ("incarnation", "cluster_id", "is_rival"), [(2, None, True), (1, None, False), (2, "another cluster", False)]
)
async def test_another_process_that_asks_with_the_id_of_a_registered_broker_is_noted(
    tmp_path: Path, incarnation: int, cluster_id: str | None, is_rival: bool
) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        ours = leader.cluster_id
        registered = RegisterBrokerRecord(BROKER, True, some_uuid(1), 1, (), (), None)
        await leader.metadata.stable(await leader.controller.append(leader.quorum.epoch, (registered,)))
        sessions = leader.keeper.sessions
        leader.controller.asked_to_register(BROKER, some_uuid(incarnation), cluster_id or ours, migrating=True)
        leader.controller.asked_to_register(BROKER + 1, some_uuid(9), ours, migrating=True)
        now = monotonic_ms()
        assert sessions.rivals(now) == (frozenset({BROKER}) if is_rival else frozenset())
        assert sessions.rivals(now + 1_000_000) == frozenset(), "it has given up"
        again = replace(registered, incarnation_id=some_uuid(2), broker_epoch=2)
        await leader.metadata.stable(await leader.controller.append(leader.quorum.epoch, (again,)))
        assert sessions.rivals(now) == frozenset(), "it has registered"
