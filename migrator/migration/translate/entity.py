"""The unit in which ZooKeeper is written: one entity, all of its operations."""

from __future__ import annotations

from enum import Enum

from migrator.errors import InvariantViolation
from migrator.values import value
from migrator.zookeeper.ops import Op


class EntityKind(Enum):
    """What an entity is; its text is what entities' names start with."""

    TOPIC = "topic"
    """Assignment, partition states and config of a topic: ``topic foo``."""
    CONFIG = "config"
    """Of a broker, client, ip, or user with its clients; quotas and credentials included: ``config users/alice``."""
    ACLS = "acls"
    """Of a resource pattern, by its znode: ``acls /kafka-acl/Topic/foo``."""
    TOKEN = "token"  # noqa: S105 - no secret
    PRODUCER_IDS = "producer ids"


class Effect(Enum):
    """What a write does to its entity."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    """Removes what ZooKeeper has and the image does not: the caller bounds how many of these are let through."""
    REPLACE = "replace"
    """A topic of the same name with another id: a deletion, too."""
    FINISH_DELETION = "finish deletion"
    """Removes a topic that ZooKeeper itself has marked for deletion."""


@value
class EntityWrite:
    """What leads one entity (a topic, a configuration, ...) in ZooKeeper to what the image says.

    ``ops`` in order, parents first; ``notices`` are the change notifications that follow them. ``entity`` names it for
    people, and for the repair that reads it again: see `EntityKind`.
    """

    entity: str
    ops: tuple[Op, ...]
    notices: tuple[Op, ...] = ()
    effect: Effect = Effect.CHANGE

    @property
    def removes(self) -> bool:
        """Whether something is gone from ZooKeeper afterwards."""
        return self.effect not in {Effect.CREATE, Effect.CHANGE}


def entity_name(kind: EntityKind, name: str = "") -> str:
    """The name of an entity, for people and for `parse_entity`."""
    return f"{kind.value} {name}" if name else kind.value


def parse_entity(entity: str) -> tuple[EntityKind, str]:
    """Kind and name.

    :raises InvariantViolation: when nothing here made it.
    """
    for kind in EntityKind:
        if entity == kind.value or entity.startswith(f"{kind.value} "):
            return kind, entity[len(kind.value) + 1 :]
    raise InvariantViolation(f"{entity!r} names no entity")
