"""How a cluster is broken for a later step of the whole way, and what is unusual and healthy."""

from __future__ import annotations

from dataclasses import replace

from migrator.zookeeper.znodes import paths
from tests.preflight.support.cases_of_files import FILE, directory_with
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


HARMLESS: tuple[Damage, ...] = (
    mapped_port,
    topic_with("2"),
    topic_with("no number"),
    lower_dynamic_default,
    racks("aaa", together=False),
    racks("aab"),
)
"""Changes with which a cluster is as healthy as before."""
CASES = (
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
