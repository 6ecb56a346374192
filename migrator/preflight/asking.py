"""Asks brokers, each on the listener that the controllers would use, also for the partitions as they know them.

`host` and `protocol_versions` call it while evidence is gathered. A broker that cannot be reached or refuses the login
is a fact (`Asked.fault`), not an error, so one broken broker hides no other. It changes nothing on a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from migrator.config.settings import Settings
from migrator.errors import MigratorError, PeerError
from migrator.preflight.lost_states import Partition, Reported
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.records.uuid import Uuid, uuid_to_text
from migrator.values import value
from migrator.wire.client import ClientLimits, KafkaConnection
from migrator.wire.listener_settings import broker_security
from migrator.wire.schemas import METADATA, build, request_type
from migrator.wire.security import ListenerSecurity
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode

T = TypeVar("T")
REACH_SECONDS = 5.0
AT_ONCE = 16
CLIENT_ID = "migrator-preflight"

VERSION_WITH_EPOCHS = 7
"""The first version of Metadata with leader epochs; every broker from 2.1 on has it."""
VERSION_WITH_IDS = 10
"""The first version of Metadata with topic ids; every broker from 2.8 on has it."""


@value
class Asked(Generic[T]):
    """The result of asking one broker: an answer, or in ``fault`` why there is none."""

    address: str
    answer: T | None = None
    fault: str = ""


async def ask_each(
    settings: Settings,
    brokers: Mapping[int, BrokerRegistrationZnode],
    ask: Callable[[int, KafkaConnection], Awaitable[T]],
) -> dict[int, Asked[T]]:
    """The answer of each broker that has the listener. A few brokers are asked at a time, each within `REACH_SECONDS`.

    :param ask: asks over a connection on which it is logged in as the controllers would be. Its `MigratorError` becomes
        the fault.
    """
    name = settings.broker_rpc_listener
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(broker_id: int, end: Endpoint) -> Asked[T]:
        async with turns:
            return await _ask(settings, end, lambda connection: ask(broker_id, connection))

    asked = {
        broker_id: end for broker_id, broker in brokers.items() for end in broker.endpoints if end.name.upper() == name
    }
    answers = await asyncio.gather(*(one(broker_id, end) for broker_id, end in asked.items()))
    return dict(zip(asked, answers, strict=True))


async def _ask(settings: Settings, end: Endpoint, ask: Callable[[KafkaConnection], Awaitable[T]]) -> Asked[T]:
    address = f"{end.host}:{end.port}"
    try:
        security = _security(settings, end)
        async with asyncio.timeout(REACH_SECONDS):
            connection = await KafkaConnection.open(
                end.host, end.port, CLIENT_ID, security, ClientLimits().max_response_bytes
            )
            try:
                return Asked(address, await ask(connection))
            finally:
                await connection.close()
    except TimeoutError:
        return Asked(address, fault=f"no answer within {REACH_SECONDS:g} s")
    except (MigratorError, ValueError, LookupError) as error:
        return Asked(address, fault=str(error))


def _security(settings: Settings, end: Endpoint) -> ListenerSecurity:
    """The login that the controllers use; an empty one for a plain listener."""
    if end.security_protocol == SecurityProtocol.PLAINTEXT:
        return ListenerSecurity()
    return broker_security(settings)


async def ask_topic_ids(connection: KafkaConnection, topics: Iterable[str]) -> dict[str, str]:
    """The ids of some topics, as one broker knows them; empty from a broker before 2.8.

    :raises MigratorError: the broker does not answer.
    """
    names = sorted(set(topics))
    if not names or VERSION_WITH_IDS not in connection.apis.get(METADATA, ()):
        return {}
    request = build(
        request_type(METADATA, VERSION_WITH_IDS),
        topics=tuple({"name": name} for name in names),
        allow_auto_topic_creation=False,
    )
    answer = await connection.request(request)
    return {topic.name: uuid_to_text(Uuid(topic.topic_id.bytes)) for topic in answer.topics if topic.topic_id}


async def ask_partitions(connection: KafkaConnection, topics: Iterable[str]) -> dict[Partition, Reported]:
    """The partitions of some topics in one broker's metadata cache, without those that it does not know.

    :raises MigratorError: the broker does not answer, or does not have this version of the request.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    if VERSION_WITH_EPOCHS not in connection.apis.get(METADATA, ()):
        raise PeerError("it does not answer Metadata requests with leader epochs")
    request = build(
        request_type(METADATA, VERSION_WITH_EPOCHS),
        topics=tuple({"name": name} for name in names),
        allow_auto_topic_creation=False,
    )
    answer = await connection.request(request)
    return {
        (topic.name, it.partition_index): Reported(it.leader_id, it.leader_epoch, tuple(it.isr_nodes))
        for topic in answer.topics
        for it in topic.partitions
    }
