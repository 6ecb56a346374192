"""Cases for the checks of ZooKeeper: how a znode is broken, and the finding that preflight must give.

`test_checks` runs each case on a `ReadyCluster`, in a real ZooKeeper.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from kazoo.security import make_acl, make_digest_acl

from migrator.clock import wall_ms
from migrator.drill.cluster import ENCODER_SECRET
from migrator.drill.workload.fill import write
from migrator.preflight.evidence import Evidence
from migrator.preflight.lost_states import Reported
from migrator.records.metadata import SecurityProtocol
from migrator.records.uuid import uuid_from_text
from migrator.values import value
from migrator.zookeeper.ops import Create
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.preflight.support.ready_cluster import KNOWN, KNOWN_IDS, ReadyCluster

TOPIC = "UPPER.lower"


Damage = Callable[[ReadyCluster], Any]


@value
class Case:
    """``where`` and ``what`` are parts of the first finding of that code."""

    code: str
    damage: Damage
    where: str
    what: str


def acl_without_type(cluster: ReadyCluster) -> None:
    acl = {"principal": "alice", "permissionType": "Allow", "operation": "Read", "host": "*"}
    cluster.put("/kafka-acl/Topic/broken", {"version": 1, "acls": [acl]})


def hundreds_that_do_not_decode(cluster: ReadyCluster) -> None:
    for number in range(120):
        cluster.put(f"{paths.CLIENT_CONFIGS}/broken-{number:03}", b"{")


def password_beyond_the_log(cluster: ReadyCluster) -> None:
    """Bytes count, of what is decrypted."""
    encoder = PasswordEncoder(ENCODER_SECRET, os.urandom)
    config = {"sasl.jaas.config": encoder.encode("ü" * 16_384)}
    cluster.put(f"{paths.BROKER_CONFIGS}/2", {"version": 1, "config": config})


def principal_beyond_the_log(cluster: ReadyCluster) -> None:
    principal = "User:" + "x" * (32_768 - len("User:"))
    acl = {"principal": principal, "permissionType": "Allow", "operation": "Read", "host": "*"}
    cluster.put("/kafka-acl/Topic/long", {"version": 1, "acls": [acl]})


def user_beyond_the_log(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.USER_CONFIGS}/{'u' * 32_768}", {"version": 1, "config": {"producer_byte_rate": "1"}})


def token_times_as_text(cluster: ReadyCluster) -> None:
    (name, *_) = cluster.client.get_children(paths.TOKENS)
    cluster.change(paths.token(name), issueTimestamp="5")


def scram_for_the_default_user(cluster: ReadyCluster) -> None:
    credential = "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"
    cluster.put(f"{paths.USER_CONFIGS}/<default>", {"version": 1, "config": {"SCRAM-SHA-256": credential}})


def malformed_user_name(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.USER_CONFIGS}/100%", {"version": 1, "config": {"producer_byte_rate": "1"}})


def registration_of_another_form(cluster: ReadyCluster) -> None:
    cluster.put(paths.broker(3), {"version": 5, "endpoints": ["nowhere"]})


def controller_epoch_is_no_number(cluster: ReadyCluster) -> None:
    cluster.put(paths.CONTROLLER_EPOCH, b"seven")


def topic_without_id(cluster: ReadyCluster) -> None:
    cluster.change(paths.topic(TOPIC), topic_id=None)


def topic_whose_id_brokers_know(cluster: ReadyCluster) -> None:
    """An old tool has written the znode."""
    topic_without_id(cluster)
    KNOWN_IDS[TOPIC] = UUID(bytes=uuid_from_text("u3Tj1kq0Qx6Vw1jvJ9hG2A"))


def copied_by_another_quorum(cluster: ReadyCluster) -> None:
    cluster.put(paths.MIGRATION, encode_migration(MigrationState(3000, 4, 1200, 4)))


def migration_without_data(cluster: ReadyCluster) -> None:
    write(cluster.client, [Create(paths.MIGRATION, None)])


def claimed_by_kraft(cluster: ReadyCluster) -> None:
    cluster.change(paths.CONTROLLER, brokerid=3000, kraftControllerEpoch=9, version=2)


def nobody_elected(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.CONTROLLER)


def no_controller_epoch(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.CONTROLLER_EPOCH)


def wrong_chroot(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.CLUSTER_ID)


def another_cluster(cluster: ReadyCluster) -> None:
    cluster.put(paths.CLUSTER_ID, {"version": "1", "id": "AAAAAAAAAAAAAAAAAAAAAA"})


def foreign_znodes(cluster: ReadyCluster) -> None:
    cluster.put("/config/planets", b"")
    cluster.put("/kafka-acl/Planet/earth", b"")


def config_of_no_topic(cluster: ReadyCluster) -> None:
    cluster.put(paths.topic_config("gone"), {"version": 1, "config": {}})


CREDENTIAL = {"SCRAM-SHA-256": "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"}


def two_znodes_of_a_user(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.USER_CONFIGS}/svc%40X", {"version": 1, "config": {"producer_byte_rate": "1"}})
    cluster.put(f"{paths.USER_CONFIGS}/svc@X", {"version": 1, "config": CREDENTIAL})


def name_that_is_not_encoded(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.USER_CONFIGS}/svc@X", {"version": 1, "config": CREDENTIAL})


def quotas_below_a_name_that_is_not_encoded(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.USER_CONFIGS}/svc@X/clients/c", {"version": 1, "config": {"producer_byte_rate": "1"}})


def quota_with_an_exponent(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.CLIENT_CONFIGS}/c", {"version": 1, "config": {"producer_byte_rate": "1e6"}})


def address_that_is_encoded(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.IP_CONFIGS}/%3A%3A1", {"version": 1, "config": {"connection_creation_rate": "1"}})


def acl_with_a_slash(cluster: ReadyCluster) -> None:
    cluster.put("/kafka-acl/Topic/a/b", b"")


def reassignment(cluster: ReadyCluster) -> None:
    cluster.change(paths.topic(TOPIC), partitions={"0": [1, 2, 3]}, adding_replicas={"0": [3]})


def order_of_an_old_tool(cluster: ReadyCluster) -> None:
    cluster.put("/admin/preferred_replica_election", {"version": 1, "partitions": []})


def deletion(cluster: ReadyCluster) -> None:
    cluster.put(paths.delete_topic("-"), b"")


def no_state(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.partition_state(TOPIC, 0))


def state_that_brokers_know(cluster: ReadyCluster) -> None:
    no_state(cluster)
    KNOWN[TOPIC, 0] = Reported(2, 57, (2, 1))


def state_of_a_young_topic(cluster: ReadyCluster) -> None:
    no_state(cluster)
    KNOWN[TOPIC, 0] = Reported(2, 0, (2, 1))


def no_leader(cluster: ReadyCluster) -> None:
    cluster.change(paths.partition_state(TOPIC, 0), leader=-1)


def in_sync_without_being_a_replica(cluster: ReadyCluster) -> None:
    cluster.change(paths.partition_state(TOPIC, 0), isr=[1, 2, 3, 9])


def no_in_sync_replica(cluster: ReadyCluster) -> None:
    cluster.change(paths.partition_state(TOPIC, 0), isr=[])


def newer_epoch(cluster: ReadyCluster) -> None:
    cluster.change(paths.partition_state(TOPIC, 0), controller_epoch=8)


def empty_block(cluster: ReadyCluster) -> None:
    cluster.client.set(paths.PRODUCER_IDS, b"")


def stray_partition(cluster: ReadyCluster) -> None:
    cluster.put(paths.partition_state(TOPIC, 7), cluster.client.get(paths.partition_state(TOPIC, 0))[0])


def no_broker(cluster: ReadyCluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.client.delete(paths.broker(broker_id))


def broker_down(cluster: ReadyCluster) -> None:
    cluster.client.delete(paths.broker(2))


def configuration_of_a_dead_broker(cluster: ReadyCluster) -> None:
    cluster.put(f"{paths.BROKER_CONFIGS}/77", {"version": 1, "config": {}})


def other_listener(cluster: ReadyCluster) -> None:
    cluster.register(2, listener="EXTERNAL")


def other_protocol(cluster: ReadyCluster) -> None:
    cluster.register(2, protocol=SecurityProtocol.SSL)


def id_from_the_sequence(cluster: ReadyCluster) -> None:
    cluster.put("/brokers/seqid", b"")
    cluster.register(1001)


def old_release(cluster: ReadyCluster) -> None:
    cluster.register(2, port=cluster.old_broker_port)


def voters_in_the_log(cluster: ReadyCluster) -> None:
    old_release(cluster)
    controller = cluster.controllers[0]
    controller["controller.quorum.bootstrap.servers"] = controller.pop("controller.quorum.voters").partition("@")[2]


def port_of_nobody(cluster: ReadyCluster) -> None:
    cluster.register(2, port=1)


def protected(cluster: ReadyCluster, path: str, *, readable: bool) -> None:
    """Only somebody else may do more than read."""
    lists = [make_digest_acl("kafka", "secret", all=True)]
    lists += [make_acl("world", "anyone", read=True)] if readable else []
    before, _ = cluster.client.get_acls(path)
    cluster.client.add_auth("digest", "kafka:secret")
    cluster.client.set_acls(path, lists)
    cluster.undo.append(lambda: cluster.client.set_acls(path, before))


def unreadable_user(cluster: ReadyCluster) -> None:
    protected(cluster, f"{paths.USER_CONFIGS}/slow", readable=False)


def read_only_epoch(cluster: ReadyCluster) -> None:
    protected(cluster, paths.CONTROLLER_EPOCH, readable=True)


def read_only_parent(cluster: ReadyCluster) -> None:
    protected(cluster, paths.CONFIG_CHANGES, readable=True)


def read_only_epoch_and_producer_ids(cluster: ReadyCluster) -> None:
    read_only_epoch(cluster)
    protected(cluster, paths.PRODUCER_IDS, readable=True)


def read_only_state(cluster: ReadyCluster) -> None:
    protected(cluster, paths.partition_state(TOPIC, 0), readable=True)


def protected_users(cluster: ReadyCluster) -> None:
    protected(cluster, paths.USER_CONFIGS, readable=True)


def set_acl_without_an_identity(cluster: ReadyCluster) -> None:
    cluster.controllers[0]["zookeeper.set.acl"] = "true"


def later_secret(cluster: ReadyCluster) -> None:
    cluster.controllers[0]["password.encoder.secret"] = "another"
    for broker in cluster.brokers:
        broker["password.encoder.secret"] = "another"


def tiny_jute_maxbuffer(cluster: ReadyCluster) -> None:
    cluster.jute_maxbuffer = 200


def huge_config(cluster: ReadyCluster, size: int) -> None:
    cluster.put(paths.topic_config(TOPIC), {"version": 1, "config": {"a.key": "x" * size}})


def znode_of_600_kb(cluster: ReadyCluster) -> None:
    huge_config(cluster, 600_000)


def znode_above_our_setting(cluster: ReadyCluster) -> None:
    cluster.controllers[0]["migrator.zookeeper.jute.maxbuffer"] = "500000"
    huge_config(cluster, 600_000)


def clock_behind(cluster: ReadyCluster) -> None:
    cluster.register(3, timestamp_ms=wall_ms() + 60_000)


def server_of(version: tuple[int, ...] | None) -> Callable[[ReadyCluster], None]:
    def older_zookeeper(cluster: ReadyCluster) -> None:
        def see(evidence: Evidence) -> Evidence:
            assert evidence.zookeeper is not None
            assert (evidence.zookeeper.version or ()) >= (3, 6)
            return replace(evidence, zookeeper=replace(evidence.zookeeper, version=version))

        cluster.see = see

    return older_zookeeper


STATES = f"{TOPIC}-0"
CASES = (
    Case("M001", acl_without_type, "/kafka-acl/Topic/broken", "not of the form type:name"),
    Case("M001", hundreds_that_do_not_decode, f"{paths.CLIENT_CONFIGS}/broken-000", "not JSON"),
    Case("M001", token_times_as_text, paths.TOKENS, "issueTimestamp"),
    Case("M001", scram_for_the_default_user, "/config/users/<default>", "SCRAM"),
    Case("M001", malformed_user_name, "/config/users/100%", "not URL-encoded"),
    Case("M001", address_that_is_encoded, f"{paths.IP_CONFIGS}/%3A%3A1", "brokers do not start with this name"),
    Case("M001", registration_of_another_form, paths.broker(3), "NAME://host:port"),
    Case("M001", controller_epoch_is_no_number, paths.CONTROLLER_EPOCH, "not an integer"),
    Case("M001", password_beyond_the_log, f"{paths.BROKER_CONFIGS}/2", "'sasl.jaas.config' has 32,768 bytes"),
    Case(
        "M001", principal_beyond_the_log, "/kafka-acl/Topic/long", "has 32,768 bytes, and the metadata log holds 32,7"
    ),
    Case("M001", user_beyond_the_log, "/config/users/", "has 32,768 bytes, and the metadata log holds 32,767 at most"),
    Case("M002", topic_without_id, paths.topic(TOPIC), "1 topics have no topic id"),
    Case(
        "M002",
        topic_whose_id_brokers_know,
        paths.topic(TOPIC),
        f"{paths.topic(TOPIC)}. Brokers still know ids: {TOPIC} has u3Tj1kq0Qx6Vw1jvJ9hG2A",
    ),
    Case("M003", copied_by_another_quorum, paths.MIGRATION, "offset 1200 of epoch 4"),
    Case("M004", migration_without_data, paths.MIGRATION, "no data"),
    Case("M005", claimed_by_kraft, paths.CONTROLLER, "controller 3000 claimed"),
    Case("M006", nobody_elected, paths.CONTROLLER, "no broker is the controller"),
    Case("M006", no_controller_epoch, paths.CONTROLLER_EPOCH, "ever elected"),
    Case("M007", wrong_chroot, "127.0.0.1:", "no Kafka cluster is here: /cluster/id is missing"),
    Case("M008", another_cluster, "controller", "AAAAAAAAAAAAAAAAAAAAAA"),
    Case("M009", foreign_znodes, "/config/planets", "/kafka-acl/Planet"),
    Case("M010", config_of_no_topic, paths.topic_config("gone"), "1 configurations"),
    Case("M011", acl_with_a_slash, "/kafka-acl/Topic/a", "slash"),
    Case("M012", reassignment, paths.TOPICS, STATES),
    Case("M013", order_of_an_old_tool, "/admin/preferred_replica_election", "old tool"),
    Case("M014", deletion, paths.DELETE_TOPICS, "1 topics is pending: -"),
    Case("M015", state_that_brokers_know, paths.partition_state(TOPIC, 0), "leader epoch 57, leader 2, in sync [2, 1]"),
    Case("M016", no_leader, paths.TOPICS, STATES),
    Case("M017", in_sync_without_being_a_replica, paths.TOPICS, f"{STATES} (in sync without being a replica: [9])"),
    Case("M017", no_in_sync_replica, paths.TOPICS, STATES),
    Case("M018", newer_epoch, paths.CONTROLLER_EPOCH, STATES),
    Case("M019", empty_block, paths.PRODUCER_IDS, "empty data"),
    Case("M021", no_state, paths.TOPICS, STATES),
    Case("M021", state_of_a_young_topic, paths.TOPICS, STATES),
    Case("M020", stray_partition, f"{paths.partitions(TOPIC)}/7", "1 partitions have a znode"),
    Case(
        "M022",
        two_znodes_of_a_user,
        paths.CONFIG,
        "/config/users/svc%40X and /config/users/svc@X (the quotas of svc%40X count, the credentials of svc@X count)",
    ),
    Case("M023", name_that_is_not_encoded, paths.CONFIG, "/config/users/svc@X ('svc%40X' in Kafka's spelling)"),
    Case("M024", quotas_below_a_name_that_is_not_encoded, "/config/users/svc@X/clients/c", "no broker obeys"),
    Case("M025", quota_with_an_exponent, f"{paths.CLIENT_CONFIGS}/c producer_byte_rate", "no integers"),
    Case("M101", no_broker, paths.BROKER_IDS, "no broker is registered"),
    Case("M102", broker_down, "broker 2", "it holds replicas"),
    Case("M103", configuration_of_a_dead_broker, f"{paths.BROKER_CONFIGS}/77", "neither runs nor holds"),
    Case(
        "M104",
        other_listener,
        "inter.broker.listener.name",
        "broker 2, controller 3001: controllers would talk to brokers on PLAINTEXT, but brokers have EXTERNAL",
    ),
    Case(
        "M104",
        other_protocol,
        "listener.security.protocol.map",
        "controllers map PLAINTEXT to PLAINTEXT, brokers to SSL",
    ),
    Case("M112", id_from_the_sequence, "/brokers/seqid", "broker 1001: it looks like"),
    Case("M121", old_release, "broker 2", "older than Kafka 3.6"),
    Case("M124", voters_in_the_log, "broker 2", "it is older than Kafka 3.9 (Fetch up to version 13)"),
    Case("M122", port_of_nobody, "127.0.0.1:1", "broker 2: it does not answer"),
    Case("M310", later_secret, f"{paths.BROKER_CONFIGS}/1", "does not decrypt"),
    Case("M317", unreadable_user, "/config/users/slow", "1 znodes"),
    Case("M318", read_only_epoch, paths.CONTROLLER_EPOCH, "may not set it"),
    Case(
        "M318",
        read_only_epoch_and_producer_ids,
        paths.CONTROLLER_EPOCH,
        f"1 more that were tried: {paths.PRODUCER_IDS}",
    ),
    Case("M318", read_only_parent, paths.CONFIG_CHANGES, "digest:kafka ALL, world:anyone READ"),
    Case("M318", read_only_state, paths.partition_state(TOPIC, 0), "may not set it"),
    Case("M318", set_acl_without_an_identity, "/", "error -114"),
    Case("M319", protected_users, "zookeeper.set.acl", "is protected"),
    Case("M404", tiny_jute_maxbuffer, "/", "jute.maxbuffer of 200"),
    Case("M405", znode_above_our_setting, paths.topic_config(TOPIC), "600,0"),
    Case("M406", znode_of_600_kb, paths.topic_config(TOPIC), "600,0"),
    Case("M407", tiny_jute_maxbuffer, "/", "list of its children"),
    Case("M503", clock_behind, paths.broker(3), "in the future"),
    Case("M505", server_of((3, 4, 14)), "127.0.0.1", "ZooKeeper 3.4.14"),
    Case("M506", server_of((3, 5, 9)), "127.0.0.1", "one by one"),
    Case("M507", server_of(None), "127.0.0.1", "does not say its version"),
)
