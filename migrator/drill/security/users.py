"""The users of a drill's secured cluster, each with the fewest permissions that it needs.

Brokers and controllers are super users. The intruder has a password and a certificate as others, and no permission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern

BROKER, CONTROLLER = "broker", "controller"
OPERATOR, WRITER, READER, PAYER = "operator", "orders-writer", "orders-reader", "payments-writer"
INTRUDER = "intruder"
USERS = (BROKER, CONTROLLER, OPERATOR, WRITER, READER, PAYER, INTRUDER)

ORDERS, PAYMENTS = "drill.orders", "drill.payments"
"""Topics of the idempotent and of the transactional producer."""
READERS, RESTING, AUDITORS = "drill-readers", "drill-resting", "drill-auditors"
"""The group that reads all the time, one that read a little before the migration and committed, and one that reads
everything at the end."""
GROUPS = "drill-"
TRANSACTIONAL_ID = "drill"


def _allow(user: str, operation: AclOperation) -> AclEntry:
    return AclEntry(f"User:{user}", "*", operation, AclPermission.ALLOW)


def _literal(resource_type: ResourceType, name: str) -> ResourcePattern:
    return ResourcePattern(resource_type, name, PatternType.LITERAL)


PERMISSIONS: Mapping[ResourcePattern, Sequence[AclEntry]] = MappingProxyType(
    {
        _literal(ResourceType.TOPIC, ORDERS): (_allow(WRITER, AclOperation.WRITE), _allow(READER, AclOperation.READ)),
        _literal(ResourceType.TOPIC, PAYMENTS): (_allow(PAYER, AclOperation.WRITE), _allow(READER, AclOperation.READ)),
        _literal(ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID): (_allow(PAYER, AclOperation.WRITE),),
        ResourcePattern(ResourceType.GROUP, GROUPS, PatternType.PREFIXED): (_allow(READER, AclOperation.READ),),
        _literal(ResourceType.TOPIC, "*"): (_allow(OPERATOR, AclOperation.ALL),),
        _literal(ResourceType.CLUSTER, "kafka-cluster"): (_allow(OPERATOR, AclOperation.ALL),),
    }
)
"""The access control entries in ZooKeeper before the migration."""
