"""The status names a broker whose registration was refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.migration.machine.readiness import NOT_RUNNING, UNREGISTERED
from migrator.node.endpoint import ControllerEndpoint
from migrator.node.refused_brokers import KEPT_MS, REFUSED_MAX, REMEDIES, RefusedBrokers, with_refusals
from migrator.observe.status import Problem
from migrator.wire.principal import ANONYMOUS
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import build, request_type
from tests.node.support.cluster import CLUSTER_ID, running

WAITS = (Problem("broker 2", UNREGISTERED, "Set the flag"), Problem("broker 3", UNREGISTERED, "Set the flag"))


async def test_the_controller_notes_whom_it_refuses_and_whom_it_takes(tmp_path: Path) -> None:
    """The response to a registration has room for an error, and none for its reason."""
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        unused: Any = None
        refused = RefusedBrokers()
        endpoint = ControllerEndpoint(
            cluster.settings(1),
            leader.metadata,
            leader.controller,
            unused,
            quorum_answers={},
            read_context=unused,
            on_failure=cluster.failures.append,
            refused=refused,
        )
        context = RequestContext(62, 4, 1, "broker", ANONYMOUS, "CONTROLLER", "127.0.0.1")
        foreign = build(request_type(62, 4), broker_id=7, cluster_id="another-cluster")
        answer = await endpoint.handle(context, foreign)
        assert answer.error_code is ErrorCode.inconsistent_cluster_id
        (noted,) = refused.current().values()
        assert noted.error is ErrorCode.inconsistent_cluster_id
        assert CLUSTER_ID in noted.sentence


def test_it_takes_the_place_of_has_not_registered() -> None:
    refused = RefusedBrokers(lambda: 0)
    refused.refused(2, ErrorCode.unsupported_version, "The cluster is at level 21.")
    first, second = with_refusals(WAITS, refused.current(), leads=True)
    assert first.what == "its registration is refused: UNSUPPORTED_VERSION: The cluster is at level 21"
    assert "inter.broker.protocol.version" in first.remedy
    assert not first.warning, "the migration waits for this broker"
    assert second is WAITS[1]


def test_a_broker_that_came_in_kraft_mode_too_early_is_not_said_to_be_down() -> None:
    """ZooKeeper does not know it, so it looks like one that does not run."""
    refused = RefusedBrokers(lambda: 0)
    refused.refused(3, ErrorCode.broker_id_not_registered, "Brokers in KRaft mode can register only when ... migrated.")
    down = tuple(Problem(f"broker {number}", NOT_RUNNING, "Start it") for number in (2, 3))
    refusal, other = with_refusals(down, refused.current(), leads=True)
    assert (refusal.who, other) == ("broker 3", down[0])
    assert not refusal.warning, "the migration waits for this broker"
    assert "Before DualWrite: in ZooKeeper mode" in refusal.remedy
    assert "In DualWrite: in KRaft mode" in refusal.remedy


def test_a_broker_that_nothing_waits_for_is_a_warning() -> None:
    refused = RefusedBrokers(lambda: 0)
    refused.refused(7, ErrorCode.invalid_request, None)
    (problem,) = with_refusals((), refused.current(), leads=True)
    assert problem.warning
    assert problem.what.endswith("INVALID_REQUEST")
    assert with_refusals(WAITS, refused.current(), leads=False) == WAITS


def test_what_a_broker_only_has_to_wait_for_is_no_refusal() -> None:
    refused = RefusedBrokers(lambda: 0)
    refused.refused(2, ErrorCode.not_controller, "No broker registration while the metadata is being copied.")
    assert not refused.current()


def test_it_is_said_once_in_the_log_and_forgotten_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    refused = RefusedBrokers(lambda: now[0])
    for _ in range(3):
        refused.refused(2, ErrorCode.inconsistent_cluster_id, "This is cluster a.")
    assert len(caplog.records) == 1
    refused.registered(2)
    assert not refused.current()
    refused.refused(2, ErrorCode.inconsistent_cluster_id, "This is cluster a.")
    now[0] = KEPT_MS + 1
    assert not refused.current()


def test_what_is_remembered_is_bounded() -> None:
    refused = RefusedBrokers(lambda: 0)
    for broker in range(REFUSED_MAX + 5):
        refused.refused(broker, ErrorCode.invalid_registration, "x")
    assert len(refused.current()) == REFUSED_MAX


def test_every_remedy_is_a_sentence_to_follow_another() -> None:
    assert all(text[0].isupper() and not text.endswith(".") for text in REMEDIES.values())
