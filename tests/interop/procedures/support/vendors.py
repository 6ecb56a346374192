"""The procedures of those who pack Kafka, and what other people's hands make of a procedure.

Confluent Platform is closed software: its quoted steps are performed on Apache's brokers of the same release, without
the commands and the authorizer that only Confluent has. What is a step here, cp-ansible, Strimzi and Bitnami automate.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.drill.kafka.cluster import KafkaBrokerMode
from tests.interop.procedures.support.apache import (
    APACHE_36,
    APACHE_37,
    APACHE_38,
    APACHE_39,
    BROKER,
    BROKERS,
    CONTROLLER,
    END,
    FLAG,
    FORWARD,
    KRAFT,
    LISTENER,
    MIGRATION,
    OLD,
    QUORUM,
    TO_DUAL_WRITE,
    by_bootstrap,
)
from tests.interop.procedures.support.procedure import Procedure, Shell, Step

MIGRATING, IN_KRAFT = KafkaBrokerMode.MIGRATING, KafkaBrokerMode.KRAFT
LINKS = "confluent.cluster.link.metadata.topic.enable=true\n"
CONFLUENT_78 = replace(
    APACHE_38,
    name="Confluent Platform 7.8, quoted steps on Apache's brokers",
    prepared=CONTROLLER + MIGRATION + LINKS,
    brokers=BROKERS | {MIGRATING: BROKERS[MIGRATING] + LINKS},
    format=(("--config", "{file}", "--cluster-id={cluster}"),),
    health=("describe", "--status"),
    steps=(
        *(Step.FORMAT, Step.PROVISION, Step.HEALTH, Step.MIGRATING, Step.DUAL_WRITE),
        *(Step.KRAFT, Step.HEALTH, Step.FINALIZE, Step.FINISHED),
    ),
)
CONFLUENT_79 = by_bootstrap(
    CONFLUENT_78,
    "Confluent Platform 7.9, quoted steps on Apache's brokers, first controllers listed",
    format=(("--config", "{file}", "--cluster-id={cluster}", "--initial-controllers", "{initial}"),),
    controllers=3,
)
CONFLUENT_BACK = replace(
    CONFLUENT_79,
    name="Confluent Platform 7.9, quoted steps on Apache's brokers, back from brokers in KRaft mode",
    steps=(
        *(*TO_DUAL_WRITE, Step.KRAFT, Step.REJOIN_ZOOKEEPER, Step.DEPROVISION, Shell("deleteall /controller")),
        *(Step.BROKER_IS_CONTROLLER, Shell("get /migration"), Shell("delete /migration")),
        *(Step.FORGET_BROKERS_LOG, Step.ZOOKEEPER, Step.NEW_QUORUM, *FORWARD),
    ),
)

ANSIBLE_MAP = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
TIMEOUT = "zookeeper.connection.timeout.ms=18000\n"
SCRAM = "SCRAM-SHA-512=[name=admin,password=admin-secret]"
ANSIBLE = replace(
    APACHE_39,
    name="cp-ansible",
    prepared=CONTROLLER + MIGRATION + TIMEOUT + LISTENER + ANSIBLE_MAP,
    finalized=CONTROLLER + LISTENER + ANSIBLE_MAP,
    brokers=BROKERS
    | {
        MIGRATING: BROKERS[MIGRATING] + TIMEOUT,
        IN_KRAFT: BROKER + QUORUM + "process.roles=broker\nbroker.id={id}\n",
    },
    format=(("-t={cluster}", "-c", "{file}", "--add-scram", SCRAM, "--ignore-formatted"),),
    controllers=3,
    health=("--command-config", "{file}", "describe", "--replication"),
    polled="/jolokia/read/kafka.controller:type=KafkaController,name=ZkMigrationState",
    steps=(
        *(Step.FORMAT, Step.PROVISION, Step.HEALTH, Step.POLL_2, Step.MIGRATING, Step.POLL_1),
        *(Step.DUAL_WRITE, *END, Step.POLL_3),
    ),
)
ANSIBLE_BACK = replace(
    ANSIBLE,
    name="cp-ansible, rollback_to_hybrid, rollback_to_premigration, and again",
    steps=(
        *(*TO_DUAL_WRITE, Step.KRAFT, Step.REJOIN_ZOOKEEPER, Step.DUAL_WRITE),
        *(Step.DEPROVISION, Step.FORGET_CONTROLLERS_LOG, Shell("deleteall /controller"), Step.BROKER_IS_CONTROLLER),
        *(Shell("delete /migration"), Step.FORGET_BROKERS_LOG, Step.ZOOKEEPER, *FORWARD),
    ),
)

STRIMZI_NAME = ("CONTROLLER", "CONTROLPLANE-9090")
STRIMZI_CONTROLLER = CONTROLLER.replace(*STRIMZI_NAME) + (
    "listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    "advertised.listeners=CONTROLPLANE-9090://localhost:{port}\n"
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    "super.users=User:ANONYMOUS\n"
)
STRIMZI_BROKER = (BROKER + QUORUM).replace(*STRIMZI_NAME) + "super.users=User:ANONYMOUS\n"
PLANE = (
    "listeners=CONTROLPLANE-9090://:{plane},PLAINTEXT://:{port}\n"
    "advertised.listeners=CONTROLPLANE-9090://localhost:{plane},PLAINTEXT://localhost:{port}\n"
    "listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    "control.plane.listener.name=CONTROLPLANE-9090\n"
)
"""Of brokers that obey a ZooKeeper controller: requests of controllers come on a listener of their own."""
STRIMZI_OLD = PLANE + OLD + "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
STRIMZI = replace(
    APACHE_39,
    name="Strimzi 0.45, in the clear",
    prepared=STRIMZI_CONTROLLER + MIGRATION + LISTENER,
    finalized=STRIMZI_CONTROLLER,
    brokers={
        KafkaBrokerMode.ZOOKEEPER: STRIMZI_OLD + "super.users=User:ANONYMOUS\n",
        MIGRATING: STRIMZI_BROKER + STRIMZI_OLD + FLAG + "node.id={id}\n",
        IN_KRAFT: STRIMZI_BROKER
        + KRAFT
        + "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n",
    },
    format=(("-t={cluster}", "-r={protocol}-IV0", "-c={file}", "-g"),),
    controllers=3,
    every_start=True,
    polled="/v1/kraft-migration/",
    steps=(
        *(Step.FORMAT, Step.PROVISION, Step.MIGRATING, Step.POLL_1, Step.DUAL_WRITE, Step.KRAFT),
        *(Step.FINALIZE, Step.STOP_ZOOKEEPER, Step.FINISHED),
    ),
)
STRIMZI_BACK = replace(
    STRIMZI,
    name="Strimzi 0.45, in the clear, back from brokers in KRaft mode, and again",
    steps=(
        *(*TO_DUAL_WRITE, Step.KRAFT, Step.REJOIN_ZOOKEEPER, Step.DEPROVISION, Step.NEW_QUORUM),
        *(Shell("deleteall /controller"), Shell("deleteall /migration"), Step.BROKER_IS_CONTROLLER),
        *(Step.ZOOKEEPER, Step.FORGET_BROKERS_LOG, *FORWARD),
    ),
)

RED_HAT_MAP = "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
RED_HAT_CONTROLLER = CONTROLLER.replace("CONTROLLER://:", "CONTROLLER://0.0.0.0:") + RED_HAT_MAP
RED_HAT = replace(
    APACHE_37,
    name="Red Hat on RHEL 2.7",
    prepared=RED_HAT_CONTROLLER + MIGRATION,
    finalized=RED_HAT_CONTROLLER + MIGRATION.replace("true", "false"),
)
UNFENCED = r"has been unfenced\. Transitioning from RECOVERY to RUNNING"
BITNAMI = replace(
    APACHE_39,
    name="Bitnami chart 31.5",
    prepared=CONTROLLER + MIGRATION + "inter.broker.protocol.version=3.4\ninter.broker.protocol.version=3.9\n",
    finalized=CONTROLLER,
    brokers=BROKERS | {IN_KRAFT: BROKER + QUORUM + KRAFT + "broker.id={id}\nzookeeper.connect={zookeeper}\n"},
    format=(("-t", "{cluster}", "-c", "{file}"),),
    broker_waits=(UNFENCED,),
    steps=(*TO_DUAL_WRITE, Step.KRAFT, Step.STOP_ZOOKEEPER, Step.FINALIZE, Step.FINISHED),
)
VENDORS = (
    *(CONFLUENT_78, CONFLUENT_79, CONFLUENT_BACK, ANSIBLE, ANSIBLE_BACK),
    *(STRIMZI, STRIMZI_BACK, RED_HAT, BITNAMI),
)

EMPTY_CONNECT = replace(
    APACHE_36, name="changed: zookeeper.connect is empty at the end", finalized=CONTROLLER + "zookeeper.connect=\n"
)
CONNECT_STAYS = replace(
    APACHE_37,
    name="changed: zookeeper.connect stays at the end",
    finalized=CONTROLLER + LISTENER + "zookeeper.connect={zookeeper}\n",
)
AT_ONCE = replace(
    APACHE_39,
    name="changed: all controllers are restarted at once at the end",
    prepared=APACHE_37.prepared,
    finalized=APACHE_37.finalized,
    brokers=APACHE_37.brokers,
    format=APACHE_37.format,
    controllers=3,
    steps=(*TO_DUAL_WRITE, Step.KRAFT, Step.FINALIZE_AT_ONCE, Step.FINISHED),
)
BOTH_IDS = replace(
    APACHE_39,
    name="changed: broker.id beside node.id, controllers and brokers restarted together",
    brokers={**APACHE_39.brokers, IN_KRAFT: APACHE_39.brokers[IN_KRAFT] + "broker.id={id}\n"},
    steps=(*TO_DUAL_WRITE, Step.KRAFT_TOGETHER, Step.FINALIZE, Step.FINISHED),
)
OLD_KEYS = replace(
    APACHE_39,
    name="changed: brokers in KRaft mode keep their keys of ZooKeeper's time",
    brokers={**APACHE_39.brokers, IN_KRAFT: APACHE_39.brokers[IN_KRAFT] + OLD},
)
FLAG_AGAIN = replace(
    APACHE_39, name="changed: the migration is turned on again after the end", steps=(*FORWARD, Step.FLAG_AGAIN)
)
CHANGED = (EMPTY_CONNECT, CONNECT_STAYS, AT_ONCE, BOTH_IDS, OLD_KEYS, FLAG_AGAIN)
ALL: tuple[Procedure, ...] = (*VENDORS, *CHANGED)
