"""Every API that a controller serves, as data: which part answers it, which right it needs, what it writes.

Source: Kafka's ``ControllerApis``. ControlledShutdown (7), DescribeDelegationToken (41) and
DescribeUserScramCredentials (50) are advertised and not handled, as by stock controllers; the last two are answered by
brokers.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from migrator.apis import brokers, cluster, configs, elections, security, tokens, topics
from migrator.apis.authorization import allows_cluster
from migrator.apis.call import Api, ApiKind, Call, always, refuse_at_top
from migrator.controller.context import Context
from migrator.controller.decision import ApiError, Decision, RefusedError
from migrator.controller.migration_gate import Operation, check_gate
from migrator.errors import InvariantViolation
from migrator.image.model import MetadataImage
from migrator.records.acl_codes import AclOperation


def _not_served(_call: Call, _image: MetadataImage, _context: Context) -> Decision[Any]:
    raise RefusedError(ErrorCode.unknown_server_error)


_ACTION: Final = AclOperation.CLUSTER_ACTION
_ALTER: Final = AclOperation.ALTER
_DESCRIBE: Final = AclOperation.DESCRIBE
_READ, _WRITE, _RAFT = ApiKind.READ, ApiKind.WRITE, ApiKind.RAFT

_ROWS: Final = (
    # Answered by the listener, or unwrapped by the node
    Api(17, ApiKind.LISTENER),
    Api(18, ApiKind.LISTENER),
    Api(36, ApiKind.LISTENER),
    Api(58, ApiKind.LISTENER, _ACTION, None, refuse_at_top),
    # The quorum
    Api(1, _RAFT, _ACTION, None, refuse_at_top),
    Api(52, _RAFT, _ACTION, None, refuse_at_top),
    Api(53, _RAFT, _ACTION, None, refuse_at_top),
    Api(54, _RAFT, _ACTION, None, refuse_at_top),
    Api(55, _RAFT, _DESCRIBE, None, refuse_at_top),
    Api(59, _RAFT, _ACTION, None, refuse_at_top),
    Api(80, _RAFT, _ALTER, None, refuse_at_top),
    Api(81, _RAFT, _ALTER, None, refuse_at_top),
    Api(82, _RAFT, _ACTION, None, refuse_at_top),
    # Brokers and controllers
    Api(62, _WRITE, _ACTION, brokers.broker_registration, refuse_at_top, Operation.REGISTER_BROKER),
    Api(63, _WRITE, _ACTION, brokers.broker_heartbeat, refuse_at_top, Operation.HEARTBEAT),
    Api(64, _WRITE, _ALTER, brokers.broker_removal, brokers.refuse_broker_removal, Operation.UNREGISTER_BROKER),
    Api(70, _WRITE, _ACTION, brokers.controller_registration, refuse_at_top, Operation.REGISTER_CONTROLLER),
    Api(56, _WRITE, _ACTION, brokers.isr_change, refuse_at_top, Operation.ALTER_PARTITION),
    Api(67, _WRITE, _ACTION, brokers.producer_ids, refuse_at_top, Operation.ALLOCATE_PRODUCER_IDS),
    Api(73, _WRITE, _ACTION, brokers.directory_assignment, refuse_at_top, Operation.ASSIGN_DIRECTORIES),
    # Topics and partitions
    Api(
        19, _WRITE, None, topics.topic_creation, topics.refuse_topic_creation, Operation.CREATE_TOPICS,
        administrative=topics.creates_for_people,
    ),
    Api(
        20, _WRITE, None, topics.topic_deletion, topics.refuse_topic_deletion, Operation.DELETE_TOPICS,
        administrative=always,
    ),
    Api(
        37, _WRITE, None, topics.partition_creation, topics.refuse_partition_creation, Operation.CREATE_PARTITIONS,
        administrative=always,
    ),
    Api(43, _WRITE, _ALTER, elections.leader_election, elections.refuse_leader_election, Operation.ELECT_LEADERS),
    Api(
        45, _WRITE, _ALTER, elections.reassignment, elections.refuse_reassignment, Operation.ALTER_REASSIGNMENTS,
        administrative=elections.moves_replicas,
    ),
    Api(46, _READ, _DESCRIBE, elections.running_reassignments, refuse_at_top),
    # Configuration
    Api(32, _READ, None, configs.config_description, configs.refuse_config_description),
    Api(
        33, _WRITE, None, configs.config_replacement, configs.refuse_config_change, Operation.ALTER_CONFIGS,
        administrative=always,
    ),
    Api(
        44, _WRITE, None, configs.config_change, configs.refuse_config_change, Operation.ALTER_CONFIGS,
        administrative=always,
    ),
    Api(
        49, _WRITE, AclOperation.ALTER_CONFIGS, security.quota_change, security.refuse_quota_change,
        Operation.ALTER_QUOTAS, administrative=always,
    ),
    # Security
    Api(29, _READ, _DESCRIBE, security.acl_description, refuse_at_top),
    Api(
        30, _WRITE, _ALTER, security.acl_creation, security.refuse_acl_creation, Operation.CREATE_ACLS,
        administrative=always,
    ),
    Api(
        31, _WRITE, _ALTER, security.acl_deletion, security.refuse_acl_deletion, Operation.DELETE_ACLS,
        administrative=always,
    ),
    Api(
        51, _WRITE, _ALTER, security.scram_change, security.refuse_scram_change, Operation.ALTER_SCRAM,
        administrative=always,
    ),
    Api(
        38, _WRITE, None, tokens.token_creation, tokens.refuse_token_creation, Operation.DELEGATION_TOKENS,
        administrative=always,
    ),
    Api(39, _WRITE, None, tokens.token_renewal, tokens.refuse_token_change, Operation.DELEGATION_TOKENS),
    Api(40, _WRITE, None, tokens.token_expiry, tokens.refuse_token_change, Operation.DELEGATION_TOKENS),
    # The cluster
    Api(57, _WRITE, _ALTER, cluster.feature_update, refuse_at_top, Operation.UPDATE_FEATURES, administrative=always),
    Api(60, _READ, _ALTER, cluster.cluster_description, refuse_at_top),
    # Advertised and not served
    Api(7, _READ, None, _not_served, refuse_at_top),
    Api(41, _READ, None, _not_served, refuse_at_top),
    Api(50, _READ, None, _not_served, refuse_at_top),
)  # fmt: skip

FORBIDDEN: Final = "Request is not authorized."
"""Kafka's text, without the connection and the buffers that Kafka prints in it."""
GENERAL: Final = "Cluster authorization failed."
_GENERAL_AT: Final = frozenset({49, 55, 70, 80, 81, 82})
"""APIs for which Kafka answers with the general text of the error."""

