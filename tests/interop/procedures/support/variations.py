"""Variations of a procedure that a quorum in the place of Kafka's controllers must accept, and their results here.

`VARIATIONS` is read by tests, and by whoever makes a page of it. Fields of a `Variation`:

* ``variation``: what is done, in an operator's words.
* ``who``: whose procedure does it so.
* ``result``: one of `Result`.
* ``tests``: node ids of the tests that show it, as pytest prints them; a case of a matrix has its id in brackets.
* ``message``: a part of what the program says, word for word as in its code; empty if it works without a word.
* ``reason``: why it is refused, in a sentence; empty otherwise.
"""

from __future__ import annotations

from enum import StrEnum

from migrator.values import value
from tests.interop.procedures.support.apache import APACHE_36, APACHE_39, BACK_FROM_3_IN_38, SITE
from tests.interop.procedures.support.procedure import Procedure
from tests.interop.procedures.support.vendors import (
    ANSIBLE,
    AT_ONCE,
    BITNAMI,
    BOTH_IDS,
    CONFLUENT_79,
    CONNECT_STAYS,
    EMPTY_CONNECT,
    FLAG_AGAIN,
    OLD_KEYS,
    RED_HAT,
    STRIMZI,
)


class Result(StrEnum):
    """The result of a variation."""

    WORKS = "works"
    SAYS_SO = "works and says so"
    REFUSED = "refused"


@value
class Variation:
    """One row; see the head of this file."""

    variation: str
    who: str
    result: Result
    tests: tuple[str, ...]
    message: str = ""
    reason: str = ""


def case(*procedures: Procedure) -> tuple[str, ...]:
    """Node ids of procedures that are performed."""
    return tuple(f"tests/interop/procedures/test_procedures.py::test_as_published[{each.name}]" for each in procedures)


SETTINGS = "tests/config/test_settings.py"
ROLLBACK = "tests/interop/test_rollback.py"
WITHOUT = "tests/faults/test_finish_without.py"
START_END = "tests/migration/machine/test_finish.py"
START = "tests/node/migration/test_start_check.py"
FIELD = "tests/interop/procedures/test_field_brokers.py"
LOG_LINES = "tests/node/migration/test_kafka_log.py"

