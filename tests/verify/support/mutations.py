"""Single differences, and changes that are none, on either side of a verified pair.

A mutation changes the records of a metadata log, or the znodes of a ZooKeeper, in place, and gives the leaves that must
then be found, as (kind, entity, field). They are written down here by hand, from Kafka's own formats, and not with the
code that makes canonical rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from migrator.records import metadata as rec
from migrator.records.uuid import random_uuid, uuid_to_text
from migrator.zookeeper.ops import Stat, Znode
from migrator.zookeeper.znodes import paths

Leaf = tuple[str, str, str]
Records = list[rec.MetadataRecord]
Znodes = dict[str, Znode]
PARTITION_FIELDS = ("replicas", "isr", "leader", "leader_epoch", "epoch")
TOKEN_FIELDS = ("owner", "requester", "renewers", "issued", "max", "expires")
NEW_BROKER = 77
STAT = Stat(1, 1, 0, 0, 0, 0, 0, 1)
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
OPERATION_CODES = {"Read": 3, "Write": 4}


def whole_partition(entity: str) -> set[Leaf]:
    return {("partition", entity, field) for field in PARTITION_FIELDS}


# --- the log ------------------------------------------------------------------------------------------------------


def pick(random: Random, records: Records, kind: type, fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """Takes one out."""
    found = random.choice([record for record in records if isinstance(record, kind) and fits(record)])
    records.remove(found)
    return found


def name_of(records: Records, topic_id: bytes) -> str:
    return next(one.name for one in records if isinstance(one, rec.TopicRecord) and one.topic_id == topic_id)


def log_topic_id(random: Random, records: Records) -> set[Leaf]:
    topic = random.choice([one for one in records if isinstance(one, rec.TopicRecord)])
    new = random_uuid(random)
    for index, one in enumerate(records):
        if isinstance(one, rec.TopicRecord | rec.PartitionRecord) and one.topic_id == topic.topic_id:
            records[index] = replace(one, topic_id=new)
    return {("topic", topic.name, "id")}


def log_topic_extra(random: Random, records: Records) -> set[Leaf]:
    topic = rec.TopicRecord(f"new-{random.randrange(1000)}", random_uuid(random))
    records += [topic, rec.PartitionRecord(0, topic.topic_id, (1, 2), (1, 2), (), (), 1, 0, 0, 0)]
    return {("topic", topic.name, "id"), ("topic", topic.name, "partitions")} | whole_partition(f"{topic.name}-0")


def log_partition_missing(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.PartitionRecord, lambda one: not (one.adding_replicas or one.leader_recovery_state))
    name = name_of(records, one.topic_id)
    return {("topic", name, "partitions")} | whole_partition(f"{name}-{one.partition_id}")


def log_partition_extra(random: Random, records: Records) -> set[Leaf]:
    topic = random.choice([one for one in records if isinstance(one, rec.TopicRecord)])
    records.append(rec.PartitionRecord(50, topic.topic_id, (1,), (1,), (), (), 1, 0, 0, 0))
    return {("topic", topic.name, "partitions")} | whole_partition(f"{topic.name}-50")


def log_partition_field(random: Random, records: Records) -> set[Leaf]:
    one = replace(pick(random, records, rec.PartitionRecord), directories=())
    name = f"{name_of(records, one.topic_id)}-{one.partition_id}"
    changes: dict[str, dict[str, Any]] = {
        "replicas": {"replicas": (*one.replicas, NEW_BROKER)},
        "isr": {"isr": (*one.isr, NEW_BROKER)},
        "leader": {"leader": random.choice([-1, NEW_BROKER])},
        "leader_epoch": {"leader_epoch": one.leader_epoch + random.randint(1, 9)},
        "epoch": {"partition_epoch": one.partition_epoch + random.randint(100, 900)},
        "adding": {"adding_replicas": (*one.adding_replicas, NEW_BROKER)},
        "removing": {"removing_replicas": (*one.removing_replicas, NEW_BROKER)},
        "recovering": {"leader_recovery_state": 1 - one.leader_recovery_state},
    }
    field = random.choice(list(changes))
    records.append(replace(one, **changes[field]))
    return {("partition", name, field)}


def _config_entity(one: rec.ConfigRecord) -> str:
    return f"{'topic' if one.resource_type == rec.ConfigResourceType.TOPIC else 'broker'}:{one.resource_name}"


def log_config(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.ConfigRecord)
    way = random.randrange(3)
    if way == 0:
        return {("config", _config_entity(one), one.name)}
    if way == 1:
        records.append(replace(one, value=(one.value or "") + random.choice(" 0x")))
        return {("config", _config_entity(one), one.name)}
    records += [one, replace(one, name="segment.bytes", value=random.choice(["", "1"]))]
    return {("config", _config_entity(one), "segment.bytes")}


def log_quota(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.ClientQuotaRecord)
    parts = sorted((part.entity_type, part.entity_name) for part in one.entity)
    entity = ", ".join(f"{kind} {'<default>' if name is None else repr(name)}" for kind, name in parts)
    if random.random() < 0.6:
        records.append(replace(one, value=one.value + random.choice([1.0, 0.5, 1e9])))
    return {("quota", entity, one.key)}


def log_scram(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.UserScramCredentialRecord)
    keys = {"stored_key": one.stored_key[:-1] + b"!"}, {"server_key": one.server_key[::-1]}
    changed = random.choice([None, {"salt": one.salt + b"!"}, {"iterations": 16384}, *keys])
    if changed is not None:
        records.append(replace(one, **changed))
    return {("scram", one.name, MECHANISMS[one.mechanism])}


def log_acl(random: Random, records: Records) -> set[Leaf]:
    pattern = f"new {random.randrange(1000)}"
    host, operation = random.choice(["*", "10.0.0.1"]), random.choice(["Read", "Write"])
    code = OPERATION_CODES[operation]
    records.append(rec.AccessControlEntryRecord(random_uuid(random), 2, pattern, 3, "User:x y", host, code, 3))
    return {("acl", f"literal Topic:{pattern}", f"User:x y Allow {operation} from {host}")}


def log_acl_missing(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.AccessControlEntryRecord, lambda one: one.resource_name == "plain")
    user, rest = ("alice", "Allow Read from *") if one.permission_type == 3 else ("bob@x", "Deny All from 10.0.0.1")
    return {("acl", "literal Topic:plain", f"User:{user} {rest}")}


def log_producer_ids(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.ProducerIdsRecord)
    records.append(replace(one, next_producer_id=one.next_producer_id + random.choice([-1000, 1, 1000])))
    return {("producer ids", "", "next")}


def log_token(random: Random, records: Records) -> set[Leaf]:
    one = pick(random, records, rec.DelegationTokenRecord)
    changes: dict[str, dict[str, Any]] = {
        "owner": {"owner": "User:other"},
        "requester": {"requester": "User:other"},
        "renewers": {"renewers": (*one.renewers, "User:other")},
        "issued": {"issue_timestamp": one.issue_timestamp - 1},
        "max": {"max_timestamp": one.max_timestamp + 1},
        "expires": {"expiration_timestamp": one.expiration_timestamp + 1},
    }
    field = random.choice([*changes, None])
    if field is None:
        return {("token", one.token_id, each) for each in TOKEN_FIELDS}
    records.append(replace(one, **changes[field]))
    return {("token", one.token_id, field)}


LOG_MUTATIONS = (
    *(log_topic_id, log_topic_extra, log_partition_missing, log_partition_extra, log_partition_field, log_config),
    *(log_quota, log_scram, log_acl, log_acl_missing, log_producer_ids, log_token),
)

# --- ZooKeeper ----------------------------------------------------------------------------------------------------


def edit(znodes: Znodes, path: str, change: Callable[[Any], None]) -> None:
    """Change the JSON of a znode; its data version counts on, as ZooKeeper does."""
    znode = znodes[path]
    content = json.loads(znode.data or b"{}")
    change(content)
    stat = replace(znode.stat, version=znode.stat.version + 1)
    znodes[path] = Znode(path, json.dumps(content).encode(), stat)


def choose(random: Random, znodes: Znodes, *, under: str, ends: str = "", depth: int | None = None) -> str:
    """The path of a znode with data."""
    return random.choice(
        sorted(
            path
            for path, znode in znodes.items()
            if path.startswith(f"{under}/") and path.endswith(ends) and znode.data
            if depth is None or path.count("/") == depth
        )
    )


def _partition_of(state: str) -> str:
    parts = state.split("/")
    return f"{parts[3]}-{parts[5]}"


def znode_topic_id(random: Random, znodes: Znodes) -> set[Leaf]:
    path = choose(random, znodes, under=paths.TOPICS, depth=3)
    edit(znodes, path, lambda content: content.update(topic_id=uuid_to_text(random_uuid(random))))
    return {("topic", paths.name_of(path), "id")}


def znode_topic_extra(random: Random, znodes: Znodes) -> set[Leaf]:
    name = f"new-{random.randrange(1000)}"
    topic_id = uuid_to_text(random_uuid(random))
    content = {"version": 3, "topic_id": topic_id, "partitions": {"0": [1]}, "adding_replicas": {}}
    znodes[paths.topic(name)] = Znode(paths.topic(name), json.dumps(content).encode(), STAT)
    return {("topic", name, "id"), ("topic", name, "partitions")} | whole_partition(f"{name}-0")


def znode_topic_doomed(random: Random, znodes: Znodes) -> set[Leaf]:
    """A pending deletion: ZooKeeper no longer counts the topic, nor its configuration."""
    path = paths.delete_topic("single")
    znodes[path] = Znode(path, None, STAT)
    return {("topic", "single", "id"), ("topic", "single", "partitions")} | whole_partition("single-0")


def znode_partition_extra(random: Random, znodes: Znodes) -> set[Leaf]:
    path = choose(random, znodes, under=paths.TOPICS, depth=3)
    edit(znodes, path, lambda content: content["partitions"].update({"50": [2, 1]}))
    name = paths.name_of(path)
    return {("topic", name, "partitions")} | whole_partition(f"{name}-50")


def znode_assignment(random: Random, znodes: Znodes) -> set[Leaf]:
    path = choose(random, znodes, under=paths.TOPICS, depth=3)
    field, key = random.choice(
        [("replicas", "partitions"), ("adding", "adding_replicas"), ("removing", "removing_replicas")]
    )

    def change(content: Any) -> None:
        content.setdefault(key, {}).setdefault("0", []).append(NEW_BROKER)

    edit(znodes, path, change)
    return {("partition", f"{paths.name_of(path)}-0", field)}


def znode_state(random: Random, znodes: Znodes) -> set[Leaf]:
    path = choose(random, znodes, under=paths.TOPICS, ends="/state")
    state = json.loads(znodes[path].data or b"")
    field, changed = random.choice(
        [
            ("leader", {"leader": random.choice([-1, NEW_BROKER])}),
            ("leader_epoch", {"leader_epoch": state["leader_epoch"] + 1}),
            ("isr", {"isr": [*state["isr"], NEW_BROKER]}),
            ("recovering", {"leader_recovery_state": 1 - state.get("leader_recovery_state", 0)}),
        ]
    )
    edit(znodes, path, lambda content: content.update(changed))
    return {("partition", _partition_of(path), field)}


def znode_version(random: Random, znodes: Znodes) -> set[Leaf]:
    path = random.choice([path for path, one in znodes.items() if path.endswith("/state") and one.stat.version > 0])
    znode = znodes[path]
    znodes[path] = replace(znode, stat=replace(znode.stat, version=random.randrange(znode.stat.version)))
    return {("partition", _partition_of(path), "epoch")}


def znode_config(random: Random, znodes: Znodes) -> set[Leaf]:
    root, kind = random.choice([(paths.TOPIC_CONFIGS, "topic"), (paths.BROKER_CONFIGS, "broker")])
    path = choose(random, znodes, under=root)
    name = paths.name_of(path)
    present = sorted(key for key in json.loads(znodes[path].data or b"")["config"] if not key.endswith("password"))
    key = random.choice([*present, "segment.bytes"])

    def change(content: Any) -> None:
        if key in content["config"] and random.random() < 0.5:
            del content["config"][key]
        else:
            content["config"][key] = content["config"].get(key, "") + "0"

    edit(znodes, path, change)
    return {("config", f"{kind}:{'' if name == '<default>' else name}", key)}


def znode_password(random: Random, znodes: Znodes) -> set[Leaf]:
    """Another password's encrypted form."""
    first, second = "listener.name.vault.ssl.keystore.password", "listener.name.vault.ssl.key.password"

    def change(content: Any) -> None:
        content["config"][first] = content["config"][second]

    edit(znodes, f"{paths.BROKER_CONFIGS}/2", change)
    return {("config", "broker:2", first)}


