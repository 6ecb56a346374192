"""The content that znodes should have for an image: the one place that encodes it and compares znodes with it.

Write-behind, reconcile, audit and rollback use a `Target`, so a write is always equal to the content that the next
comparison expects. Two spellings with the same meaning are equal, and passwords are compared in the clear. The version
of a partition's znode has to reach the partition epoch, because brokers of a ZooKeeper controller take it as that
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from migrator.image.model import (
    Acl,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    QuotaKey,
    ScramCredential,
    ScramKey,
    TopicImage,
)
from migrator.migration.translate import names
from migrator.migration.translate.entity import EntityKind, entity_name
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import ConfigResourceType, ScramMechanism
from migrator.zookeeper.ops import Create, Op, SetData
from migrator.zookeeper.znodes import acls, paths
from migrator.zookeeper.znodes.configs import decode_config, encode_config, encode_config_change
from migrator.zookeeper.znodes.delegation_tokens import encode_token_change
from migrator.zookeeper.znodes.entities import Held, user_config
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import PartitionState, encode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder, is_password_config, looks_encrypted
from migrator.zookeeper.znodes.producer_ids import BLOCK_SIZE, ProducerIdBlock
from migrator.zookeeper.znodes.scram import UserConfig, join_user_config
from migrator.zookeeper.znodes.topics import TopicAssignment

KRAFT_BROKER = -1
"""The broker id in ZooKeeper's block of producer ids when a KRaft controller allocated it."""

Spellings = dict[str, tuple[str, ...]]
"""Names of znodes that configs have beside the canonical ones, by canonical name. Nearly always empty."""

Report = Callable[[str, str], None]
"""Called with the path of each znode that cannot be written, and the reason."""


def ignore(_path: str, _reason: str) -> None:
    """A `Report` that does nothing."""


class Target:
    """An image, and how it is written to ZooKeeper.

    :param passwords: encrypts passwords in configs. Without a secret these keys are not written.
    :param controller_epoch: the controller epoch in partition states. The ZooKeeper controller epoch of the claim is
        safe: a ZooKeeper controller refuses partitions whose epoch is above ``/controller_epoch`` (KAFKA-20488).
    :param report: called with each entity that ZooKeeper cannot hold.
    :param spellings: the spellings that the last comparison of ZooKeeper saw; a comparison updates them.
    :param behind: receives, by the name of a topic's entity, how many sets its partition states still need to reach
        their partition epochs, where these sets are to be made later. None: they are made at once.
    :param room: how many of them are made at once nevertheless.
    """

    def __init__(
        self,
        image: MetadataImage,
        *,
        passwords: PasswordEncoder,
        controller_epoch: int,
        report: Report = ignore,
        spellings: Spellings | None = None,
        behind: dict[str, int] | None = None,
        room: int = 0,
    ) -> None:
        self.image = image
        self.passwords = passwords
        self.controller_epoch = controller_epoch
        self.report = report
        self.spellings: Spellings = {} if spellings is None else spellings
        self.behind = behind
        self.room = room

    def take_spellings(self) -> Spellings:
        """The spellings that were seen since the last call."""
        seen, self.spellings = self.spellings, {}
        return seen

    def raising(self, topic: str, path: str, data: bytes, sets: int, *, least: int = 0) -> tuple[Op, ...]:
        """The sets of a state znode that are made now.

        :param sets: how many raise its version to the partition epoch.
        :param least: how many its content needs.
        """
        if self.behind is not None and sets > least:
            now = min(sets - least, self.room)
            self.room -= now
            if later := sets - least - now:
                entity = entity_name(EntityKind.TOPIC, topic)
                self.behind[entity] = self.behind.get(entity, 0) + later
            sets = least + now
        return state_sets(path, data, max(sets, least))

    def partition_state(self, partition: PartitionRegistration) -> bytes:
        """The data of a state znode."""
        return encode_partition_state(
            PartitionState(
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                controller_epoch=self.controller_epoch,
                isr=partition.isr,
                recovering=partition.recovering,
            )
        )

    def config(self, resource: ConfigResource) -> dict[str, str]:
        """A topic's or broker's config, passwords in the clear. Without a secret, passwords in the clear are left
        out."""
        config = dict(self.image.configs.get(resource, {}))
        if self.passwords.has_secret:
            return config
        plain = {key for key, text in config.items() if is_password_config(key) and not looks_encrypted(text)}
        if not plain:
            return config
        name = names.config_name(resource) or ""
        self.report(paths.config(name), f"{', '.join(sorted(plain))}: not written, password.encoder.secret is not set")
        return {key: text for key, text in config.items() if key not in plain}

    def encode_config(self, config: Mapping[str, str]) -> bytes:
        """Znode data, passwords encrypted."""
        return encode_config({key: self._stored(key, text) for key, text in config.items()})

    def same_config(self, path: str, data: bytes | None, config: Mapping[str, str]) -> bool:
        """Whether a znode holds this config; passwords are compared in the clear. A znode that does not decode differs,
        and is reported: it may be encrypted with another secret."""
        return self.same_configs([(path, data)], config)

    def same_configs(self, held: Iterable[tuple[str, bytes | None]], config: Mapping[str, str]) -> bool:
        """Like `same_config`, for all znodes of an entity, by path: the first one with content counts."""
        path = ""
        try:
            for path, data in held:
                if stored := decode_config(path, data):
                    break
            else:
                return not config
            return stored.keys() == config.keys() and all(
                self._plain(path, key, text) == config[key] for key, text in stored.items()
            )
        except ZnodeError as fault:
            self.report(path, fault.what)
            return False

    def client_config(self, key: QuotaKey) -> dict[str, str]:
        """Quotas of an entity, united with the SCRAM credentials of a user."""
        credentials: dict[ScramMechanism, ScramCredential] = {}
        entities = tuple(key)
        if len(entities) == 1 and entities[0].entity_type == names.USER and entities[0].entity_name is not None:
            for mechanism in ScramMechanism:
                credential = self.image.scram.get(ScramKey(mechanism, entities[0].entity_name))
                if credential is not None:
                    credentials[mechanism] = credential
        return join_user_config(UserConfig(self.image.quotas.get(key, {}), credentials))

    def _stored(self, key: str, text: str) -> str:
        return self.passwords.encode(text) if self.passwords.has_secret and is_password_config(key) else text

    def _plain(self, path: str, key: str, text: str) -> str:
        if self.passwords.has_secret and is_password_config(key):
            return self.passwords.decode(path, key, text)
        return text


