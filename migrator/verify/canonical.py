"""Canonical rows: one row for each leaf of the metadata. Both sides give the same text for the same fact.

The code that makes the rows of a side (`znode_rows`, `image_rows`) shares only codecs with the migration, and nothing
with the other side, so the comparison finds mistakes of the migration's translation. The table `RULES` says which
values count as equal.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from enum import Enum

from migrator.config.sensitive import broker_type, is_sensitive, topic_type
from migrator.image.model import ScramCredential
from migrator.records.metadata import DelegationTokenRecord, UserScramCredentialRecord
from migrator.values import value

Row = tuple[str, str, str, str]
"""(kind, entity, field, value)."""

COLUMNS = ("kind", "entity", "field", "value")
_TYPES_OF = {"topic": topic_type, "broker": broker_type}


class Equality(Enum):
    """The rule by which a pair of values counts as equal."""

    SAME = "the texts are the same"
    AT_LEAST = "ZooKeeper's number is not below KRaft's"
    ONE_OF = "KRaft's value is one of those, separated by |, that ZooKeeper gives"


@value
class CanonicalRule:
    """``field`` "" stands for every field of the kind without a separate rule."""

    kind: str
    field: str
    equality: Equality
    doc: str


RULES: tuple[CanonicalRule, ...] = (
    CanonicalRule("topic", "id", Equality.SAME, "Topic id. Topics with a pending deletion in ZooKeeper are left out."),
    CanonicalRule("topic", "partitions", Equality.SAME, "Number of partitions."),
    CanonicalRule("partition", "replicas", Equality.SAME, "Broker ids in order."),
    CanonicalRule(
        "partition", "adding", Equality.SAME, "Replicas that a reassignment adds, sorted; no row when there are none."
    ),
    CanonicalRule(
        "partition",
        "removing",
        Equality.SAME,
        "Replicas that a reassignment removes, sorted; no row when there are none.",
    ),
    CanonicalRule("partition", "isr", Equality.SAME, "In-sync replicas, sorted. Without a state znode: all replicas."),
    CanonicalRule("partition", "leader", Equality.SAME, "Broker id or -1. Without a state znode: the first replica."),
    CanonicalRule("partition", "leader_epoch", Equality.SAME, "Without a state znode: 0."),
    CanonicalRule("partition", "recovering", Equality.SAME, "A row only while recovering from an unclean election."),
    CanonicalRule(
        "partition",
        "epoch",
        Equality.AT_LEAST,
        "Data version of the state znode against the partition epoch: a lower version makes brokers refuse "
        "leadership after a rollback.",
    ),
    CanonicalRule(
        "config",
        "",
        Equality.SAME,
        "Topic and broker configs by key, passwords decoded. What DescribeConfigs would hide is only hashed: "
        "passwords, and values of keys that Kafka does not have.",
    ),
    CanonicalRule("quota", "", Equality.SAME, "Values as numbers, by entity (names decoded, defaults apart) and key."),
    CanonicalRule("scram", "", Equality.SAME, "Credentials by user and mechanism, only hashed."),
    CanonicalRule(
        "acl",
        "",
        Equality.SAME,
        "One row an entry: principal, permission, operation, host; KRaft's random ids ignored.",
    ),
    CanonicalRule(
        "producer ids",
        "next",
        Equality.ONE_OF,
        "The next producer id that KRaft hands out: ZooKeeper's block ends before it, or starts with it when a KRaft "
        "controller wrote the block.",
    ),
    CanonicalRule(
        "token", "", Equality.SAME, "Delegation tokens: owner, requester, renewers (sorted) and the three times."
    ),
)

KINDS: tuple[str, ...] = tuple(dict.fromkeys(rule.kind for rule in RULES))


def ids(replicas: Iterable[int]) -> str:
    """Broker ids as text, in the given order."""
    return ",".join(map(str, replicas))


def hidden(secret: str | bytes, salt: bytes) -> str:
    """The keyed hash that replaces a secret in a row: equal for equal secrets of one run, and useless outside of it."""
    raw = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    return "hmac:" + hmac.new(salt, raw, hashlib.sha256).hexdigest()


def config_rows(entity: str, config: Mapping[str, str], salt: bytes | None) -> Iterable[Row]:
    """Rows of one config resource, passwords already in the clear; ``entity`` such as ``topic:t``.

    :param salt: key of the hashes; None if secrets were replaced before.
    """
    type_of = _TYPES_OF[entity.partition(":")[0]]
    for key, text in config.items():
        yield "config", entity, key, hidden(text, salt) if salt is not None and is_sensitive(type_of(key)) else text


def scram_row(user: str, mechanism: str, credential: ScramCredential, salt: bytes | None) -> Row:
    """The row of one credential; ``mechanism`` such as SCRAM-SHA-256. ``salt`` as above."""
    shown = credential.stored_key.decode() if salt is None else hidden_credential(credential, salt)
    return "scram", user, mechanism, shown


def hidden_credential(credential: ScramCredential | UserScramCredentialRecord, salt: bytes) -> str:
    """The keyed hash that replaces a credential in a row."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    return hidden(",".join([*(base64.b64encode(part).decode() for part in parts), str(credential.iterations)]), salt)


def token_rows(token: DelegationTokenRecord) -> Iterable[Row]:
    for field, text in (
        ("owner", token.owner),
        ("requester", token.requester),
        ("renewers", ",".join(sorted(token.renewers))),
        ("issued", str(token.issue_timestamp)),
        ("max", str(token.max_timestamp)),
        ("expires", str(token.expiration_timestamp)),
    ):
        yield "token", token.token_id, field, text


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> str:
    """An entity's name: types in order, the default as ``<default>`` without quotes, other names quoted."""
    return ", ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in sorted(parts, key=_type))


def _type(part: tuple[str, str | None]) -> str:
    return part[0]


def number(quota: float) -> str:
    """A quota's value as text."""
    return repr(float(quota))
