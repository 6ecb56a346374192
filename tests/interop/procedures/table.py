"""The procedures, by who published them. Each text is the publisher's; only addresses and directories are this machine's."""

from __future__ import annotations

from dataclasses import replace

from migrator.drill.kafka.cluster import KafkaBrokerMode
from tests.interop.procedures.procedure import Procedure, Step

FORWARD = (
    *(Step.FORMAT, Step.PROVISION, Step.MIGRATING, Step.DUAL_WRITE),
    *(Step.KRAFT, Step.FINALIZE, Step.FINISHED),
)
TO_DUAL_WRITE = (Step.FORMAT, Step.PROVISION, Step.MIGRATING, Step.DUAL_WRITE)
BACK = (Step.DEPROVISION, Step.DELETE_CONTROLLER, Step.DELETE_MIGRATION, Step.ZOOKEEPER)
BY_VOTERS = ("--cluster-id={cluster}", "-c", "{file}")
BY_SERVERS = ("--standalone", *BY_VOTERS)

CONTROLLER_36 = """
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
BY_BOOTSTRAP = ("controller.quorum.voters={voters}", "controller.quorum.bootstrap.servers={servers}")

APACHE_36 = Procedure(
    "Apache Kafka 3.6",
    "3.6.2",
    "3.6",
    prepared=CONTROLLER_36 + MIGRATION,
    finalized=CONTROLLER_36,
    brokers=BROKERS,
    format=BY_VOTERS,
    steps=FORWARD,
)
APACHE_37 = replace(
    APACHE_36,
    name="Apache Kafka 3.7",
    release="3.7.2",
    protocol="3.7",
    prepared=APACHE_36.prepared + "inter.broker.listener.name=PLAINTEXT\n",
)
APACHE_38 = replace(APACHE_37, name="Apache Kafka 3.8", release="3.8.1", protocol="3.8")
APACHE_39 = replace(
    APACHE_38,
    name="Apache Kafka 3.9",
    release="3.9.1",
    protocol="3.9",
    prepared=APACHE_37.prepared.replace(*BY_BOOTSTRAP),
    finalized=APACHE_37.finalized.replace(*BY_BOOTSTRAP),
    brokers={mode: text.replace(*BY_BOOTSTRAP) for mode, text in BROKERS.items()},
    format=BY_SERVERS,
)
BACK_FROM_3 = replace(APACHE_39, name="Apache Kafka 3.9, back from dual-write", steps=TO_DUAL_WRITE + BACK)
BACK_FROM_4 = replace(
    APACHE_39,
    name="Apache Kafka 3.9, back from brokers in KRaft mode",
    steps=(*TO_DUAL_WRITE, Step.KRAFT, Step.REJOIN_ZOOKEEPER, *BACK),
)
FORGOTTEN = replace(
    APACHE_37,
    name="Apache Kafka 3.7, back with /migration forgotten",
    steps=(*TO_DUAL_WRITE, *(step for step in BACK if step is not Step.DELETE_MIGRATION)),
)
RAISED_EPOCH = replace(
    BACK_FROM_3,
    name="Apache Kafka 3.9, site of 2026, /controller_epoch set under a leader",
    steps=(*TO_DUAL_WRITE, Step.RAISE_EPOCH, Step.DUAL_WRITE, *BACK),
)

LINKS = "confluent.cluster.link.metadata.topic.enable=true\n"
CONFLUENT = replace(
    APACHE_38,
    name="Confluent Platform 7.8, on Apache's brokers",
    prepared=CONTROLLER_36 + MIGRATION + LINKS,
    brokers=BROKERS | {KafkaBrokerMode.MIGRATING: BROKERS[KafkaBrokerMode.MIGRATING] + LINKS},
    format=("--config", "{file}", "--cluster-id={cluster}"),
)
ANSIBLE_MAP = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
ANSIBLE = replace(
    APACHE_39,
    name="cp-ansible",
    prepared=CONTROLLER_36
    + MIGRATION
    + "zookeeper.connection.timeout.ms=18000\ninter.broker.listener.name=PLAINTEXT\n"
    + ANSIBLE_MAP,
    finalized=CONTROLLER_36 + "inter.broker.listener.name=PLAINTEXT\n" + ANSIBLE_MAP,
    brokers={
        KafkaBrokerMode.ZOOKEEPER: BROKERS[KafkaBrokerMode.ZOOKEEPER],
        KafkaBrokerMode.MIGRATING: BROKERS[KafkaBrokerMode.MIGRATING] + "zookeeper.connection.timeout.ms=18000\n",
        KafkaBrokerMode.KRAFT: BROKER + QUORUM + "process.roles=broker\nbroker.id={id}\n",
    },
    format=(
        "-t={cluster}",
        "-c",
        "{file}",
        "--add-scram",
        "SCRAM-SHA-512=[name=admin,password=admin-secret]",
        "--ignore-formatted",
    ),
    controllers=3,
)
STRIMZI_MAP = "listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
STRIMZI_NAME = ("CONTROLLER", "CONTROLPLANE-9090")
STRIMZI_CONTROLLER = CONTROLLER_36.replace(*STRIMZI_NAME) + STRIMZI_MAP
STRIMZI_BROKER = (BROKER + QUORUM).replace(*STRIMZI_NAME)
STRIMZI = replace(
    APACHE_39,
    name="Strimzi 0.45, in the clear",
    prepared=STRIMZI_CONTROLLER + MIGRATION + "inter.broker.listener.name=PLAINTEXT\n",
    finalized=STRIMZI_CONTROLLER,
    brokers={
        KafkaBrokerMode.ZOOKEEPER: BROKERS[KafkaBrokerMode.ZOOKEEPER],
        KafkaBrokerMode.MIGRATING: STRIMZI_BROKER + OLD + FLAG + "node.id={id}\n",
        KafkaBrokerMode.KRAFT: STRIMZI_BROKER + KRAFT,
    },
    format=("-t={cluster}", "-r={protocol}-IV0", "-c={file}", "-g"),
)
RED_HAT = replace(
    APACHE_37,
    name="Red Hat on RHEL 2.7",
    prepared=CONTROLLER_36.replace("CONTROLLER://:", "CONTROLLER://0.0.0.0:")
    + MIGRATION
    + "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n",
    finalized=CONTROLLER_36.replace("CONTROLLER://:", "CONTROLLER://0.0.0.0:")
    + "zookeeper.metadata.migration.enable=false\nzookeeper.connect={zookeeper}\n"
    + "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n",
)
BITNAMI = replace(
    APACHE_39,
    name="Bitnami chart 31.5",
    prepared=CONTROLLER_36 + MIGRATION + "inter.broker.protocol.version=3.4\ninter.broker.protocol.version=3.9\n",
    finalized=CONTROLLER_36,
    brokers=BROKERS
    | {KafkaBrokerMode.KRAFT: BROKER + QUORUM + KRAFT + "broker.id={id}\nzookeeper.connect={zookeeper}\n"},
    format=("-t", "{cluster}", "-c", "{file}"),
)

REPRESENTATIVE = APACHE_36
PROCEDURES = (
    *(APACHE_36, APACHE_37, APACHE_38, APACHE_39),
    *(BACK_FROM_3, BACK_FROM_4, FORGOTTEN, RAISED_EPOCH),
    *(CONFLUENT, ANSIBLE, STRIMZI, RED_HAT, BITNAMI),
)
