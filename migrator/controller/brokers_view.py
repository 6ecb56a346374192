"""Questions about brokers that many decisions ask: is it active, does the epoch fit, has it that log directory. Pure.

Decisions call it. A function ``check_...`` raises `RefusedError`; the other functions only tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.image.model import BrokerRegistration, MetadataImage, PartitionRegistration
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.records.uuid import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Uuid,
)

_PROTOCOLS: Final = frozenset(int(protocol) for protocol in SecurityProtocol)


def is_active(registration: BrokerRegistration | None) -> bool:
    """Whether a broker can lead and join an ISR: registered, unfenced, not shutting down."""
    return registration is not None and not registration.fenced and not registration.in_controlled_shutdown


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """The registration of the broker that sent the request.

    :raises RefusedError: STALE_BROKER_EPOCH when the broker is unknown, or the registration has another epoch.
    """
    registration = image.cluster.brokers.get(broker_id)
    if registration is None:
        raise RefusedError(ErrorCode.stale_broker_epoch, f"Broker {broker_id} is not registered.")
    if registration.epoch != epoch:
        raise RefusedError(
            ErrorCode.stale_broker_epoch,
            f"Broker {broker_id} is registered with epoch {registration.epoch}, not {epoch}.",
        )
    return registration


def check_node(node_id: int, listeners: Iterable[Endpoint]) -> None:
    """Check the id and the listeners of a registration.

    Every broker and every stock controller ends when it reads a registration with an unknown security protocol. Stock
    Kafka accepts negative ids, but a partition led by broker -1 would look as if it had no leader.

    :raises RefusedError: UNKNOWN_SERVER_ERROR, as from stock (``ListenerInfo``); INVALID_REQUEST for a negative id.
    """
    if node_id < 0:
        raise RefusedError(ErrorCode.invalid_request, f"{node_id} is not the id of a node.")
    for listener in listeners:
        if listener.security_protocol not in _PROTOCOLS:
            raise RefusedError(
                ErrorCode.unknown_server_error,
                f"Listener {listener.name} has security protocol {listener.security_protocol}, which is unknown.",
            )


def is_online(directory: Uuid, registration: BrokerRegistration) -> bool:
    """Whether the broker has the log directory. A broker without registered directories (before metadata.version
    3.7-IV2) counts as having it, since a broker that has lost all directories stops."""
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    return directory != DIRECTORY_LOST and (not registration.log_dirs or directory in registration.log_dirs)


def directory_of(partition: PartitionRegistration, broker_id: int) -> Uuid:
    """The log directory of a broker's replica of the partition. The broker must have a replica."""
    if not partition.directories:
        return DIRECTORY_MIGRATING
    return partition.directories[partition.replicas.index(broker_id)]


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """The log directory of a new replica: the broker's only one, or Kafka's id for migrating or unassigned."""
    registration = image.cluster.brokers.get(broker_id)
    if registration is None:
        return DIRECTORY_UNASSIGNED
    if not registration.log_dirs:
        return DIRECTORY_MIGRATING
    return registration.log_dirs[0] if len(registration.log_dirs) == 1 else DIRECTORY_UNASSIGNED
