"""The listeners of an operator's inventory, with certificates and passwords that the drill makes.

A drill with ``--inventory`` uses `Shaped` in place of `Secured`. Names and protocols are the operator's; addresses,
certificates and passwords are the drill's, and nothing of the operator's cluster is reached.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.config.kafkas_broker import MECHANISM
from migrator.drill.security.protection import (
    BROKER,
    CONTROLLER,
    SCRAM_512,
    USERS,
    BrokerPorts,
    ControllerDoor,
    InClear,
    Secured,
)
from migrator.drill.shape import ListenerShape, Shape
from migrator.parts.zookeeper import ZooKeeperOptions
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.zookeeper.session import SessionOptions

SASL, TLS = "SASL", "SSL"
PLAIN = "PLAIN"
"""The mechanism at the controllers, which do not know SCRAM credentials before the copy (docs/logins.md)."""


class Shaped(Secured):
    """Names and protocols are those of the shape. Every user who logs in may do everything: an inventory has no
    permissions, and the drill runs no intruder (unlike `Secured`)."""

    permissions = MappingProxyType({})

    def __init__(self, directory: Path, shape: Shape) -> None:
        with_login = shape.for_controllers.protocol.startswith(SASL)
        super().__init__(directory, ControllerDoor.PLAIN if with_login else ControllerDoor.MUTUAL_TLS)
        self._shape = shape
        self.owns_znodes = shape.zookeeper_tls
        self.controller_listener = shape.for_controllers.name
        self.users = {**self.users, **{f"CN={user}": {} for user in USERS}, "ANONYMOUS": {}}
        self.secured = ()

    def zookeeper_options(self) -> ZooKeeperOptions:
        return super().zookeeper_options() if self._shape.zookeeper_tls else ZooKeeperOptions()

    def session(self, hosts: str, *, certificate: str = "kafka") -> SessionOptions:
        if self._shape.zookeeper_tls:
            return super().session(hosts, certificate=certificate)
        return SessionOptions(hosts)

    def of_controller(self, node: int) -> dict[str, str]:
        return {**self._node(f"{CONTROLLER}-{node}", CONTROLLER), **self._zookeeper()}

    def of_broker(self, broker: int, ports: BrokerPorts, *, in_zookeeper: bool) -> dict[str, str]:
        clients, between = self._shape.for_clients.name, self._shape.between_brokers.name
        listeners = {between: ports.replication} | {clients: ports.clients}
        return {
            **self._node(f"{BROKER}-{broker}", BROKER),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "authorizer.class.name": ACL_AUTHORIZER if in_zookeeper else STANDARD_AUTHORIZER,
            **(self._zookeeper() if in_zookeeper else {}),
        }

    def login(self, user: str) -> dict[str, str]:
        protocol = self._shape.for_clients.protocol
        if protocol == InClear.light_listener:
            return {}
        own = str(self.store(user))
        by_certificate = {"ssl.ca.location": super().login(user)["ssl.ca.location"]}
        if protocol == TLS:
            by_certificate |= {"ssl.certificate.location": own, "ssl.key.location": own}
        by_password = {key: text for key, text in super().login(user).items() if key.startswith("sasl.")}
        return {
            "security.protocol": protocol,
            **(by_certificate if protocol.endswith(TLS) else {}),
            **(by_password if protocol.startswith(SASL) else {}),
        }

    def at_brokers(self, user: str, *, password: str | None = None) -> ListenerSecurity:
        return self._at(self._shape.for_clients, SCRAM_512, user, password)

    def at_controllers(self, user: str) -> ListenerSecurity:
        return self._at(self._shape.for_controllers, PLAIN, user)

    def _at(self, at: ListenerShape, mechanism: str, user: str, password: str | None = None) -> ListenerSecurity:
        if at.protocol == InClear.light_listener:
            return PLAINTEXT
        with_login = at.protocol.startswith(SASL)
        keys = self._common(user) | (self._login_keys(at.name, mechanism, user, password) if with_login else {})
        return listener_security(keys, at.name, at.protocol, client_mechanism=mechanism if with_login else None)

    def _node(self, certificate: str, user: str) -> dict[str, str]:
        """Keys of every node: listeners' protocols, its certificate, the accepted logins, and that of ``user``."""
        shape = self._shape
        keys = {
            "listener.security.protocol.map": ",".join(":".join(each) for each in shape.listeners.items()),
            "inter.broker.listener.name": shape.between_brokers.name,
            **self._common(certificate),
        }
        for name, protocol in shape.listeners.items():
            prefix = f"listener.name.{name.lower()}."
            if protocol == TLS:
                keys[f"{prefix}ssl.client.auth"] = "required"
            elif protocol.startswith(SASL):
                mechanism = PLAIN if name == shape.for_controllers.name else SCRAM_512
                keys |= self._login_keys(name, mechanism, "" if name == _only(shape) else user)
        if shape.for_controllers.protocol.startswith(SASL):
            keys[MECHANISM] = PLAIN
        if shape.between_brokers.protocol.startswith(SASL):
            keys["sasl.mechanism.inter.broker.protocol"] = SCRAM_512
        names = [*USERS, *(f"CN={user}" for user in USERS), "ANONYMOUS"]
        return keys | {"super.users": ";".join(f"User:{name}" for name in names)}

    def _zookeeper(self, certificate: str = "kafka") -> dict[str, str]:
        return super()._zookeeper(certificate) if self._shape.zookeeper_tls else {}


def _only(shape: Shape) -> str:
    """The listener for clients, if brokers have a separate one."""
    return shape.for_clients.name if shape.for_clients != shape.between_brokers else ""
