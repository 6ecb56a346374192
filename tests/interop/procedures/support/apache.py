"""Kafka's manual, "ZooKeeper to KRaft Migration" of 3.6 to 3.9, with every row of "Reverting to ZooKeeper mode".

Each text is the manual's, of the page docs/ops of the release, and of Kafka's site where it says so. Only addresses,
directories and node ids are this machine's. One word is not the manual's: ``rmr``, which ZooKeeper's shell of these
releases does not know any more. It is ``deleteall`` here, and ``delete`` where the site says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from migrator.drill.kafka.cluster import KafkaBrokerMode
from tests.interop.procedures.support.procedure import Procedure, Shell, Step

TO_DUAL_WRITE = (Step.FORMAT, Step.PROVISION, Step.MIGRATING, Step.DUAL_WRITE)
END = (Step.KRAFT, Step.FINALIZE, Step.FINISHED)
FORWARD = (*TO_DUAL_WRITE, *END)
AGAIN = (Step.NEW_QUORUM, *FORWARD)
"""After the way back: a second migration, which goes to its end."""
BY_VOTERS = (("--cluster-id={cluster}", "-c", "{file}"),)
BY_SERVERS = (("--standalone", *BY_VOTERS[0]),)

CONTROLLER = """
process.roles=controller
node.id={id}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://:{port}
"""
MIGRATION = """
zookeeper.metadata.migration.enable=true
zookeeper.connect={zookeeper}
"""
LISTENER = "inter.broker.listener.name=PLAINTEXT\n"
BROKER = """
listeners=PLAINTEXT://:{port}
advertised.listeners=PLAINTEXT://localhost:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
"""
QUORUM = """
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
"""
OLD = """
broker.id={id}
inter.broker.protocol.version={protocol}
zookeeper.connect={zookeeper}
"""
FLAG = "zookeeper.metadata.migration.enable=true\n"
KRAFT = "process.roles=broker\nnode.id={id}\n"
BROKERS = {
    KafkaBrokerMode.ZOOKEEPER: BROKER + OLD,
    KafkaBrokerMode.MIGRATING: BROKER + QUORUM + OLD + FLAG,
    KafkaBrokerMode.KRAFT: BROKER + QUORUM + KRAFT,
}
_BY_BOOTSTRAP = ("controller.quorum.voters={voters}", "controller.quorum.bootstrap.servers={servers}")

APACHE_36 = Procedure(
    "Apache Kafka 3.6",
    "3.6.2",
    "3.6",
    prepared=CONTROLLER + MIGRATION,
    finalized=CONTROLLER,
    brokers=BROKERS,
    format=BY_VOTERS,
    steps=(Step.CLUSTER_ID, *FORWARD),
)
APACHE_37 = replace(
    APACHE_36, name="Apache Kafka 3.7", release="3.7.2", protocol="3.7", prepared=CONTROLLER + MIGRATION + LISTENER
)
APACHE_38 = replace(APACHE_37, name="Apache Kafka 3.8", release="3.8.1", protocol="3.8")


def by_bootstrap(procedure: Procedure, name: str, **changes: Any) -> Procedure:
    """The same with Kafka 3.9, and with files that name servers instead of voters."""
    return replace(
        procedure,
        name=name,
        release="3.9.1",
        protocol="3.9",
        prepared=procedure.prepared.replace(*_BY_BOOTSTRAP),
        finalized=procedure.finalized.replace(*_BY_BOOTSTRAP),
        brokers={mode: text.replace(*_BY_BOOTSTRAP) for mode, text in procedure.brokers.items()},
        **changes,
    )


APACHE_39 = by_bootstrap(APACHE_38, "Apache Kafka 3.9", format=BY_SERVERS)

OLD_BACK = (Step.DEPROVISION, Shell("deleteall /controller"), Step.BROKER_IS_CONTROLLER, Step.ZOOKEEPER)
"""Of 3.7 and 3.8; and of every release once brokers were in KRaft mode: nobody speaks of /migration."""
BACK = (
    *(Step.DEPROVISION, Shell("deleteall /controller"), Step.BROKER_IS_CONTROLLER),
    *(Shell("get /migration"), Shell("deleteall /migration"), Step.ZOOKEEPER),
)
SITE_BACK = (
    *(Step.DEPROVISION, Shell("delete /controller"), Step.BROKER_IS_CONTROLLER),
    *(Shell("get /migration"), Shell("delete /migration"), Step.ZOOKEEPER),
)
FORGOTTEN = (
    *(Step.NEW_QUORUM, Step.FORMAT, Step.PROVISION, Step.REFUSED),
    *(Shell("delete /migration"), Step.MIGRATING, Step.DUAL_WRITE, *END),
)
"""A second migration after `OLD_BACK`: Kafka's controllers would take /migration for the end of the copy."""
ALREADY_KRAFT = (*TO_DUAL_WRITE, Step.KRAFT, Step.REJOIN_ZOOKEEPER)

BACK_FROM_2 = replace(
    APACHE_39,
    name="Apache Kafka 3.9, back before brokers are in migration mode",
    steps=(Step.FORMAT, Step.PROVISION, Step.BROKER_IS_CONTROLLER, Step.DEPROVISION, *AGAIN),
)
BACK_FROM_3 = replace(APACHE_39, name="Apache Kafka 3.9, back from dual-write", steps=(*TO_DUAL_WRITE, *BACK, *AGAIN))
BACK_FROM_3_IN_38 = replace(
    APACHE_38, name="Apache Kafka 3.8, back from dual-write", steps=(*TO_DUAL_WRITE, *OLD_BACK, *FORGOTTEN)
)
BACK_FROM_4 = replace(
    APACHE_39,
    name="Apache Kafka 3.9, back from brokers in KRaft mode",
    steps=(*ALREADY_KRAFT, *OLD_BACK, *FORGOTTEN),
)
BACK_FROM_4_IN_37 = replace(
    APACHE_37,
    name="Apache Kafka 3.7, back from brokers in KRaft mode",
    rejoining=BROKERS[KafkaBrokerMode.MIGRATING].replace("broker.id", "node.id"),
    steps=(*ALREADY_KRAFT, *OLD_BACK, *FORGOTTEN),
)
SITE = replace(
    APACHE_39,
    name="Apache Kafka 3.9, site of 2026, /controller_epoch set under a leader",
    steps=(*ALREADY_KRAFT, Step.RAISE_EPOCH, Step.DUAL_WRITE, *SITE_BACK, *AGAIN),
)
APACHE = (
    *(APACHE_36, APACHE_37, APACHE_38, APACHE_39),
    *(BACK_FROM_2, BACK_FROM_3, BACK_FROM_3_IN_38, BACK_FROM_4, BACK_FROM_4_IN_37, SITE),
)
