"""ControllerRegistration (KIP-919). Source: Kafka's ``ClusterControlManager.registerController``."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.controller.brokers_view import check_node
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision, RefusedError, decided
from migrator.image.model import ControllerRegistration, MetadataImage
from migrator.records.metadata import RegisterControllerRecord
from migrator.records.versions import MinLevel


def register_controller(
    image: MetadataImage,
    request: ControllerRegistration,
    _: Context,
) -> Decision[None]:
    """Record the registration of a controller.

    :raises RefusedError: UNSUPPORTED_VERSION below metadata.version 3.7-IV0; UNKNOWN_SERVER_ERROR for a listener with a
        security protocol that there is not; INVALID_REQUEST for a negative id.
    """
    if not supports(image, MinLevel.CONTROLLER_REGISTRATION):
        raise RefusedError(
            ErrorCode.unsupported_version,
            "The version of API is not supported. Controllers can register from metadata.version 3.7-IV0 on.",
        )
    check_node(request.controller_id, request.listeners)
    record = RegisterControllerRecord(
        request.controller_id,
        request.incarnation_id,
        request.zk_migration_ready,
        request.listeners,
        request.features,
    )
    return decided(None, [record])
