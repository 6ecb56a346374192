"""A broker that comes back during the copy may not register before its end; that it asks is enough to count on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_ms
from migrator.node.endpoint import ControllerEndpoint
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord
from migrator.wire.connection import RequestContext
from migrator.wire.principal import ANONYMOUS
from migrator.wire.schemas import build, request_type
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
