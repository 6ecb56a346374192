"""Cases for the checks of brokers' files: how a file is broken, and the finding that preflight must give.

`test_checks` runs each case on a `ReadyCluster`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.preflight.support.cases_of_files import BROKER, broker_with
from tests.preflight.support.cases_of_zookeeper import Case
from tests.preflight.support.ready_cluster import ReadyCluster

CONTROLLERS_SASL = "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
PLAIN_JAAS = "listener.name.controller.plain.sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def own_controller_listener(cluster: ReadyCluster) -> None:
    """As Koperator writes it; the broker is not prepared yet."""
    port = cluster.broker_port + 1
    broker_with(
        controller_listener_names=None,
        zookeeper_metadata_migration_enable=None,
        listeners=f"PLAINTEXT://127.0.0.1:{cluster.broker_port},controller://:{port}",
        control_plane_listener_name="CONTROLLER",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )(cluster)


def plain_logins(**keys: str) -> Callable[[ReadyCluster], None]:
    """Controllers that take PLAIN, and a broker of two that logs in; the second has these keys."""

    def change(cluster: ReadyCluster) -> None:
        cluster.controllers[0] |= {
            "listener.security.protocol.map": CONTROLLERS_SASL,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            PLAIN_JAAS: f'{PLAIN_MODULE} username="c" password="c" user_c="c" user_b="b";',
        }
        for broker in cluster.brokers:
            broker |= {
                "listener.security.protocol.map": CONTROLLERS_SASL,
                "sasl.mechanism.controller.protocol": "PLAIN",
                PLAIN_JAAS: f'{PLAIN_MODULE} username="b" password="b";',
            }
        cluster.brokers[1] |= {key.replace("_", "."): text for key, text in keys.items()}

    return change


def other_login(user: str, password: str) -> Callable[[ReadyCluster], None]:
    """Of the second broker, with PLAIN."""
    return plain_logins(**{PLAIN_JAAS: f'{PLAIN_MODULE} username="{user}" password="{password}";'})


CASES = (
    Case(
        "M128",
        broker_with(listener_security_protocol_map=None),
        f"{BROKER}: listener.security.protocol.map",
        "broker 2: the map has no protocol for CONTROLLER",
    ),
    Case("M128", broker_with(controller_listener_names="controller"), BROKER, "is not in capitals"),
    Case("M128", broker_with(node_id="9"), f"{BROKER}: node.id", "it is not the value of broker.id, '2'"),
    Case(
        "M128",
        broker_with(security_inter_broker_protocol="PLAINTEXT"),
        f"{BROKER}: security.inter.broker.protocol",
        "Kafka takes only one of them",
    ),
    Case("M129", own_controller_listener, f"{BROKER}: listeners", "broker 2: its own listener CONTROLLER has the name"),
    Case(
        "M130",
        plain_logins(sasl_mechanism_controller_protocol="GSSAPI"),
        f"{BROKER}: sasl.mechanism.controller.protocol",
        "broker 2, controller 3001: it logs in with GSSAPI, and controller 3001 takes PLAIN on listener CONTROLLER",
    ),
    Case("M130", other_login("stranger", "b"), BROKER, "controller 3001 does not know the user 'stranger'"),
    Case("M130", other_login("b", "old"), BROKER, "controller 3001 has another password for the user 'b'"),
    Case(
        "M131",
        plain_logins(**{PLAIN_JAAS: ""}),
        f"{BROKER}: {PLAIN_JAAS}",
        "broker 2: the file has no login for the controllers' listener CONTROLLER",
    ),
    Case(
        "M131",
        plain_logins(**{PLAIN_JAAS: f'{PLAIN_MODULE} username="b" password="b"'}),
        f"{BROKER}: {PLAIN_JAAS}",
        "broker 2: the login for the controllers' listener CONTROLLER cannot be read: ",
    ),
)
