"""Cases for the checks of property files, directories and the machine: how each is broken, and the finding that
preflight must give.

`test_checks` runs each case on a `ReadyCluster`, and requires a case for each code.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.preflight.evidence import Evidence
from migrator.records.versions import MinLevel
from migrator.zookeeper.znodes import paths
from tests.golden.stock import STOCK_391
from tests.preflight.support.cases_of_zookeeper import Case, copied_by_another_quorum
from tests.preflight.support.ready_cluster import CONTROLLER, ReadyCluster

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def controller_with(**keys: str | None) -> Callable[[ReadyCluster], None]:
    """Change keys of the controller's file; ``_`` stands for a dot."""

    def other_controller_key(cluster: ReadyCluster) -> None:
        _change(cluster.controllers[0], keys)

    return other_controller_key


def broker_with(**keys: str | None) -> Callable[[ReadyCluster], None]:
    """Change keys of the second broker's file."""

    def other_broker_key(cluster: ReadyCluster) -> None:
        _change(cluster.brokers[1], keys)

    return other_broker_key


def _change(properties: dict[str, str], keys: dict[str, str | None]) -> None:
    for name, text in keys.items():
        key = name.replace("_", ".")
        if text is None:
            properties.pop(key, None)
        else:
            properties[key] = text


def super_users_of(name: str) -> Callable[[ReadyCluster], None]:
    """One more, everywhere."""

    def other_super_users(cluster: ReadyCluster) -> None:
        for properties in (*cluster.controllers, *cluster.brokers):
            properties["super.users"] += f";{name}"

    return other_super_users


def no_controller_of_use(cluster: ReadyCluster) -> None:
    cluster.controllers[0]["node.id"] = "one"


def not_among_super_users(cluster: ReadyCluster) -> None:
    """Of two voters, that only access control entries would let in."""
    own = cluster.controllers[0]
    own |= {"super.users": "User:admin", "controller.quorum.voters": own["controller.quorum.voters"] + ",3999@h:1"}


def broker_directory(cluster: ReadyCluster, cluster_id: str, node_id: int) -> Path:
    directory = Path(cluster.brokers[1]["log.dirs"])
    directory.mkdir()
    write_meta_properties(directory, MetaProperties(cluster_id, node_id))
    return directory


def broker_of_another_cluster(cluster: ReadyCluster) -> None:
    broker_directory(cluster, "AAAAAAAAAAAAAAAAAAAAAA", 2)


def directory_of_another_broker(cluster: ReadyCluster) -> None:
    broker_directory(cluster, CLUSTER_ID, 9)


