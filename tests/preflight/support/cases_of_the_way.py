"""Cases that break a later step of the migration, and cases that are unusual and healthy.

`test_checks` runs each on a `ReadyCluster`. A healthy case must have no finding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from migrator.parts.java import find_java
from migrator.preflight.evidence import HostFacts, Trouble
from migrator.zookeeper.znodes import paths
from tests.preflight.support.cases_of_files import BROKER, FILE, broker_with, controller_with, directory_with
from tests.preflight.support.cases_of_zookeeper import TOPIC, Case, Damage, claimed_by_kraft, copied_by_another_quorum
from tests.preflight.support.ready_cluster import BROKERS, CONTROLLER, ReadyCluster


def a_controller_runs(cluster: ReadyCluster) -> None:
    directory_with(in_use=True)(cluster)


def zookeeper_out_of_reach(cluster: ReadyCluster) -> None:
    cluster.see = lambda evidence: replace(evidence, zookeeper=None)


SIGNS_OF_A_MIGRATION: tuple[Damage, ...] = (
    claimed_by_kraft,
    copied_by_another_quorum,
    a_controller_runs,
    zookeeper_out_of_reach,
)
"""With each of them a migration may run, so the logs of its nodes may be in use."""


def port(key: str, text: str) -> Damage:
    """A listener of the first controller at a fixed port; the voters have another one."""

    def another_port(cluster: ReadyCluster) -> None:
        cluster.controllers[0][key] = text

    return another_port


def grpc_port(cluster: ReadyCluster) -> None:
    cluster.controllers[0] |= {
        "migrator.grpc.listener": "127.0.0.1:7000",
        "migrator.grpc.voters": f"{CONTROLLER}@127.0.0.1:7001",
    }


def mapped_port(cluster: ReadyCluster) -> None:
    """A container opens one port, and others reach it at another one, which advertised.listeners says."""
    told = cluster.controllers[0]["controller.quorum.voters"].partition("@")[2]
    cluster.controllers[0] |= {"listeners": "CONTROLLER://:0", "advertised.listeners": f"CONTROLLER://{told}"}


def one_replica(cluster: ReadyCluster) -> None:
    cluster.change(paths.topic(TOPIC), partitions={"0": [2]})
    cluster.change(paths.partition_state(TOPIC, 0), leader=2, isr=[2])


def topic_with(min_isr: str) -> Damage:
    """A topic of three replicas."""

    def own_min_isr(cluster: ReadyCluster) -> None:
        cluster.put(paths.topic_config(TOPIC), {"version": 1, "config": {"min.insync.replicas": min_isr}})

    return own_min_isr


def all_with(min_isr: str) -> Damage:
    """The default of topics, in every file."""

    def default_min_isr(cluster: ReadyCluster) -> None:
        for properties in (*cluster.controllers, *cluster.brokers):
            properties["min.insync.replicas"] = min_isr

    return default_min_isr


def lower_dynamic_default(cluster: ReadyCluster) -> None:
    """It counts more than the files."""
    all_with("3")(cluster)
    cluster.put(f"{paths.BROKER_CONFIGS}/<default>", {"version": 1, "config": {"min.insync.replicas": "2"}})


def another_unit(cluster: ReadyCluster) -> None:
    for number, properties in enumerate((*cluster.controllers, *cluster.brokers)):
        properties["log.roll.hours" if number else "log.roll.ms"] = "24" if number else str(24 * 3_600_000)


def dynamic_default(cluster: ReadyCluster) -> None:
    """It counts more than the files, which differ."""
    broker_with(log_roll_hours="24")(cluster)
    cluster.put(f"{paths.BROKER_CONFIGS}/<default>", {"version": 1, "config": {"log.roll.ms": "86400000"}})


def dynamic_of(entity: str, **config: str) -> Damage:
    """The dynamic configuration of a broker; with ``<default>`` of all. The files of all nodes are alike."""

    def set_dynamically(cluster: ReadyCluster) -> None:
        named = {key.replace("_", "."): text for key, text in config.items()}
        cluster.put(f"{paths.BROKER_CONFIGS}/{entity}", {"version": 1, "config": named})

    return set_dynamically


def own_and_default(cluster: ReadyCluster) -> None:
    """The own configuration of each broker counts more than the one of all."""
    dynamic_of("<default>", min_insync_replicas="3")(cluster)
    for broker in BROKERS:
        dynamic_of(str(broker), min_insync_replicas="2")(cluster)


def racks(names: str, *, together: bool = True) -> Damage:
    """A letter for the rack of each broker.

    :param together: whether the brokers of a rack restart together.
    """

    def in_racks(cluster: ReadyCluster) -> None:
        cluster.roll_by_rack = together
        for broker_id, rack in zip(BROKERS, names, strict=True):
            cluster.change(paths.broker(broker_id), rack=rack)

    return in_racks


def two_racks_and_two_in_sync(cluster: ReadyCluster) -> None:
    racks("aab")(cluster)
    all_with("2")(cluster)


def told_of_fewer_voters(cluster: ReadyCluster) -> None:
    """As with ``brokers.settings`` of an inventory that names one of two controllers."""
    cluster.second_controller()
    for broker in cluster.brokers:
        broker["controller.quorum.voters"] = broker["controller.quorum.voters"].split(",")[0]


def told_of_another_voter(cluster: ReadyCluster) -> None:
    """Each of two controllers knows only itself."""
    cluster.second_controller()
    for controller, voter in zip(
        cluster.controllers, cluster.controllers[0]["controller.quorum.voters"].split(","), strict=True
    ):
        controller["controller.quorum.voters"] = voter


def authorizer_of_others(cluster: ReadyCluster) -> None:
    for properties in (*cluster.controllers, *cluster.brokers):
        properties["authorizer.class.name"] = "com.example.Ranger"


def kerberos(cluster: ReadyCluster) -> None:
    cluster.controllers[0] |= {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
    }


def no_java(cluster: ReadyCluster) -> None:
    """JAVA_HOME names a directory without one."""
    find_java.cache_clear()
    patch = pytest.MonkeyPatch()
    patch.setenv("JAVA_HOME", str(cluster.directory))
    cluster.undo += [find_java.cache_clear, patch.undo]


HARMLESS: tuple[Damage, ...] = (
    mapped_port,
    topic_with("2"),
    topic_with("no number"),
    lower_dynamic_default,
    another_unit,
    dynamic_default,
    racks("aaa", together=False),
    racks("aab"),
)
"""Changes with which a cluster is as healthy as before."""


def host(**seen: Any) -> Damage:
    """A rollout has seen this on the host of a broker."""

    def is_seen(cluster: ReadyCluster) -> None:
        facts = replace(HostFacts("broker 2", "b2 on h2", directory="h2:/data", needed_bytes=600), **seen)
        cluster.see = lambda evidence: replace(evidence, hosts=(facts,))

    return is_seen


CASES = (
    Case("M601", host(faults=(Trouble("b2 on h2", "no way in", "open it"),)), "b2 on h2", "broker 2: no way in"),
    Case("M602", host(free_bytes=599), "h2:/data", "broker 2: 599 bytes are free, and the metadata need about 600"),
    Case("M603", host(writable=False), "h2:/data", "the user of the service may not write there"),
    Case("M604", host(java=11, needs_java=17), "b2 on h2", "has Java 11, and the release that takes over needs 17"),
    Case("M605", host(untried=("stop", "start")), "b2 on h2", "the inventory words the command to stop, start"),
    Case("M606", host(later=(Trouble("c1 on h1", "no unit", "install it"),)), "c1 on h1", "broker 2: no unit"),
    Case("M605", host(unseen="no way in"), "b2 on h2", "broker 2: its disk was not looked at: no way in"),
    Case("M511", no_java, "JAVA_HOME=", "verify will run on this machine, and cannot: Java 17 or newer is needed"),
    Case(
        "M134",
        broker_with(log_dirs="/a,/b"),
        f"{BROKER}: log.dirs",
        "broker 2: it has 2 log directories, and stops when",
    ),
    Case(
        "M218",
        controller_with(metadata_max_idle_interval_ms="0"),
        f"{FILE}: metadata.max.idle",
        "controller 3001: it is 0",
    ),
    Case("M114", told_of_fewer_voters, BROKER, "it names 3001@"),
    Case("M207", told_of_another_voter, "controller-1.properties: controller.quorum.voters", "it has 3002@"),
    Case("M301", authorizer_of_others, f"{FILE}: authorizer.class.name", "com.example.Ranger is a Java class"),
    Case("M313", kerberos, f"{FILE}: ", "GSSAPI"),
    Case(
        "M115",
        broker_with(leader_imbalance_check_interval_seconds="30"),
        FILE,
        "leader.imbalance.check.interval.seconds is 300 on controllers, 30 on brokers",
    ),
    Case(
        "M133",
        broker_with(log_roll_hours="24", message_max_bytes="10"),
        FILE,
        "broker 2, controller 3001: 2 defaults of topics differ: max.message.bytes (1048588 on controllers, 10 on "
        "brokers), segment.ms (604800000 on controllers, 86400000 on brokers)",
    ),
    Case(
        "M115",
        dynamic_of("2", unclean_leader_election_enable="true"),
        FILE,
        "broker 2, controller 3001: unclean.leader.election.enable is false on controllers, true on brokers",
    ),
    Case(
        "M133",
        dynamic_of("2", log_roll_ms="5"),
        FILE,
        "broker 2, controller 3001: 1 defaults of topics differ: segment.ms (604800000 on controllers, 5 on brokers)",
    ),
    Case("M115", own_and_default, FILE, "min.insync.replicas is 3 on controllers, 2 on brokers"),
    Case("M132", dynamic_of("2", min_insync_replicas="3"), paths.TOPICS, "by min.insync.replicas: "),
    Case("M132", dynamic_of("<default>", min_insync_replicas="3"), paths.TOPICS, "by min.insync.replicas: "),
    Case(
        "M217",
        port("listeners", "CONTROLLER://127.0.0.1:9"),
        f"{FILE}: controller.quorum.voters",
        "CONTROLLER in listeners has port 9",
    ),
    Case(
        "M217",
        port("advertised.listeners", "CONTROLLER://127.0.0.1:9"),
        f"{FILE}: controller.quorum.voters",
        "CONTROLLER in advertised.listeners has port 9",
    ),
    Case(
        "M217", grpc_port, f"{FILE}: migrator.grpc.voters", "names port 7001, and migrator.grpc.listener has port 7000"
    ),
    Case(
        "M132",
        one_replica,
        paths.TOPICS,
        "partitions with one replica, each offline while its broker restarts: 1 (UPPER.lower-0)",
    ),
    Case("M132", topic_with("3"), paths.TOPICS, "refuse writes with acks=all while one of their brokers restarts"),
    Case("M132", topic_with("4"), paths.TOPICS, "by min.insync.replicas: 1 (UPPER.lower-0)"),
    Case("M132", all_with("3"), paths.TOPICS, "while one of their brokers restarts, by min.insync.replicas: 5 ("),
    Case(
        "M132", racks("aaa"), paths.TOPICS, "partitions with all replicas in one rack, each offline while it restarts"
    ),
    Case("M132", two_racks_and_two_in_sync, paths.TOPICS, "while one of their racks restarts, by min.insync.replicas"),
)
