"""The KRaft side: image -> canonical rows. Pure.

Workers and the second reading call it. A row is (kind, entity, field, value), as on ZooKeeper's side. Resources that
ZooKeeper cannot hold give no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from migrator.image.model import MetadataImage, TopicImage
from migrator.records.metadata import ConfigResourceType, ScramMechanism
from migrator.records.uuid import uuid_to_text
from migrator.verify.canonical import Row, config_rows, ids, number, quota_entity, scram_row, token_rows

_RESOURCE_NAMES: dict[int, str] = {ConfigResourceType.TOPIC: "topic", ConfigResourceType.BROKER: "broker"}
_MECHANISM_NAMES: dict[int, str] = {ScramMechanism.SHA_256: "SCRAM-SHA-256", ScramMechanism.SHA_512: "SCRAM-SHA-512"}
_RESOURCE_TYPES = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User"}
_PATTERN_TYPES = {3: "literal", 4: "prefixed"}
_PERMISSIONS = {2: "Deny", 3: "Allow"}
_OPERATIONS = dict(
    enumerate(
        (
            *("Unknown", "Any", "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction"),
            *("DescribeConfigs", "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens"),
        )
    )
)


def topic_rows(topic: TopicImage, only: Iterable[int] | None = None) -> Iterator[Row]:
    """Rows of one topic and its partitions, or of these partitions ``only``."""
    yield "topic", topic.name, "id", uuid_to_text(topic.topic_id)
    yield "topic", topic.name, "partitions", str(len(topic.partitions))
    found = topic.partitions
    for partition_id, partition in (
        found.items() if only is None else ((one, found[one]) for one in only if one in found)
    ):
        entity = f"{topic.name}-{partition_id}"
        yield "partition", entity, "replicas", ids(partition.replicas)
        yield "partition", entity, "isr", ids(sorted(partition.isr))
        yield "partition", entity, "leader", str(partition.leader)
        yield "partition", entity, "leader_epoch", str(partition.leader_epoch)
        yield "partition", entity, "epoch", str(partition.partition_epoch)
        if partition.adding_replicas:
            yield "partition", entity, "adding", ids(sorted(partition.adding_replicas))
        if partition.removing_replicas:
            yield "partition", entity, "removing", ids(sorted(partition.removing_replicas))
        if partition.recovering:
            yield "partition", entity, "recovering", "true"


def other_rows(image: MetadataImage, salt: bytes | None) -> Iterator[Row]:
    """Rows of everything except topics; ``salt`` as in `config_rows`. Config resources that ZooKeeper does not have are
    left out: client metrics, the target of a reassignment of voters, and kinds that later releases add."""
    for resource, config in image.configs.items():
        name = _RESOURCE_NAMES.get(resource.resource_type)
        if name is not None:
            yield from config_rows(f"{name}:{resource.name}", config, salt)
    for entity, quotas in image.quotas.items():
        text = quota_entity((part.entity_type, part.entity_name) for part in entity)
        for key, quota in quotas.items():
            yield "quota", text, key, number(quota)
    yield from _security_rows(image, salt)
    if image.producer_ids_next >= 0:
        yield "producer ids", "", "next", str(image.producer_ids_next)


def _security_rows(image: MetadataImage, salt: bytes | None) -> Iterator[Row]:
    for scram, credential in image.scram.items():
        mechanism = _name(_MECHANISM_NAMES, scram.mechanism)
        yield scram_row(scram.user, mechanism, credential, salt)
    for acl in image.acls.values():
        pattern = f"{_name(_PATTERN_TYPES, acl.pattern_type)} {_name(_RESOURCE_TYPES, acl.resource_type)}"
        access = f"{_name(_PERMISSIONS, acl.permission_type)} {_name(_OPERATIONS, acl.operation)}"
        yield "acl", f"{pattern}:{acl.resource_name}", f"{acl.principal} {access} from {acl.host}", ""
    for token in image.tokens.values():
        yield from token_rows(token)


def _name(names: Mapping[int, str], code: int) -> str:
    """The name of a code. A code of a later release has no name here, and ZooKeeper cannot hold it: it becomes a
    difference, not a defect."""
    return names.get(code, f"code {code}")
