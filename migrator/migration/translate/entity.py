"""The unit of writing to ZooKeeper: one entity (a topic, a config, ...) with all of its operations.

Reconcile, write-behind and rollback make `EntityWrite` values. The operations of one entity are in order and lead to
the image's content. Its name can be parsed again, so that a repair can read the entity anew.
"""

from __future__ import annotations

from enum import Enum

from migrator.errors import InvariantViolation
from migrator.values import value
from migrator.zookeeper.ops import Op


class EntityKind(Enum):
    """The kind of an entity; entities' names start with its text."""

    TOPIC = "topic"
    """Assignment, partition states and config of a topic: ``topic foo``."""
    CONFIG = "config"
    """Config of a broker, client, ip, or user with its clients; quotas and credentials included: ``config
    users/alice``."""
    ACLS = "acls"
    """ACLs of a resource pattern, named by its znode: ``acls /kafka-acl/Topic/foo``."""
    TOKEN = "token"  # noqa: S105 - no secret
    PRODUCER_IDS = "producer ids"


class Effect(Enum):
    """The effect of a write on its entity."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    """Removes what ZooKeeper has and the image does not. The caller bounds the number of these writes."""
    REPLACE = "replace"
    """Replaces a topic by one of the same name with another id: a deletion, too."""
    FINISH_DELETION = "finish deletion"
    """Removes a topic that ZooKeeper itself has marked for deletion."""


@value
class EntityWrite:
    """The operations that make one entity (a topic, a configuration, ...) in ZooKeeper equal to the image.

    ``ops`` in order, parents first; ``notices`` are the change notifications that follow them. ``entity`` is its name
    for operators, and for the repair that reads it again: see `EntityKind`.
    """

    entity: str
    ops: tuple[Op, ...]
    notices: tuple[Op, ...] = ()
    effect: Effect = Effect.CHANGE

    @property
    def removes(self) -> bool:
        """Whether the write removes something from ZooKeeper."""
        return self.effect not in {Effect.CREATE, Effect.CHANGE}


def entity_name(kind: EntityKind, name: str = "") -> str:
    """The name of an entity, for operators and for `parse_entity`."""
    return f"{kind.value} {name}" if name else kind.value


def parse_entity(entity: str) -> tuple[EntityKind, str]:
    """Kind and name.

    :raises InvariantViolation: the name is not from `entity_name`.
    """
    for kind in EntityKind:
        if entity == kind.value or entity.startswith(f"{kind.value} "):
            return kind, entity[len(kind.value) + 1 :]
    raise InvariantViolation(f"{entity!r} names no entity")