def znode_quota(random: Random, znodes: Znodes) -> set[Leaf]:
    root, entity = random.choice(
        [
            (paths.CLIENT_CONFIGS, "client-id <default>"),
            (paths.IP_CONFIGS, "ip <default>"),
            (f"{paths.USER_CONFIGS}/<default>/clients", "client-id <default>, user <default>"),
        ]
    )
    found: list[str] = []

    def change(content: Any) -> None:
        key = random.choice(sorted(content["config"]))
        found.append(key)
        if random.random() < 0.4:
            del content["config"][key]
        else:
            content["config"][key] = f"{float(content['config'][key]) + 1:g}"

    edit(znodes, f"{root}/<default>", change)
    return {("quota", entity, found[0])}


def znode_scram(random: Random, znodes: Znodes) -> set[Leaf]:
    mechanism = random.choice(["SCRAM-SHA-256", "SCRAM-SHA-512"])

    def change(content: Any) -> None:
        if random.random() < 0.4:
            del content["config"][mechanism]
        else:
            content["config"][mechanism] = content["config"][mechanism].replace("salt=", "salt=AAAA")

    edit(znodes, f"{paths.USER_CONFIGS}/alice", change)
    return {("scram", "alice", mechanism)}


def znode_acl(random: Random, znodes: Znodes) -> set[Leaf]:
    entry = {"principal": f"User:{random.randrange(1000)}", "permissionType": "Deny", "operation": "All", "host": "h"}
    removed = random.random() < 0.5

    def change(content: Any) -> None:
        if removed:
            content["acls"] = [one for one in content["acls"] if one["principal"] != "User:alice"]
        else:
            content["acls"].append(entry)

    edit(znodes, f"{paths.LITERAL_ACLS}/Topic/plain", change)
    field = "User:alice Allow Read from *" if removed else f"{entry['principal']} Deny All from h"
    return {("acl", "literal Topic:plain", field)}


