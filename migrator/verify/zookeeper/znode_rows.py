"""The ZooKeeper side: znodes -> canonical rows, straight from the codecs. Pure.

`reading` calls it, in workers and in the driver, for live znodes and for those in files. A row is (kind, entity, field,
value); an equal image on the KRaft side gives equal rows. Secrets appear only as hashes. A znode that brokers ignore
gives no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migrator.records.acl_codes import PatternType
from migrator.records.uuid import uuid_to_text
from migrator.verify.canonical import Row, config_rows, ids, number, quota_entity, scram_row, token_rows
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import decode_acls, node_name, parse_acl_path
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.entities import Held, first_held, user_config
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder, is_password_config
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids
from migrator.zookeeper.znodes.topics import TopicAssignment, decode_topic

KRAFT_BROKER = -1
_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}


def topic_rows(name: str, data: bytes | None) -> tuple[TopicAssignment, list[Row]]:
    """The topic's assignment, and the rows of the topic itself."""
    topic = decode_topic(paths.topic(name), data)
    if topic.topic_id is None:
        raise ZnodeError(paths.topic(name), "the topic has no id", "A broker from 2.8 as controller gives it one")
    return topic, [
        ("topic", name, "id", uuid_to_text(topic.topic_id)),
        ("topic", name, "partitions", str(len(topic.partitions))),
    ]


def partition_rows(
    name: str, topic: TopicAssignment, partition: int, state: tuple[bytes | None, int] | None
) -> list[Row]:
    """Rows of one partition; ``state`` is data and data version of its state znode, None without one."""
    entity = f"{name}-{partition}"
    replicas = topic.partitions[partition]
    isr, leader, leader_epoch, version, recovering = tuple(sorted(replicas)), replicas[0], 0, 0, False
    if state is not None:
        decoded = decode_partition_state(paths.partition_state(name, partition), state[0])
        isr, leader, leader_epoch = tuple(sorted(decoded.isr)), decoded.leader, decoded.leader_epoch
        version, recovering = state[1], decoded.recovering
    rows = [
        ("partition", entity, "replicas", ids(replicas)),
        ("partition", entity, "isr", ids(isr)),
        ("partition", entity, "leader", str(leader)),
        ("partition", entity, "leader_epoch", str(leader_epoch)),
        ("partition", entity, "epoch", str(version)),
    ]
    if adding := topic.adding.get(partition):
        rows.append(("partition", entity, "adding", ids(sorted(adding))))
    if removing := topic.removing.get(partition):
        rows.append(("partition", entity, "removing", ids(sorted(removing))))
    if recovering:
        rows.append(("partition", entity, "recovering", "true"))
    return rows


def topic_config_rows(topic: str, data: bytes | None, encoder: PasswordEncoder, salt: bytes) -> Iterable[Row]:
    """Rows of a topic's config; passwords are decoded when there is a secret."""
    return config_rows(f"topic:{topic}", _plain(paths.topic_config(topic), data, encoder), salt)


def broker_config_rows(name: str, held: Held, encoder: PasswordEncoder, salt: bytes) -> Iterable[Row]:
    """Rows of a broker's config, by its canonical name below /config and its znodes; parameters as above."""
    node = paths.name_of(name)
    config = first_held(_plain(paths.config(each), data, encoder) for each, data in held)
    return config_rows(f"broker:{'' if node == paths.DEFAULT_ENTITY else node}", config, salt)


def client_rows(name: str, held: Held, salt: bytes) -> Iterator[Row]:
    """Rows of the quotas and credentials of a user, client, user's client or ip; parameters as above."""
    found = user_config(name, held)
    parts = name.split("/")
    entity = {_TYPES[kind]: _entity_name(name, kind, node) for kind, node in zip(parts[::2], parts[1::2], strict=True)}
    text = quota_entity(entity.items())
    for key, quota in found.quotas.items():
        yield "quota", text, key, number(quota)
    for mechanism, credential in found.credentials.items():
        yield scram_row(entity.get("user") or "", f"SCRAM-{mechanism.name.replace('_', '-')}", credential, salt)


def _plain(path: str, data: bytes | None, encoder: PasswordEncoder) -> dict[str, str]:
    config = decode_config(path, data)
    if encoder.has_secret:
        for key in filter(is_password_config, tuple(config)):
            config[key] = encoder.decode(path, key, config[key])
    return config


def _entity_name(name: str, kind: str, node: str) -> str | None:
    """The name of an entity; None for the default entity. The name of an ip is not encoded."""
    if node == paths.DEFAULT_ENTITY:
        return None
    return node if kind == "ips" else paths.desanitize(paths.config(name), node)


def acl_rows(path: str, data: bytes | None) -> Iterator[Row]:
    """Rows of one resource pattern; none for a znode that brokers do not read."""
    pattern = parse_acl_path(path)
    if pattern is None:
        return
    kind = "literal" if pattern.pattern_type is PatternType.LITERAL else "prefixed"
    entity = f"{kind} {node_name(pattern.resource_type)}:{pattern.name}"
    for entry in decode_acls(path, data):
        access = f"{node_name(entry.permission)} {node_name(entry.operation)}"
        yield "acl", entity, f"{entry.principal} {access} from {entry.host}", ""


def producer_id_rows(data: bytes | None) -> Iterator[Row]:
    """The ids that may come next: a KRaft controller writes the block that starts with its next id."""
    block = decode_producer_ids(paths.PRODUCER_IDS, data)
    if block is not None:
        following = str(block.next_id)
        yield "producer ids", "", "next", f"{block.start}|{following}" if block.broker == KRAFT_BROKER else following


def delegation_token_rows(path: str, data: bytes | None) -> Iterator[Row]:
    """Rows of one delegation token; none for a znode without data, which Kafka ignores."""
    token = decode_token(path, data)
    if token is not None:
        yield from token_rows(token)
