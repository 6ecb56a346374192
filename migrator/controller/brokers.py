"""BrokerRegistration and UnregisterBroker: which brokers belong to the cluster. Pure.

`migrator.apis.brokers` calls it, and the node's `left_out` for a broker that is gone for good; the result is an answer
and records. A new process of a broker registers fenced, with an epoch that is the offset of its record, and a living
broker keeps its id against another process. A broker whose mode (ZooKeeper or KRaft) does not fit the state of the
migration is refused. Source: Kafka's ``ClusterControlManager.registerBroker`` and
``ReplicationControlManager.unregisterBroker``.
"""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import check_node
from migrator.controller.context import KRAFT_VERSION, Context, supports, zk_brokers_allowed
from migrator.controller.decision import Decision, RefusedError, decided
from migrator.controller.partition_change import leader_and_isr_changes
from migrator.image.model import BrokerRegistration, MetadataImage
from migrator.observe.printable import quoted
from migrator.records.metadata import (
    Endpoint,
    FeatureRange,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationState,
)
from migrator.records.uuid import Uuid, is_reserved, uuid_to_text
from migrator.records.versions import FEATURE_NAME, MINIMUM_SUPPORTED, MinLevel, version_at
from migrator.values import value


@value
class RegistrationRequest:
    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: tuple[Uuid, ...]


@value
class RegistrationResponse:
    broker_epoch: int


def register_broker(
    image: MetadataImage, request: RegistrationRequest, context: Context
) -> Decision[RegistrationResponse]:
    """Register a broker, fenced. A new incarnation's epoch is the offset of its record; the same incarnation that
    registers again keeps epoch, fencing and shutdown state.

    :raises RefusedError: 104 another cluster's broker; 101 the id belongs to a living broker; 102 its mode does not
        fit the state of the migration; 119 listeners or log directories; 35 it lacks a finalized feature; -1 a listener
        has a security protocol that there is not; 42 a negative id.
    """
    existing = image.cluster.brokers.get(request.broker_id)
    _check_identity(request, context, existing)
    _check_is_no_controller(image, request, context)
    _check_migration(image, request, context)
    if supports(image, MinLevel.DIRECTORY_ASSIGNMENT):
        _check_directories(image, request)
    check_node(request.broker_id, request.listeners)
    features = _checked_features(image, request, context)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        incarnation_id=request.incarnation_id,
        broker_epoch=existing.epoch if existing is not None and same else context.next_offset,
        end_points=request.listeners,
        features=features,
        rack=request.rack,
        fenced=existing.fenced if existing is not None and same else True,
        in_controlled_shutdown=existing is not None and same and existing.in_controlled_shutdown,
        log_dirs=request.log_dirs if supports(image, MinLevel.DIRECTORY_ASSIGNMENT) else (),
    )
    return decided(RegistrationResponse(record.broker_epoch), [record])


def unregister_broker(image: MetadataImage, broker_id: int, context: Context) -> Decision[None]:
    """Remove a broker's registration, after removing the broker from every ISR.

    :raises RefusedError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION when it is in too many ISRs (fence it first).
    """
    registration = image.cluster.brokers.get(broker_id)
    if registration is None:
        raise RefusedError(ErrorCode.broker_id_not_registered, f"Broker {broker_id} is not registered.")
    changes: Iterator[MetadataRecord] = leader_and_isr_changes(
        image, context, context.index.in_sync(broker_id), without=broker_id
    )
    return decided(None, [*changes, UnregisterBrokerRecord(broker_id, registration.epoch)])


def unregister_vanished(image: MetadataImage, broker_id: int, epoch: int, context: Context) -> Decision[None]:
    """Remove the registration of a ZooKeeper-mode broker that is gone for good.

    :param epoch: that of the registration on which the caller decided.
    :raises RefusedError: STALE_BROKER_EPOCH when the broker has come back since, in any mode, or sends heartbeats;
        POLICY_VIOLATION as `unregister_broker`.
    """
    registration = image.cluster.brokers.get(broker_id)
    if registration is None or registration.epoch != epoch or not registration.is_migrating_zk_broker:
        raise RefusedError(ErrorCode.stale_broker_epoch, f"Broker {broker_id} has registered again.")
    if not registration.fenced or not context.sessions.is_lost(broker_id, context.now_ms):
        raise RefusedError(ErrorCode.stale_broker_epoch, f"Broker {broker_id} sends heartbeats again.")
    return unregister_broker(image, broker_id, context)


