"""Canonical names of configs in ZooKeeper (``users/a%40b/clients/<default>``) <-> keys of the image.

Copy, reconcile and write-behind use it, so both directions agree: the name of a key leads to the same key.
`migrator.zookeeper.znodes.entities` knows the other names that znodes of the same entity may have.
"""

from __future__ import annotations

from migrator.image.model import ConfigResource, QuotaKey
from migrator.records.metadata import ConfigResourceType, QuotaEntity
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.errors import ZnodeError

USER, CLIENT, IP = "user", "client-id", "ip"


def config_name(resource: ConfigResource) -> str | None:
    """The name of a topic's or broker's config; None for a resource that ZooKeeper does not have."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return f"topics/{resource.name}"
    if resource.resource_type == ConfigResourceType.BROKER:
        return f"brokers/{resource.name or paths.DEFAULT_ENTITY}"
    return None


def broker_resource(node_name: str) -> ConfigResource:
    """The resource of a broker's config, by its canonical name below ``/config/brokers``."""
    return ConfigResource(ConfigResourceType.BROKER, "" if node_name == paths.DEFAULT_ENTITY else node_name)


def topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


def user_key(user: str) -> QuotaKey:
    return frozenset([QuotaEntity(USER, user)])


def quota_name(key: QuotaKey) -> str | None:
    """The name of the config that holds an entity's quotas; None when ZooKeeper has no znode for the combination."""
    nodes = {entity.entity_type: _node(entity.entity_type, entity.entity_name) for entity in key}
    if not all(map(paths.is_legal_name, nodes.values())):
        return None
    match sorted(nodes):
        case ["user"]:
            return f"users/{nodes[USER]}"
        case ["client-id"]:
            return f"clients/{nodes[CLIENT]}"
        case ["client-id", "user"]:
            return f"users/{nodes[USER]}/clients/{nodes[CLIENT]}"
        case ["ip"]:
            return f"ips/{nodes[IP]}"
        case _:
            return None


def quota_text(key: QuotaKey) -> str:
    """The quota entity of a message, the same in each process. It sorts entities that have no `quota_name`."""
    return f"quota entity {sorted(map(repr, key))}"


def quota_entities(name: str) -> tuple[QuotaEntity, ...]:
    """The entity of a config of a user, client, user's client or ip, by its canonical name, in the order that Kafka
    records it.

    :raises ZnodeError: it is no name of such a config.
    """

    def entity(kind: str, node: str) -> QuotaEntity:
        if node == paths.DEFAULT_ENTITY:
            return QuotaEntity(kind, None)
        return QuotaEntity(kind, node if kind == IP else paths.desanitize(paths.config(name), node))

    match name.split("/"):
        case ["users", user]:
            return (entity(USER, user),)
        case ["clients", client]:
            return (entity(CLIENT, client),)
        case ["users", user, "clients", client]:
            return (entity(USER, user), entity(CLIENT, client))
        case ["ips", ip]:
            return (entity(IP, ip),)
        case _:
            raise ZnodeError(
                paths.config(name), "the znode is not the config of a user, client or ip", "Delete the znode"
            )


def _node(kind: str, name: str | None) -> str:
    """The znode's name. That of an ip is not encoded: brokers take it as the address, and do not start with an encoded
    one."""
    if name is None:
        return paths.DEFAULT_ENTITY
    return name if kind == IP else paths.sanitize(name)