def assignment_of(topic: TopicImage) -> TopicAssignment:
    """The content of a topic's znode."""
    partitions = topic.partitions.items()
    return TopicAssignment(
        topic_id=topic.topic_id,
        partitions={number: partition.replicas for number, partition in partitions},
        adding={number: partition.adding_replicas for number, partition in partitions if partition.adding_replicas},
        removing={
            number: partition.removing_replicas for number, partition in partitions if partition.removing_replicas
        },
    )


def same_client_config(name: str, held: Held, wanted: Mapping[str, str]) -> bool:
    """Whether the znodes of a user, client or ip hold these quotas and credentials, in any spelling."""
    try:
        return join_user_config(user_config(name, held)) == wanted
    except ZnodeError:
        return False


def state_sets(path: str, data: bytes, count: int) -> tuple[Op, ...]:
    """The sets of a state znode: each raises the znode's version by one, until it reaches the partition epoch."""
    return (SetData(path, data),) * count


def producer_ids_block(next_id: int) -> ProducerIdBlock:
    """The block before ``next_id``, the next id to allocate. (Stock controllers skip a block with each write.)"""
    return ProducerIdBlock(KRAFT_BROKER, max(0, next_id - BLOCK_SIZE), next_id - 1)


def pattern_of(acl: Acl) -> acls.ResourcePattern:
    return acls.ResourcePattern(ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type))


def entry_of(acl: Acl) -> acls.AclEntry:
    operation, permission = AclOperation(acl.operation), AclPermission(acl.permission_type)
    return acls.AclEntry(acl.principal, acl.host, operation, permission)


def config_notice(name: str) -> Create:
    """The znode that tells brokers in ZooKeeper mode to read a config again."""
    return Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(name), sequential=True)


def acl_notice(pattern: acls.ResourcePattern) -> Create:
    """The znode that tells brokers to read the ACLs of a resource pattern again."""
    return Create(acls.acl_change_prefix(pattern), acls.encode_acl_change(pattern), sequential=True)


def token_notice(token_id: str) -> Create:
    """The znode that tells brokers to read a delegation token again. (Stock controllers write no such notice.)"""
    return Create(paths.TOKEN_CHANGE_PREFIX, encode_token_change(token_id), sequential=True)


def is_kept(resource: ConfigResource) -> bool:
    """Whether ZooKeeper has configs of this kind."""
    return resource.resource_type in {ConfigResourceType.TOPIC, ConfigResourceType.BROKER}