def znode_producer_ids(random: Random, znodes: Znodes) -> set[Leaf]:
    start = random.choice([1000, 7000])

    def change(content: Any) -> None:
        content.update(block_start=str(start), block_end=str(start + 999))

    edit(znodes, paths.PRODUCER_IDS, change)
    return {("producer ids", "", "next")}


def znode_token(random: Random, znodes: Znodes) -> set[Leaf]:
    path = choose(random, znodes, under=paths.TOKENS)
    token_id = paths.name_of(path)
    if random.random() < 0.3:
        del znodes[path]
        return {("token", token_id, field) for field in TOKEN_FIELDS}
    field, key, text = random.choice(
        [
            ("owner", "owner", "User%3Aother"),
            ("requester", "tokenRequester", "User%3Aother"),
            ("renewers", "renewers", ["User%3Aother"]),
            ("issued", "issueTimestamp", 1),
            ("expires", "expiryTimestamp", 7),
        ]
    )
    edit(znodes, path, lambda content: content.update({key: text}))
    return {("token", token_id, field)}


ZNODE_MUTATIONS = (
    *(znode_topic_id, znode_topic_extra, znode_topic_doomed, znode_partition_extra, znode_assignment, znode_state),
    *(znode_version, znode_config, znode_password, znode_quota, znode_scram, znode_acl, znode_producer_ids),
    znode_token,
)