def same_id_twice(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["broker.id"] = "1"


def earlier_attempt(cluster: ReadyCluster) -> None:
    (broker_directory(cluster, CLUSTER_ID, 2) / "__cluster_metadata-0").mkdir()


def other_servers(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["zookeeper.connect"] = f"unknown:2181/{cluster.hosts.partition('/')[2]}"


def generated_id(cluster: ReadyCluster) -> None:
    broker_directory(cluster, CLUSTER_ID, 1001)
    del cluster.brokers[1]["broker.id"]


def same_control_plane_everywhere(cluster: ReadyCluster) -> None:
    for properties in (*cluster.controllers, *cluster.brokers):
        properties["control.plane.listener.name"] = "PLAINTEXT"


def two_directories(cluster: ReadyCluster) -> None:
    for broker in cluster.brokers:
        broker["inter.broker.protocol.version"] = "3.6"
    cluster.brokers[1]["log.dirs"] += ",/another"


def id_of_a_broker(cluster: ReadyCluster) -> None:
    controller = cluster.controllers[0]
    for properties in (controller, *cluster.brokers):
        properties["controller.quorum.voters"] = controller["controller.quorum.voters"].replace("3001@", "2@")
    controller["node.id"] = "2"


def id_of_a_broker_without_voters(cluster: ReadyCluster) -> None:
    controller = cluster.controllers[0]
    del controller["controller.quorum.voters"]
    controller |= {"controller.quorum.bootstrap.servers": "localhost:9093", "node.id": "2"}


def two_with_one_id(cluster: ReadyCluster) -> None:
    cluster.second_controller(node_id=str(CONTROLLER))


def other_voters(cluster: ReadyCluster) -> None:
    cluster.second_controller(controller_quorum_voters="3001@127.0.0.1:9,3002@127.0.0.1:10")


def one_voter_without_the_flag(cluster: ReadyCluster) -> None:
    cluster.second_controller(zookeeper_metadata_migration_enable="false")


def voter_without_a_file(cluster: ReadyCluster) -> None:
    cluster.second_controller()
    cluster.controllers.pop()


def empty_directory(cluster: ReadyCluster) -> None:
    shutil.rmtree(cluster.controllers[0]["log.dirs"])


def formatted_anew(cluster: ReadyCluster, **how: Any) -> None:
    empty_directory(cluster)
    cluster.format(cluster.controllers[0], **how)


def formatted_for_3_5(cluster: ReadyCluster) -> None:
    formatted_anew(cluster, level=11)


def formatted_for_3_6_iv1(cluster: ReadyCluster) -> None:
    formatted_anew(cluster, level=MinLevel.TRANSACTIONS)


def formatted_for_3_8(cluster: ReadyCluster) -> None:
    formatted_anew(cluster, level=20)


def formatted_differently(cluster: ReadyCluster) -> None:
    second = cluster.second_controller()
    shutil.rmtree(second["log.dirs"])
    cluster.format(second, level=MinLevel.DIRECTORY_ASSIGNMENT)


def directory_of_another_node(cluster: ReadyCluster) -> None:
    write_meta_properties(Path(cluster.controllers[0]["log.dirs"]), MetaProperties(CLUSTER_ID, 3009))


def log_of_an_earlier_migration(cluster: ReadyCluster) -> None:
    log = Path(cluster.controllers[0]["log.dirs"]) / "__cluster_metadata-0"
    log.mkdir(exist_ok=True)
    shutil.copy(STOCK_391.log, log / f"{0:020}.log")


def migration_under_way(cluster: ReadyCluster) -> None:
    log_of_an_earlier_migration(cluster)
    copied_by_another_quorum(cluster)


def java_builder_on_a_broker(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["principal.builder.class"] = "com.example.Builder"


def nobody_is_super_user(cluster: ReadyCluster) -> None:
    cluster.controllers[0]["super.users"] = ""
    for broker in cluster.brokers:
        broker["super.users"] = ""


def no_encoder_secret(cluster: ReadyCluster) -> None:
    del cluster.controllers[0]["password.encoder.secret"]


def no_token_secret(cluster: ReadyCluster) -> None:
    del cluster.controllers[0]["delegation.token.secret.key"]


def old_java_store(cluster: ReadyCluster) -> str:
    """As far as anybody reads it who does not know the format."""
    path = cluster.directory / "controller.jceks"
    path.write_bytes(b"\xce\xce\xce\xce\x00\x00\x00\x02")
    return str(path)


def java_key_store(cluster: ReadyCluster) -> None:
    cluster.controllers[0] |= {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.location": old_java_store(cluster),
    }


def metrics_users(content: str, mode: int) -> Callable[[ReadyCluster], None]:
    """A file of these."""

    def change(cluster: ReadyCluster) -> None:
        users = cluster.directory / "metrics-users"
        users.write_text(content)
        users.chmod(mode)
        cluster.controllers[0] |= {
            "migrator.metrics.listener": "127.0.0.1:0",
            "migrator.metrics.basic.auth.file": str(users),
        }

    return change


def java_key_store_for_zookeeper(cluster: ReadyCluster) -> None:
    cluster.controllers[0] |= {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": old_java_store(cluster),
    }


def jaas_file(cluster: ReadyCluster) -> None:
    cluster.controllers[0] |= {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
    }


def provider(properties: dict[str, str], class_name: str, key: str, text: str) -> None:
    properties |= {"config.providers": "vault", "config.providers.vault.class": class_name, key: text}


def java_provider(cluster: ReadyCluster) -> None:
    provider(cluster.controllers[0], "com.example.Vault", "password.encoder.secret", "${vault:kafka:secret}")


def file_that_is_elsewhere(cluster: ReadyCluster) -> None:
    class_name = "org.apache.kafka.common.config.provider.FileConfigProvider"
    provider(cluster.controllers[0], class_name, "delegation.token.secret.key", "${vault:/no/such/file:secret}")


def java_provider_of_a_broker(cluster: ReadyCluster) -> None:
    provider(cluster.brokers[1], "com.example.Vault", "password.encoder.secret", "${vault:kafka:secret}")


def request_size(cluster: ReadyCluster) -> int:
    """Bytes of the LeaderAndIsr that broker 2 would get."""
    found: list[int] = []

    def see(evidence: Evidence) -> Evidence:
        assert evidence.zookeeper is not None
        found.append(evidence.zookeeper.topics.leader_and_isr_bytes[2])
        return evidence

    cluster.see = see
    cluster.report()
    return found[0]


def tiny_request_limit(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["socket.request.max.bytes"] = "100"


def request_limit_near_the_size(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["socket.request.max.bytes"] = str(request_size(cluster) + 1)


def request_limit_reached(cluster: ReadyCluster) -> None:
    cluster.brokers[1]["socket.request.max.bytes"] = str(request_size(cluster) - 1)


def directory_with(**facts: Any) -> Callable[[ReadyCluster], None]:
    """Faults that a test cannot make on the machine: a full disk, a user other than root."""

    def other_directory(cluster: ReadyCluster) -> None:
        def see(evidence: Evidence) -> Evidence:
            controller = evidence.controllers[0]
            changed = replace(controller, directory=replace(controller.directory, **facts))
            return replace(evidence, controllers=(changed,))

        cluster.see = see

    return other_directory


def directory_that_all_may_change(cluster: ReadyCluster) -> None:
    shared = cluster.directory / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    cluster.controllers[0]["log.dirs"] = str(shared)


def directory_that_all_may_enter(cluster: ReadyCluster) -> None:
    """Also from above: pytest keeps its directories to itself."""
    entered = Path(tempfile.mkdtemp(prefix="entered"))
    entered.chmod(0o755)
    cluster.undo.append(lambda: shutil.rmtree(entered))
    cluster.controllers[0]["log.dirs"] = str(entered)


def taken_port(cluster: ReadyCluster) -> None:
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", int(cluster.controllers[0]["listeners"].rpartition(":")[2])))
    taken.listen()
    cluster.undo.append(taken.close)


def own_threads(cluster: ReadyCluster) -> None:
    """Of one broker, whose file has more than twice as many."""
    broker_with(num_io_threads="20")(cluster)
    cluster.put(f"{paths.BROKER_CONFIGS}/2", {"version": 1, "config": {"num.io.threads": "9"}})


def few_threads(cluster: ReadyCluster) -> None:
    """The value of the drill's brokers, less than half of Kafka's default."""
    cluster.put(f"{paths.BROKER_CONFIGS}/<default>", {"version": 1, "config": {"background.threads": "4"}})


def dynamic_map(cluster: ReadyCluster) -> None:
    """Of one broker, as it was before the migration."""
    config = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"}
    cluster.put(f"{paths.BROKER_CONFIGS}/2", {"version": 1, "config": config})


FILE, BROKER = "controller-0.properties", "broker-1.properties"
CASES = (
    Case("M003", migration_under_way, paths.MIGRATION, "the log of controller 3001 holds a copy"),
    Case("M008", broker_of_another_cluster, "broker-2", "broker 2: it belongs to cluster AAAA"),
    Case(
        "M105",
        broker_with(control_plane_listener_name="CONTROL"),
        FILE,
        "broker 2, controller 3001: it is (not set) on controllers, but brokers expect their controller on CONTROL",
    ),
    Case("M126", same_control_plane_everywhere, FILE, "controller 3001: it is PLAINTEXT"),
    Case("M106", same_control_plane_everywhere, "control.plane.listener.name", "KRaft mode refuses"),
    Case("M107", broker_with(inter_broker_protocol_version="3.5"), BROKER, "broker 2: it has 3.5"),
    Case("M107", broker_with(inter_broker_protocol_version="2.8"), BROKER, "before 3.0 or unknown"),
    Case("M108", broker_with(inter_broker_protocol_version=None), BROKER, "does not set the key"),
    Case("M109", broker_with(inter_broker_protocol_version="3.8"), BROKER, "broker 2: it has 3.8, broker 1 3.9"),
    Case("M109", formatted_for_3_8, "broker-0.properties", "metadata.version 3.8-IV0"),
    Case("M110", two_directories, BROKER, "2 log directories"),
    Case("M111", generated_id, BROKER, "its directories say 1001"),
    Case("M113", broker_with(controller_listener_names=None), BROKER, "not prepared"),
    Case(
        "M125",
        broker_with(zookeeper_metadata_migration_enable="false"),
        f"{BROKER}: zookeeper.metadata.migration.enable",
        "broker 2: Kafka refuses to start with this file: it sets controller.listener.names, and lacks",
    ),
    Case(
        "M125",
        broker_with(zookeeper_metadata_migration_enable=None, controller_quorum_voters=None),
        f"{BROKER}: zookeeper.metadata.migration.enable",
        "Kafka refuses to start",
    ),
    Case("M114", broker_with(controller_quorum_voters="3001@other:9093"), BROKER, "names 3001@other:9093"),
    Case("M114", broker_with(controller_listener_names="QUORUM"), BROKER, "looks for the listener QUORUM"),
    Case(
        "M114",
        broker_with(listener_security_protocol_map="CONTROLLER:SSL,PLAINTEXT:PLAINTEXT"),
        BROKER,
        "would speak SSL",
    ),
    Case(
        "M115",
        broker_with(min_insync_replicas="2"),
        FILE,
        "broker 2, controller 3001: min.insync.replicas is 1 on controllers, 2 on brokers",
    ),
    Case("M116", broker_with(zookeeper_connect="127.0.0.1:2181/elsewhere"), BROKER, "/elsewhere"),
    Case("M117", other_servers, BROKER, "broker 2: it has unknown:2181/"),
    Case(
        "M118",
        broker_with(zookeeper_ssl_client_enable="true"),
        FILE,
        "broker 2, controller 3001: zookeeper.ssl.client.enable is false on controllers, true on brokers",
    ),
    Case("M119", earlier_attempt, "broker-2/__cluster_metadata-0", "KAFKA-16463"),
    Case("M123", own_threads, f"{paths.BROKER_CONFIGS}/2", "num.io.threads is 9, and 20 in"),
    Case("M123", few_threads, f"{paths.BROKER_CONFIGS}/<default>", "background.threads is 4, and 10 in its file"),
    Case("M127", dynamic_map, f"{paths.BROKER_CONFIGS}/2", "without the controllers' listener CONTROLLER"),
    Case("M120", directory_of_another_broker, "broker-2", "belongs to broker 9"),
    Case("M120", same_id_twice, BROKER, "has 1, too"),
    Case("M201", no_controller_of_use, "-c", "no property file of a controller"),
    Case("M202", no_controller_of_use, f"{FILE}: node.id", "whole number"),
    Case("M203", controller_with(process_roles="broker,controller"), f"{FILE}: process.roles", "combined"),
    Case("M203", controller_with(controller_quorum_voters="9@h:1"), f"{FILE}: controller.quorum.voters", "this node"),
    Case("M204", controller_with(migrator_grpc_listener="nowhere"), f"{FILE}: migrator.grpc.listener", "host:port"),
    Case("M205", controller_with(num_partition="3"), f"{FILE}: num.partition", "did you mean num.partitions?"),
    Case("M206", id_of_a_broker, f"{FILE}: controller.quorum.voters", "controller 2: it has the id of a broker"),
    Case("M206", id_of_a_broker_without_voters, f"{FILE}: node.id", "controller 2: it has the id of a broker"),
    Case("M207", two_with_one_id, "controller-1.properties: node.id", "has 3001, too"),
    Case("M207", other_voters, "controller-1.properties: controller.quorum.voters", "3001@127.0.0.1:9"),
    Case("M208", one_voter_without_the_flag, "controller-1.properties", "controller 3002: it does not have"),
    Case("M209", voter_without_a_file, f"{FILE}: controller.quorum.voters", "controller 3002: no file was given of it"),
    Case("M210", empty_directory, "controller", "no formatted directory"),
    Case("M211", directory_of_another_node, "controller", "belongs to node 3009"),
    Case("M212", log_of_an_earlier_migration, "controller", "from an earlier migration"),
    Case(
        "M212", directory_with(log_state="NONE"), "controller", "was begun without zookeeper.metadata.migration.enable"
    ),
    Case("M213", formatted_for_3_5, "controller", "metadata.version 3.5-IV2"),
    Case("M214", formatted_differently, "second", "3.7-IV2"),
    Case("M216", controller_with(max_connections_per_ip="0"), FILE, "nobody is in max.connections.per.ip.overrides"),
    Case("M215", formatted_for_3_6_iv1, "controller", "3.6-IV1, which has no delegation tokens"),
    Case("M301", controller_with(alter_config_policy_class_name="com.example.P"), FILE, "example.P is a Java class"),
    Case("M301", controller_with(authorizer_class_name="com.example.A"), FILE, "com.example.A is a Java class"),
    Case(
        "M302",
        broker_with(create_topic_policy_class_name="com.example.P"),
        BROKER,
        "brokers have the policy com.example.P",
    ),
    Case("M303", java_builder_on_a_broker, BROKER, "com.example.Builder"),
    Case("M304", controller_with(authorizer_class_name=None), FILE, "authorizes nobody"),
    Case("M305", broker_with(authorizer_class_name="com.example.A"), BROKER, "not in ZooKeeper"),
    Case(
        "M306", broker_with(authorizer_class_name="kafka.security.authorizer.AclAuthorizer"), BROKER, "needs ZooKeeper"
    ),
    Case(
        "M307",
        broker_with(super_users="User:ANONYMOUS;User:admin"),
        FILE,
        "broker 2, controller 3001: controllers lack User:admin",
    ),
    Case(
        "M307",
        broker_with(allow_everyone_if_no_acl_found="true"),
        FILE,
        "broker 2, controller 3001: allow.everyone.if.no.acl.found is false on controllers, true on brokers",
    ),
    Case("M308", nobody_is_super_user, f"{FILE}: super.users", "User:ANONYMOUS"),
    Case("M309", no_encoder_secret, f"{FILE}: password.encoder.secret", f"{paths.BROKER_CONFIGS}/1"),
    Case("M311", broker_with(password_encoder_secret="of-another"), BROKER, "password.encoder.secret is not the same"),
    Case("M311", broker_with(delegation_token_secret_key="of-another"), BROKER, "delegation.token.secret.key is not"),
    Case("M312", no_token_secret, f"{FILE}: delegation.token.secret.key", "delegation tokens"),
    Case("M313", java_key_store, f"{FILE}: ssl.keystore.location", "JCEKS"),
    Case("M313", java_key_store_for_zookeeper, f"{FILE}: zookeeper.ssl.keystore.location", "JCEKS"),
    Case("M313", jaas_file, f"{FILE}: listener.name.controller.plain.sasl.jaas.config", "JAAS file"),
    Case("M314", java_provider, f"{FILE}: password.encoder.secret", "com.example.Vault"),
    Case("M314", file_that_is_elsewhere, f"{FILE}: delegation.token.secret.key", "/no/such/file"),
    Case("M315", java_provider, f"{FILE}: password.encoder.secret", "com.example.Vault"),
    Case("M316", java_provider_of_a_broker, f"{BROKER}: password.encoder.secret", "it is ${vault:kafka:secret}"),
    Case("M320", controller_with(ssl_engine_factory_class="com.example.F"), FILE, "cannot be obeyed here"),
    Case("M321", not_among_super_users, f"{FILE}: super.users", "for User:ANONYMOUS, which is no super user"),
    Case("M322", controller_with(authorizer_class_name=None), f"{FILE}: listeners", "there is no authorizer"),
    Case("M323", super_users_of("user:admin"), f"{FILE}: super.users", "the type of every principal is User"),
    Case("M323", broker_with(super_users="User:ANONYMOUS # us"), f"{BROKER}: super.users", "no comments"),
    Case("M324", metrics_users("scraper:pencil\n", 0o644), f"{FILE}: migrator.metrics", "everybody can read"),
    Case("M324", metrics_users("\n", 0o600), f"{FILE}: migrator.metrics", "metrics-users is empty"),
    Case(
        "M324", metrics_users("a:b\n\nscraper\n", 0o600), f"{FILE}: migrator.metrics", "no user and password in line 3"
    ),
    Case("M401", request_limit_reached, "broker 2", "5 replicas"),
    Case("M402", request_limit_near_the_size, "broker 2", "5 replicas"),
    Case("M403", tiny_request_limit, "broker 2", "UpdateMetadata"),
    Case("M501", directory_with(free_bytes=1_000_000), "controller", "1,000,000 bytes are free"),
    Case("M502", directory_with(writable=False), "controller", "may not write"),
    Case("M504", taken_port, f"{FILE}: listeners", "cannot be bound"),
    Case("M508", directory_with(of_root=True), "controller", "have to run as root"),
    Case("M509", directory_that_all_may_change, "shared", "put another log in the place"),
    Case("M510", directory_that_all_may_enter, "entered", "snapshots hold SCRAM credentials"),
)
