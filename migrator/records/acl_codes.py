"""Kafka's numbers for access control: resource types, patterns, operations, permissions.

Records, requests and the authorizer use these enums. The numbers are on disk and on the wire, so they never change.
Source: ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType`` in ``org.apache.kafka.common``.
"""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    MATCH = 2
    """Every pattern that applies to the named resource; for filters only."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3