def _check_identity(request: RegistrationRequest, context: Context, existing: BrokerRegistration | None) -> None:
    if request.cluster_id != context.cluster_id:
        raise RefusedError(
            ErrorCode.inconsistent_cluster_id,
            f"This is cluster {context.cluster_id}, the broker belongs to {quoted(request.cluster_id)}.",
        )
    if existing is None or existing.incarnation_id == request.incarnation_id:
        return
    if context.sessions.is_valid(existing, context.now_ms):
        raise RefusedError(
            ErrorCode.duplicate_broker_registration, f"A running broker is registered with id {request.broker_id}."
        )
    if not existing.fenced and context.index.in_sync(request.broker_id):
        # Stock Kafka accepts it. The new process then leads partitions whose logs it may not have.
        raise RefusedError(
            ErrorCode.duplicate_broker_registration,
            f"The broker registered with id {request.broker_id} sends no heartbeats, and has to be fenced first.",
        )


def _check_is_no_controller(image: MetadataImage, request: RegistrationRequest, context: Context) -> None:
    """Refuse a broker with the id of a voter while a migration runs: a voter must be a controller only. Stock Kafka
    accepts it."""
    under_way = image.features.zk_migration_state in (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)
    if under_way and request.broker_id in context.voters:
        raise RefusedError(
            ErrorCode.duplicate_broker_registration, f"{request.broker_id} is the id of a controller, not of a broker."
        )


def _check_migration(image: MetadataImage, request: RegistrationRequest, context: Context) -> None:
    if not request.is_migrating_zk_broker:
        if image.features.zk_migration_state == ZkMigrationState.PRE_MIGRATION:
            raise RefusedError(
                ErrorCode.broker_id_not_registered,
                "Brokers in KRaft mode can register only when the metadata has been migrated.",
            )
        return
    if not zk_brokers_allowed(image, context):
        raise RefusedError(
            ErrorCode.broker_id_not_registered, "This controller does not take brokers in ZooKeeper mode."
        )
    settings = context.settings
    wanted = (settings.inter_broker_listener_name or settings.security_inter_broker_protocol).upper()
    if all(listener.name != wanted for listener in request.listeners):
        raise RefusedError(ErrorCode.invalid_registration, f"The broker lacks the inter-broker listener {wanted}.")


def _check_directories(image: MetadataImage, request: RegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise RefusedError(
            ErrorCode.invalid_registration,
            "The broker names no log directory. A broker older than Kafka 3.7 cannot, and metadata.version "
            f"{version_at(image.features.metadata_version).name} of the controllers needs it: format the controllers "
            "for the release of the brokers (migrator format -r), or upgrade the broker.",
        )
    if any(is_reserved(directory) for directory in directories):
        raise RefusedError(ErrorCode.invalid_registration, "A log directory has a reserved id.")
    if len(set(directories)) != len(directories):
        raise RefusedError(ErrorCode.invalid_registration, "Two log directories have the same id.")
    for other in image.cluster.brokers.values():
        if other.broker_id != request.broker_id:
            for directory in directories:
                if directory in other.log_dirs:
                    raise RefusedError(
                        ErrorCode.invalid_registration,
                        f"Log directory {uuid_to_text(directory)} is registered by broker {other.broker_id}.",
                    )


def _checked_features(image: MetadataImage, request: RegistrationRequest, context: Context) -> tuple[FeatureRange, ...]:
    """The features to record. A broker that names no metadata.version supports only the first one."""
    finalized = {**image.features.levels, KRAFT_VERSION: context.kraft_version}
    finalized.setdefault(FEATURE_NAME, image.features.metadata_version)
    features = request.features
    if all(feature.name != FEATURE_NAME for feature in features):
        features = (*features, FeatureRange(FEATURE_NAME, MINIMUM_SUPPORTED, MINIMUM_SUPPORTED))
    named = {feature.name for feature in features}
    unnamed = (FeatureRange(name, 0, 0) for name in finalized if name not in named)
    for feature in (*features, *unnamed):
        level = finalized.get(feature.name, 0)
        if not feature.min_version <= level <= feature.max_version:
            raise RefusedError(
                ErrorCode.unsupported_version,
                f"The cluster is at level {level} of {quoted(feature.name)}; broker {request.broker_id} supports "
                f"{feature.min_version} to {feature.max_version}.",
            )
    return features
