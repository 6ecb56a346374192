"""Every path that Kafka has in ZooKeeper (without chroot), and the names inside them. Pure.

All code that names a znode takes the path from here. Names of users and clients are URL-encoded as in Kafka
(`sanitize`); topics and addresses of clients are not. Source: Kafka's ``kafka.zk.ZkData`` and
``org.apache.kafka.common.utils.Sanitizer``.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

from migrator.zookeeper.znodes.errors import ZnodeError

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
MIGRATION = "/migration"
CLUSTER_ID = "/cluster/id"
ROLLOUT = "/migrator_rollout"
"""The lock of a rollout of this cluster. It is this program's, and exists only during a rollout."""
DRILL = "/migrator_drill"
"""The mark of a drill. It is this program's, and exists only in a throw-away cluster."""
PRODUCER_IDS = "/latest_producer_id_block"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
OLD_ORDERS = (REASSIGN_PARTITIONS, PREFERRED_ELECTION)
"""Orders that no controller of a quorum looks at."""
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
LITERAL_ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
LITERAL_ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105 - a path, no secret

CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
LITERAL_ACL_CHANGE_PREFIX = f"{LITERAL_ACL_CHANGES}/acl_changes_"
PREFIXED_ACL_CHANGE_PREFIX = f"{PREFIXED_ACL_CHANGES}/acl_changes_"
TOKEN_CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"

ACL_RESOURCE_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
"""Node names of the types of resources that ACLs are about."""

DEFAULT_ENTITY = "<default>"
"""The node name of the default broker config and of default quota entities."""

STANDARD_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    PRODUCER_IDS,
    "/log_dir_event_notification",
    TOPIC_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    BROKER_CONFIGS,
    IP_CONFIGS,
)
"""The znodes that every broker in ZooKeeper mode creates at its start if they are missing
(``ZkData.PersistentZkPaths``)."""

SECURITY_PATHS = (
    *(f"{root}/{kind}" for root in (LITERAL_ACLS, PREFIXED_ACLS) for kind in ACL_RESOURCE_TYPES),
    LITERAL_ACL_CHANGES,
    PREFIXED_ACL_CHANGES,
    TOKENS,
    TOKEN_CHANGES,
)
"""The znodes that brokers with an authorizer or delegation tokens create (``KafkaZkClient.createAclPaths``)."""

SENSITIVE_PREFIXES = (USER_CONFIGS, BROKER_CONFIGS, TOKENS)
"""The prefixes below which only the creator may read with ``zookeeper.set.acl``."""

OPEN_PATH = "/consumers"
"""Every client has all rights here, even with ``zookeeper.set.acl``."""

_MALFORMED_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ILLEGAL_IN_NAMES = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
"""The characters that ZooKeeper refuses. Java has characters above U+FFFF as surrogates, which are refused, too."""


def is_sensitive(path: str) -> bool:
    """Whether the znode may hold secrets."""
    return path.startswith(SENSITIVE_PREFIXES)


def is_legal_name(name: str) -> bool:
    """Whether ZooKeeper accepts the name of a znode (``PathUtils.validatePath``)."""
    return bool(name) and name not in {".", ".."} and _ILLEGAL_IN_NAMES.search(name) is None


def sanitize(name: str) -> str:
    """The node name for the name of a user, client or token principal: URL-encoded, space as ``%20``."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(path: str, name: str) -> str:
    """The counterpart of `sanitize`.

    :param path: the znode, for the message.
    :raises ZnodeError: the name is not URL-encoded UTF-8.
    """
    remedy = "Kafka's tools never write such a name: delete the znode if nobody uses it"
    if _MALFORMED_ESCAPE.search(name):
        raise ZnodeError(path, f"the name {name!r} is not URL-encoded", remedy)
    try:
        return unquote_plus(name, errors="strict")
    except UnicodeDecodeError:
        raise ZnodeError(path, f"the name {name!r} does not stand for UTF-8 text", remedy) from None


def name_of(path: str) -> str:
    """The last component."""
    return path.rpartition("/")[2]


def parent_of(path: str) -> str:
    """The path above; ``/`` for a top-level path."""
    return path.rpartition("/")[0] or "/"


def ancestors(path: str) -> list[str]:
    """All paths above, the root left out, topmost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts))]


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, partition_id: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}"


def partition_state(topic_name: str, partition_id: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}/state"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def config(entity_path: str) -> str:
    """``entity_path`` as in config change notices, e.g. ``users/alice/clients/<default>``."""
    return f"{CONFIG}/{entity_path}"


def token(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"