# --- what is no difference ----------------------------------------------------------------------------------------


def rename_acls(random: Random, records: Records, _: Znodes) -> None:
    """Random ids of access control entries."""
    for index, one in enumerate(records):
        if isinstance(one, rec.AccessControlEntryRecord):
            records[index] = replace(one, id=random_uuid(random))


def raise_versions(random: Random, _: Records, znodes: Znodes) -> None:
    """State znodes whose data version is ahead of the partition epoch."""
    for path, znode in znodes.items():
        if path.endswith("/state") and random.random() < 0.5:
            znodes[path] = replace(znode, stat=replace(znode.stat, version=znode.stat.version + random.randint(1, 5)))


def shuffle_json(random: Random, _: Records, znodes: Znodes) -> None:
    """Keys in another order, white space, a broker's way with empty maps, ISRs in another order."""
    for path, znode in znodes.items():
        if znode.data and znode.data.startswith(b"{"):
            content = json.loads(znode.data)
            if "isr" in content:
                random.shuffle(content["isr"])
            if "topic_id" in content:
                content.setdefault("adding_replicas", {})
            items = list(content.items())
            random.shuffle(items)
            znodes[path] = Znode(path, json.dumps(dict(items), indent=1).encode(), znode.stat)


def shuffle_isr(random: Random, records: Records, _: Znodes) -> None:
    """In-sync replicas in another order."""
    for index, one in enumerate(records):
        if isinstance(one, rec.PartitionRecord):
            records[index] = replace(one, isr=tuple(random.sample(one.isr, len(one.isr))))


