"""A light broker refuses and notes what a real one would refuse and suffer from."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.light.broker import LightBroker, LightBrokerOptions
from migrator.wire.principal import ANONYMOUS
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from tests.drill.support.control_requests import (
    FULL,
    Topics,
    leader_and_isr,
    state,
    stop_replica,
    topic_id,
    update_metadata,
)

VERSIONS = {LEADER_AND_ISR: 7, UPDATE_METADATA: 8, STOP_REPLICA: 4}
A = topic_id(1)


@pytest.fixture
async def broker() -> LightBroker:
    """Registered with epoch 50, not running."""
    broker = LightBroker(LightBrokerOptions(1, "cluster", "unused:1", [("unused", 1)]))
    broker.epoch = 50
    return broker


async def send(broker: LightBroker, request: Any) -> Any:
    key = request.__api_key__
    context = RequestContext(key, VERSIONS[key], 1, None, ANONYMOUS, "PLAINTEXT", "127.0.0.1")
    return await broker.handle(context, request)


async def test_update_metadata_then_leader_and_isr(broker: LightBroker) -> None:
    topics: Topics = {("a", A): [state(0, 1)]}
    assert (await send(broker, update_metadata(topics, broker_epoch=50))).error_code is ErrorCode.none
    answer = await send(broker, leader_and_isr(topics, broker_epoch=50))
    assert answer.topics[0].topic_id == A
    assert answer.topics[0].partition_errors[0].error_code is ErrorCode.none
    assert broker.violations == []


async def test_leader_and_isr_first_is_noted(broker: LightBroker) -> None:
    await send(broker, leader_and_isr({("a", A): [state(0, 1)]}))
    assert broker.violations == ["broker 1: LeaderAndIsr before any UpdateMetadata"]


@pytest.mark.parametrize(
    "request_of",
    [
        lambda **epochs: update_metadata({}, **epochs),
        lambda **epochs: leader_and_isr({}, **epochs),
    ],
)
async def test_stale_epochs_are_refused(broker: LightBroker, request_of: Any) -> None:
    await send(broker, update_metadata({}, epoch=9))
    assert (await send(broker, request_of(epoch=9, broker_epoch=49))).error_code is ErrorCode.stale_broker_epoch
    assert (await send(broker, request_of(epoch=8, broker_epoch=50))).error_code is ErrorCode.stale_controller_epoch
    assert (await send(broker, request_of(epoch=9, broker_epoch=51))).error_code is ErrorCode.none


async def test_a_first_leader_and_isr_that_lacks_logs_is_noted(broker: LightBroker) -> None:
    whole: Topics = {("a", A): [state(0, 1), state(1, 1)]}
    await send(broker, update_metadata(whole))
    await send(broker, leader_and_isr(whole))
    broker.replicas.restart()
    await send(broker, leader_and_isr({("a", A): [state(0, 1)]}))
    assert len(broker.violations) == 1
    assert "lacks 1 of the broker's logs, e.g. ('a', 1)" in broker.violations[0]


async def test_a_topic_without_its_id_is_noted_unless_it_is_deleted(broker: LightBroker) -> None:
    await send(broker, update_metadata({("a", A): [state(0, 1)]}))
    await send(broker, update_metadata({("a", None): [state(0, -2)]}))
    assert broker.violations == []
    await send(broker, update_metadata({("a", None): [state(0, 1)]}))
    assert broker.violations == ["broker 1: UpdateMetadata without the id of topic 'a'"]


async def test_what_a_full_update_drops_is_remembered(broker: LightBroker) -> None:
    await send(broker, update_metadata({("a", A): [state(0, 1)]}))
    await send(broker, update_metadata({}, kind=FULL))
    assert broker.forgotten == {("a", A)}


async def test_stop_replica_is_answered_by_partition(broker: LightBroker) -> None:
    answer = await send(broker, stop_replica("a", 3, leader_epoch=-2, delete=True))
    assert [(error.topic_name, error.partition_index, error.error_code) for error in answer.partition_errors] == [
        ("a", 3, ErrorCode.none)
    ]
