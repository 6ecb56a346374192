"""The ZooKeeper side: znodes -> canonical rows, straight from the codecs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.records.acl_codes import PatternType
from migrator.records.uuid import uuid_to_text
from migrator.verify.canonical import Row, config_rows, ids, number, quota_entity, scram_row, token_rows
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import decode_acls, node_name, parse_acl_path
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.delegation_tokens import decode_token
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder, is_password_config
from migrator.zookeeper.znodes.producer_ids import decode_producer_ids
from migrator.zookeeper.znodes.scram import split_user_config
from migrator.zookeeper.znodes.topics import TopicAssignment, decode_topic

KRAFT_BROKER = -1


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


CONFIG_ROOTS = {"topic": paths.TOPIC_CONFIGS, "broker": paths.BROKER_CONFIGS}


def resource_config_rows(
    kind: str, name: str, data: bytes | None, encoder: PasswordEncoder, salt: bytes
) -> Iterator[Row]:
    """Rows of a topic's or broker's config; passwords are decoded when there is a secret."""
    path = f"{CONFIG_ROOTS[kind]}/{name}"
    config = dict(decode_config(path, data))
    if encoder.has_secret:
        for key in filter(is_password_config, tuple(config)):
            config[key] = encoder.decode(path, key, config[key])
    entity = "" if kind == "broker" and name == paths.DEFAULT_ENTITY else name
    yield from config_rows(f"{kind}:{entity}", config, salt)


def user_rows(path: str, user: str, data: bytes | None, salt: bytes) -> Iterator[Row]:
    """Rows of ``/config/users/<user>``, which holds quotas and SCRAM credentials."""
    decoded = split_user_config(path, decode_config(path, data))
    name = entity_name(path, user)
    yield from quota_rows({"user": name}, decoded.quotas)
    for mechanism, credential in decoded.credentials.items():
        yield scram_row(name or "", f"SCRAM-{mechanism.name.replace('_', '-')}", credential, salt)


def quota_rows(entity: Mapping[str, str | None], quotas: Mapping[str, float]) -> Iterator[Row]:
    """Rows of one quota entity, names already decoded."""
    text = quota_entity(entity.items())
    for key, quota in quotas.items():
        yield "quota", text, key, number(quota)


def entity_name(path: str, node: str) -> str | None:
    """The name of a user, client or ip that a node name stands for; None is the default entity."""
    return None if node == paths.DEFAULT_ENTITY else paths.desanitize(path, node)


def acl_rows(path: str, data: bytes | None) -> Iterator[Row]:
    """Rows of one resource pattern; none for an unknown resource type, which Kafka passes over."""
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
    """Rows of one delegation token; none for a znode without data, which Kafka passes over."""
    token = decode_token(path, data)
    if token is not None:
        yield from token_rows(token)