def shuffle_records(random: Random, records: Records, _: Znodes) -> None:
    """Everything that has no topic to come after, in any order."""
    head: Records = [one for one in records if isinstance(one, rec.FeatureLevelRecord | rec.TopicRecord)]
    tail = [one for one in records if not isinstance(one, rec.FeatureLevelRecord | rec.TopicRecord)]
    random.shuffle(tail)
    records[:] = [*head, *tail]


def add_what_is_not_compared(random: Random, records: Records, znodes: Znodes) -> None:
    """A topic on its way out, foreign znodes, empty entities, client metrics, a namesake's configuration."""
    doomed = f"doomed-{random.randrange(100)}"
    topic = {"version": 3, "topic_id": uuid_to_text(random_uuid(random)), "partitions": {"0": [1]}}
    for path, data in (
        (paths.topic(doomed), json.dumps(topic).encode()),
        (paths.delete_topic(doomed), None),
        (f"{paths.USER_CONFIGS}/nobody", b'{"version":1,"config":{}}'),
        (f"{paths.LITERAL_ACLS}/Strange", None),
        ("/consumers/group", None),
        (paths.CONFIG_CHANGE_PREFIX + "0000000999", b'{"version":2,"entity_path":"topics/x"}'),
    ):
        znodes[path] = Znode(path, data, STAT)
    records.append(rec.ConfigRecord(rec.ConfigResourceType.CLIENT_METRICS, "metrics", "interval.ms", "100"))


def kraft_producer_block(_: Random, __: Records, znodes: Znodes) -> None:
    """The block as a KRaft controller writes it: it starts with the next id."""
    edit(
        znodes, paths.PRODUCER_IDS, lambda content: content.update(broker=-1, block_start="1000", block_end="1999")
    )  # fmt: skip


NEUTRAL = (
    *(rename_acls, raise_versions, shuffle_json, shuffle_isr, shuffle_records, add_what_is_not_compared),
    kraft_producer_block,
)
