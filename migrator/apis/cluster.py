"""UpdateFeatures and DescribeCluster (APIs 57, 60).

`registry` lists these functions; node and endpoint call them with an image. UpdateFeatures is decided by
`migrator.controller.features`. DescribeCluster shows the registered controllers that have an endpoint on the listener
that was asked (KIP-919).
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis.authorization import allows_cluster, unlogged
from migrator.apis.call import Call, error_fields
from migrator.controller.context import Context, supports
from migrator.controller.decision import Decision, RefusedError
from migrator.controller.features import FeatureUpdate, UpdateFeaturesRequest, UpgradeType, update_features
from migrator.image.model import ControllerRegistration, MetadataImage
from migrator.records.acl_codes import AclOperation
from migrator.records.versions import MinLevel

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster."""
NOT_ASKED: Final = -(2**31)
_CLUSTER_OPERATIONS: Final = (
    AclOperation.CREATE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
_UPGRADE_TYPES: Final = {int(kind): kind for kind in UpgradeType}


def feature_update(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """UpdateFeatures 0-1."""
    updates = {
        row.feature: FeatureUpdate(
            row.feature, row.max_version_level, _UPGRADE_TYPES.get(getattr(row, "upgrade_type", UpgradeType.UPGRADE))
        )
        for row in call.body.feature_updates
    }
    request = UpdateFeaturesRequest(tuple(updates.values()), getattr(call.body, "validate_only", False))
    decision = update_features(image, request, context)
    results = tuple({"feature": name, **error_fields(error)} for name, error in decision.response)
    return decision.answering(call.respond(results=results))


def cluster_description(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """DescribeCluster 0-1: the registered controllers, as KIP-919 has it, at the listener that was asked."""
    if not supports(image, MinLevel.CONTROLLER_REGISTRATION):
        raise RefusedError(
            ErrorCode.unsupported_version,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    endpoint_type = getattr(call.body, "endpoint_type", BROKERS)
    if endpoint_type != CONTROLLERS:
        raise RefusedError(_wrong_type(call.version, endpoint_type), _other_type(endpoint_type))
    operations = NOT_ASKED
    if call.body.include_cluster_authorized_operations:
        operations = _authorized_operations(call)
    found = (_node(call.listener, registration) for registration in image.cluster.controllers.values())
    nodes = tuple(node for node in found if node is not None)
    known = any(node["broker_id"] == context.leader_id for node in nodes)
    response = call.respond(
        endpoint_type=CONTROLLERS,
        cluster_id=context.cluster_id,
        controller_id=context.leader_id if known else -1,
        brokers=nodes,
        cluster_authorized_operations=operations,
    )
    return Decision(response)


def _wrong_type(version: int, endpoint_type: int) -> ErrorCode:
    if version == 0:
        return ErrorCode.invalid_request
    return ErrorCode.mismatched_endpoint_type if endpoint_type == BROKERS else ErrorCode.unsupported_endpoint_type


def _other_type(endpoint_type: int) -> str:
    if endpoint_type == BROKERS:
        return "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
    return f"Unsupported endpoint type {endpoint_type}"


def _authorized_operations(call: Call) -> int:
    """The operations on the cluster that the caller may do: bit n stands for operation n."""
    if not allows_cluster(call.access, AclOperation.DESCRIBE):
        return 0
    access = unlogged(call.access)
    return sum(1 << operation for operation in _CLUSTER_OPERATIONS if allows_cluster(access, operation))


def _node(listener: str, registration: ControllerRegistration) -> dict[str, Any] | None:
    for endpoint in registration.listeners:
        if endpoint.name == listener:
            return {"broker_id": registration.controller_id, "host": endpoint.host, "port": endpoint.port}
    return None