VARIATIONS = (
    Variation(
        "the last file has neither zookeeper.metadata.migration.enable nor zookeeper.connect",
        "Apache, Confluent, cp-ansible, Strimzi, Bitnami",
        Result.WORKS,
        case(APACHE_36, APACHE_39, ANSIBLE, STRIMZI, BITNAMI),
    ),
    Variation("zookeeper.connect is empty in the last file", "blogs", Result.WORKS, case(EMPTY_CONNECT)),
    Variation(
        "zookeeper.metadata.migration.enable is gone, zookeeper.connect stays",
        "Apache's text",
        Result.WORKS,
        case(CONNECT_STAYS),
    ),
    Variation("zookeeper.metadata.migration.enable=false", "Red Hat, KIP-866", Result.WORKS, case(RED_HAT)),
    Variation(
        "a controller with zookeeper.metadata.migration.enable=true after the end",
        "a host that was forgotten",
        Result.SAYS_SO,
        case(FLAG_AGAIN),
        "=true has no effect any more",
    ),
    Variation("controllers are restarted one by one at the end", "all", Result.WORKS, case(ANSIBLE)),
    Variation("all controllers are restarted at once at the end", "all", Result.WORKS, case(AT_ONCE)),
    Variation(
        "a controller does not come back at the end",
        "any",
        Result.REFUSED,
        (f"{START_END}::test_what_a_leader_with_the_flag_off_does",),
        "does not answer",
        "It may still have the migration turned on. Kafka's controllers end when one of them is elected.",
    ),
    Variation(
        "a broker in ZooKeeper mode has vanished, and is still registered",
        "any",
        Result.REFUSED,
        (f"{START}::test_the_flag_off_is_refused_with_the_names_of_brokers_in_zookeeper_mode",),
        "are still in ZooKeeper mode",
        "If it comes back, nobody would tell it anything. Kafka's controllers end.",
    ),
    Variation(
        "such a controller or broker is gone for good: migrator force finish --without ID --reason TEXT",
        "any",
        Result.SAYS_SO,
        (
            f"{WITHOUT}::test_a_voter_that_is_dead_for_good_is_left_out_and_disturbs_nothing_when_it_returns",
            f"{WITHOUT}::test_a_broker_that_vanished_in_zookeeper_mode_is_left_out_and_refused_when_it_returns",
            f"{WITHOUT}::test_a_stock_voter_that_is_dead_for_good_is_left_out",
            "tests/interop/test_vanished_broker.py::test_a_real_broker_vanished_in_zookeeper_mode",
        ),
        "is gone for good: migrator force finish --without ",
    ),
    Variation(
        "ZooKeeper is taken away during the last restart", "Bitnami, Strimzi", Result.WORKS, case(BITNAMI, STRIMZI)
    ),
    Variation(
        "controllers with controller.quorum.bootstrap.servers and without controller.quorum.voters",
        "Apache 3.9, Confluent 7.9, CFK",
        Result.WORKS,
        case(APACHE_39, CONFLUENT_79),
    ),
    Variation(
        "format --standalone; format --no-initial-controllers, then add-controller",
        "Apache 3.9, Confluent 7.9",
        Result.WORKS,
        (*case(APACHE_39), "tests/interop/test_manual_standalone.py::test_the_manual_as_printed"),
    ),
    Variation("format --initial-controllers", "Confluent 7.9", Result.WORKS, case(CONFLUENT_79)),
    Variation("format -t=ID, -c=FILE, -r=VERSION, -g", "Strimzi", Result.WORKS, case(STRIMZI)),
    Variation("format --add-scram, --ignore-formatted", "cp-ansible", Result.WORKS, case(ANSIBLE)),
    Variation(
        "format without a version, below 3.9: it is the inter.broker.protocol.version of the brokers",
        "Apache 3.6 to 3.8, Red Hat",
        Result.SAYS_SO,
        case(APACHE_36, RED_HAT),
        "The metadata.version is ",
    ),
    Variation(
        "inter.broker.protocol.version=3.5",
        "Apache 3.5, and the sample file of 3.6",
        Result.REFUSED,
        (f"{FIELD}::test_a_broker_with_inter_broker_protocol_version_3_5_is_refused",),
        "set its inter.broker.protocol.version to the release that the quorum was formatted with",
        "A migration needs metadata.version 3.6-IV1, and a broker at 3.5 does not know it.",
    ),
    Variation(
        "no listener.security.protocol.map and no inter.broker.listener.name",
        "Apache, Confluent",
        Result.SAYS_SO,
        case(APACHE_36),
        "the key is not set, brokers will be sought on their ",
    ),
    Variation("listener.security.protocol.map=CONTROLLER:PLAINTEXT", "Red Hat 2.7", Result.WORKS, case(RED_HAT)),
    Variation(
        "key stores and trust stores in PKCS12, or PEM",
        "Confluent, cp-ansible, Strimzi",
        Result.WORKS,
        ("tests/wire/test_stores.py::test_the_file_of_a_stock_controller_runs_with_its_java_stores",),
    ),
    Variation(
        "ZooKeeper wants a login or a certificate",
        "Confluent, cp-ansible, Strimzi",
        Result.WORKS,
        ("tests/interop/test_secured_zookeeper.py::test_there_and_back_and_to_the_end",),
    ),
    Variation("authorizer.class.name is the StandardAuthorizer", "Strimzi", Result.WORKS, case(STRIMZI)),
    Variation(
        "authorizer.class.name of a broker's file, or Confluent's",
        "copied files, Confluent with RBAC",
        Result.REFUSED,
        (f"{SETTINGS}::test_a_wrong_value_is_refused_with_file_key_and_remedy[another authorizer]",),
        "is a Java class, which cannot run here",
        "Another authorizer would decide otherwise than the one that was meant.",
    ),
    Variation("a key stands there twice: the last line counts", "Bitnami", Result.WORKS, case(BITNAMI)),
    Variation(
        "keys of Confluent in a controller's file",
        "Confluent",
        Result.SAYS_SO,
        (*case(CONFLUENT_79), f"{SETTINGS}::test_unknown_keys_warn_and_name_the_likely_one"),
        "unknown key is ignored, ",
    ),
    Variation(
        "brokers in KRaft mode keep zookeeper.connect, broker.id, inter.broker.protocol.version",
        "Bitnami, cp-ansible, scripts",
        Result.WORKS,
        case(BITNAMI, ANSIBLE, BOTH_IDS, OLD_KEYS),
    ),
    Variation(
        "brokers are upgraded from 3.6 to 3.9 while both sides are written",
        "any",
        Result.WORKS,
        (f"{FIELD}::test_brokers_are_upgraded_while_both_sides_are_written",),
    ),
    Variation(
        "brokers are upgraded from 3.9 to 4.1 after the end",
        "any",
        Result.WORKS,
        (f"{FIELD}::test_brokers_are_upgraded_to_4_1_after_the_end",),
    ),
    Variation(
        "a broker comes back after days, behind the beginning of the metadata log",
        "any",
        Result.WORKS,
        (f"{FIELD}::test_a_broker_comes_back_after_days",),
    ),
    Variation("controllers and brokers are restarted together", "scripts", Result.WORKS, case(BOTH_IDS)),
    Variation("/controller and /migration are deleted by hand", "all", Result.WORKS, case(SITE)),
    Variation(
        "/migration is forgotten on the way back, and a new quorum starts",
        "Apache 3.7 and 3.8",
        Result.REFUSED,
        case(BACK_FROM_3_IN_38),
        "the znode is left from another quorum",
        "Kafka's controllers take the znode for the end of the copy, and erase the cluster.",
    ),
    Variation(
        "after the way back, the old controllers start again with their directories",
        "any",
        Result.REFUSED,
        (f"{ROLLBACK}::a_forgotten_quorum_wakes_up",),
        "it was rolled back to ZooKeeper",
        "They would overwrite what changed in ZooKeeper since. Kafka's controllers do.",
    ),
    Variation("/controller_epoch is set while a controller leads", "Apache's site, 2026", Result.WORKS, case(SITE)),
    Variation(
        "metadata.version is changed during the migration",
        "blogs",
        Result.REFUSED,
        ("tests/controller/test_migration.py::test_can_not_use_unsafe_or_any_change_during_the_migration",),
        "Unable to modify metadata.version while a ZK migration is in progress.",
        "Brokers in ZooKeeper mode could not follow. Kafka's controllers refuse it, too.",
    ),
    Variation(
        "quorum-state is deleted before each start",
        "Strimzi",
        Result.SAYS_SO,
        case(STRIMZI),
        "This controller does not know its last vote ",
    ),
    Variation(
        "log lines of Kafka's controllers are waited for",
        "Apache, Confluent, Bitnami",
        Result.WORKS,
        (*case(APACHE_36), f"{LOG_LINES}::test_a_copy_is_told_as_kafka_tells_it"),
    ),
    Variation(
        "kafka-metadata-quorum describe, at a controller",
        "Confluent, cp-ansible",
        Result.WORKS,
        case(CONFLUENT_79, ANSIBLE),
    ),
    Variation(
        "Jolokia's ZkMigrationState is read of every controller: 2, then 1, then 3",
        "cp-ansible",
        Result.WORKS,
        case(ANSIBLE),
    ),
    Variation("GET /v1/kraft-migration/ is read of a controller", "Strimzi", Result.WORKS, case(STRIMZI)),
    Variation("get /migration in ZooKeeper's shell", "Apache, Confluent", Result.WORKS, case(SITE)),
)
