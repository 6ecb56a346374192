"""Looks at this machine, and at the peers that it reaches: ports to bind, brokers to ask.

`gather` and `repair` call it. A port is bound for a moment and freed; an address of another machine is not checked.
Brokers are asked on the listener that the controllers would use. A failure is a fact in the result.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from migrator.clock import wall_ms
from migrator.config.endpoints import parse_host_port
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.parts.java import find_java, pyspark_jars
from migrator.preflight.asking import Asked, ask_each, ask_partitions, ask_topic_ids
from migrator.preflight.evidence import BrokerAnswer, ControllerFile, MachineFacts, PortFacts, Trouble
from migrator.preflight.lost_states import Lost, Partition, Reported
from migrator.wire.client import KafkaConnection
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode

Answer = tuple[dict[int, int], dict[Partition, Reported], dict[str, str]]
"""Highest versions of APIs, partitions, topic ids."""


def look_at_machine(
    controllers: Sequence[ControllerFile],
    brokers: Mapping[int, BrokerRegistrationZnode],
    lost: Sequence[Lost] = (),
    nameless: AbstractSet[str] = frozenset(),
) -> MachineFacts:
    """Try the ports, and ask the brokers: for their API versions, as any client does first, and for the partitions
    whose state ZooKeeper has lost.

    :param nameless: topics without an id in ZooKeeper; the brokers are asked for it.
    """
    ports = tuple(fact for controller in controllers if not controller.directory.in_use for fact in _ports(controller))
    asking = {it.topic for it in lost}
    answers = asyncio.run(ask_brokers(controllers[0].settings, brokers, asking, nameless)) if controllers else {}
    return MachineFacts(wall_ms(), ports, answers)


def cannot_verify() -> Trouble | None:
    """The part that ``verify`` needs and this machine lacks: Java, or the packages of the extra ``[verify]``."""
    for look in (find_java, pyspark_jars):
        try:
            look()
        except OperatorError as error:
            return Trouble(error.where or "verify", error.what, error.remedy)
    return None


def _ports(controller: ControllerFile) -> Iterator[PortFacts]:
    for listener in controller.listeners:
        yield from _port(controller.file.at("listeners"), listener.host, listener.port)
    for key in ("migrator.grpc.listener", "migrator.metrics.listener"):
        try:
            host, port = parse_host_port(controller.file.get(key))
        except ValueError:
            continue
        yield from _port(controller.file.at(key), host, port)


def _port(where: str, host: str, port: int) -> Iterable[PortFacts]:
    """Bind a port for a moment. The address of another machine cannot be bound here, so it is not checked."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        return [PortFacts(where, f"{host}:{port}", f"the host does not resolve ({error.strerror})")]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return []
            return [PortFacts(where, f"{host}:{port}", error.strerror or str(error))]
    return [PortFacts(where, f"{host}:{port}")]


async def ask_brokers(
    settings: Settings,
    brokers: Mapping[int, BrokerRegistrationZnode],
    topics: AbstractSet[str] = frozenset(),
    nameless: AbstractSet[str] = frozenset(),
) -> dict[int, BrokerAnswer]:
    """The answers of all brokers that have the listener that the controllers would use.

    :param topics: the broker is asked for the partitions of these topics.
    :param nameless: the broker is asked for the ids of these topics.
    """

    async def ask(broker_id: int, connection: KafkaConnection) -> Answer:
        del broker_id
        partitions = await ask_partitions(connection, topics)
        ids = await ask_topic_ids(connection, nameless)
        return {key: versions.max for key, versions in connection.apis.items()}, partitions, ids

    asked = await ask_each(settings, brokers, ask)
    return {broker_id: _answer(it) for broker_id, it in asked.items()}


def _answer(asked: Asked[Answer]) -> BrokerAnswer:
    if asked.answer is None:
        return BrokerAnswer(asked.address, fault=asked.fault)
    apis, partitions, ids = asked.answer
    return BrokerAnswer(asked.address, apis, partitions=partitions, topic_ids=ids)
