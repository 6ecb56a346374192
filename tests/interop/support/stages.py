"""Tools for tests on one long-lived cluster of real brokers: named stages, and questions to a cluster.

A failure names its stage, because such a test runs for minutes. Most questions go to brokers; orders to pause, and
questions about problems, go to our controllers.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.kafka.clients import ANSWER_SECONDS
from migrator.drill.kafka.cluster import until
from migrator.drill.probes import controller_claim
from migrator.rpc.operator_client import OperatorClient
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.znodes import paths
from tests.interop.support.cluster import Admin, KafkaCluster

ALTER_PARTITION_REASSIGNMENTS = (45, 0)
ALTER_CLIENT_QUOTAS = (49, 1)
ELECT_LEADERS = (43, 2)
PREFERRED = 0


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of a long test: a failure says in which it was, and each one's duration is in the captured output."""
    begin = time.monotonic()
    try:
        yield
    except BaseException as error:
        error.add_note(f"in stage: {name}")
        raise
    finally:
        print(f"{time.monotonic() - begin:6.1f} s  {name}")  # noqa: T201 - captured, and shown when the test fails


def broker_is_controller(client: KazooClient) -> bool:
    """Whether ZooKeeper names a broker as the controller."""
    claim = controller_claim(client)
    return claim is not None and not claim.is_kraft and claim.broker_id > 0


def ask_brokers(cluster: KafkaCluster, api_key: int, version: int, **fields: Any) -> Any:
    """The answer to one request, of the first broker that does not say NOT_CONTROLLER."""
    addresses = [(host, int(port)) for host, _, port in (each.partition(":") for each in cluster.bootstrap.split(","))]
    request = build(request_type(api_key, version), **fields)

    async def ask() -> Any:
        channel = ControllerChannel(addresses, "tester")
        try:
            return await channel.request(request, timeout_seconds=ANSWER_SECONDS)
        finally:
            await channel.close()

    return asyncio.run(ask())


def reassign(cluster: KafkaCluster, topic: str, replicas: Sequence[int]) -> None:
    """Move partition 0 of a topic."""
    moves = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": tuple(replicas)}]}]
    timeout = dt.timedelta(seconds=ANSWER_SECONDS)
    answer = ask_brokers(cluster, *ALTER_PARTITION_REASSIGNMENTS, timeout=timeout, topics=moves)
    assert answer.error_code is ErrorCode.none
    assert answer.responses[0].partitions[0].error_code is ErrorCode.none


def elect_first_replica(cluster: KafkaCluster, topic: str) -> None:
    """Of partition 0. A ZooKeeper controller may hold its answer back until the time-out although it has elected (its
    purgatory misses the event when that is faster than the request), so the answer is not looked at."""
    rows = [{"topic": topic, "partitions": (0,)}]
    timeout = dt.timedelta(seconds=2)
    ask_brokers(cluster, *ELECT_LEADERS, election_type=PREFERRED, topic_partitions=rows, timeout=timeout)


def alter_quotas(cluster: KafkaCluster, entity: Mapping[str, str | None], **values: float) -> None:
    """Set quotas of an entity, e.g. ``{"user": None}`` for the default user."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": amount, "remove": False} for key, amount in values.items()],
    }
    answer = ask_brokers(cluster, *ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=False)
    assert answer.entries[0].error_code is ErrorCode.none


def placed(admin: Admin, topic: str, replicas: Sequence[int], leader: int) -> bool:
    """Whether brokers say that partition 0 has just these replicas, all in sync, and this leader."""
    found = admin.client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions.get(0)
    return (
        found is not None
        and list(found.replicas) == list(replicas)
        and sorted(found.isrs) == sorted(replicas)
        and found.leader == leader
    )


def create_move_elect_delete(cluster: KafkaCluster, admin: Admin, zookeeper: KazooClient, name: str) -> None:
    """The work of any controller: a topic is made, moved, grown, led by another broker, deleted."""
    admin.create(name, 1, 1)
    leaders: list[int] = []

    def is_led() -> bool:
        """Brokers hear of a topic one after the other: what one has said is not asked again."""
        leaders[:] = admin.topics().get(name, [])
        return leaders in ([1], [2])

    until(f"{name} has a leader", is_led)
    (here,) = leaders
    there = 3 - here
    reassign(cluster, name, [there])
    until(f"{name} has moved", lambda: placed(admin, name, [there], there))
    reassign(cluster, name, [here, there])
    until(f"{name} has grown", lambda: placed(admin, name, [here, there], there))
    elect_first_replica(cluster, name)
    until(f"{name} is led by its first replica", lambda: placed(admin, name, [here, there], here))
    admin.delete(name)
    until(f"{name} is gone", lambda: zookeeper.exists(paths.topic(name)) is None and name not in admin.topics())


def pause_migration(cluster: KafkaCluster) -> None:
    """As `migrator pause`, of a quorum with one controller."""
    _order(cluster, lambda client: client.pause("the test wants all brokers first"))


def resume_migration(cluster: KafkaCluster) -> None:
    """As `migrator resume`: the order to pause outlives restarts."""
    _order(cluster, lambda client: client.resume())


def _order(cluster: KafkaCluster, give: Callable[[OperatorClient], Awaitable[None]]) -> None:
    async def order() -> None:
        (controller,) = cluster.controllers
        async with OperatorClient.on_socket(controller.metadata_directory) as client:
            await give(client)

    asyncio.run(order())


def problems(cluster: KafkaCluster) -> str:
    """All that the controllers complain of, with the remedies."""
    found = [problem for status in cluster.statuses().values() for problem in status.problems]
    return "; ".join(f"{problem.who}: {problem.what}. {problem.remedy}" for problem in found)