APIS: Final = {row.key: row for row in _ROWS}


def check_access(call: Call) -> None:
    """Check the right on the cluster that the API needs; the handlers check all other rights.

    :raises RefusedError: CLUSTER_AUTHORIZATION_FAILED.
    """
    needed = APIS[call.key].cluster_operation
    if needed is not None and not allows_cluster(call.access, needed):
        words = GENERAL if call.key in _GENERAL_AT else FORBIDDEN
        raise RefusedError(ErrorCode.cluster_authorization_failed, words)


def answer(call: Call, image: MetadataImage, context: Context) -> Decision[Any]:
    """Answer a request of kind READ or WRITE: authorize, pass the migration's gate, decide, encode.

    The decision's response is kio's message, to be sent when the decision's records, and all records before them, are
    committed. A refusal is a response, too, without records. For a WRITE the caller has made sure that this node leads;
    if it does not, it answers with ``refuse(call, ErrorCode.not_controller)``.
    """
    api = APIS[call.key]
    if api.handle is None:
        raise InvariantViolation(f"API {call.key} is answered elsewhere")
    try:
        check_access(call)
        if api.operation is not None:
            check_gate(image, api.operation, transaction_open=context.transaction_open)
        return api.handle(call, image, context)
    except RefusedError as refusal:
        return Decision(refuse(call, refusal.error.code, refusal.error.message), refusal=refusal.error)


def refuse(call: Call, code: ErrorCode, message: str | None = None) -> Any:
    """kio's response that refuses the whole request."""
    refusal = APIS[call.key].refuse or refuse_at_top
    return refusal(call, ApiError(code, message))
