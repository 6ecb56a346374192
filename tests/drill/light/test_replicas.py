"""Replicas follow a broker's rules: epochs, topic ids, strays, deletion."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.light.replicas import EPOCH_DURING_DELETE, HostedReplicas
from tests.drill.support.control_requests import FULL, Topics, leader_and_isr, state, stop_replica, topic_id

A, B = topic_id(1), topic_id(2)


def hosting() -> HostedReplicas:
    replicas = HostedReplicas(1)
    replicas.become_leader_or_follower(
        leader_and_isr({("a", A): [state(0, 1, epoch=4), state(1, 2, epoch=4)], ("b", B): [state(0, 3)]})
    )
    return replicas


def errors_of(replicas: HostedReplicas, request: object) -> list[ErrorCode]:
    answers = replicas.become_leader_or_follower(request)
    return [code for partitions in answers.values() for code in partitions.values()]


@pytest.mark.parametrize(
    ("topic", "partition", "expected"),
    [
        (("a", A), state(0, 2, epoch=5), ErrorCode.none),
        (("a", A), state(0, 2, epoch=4), ErrorCode.none),  # equal epochs pass, coming from a KRaft controller
        (("a", A), state(0, 2, epoch=3), ErrorCode.stale_controller_epoch),
        (("a", topic_id(9)), state(0, 2, epoch=5), ErrorCode.inconsistent_topic_id),
        (("a", A), state(0, 2, epoch=5, replicas=(2, 3)), ErrorCode.unknown_topic_or_partition),
    ],
)
def test_what_a_broker_accepts(topic: tuple[str, object], partition: dict[str, object], expected: ErrorCode) -> None:
    replicas = hosting()
    assert errors_of(replicas, leader_and_isr({topic: [partition]})) == [expected]  # type: ignore[dict-item]
    assert replicas.hosted["a", 0].leader == (2 if expected is ErrorCode.none else 1)


def test_a_full_request_makes_strays_of_what_it_does_not_name() -> None:
    replicas = hosting()
    replicas.become_leader_or_follower(leader_and_isr({("a", A): [state(0, 1, epoch=4)]}, kind=FULL))
    assert set(replicas.logs) == {("a", 0)}
    assert replicas.strays == {("a", 1): A, ("b", 0): B}


def test_a_recreated_topic_replaces_its_namesake_in_a_full_request_only() -> None:
    again: Topics = {("b", topic_id(9)): [state(0, 1)], ("a", A): [state(0, 1, epoch=4), state(1, 1, epoch=4)]}
    replicas = hosting()
    assert ErrorCode.inconsistent_topic_id in errors_of(replicas, leader_and_isr(again))
    assert set(errors_of(replicas, leader_and_isr(again, kind=FULL))) == {ErrorCode.none}
    assert replicas.strays == {("b", 0): B}
    assert replicas.logs["b", 0] == topic_id(9)


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [(EPOCH_DURING_DELETE, ErrorCode.none), (4, ErrorCode.none), (3, ErrorCode.fenced_leader_epoch)],
)
def test_stop_replica(leader_epoch: int, expected: ErrorCode) -> None:
    replicas = hosting()
    assert list(replicas.stop(stop_replica("a", 0, leader_epoch=leader_epoch, delete=True))) == [("a", 0, expected)]
    assert (("a", 0) in replicas.logs) is (expected is not ErrorCode.none)


def test_stopping_without_deleting_keeps_the_log() -> None:
    replicas = hosting()
    assert list(replicas.stop(stop_replica("a", 0, leader_epoch=4, delete=False))) == [("a", 0, ErrorCode.none)]
    assert ("a", 0) in replicas.logs
    assert ("a", 0) not in replicas.hosted


def test_a_restart_keeps_the_disk_only() -> None:
    replicas = hosting()
    replicas.restart()
    assert not replicas.hosted
    assert replicas.missing_from(leader_and_isr({("a", A): [state(0, 1)]})) == [("a", 1), ("b", 0)]
