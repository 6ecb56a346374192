"""How the parts of a drill's cluster are protected: not at all (`InClear`), or at every door (`Secured`).

Clusters ask it for the properties of each node and the login of each user. `Secured` makes certificates and passwords
anew for each drill. Each user has the fewest permissions that it needs: brokers and controllers are super users; the
intruder has a password and a certificate as others, and no permission. Both classes have the methods of `InClear`, so
clusters do not ask which one they have; only the attempts of intruders and the search for secrets need `Secured`.
"""

from __future__ import annotations

import datetime as dt
import secrets
import ssl
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType

import grpc

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.config.kafkas_broker import MECHANISM
from migrator.config.load import typed_settings
from migrator.image.model import ScramCredential
from migrator.parts.certificates import Authority, write_private
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import ZooKeeperOptions, ZooKeeperTls
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.values import value
from migrator.wire.principal import Principal
from migrator.wire.sasl import Authenticated, NoAccounts, ScramAccount, scram_credential
from migrator.wire.security import PLAINTEXT, ListenerSecurity, listener_security
from migrator.zookeeper.session import SessionOptions, options_from
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern
from migrator.zookeeper.znodes.scram import format_credential

BROKER, CONTROLLER = "broker", "controller"
OPERATOR, WRITER, READER, PAYER = "operator", "orders-writer", "orders-reader", "payments-writer"
INTRUDER = "intruder"
USERS = (BROKER, CONTROLLER, OPERATOR, WRITER, READER, PAYER, INTRUDER)

ORDERS, PAYMENTS = "drill.orders", "drill.payments"
"""Topics of the idempotent and of the transactional producer."""
READERS, RESTING, AUDITORS = "drill-readers", "drill-resting", "drill-auditors"
"""The group that reads all the time, one that read a little before the migration and committed, and one that reads
everything at the end."""
GROUPS = "drill-"
TRANSACTIONAL_ID = "drill"


def _allow(user: str, operation: AclOperation) -> AclEntry:
    return AclEntry(f"User:{user}", "*", operation, AclPermission.ALLOW)


def _literal(resource_type: ResourceType, name: str) -> ResourcePattern:
    return ResourcePattern(resource_type, name, PatternType.LITERAL)


PERMISSIONS: Mapping[ResourcePattern, Sequence[AclEntry]] = MappingProxyType(
    {
        _literal(ResourceType.TOPIC, ORDERS): (_allow(WRITER, AclOperation.WRITE), _allow(READER, AclOperation.READ)),
        _literal(ResourceType.TOPIC, PAYMENTS): (_allow(PAYER, AclOperation.WRITE), _allow(READER, AclOperation.READ)),
        _literal(ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID): (_allow(PAYER, AclOperation.WRITE),),
        ResourcePattern(ResourceType.GROUP, GROUPS, PatternType.PREFIXED): (_allow(READER, AclOperation.READ),),
        _literal(ResourceType.TOPIC, "*"): (_allow(OPERATOR, AclOperation.ALL),),
        _literal(ResourceType.CLUSTER, "kafka-cluster"): (_allow(OPERATOR, AclOperation.ALL),),
    }
)
"""The access control entries in ZooKeeper before the migration."""


SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
REPLICATION, CLIENTS = "REPLICATION", "CLIENTS"
"""Listeners of a secured broker: for brokers and controllers, and for clients."""
ZOOKEEPER_CLIENT = "kafka"
"""Brokers and controllers share one certificate towards ZooKeeper: its access control lists name the certificate that
created a znode, and no other may change the znode (Kafka's manual, "ZooKeeper Authentication")."""
METRICS_READER = "metrics-reader"
"""The user who may read the controllers' metrics."""
SALT_BYTES = 16
LIFE = dt.timedelta(days=365)
"""The validity of certificates, long enough to cause no warning of their end."""
WITH_NOTHING, OF_ANOTHER_AUTHORITY = "without a certificate", "with a certificate of another authority"
"""Strangers."""
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@value
class BrokerPorts:
    """The ports of one broker; in clear there is only the first."""

    clients: int
    replication: int


class InClear:
    """No protection: every client may do everything."""

    users: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The configuration of each user who logs in, by name. It must be in ZooKeeper before brokers start."""
    permissions: Mapping[ResourcePattern, tuple[AclEntry, ...]] = MappingProxyType({})
    light_listener = "PLAINTEXT"
    controller_listener = "CONTROLLER"
    owns_znodes = False
    """Whether znodes have access control lists."""
    authority: Authority | None = None
    """The authority of all certificates; None when only gRPC has certificates."""
    secured: tuple[str, ...] = ()
    """The protected parts, in words."""

    def zookeeper_options(self) -> ZooKeeperOptions:
        return ZooKeeperOptions()

    def session(self, hosts: str) -> SessionOptions:
        """How brokers, controllers and the drill reach ZooKeeper."""
        return SessionOptions(hosts)

    def of_controller(self, _node: int) -> dict[str, str]:
        """The properties that a controller's file has in addition, or with other values."""
        return {}

    def of_broker(self, _broker: int, ports: BrokerPorts, *, in_zookeeper: bool) -> dict[str, str]:
        """The properties of listeners and permissions in a broker's file.

        :param in_zookeeper: whether the access control entries of this broker are in ZooKeeper.
        """
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{ports.clients}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "super.users": "User:ANONYMOUS",
            "authorizer.class.name": ACL_AUTHORIZER if in_zookeeper else STANDARD_AUTHORIZER,
        }

    def login(self, _user: str) -> dict[str, str]:
        """The settings of that user's librdkafka client, without the addresses of the brokers."""
        return {}

    def at_brokers(self, _user: str) -> ListenerSecurity:
        """The security of that user's connections to the brokers."""
        return PLAINTEXT

    def at_controllers(self, _user: str) -> ListenerSecurity:
        """The security of connections to the controllers, for the owner of a certificate with this name."""
        return PLAINTEXT

    def of_light_broker(self, _broker: int) -> ListenerSecurity:
        return PLAINTEXT


IN_CLEAR = InClear()


class _Accounts(NoAccounts):
    """The accounts of a light broker."""

    def __init__(self, credentials: Mapping[str, ScramCredential]) -> None:
        self._credentials = credentials

    def user(self, mechanism: str, name: str) -> ScramAccount:
        """See `ScramAccounts`."""
        known = self._credentials.get(name)
        return (
            super().user(mechanism, name)
            if known is None
            else ScramAccount(known, Authenticated(Principal("User", name)))
        )


class ControllerDoor(Enum):
    """The login of brokers and controllers at the controllers.

    Only brokers in KRaft mode use SCRAM: before the copy the quorum knows no credentials, and controllers cannot elect
    a leader with credentials that only a leader knows. Other nodes use PLAIN on the same listener (docs/logins.md).
    """

    TLS = "SSL, and everybody is anonymous"
    MUTUAL_TLS = "SSL with client certificates"
    PLAIN = "PLAIN"
    SCRAM_256 = "SCRAM-SHA-256"
    SCRAM_512 = "SCRAM-SHA-512"

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism; None without SASL."""
        return self.value if self.value in _MODULES else None

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"


class Secured(InClear):
    """TLS on every port, a certificate or password from every caller, and access control lists in Kafka and ZooKeeper.

    :param directory: the directory of its certificates and keys, which are made when they are needed.
    :param door: the login at the controllers.
    """

    permissions = PERMISSIONS  # type: ignore[assignment]
    light_listener = REPLICATION
    owns_znodes = True

    def __init__(self, directory: Path, door: ControllerDoor = ControllerDoor.MUTUAL_TLS) -> None:
        self._directory = directory
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._door = door
        self.authority: Authority = Authority("drill")
        self._trust = self.authority.trust(directory / "authority.pem")
        self.passwords = {user: secrets.token_urlsafe(18) for user in (*USERS, METRICS_READER)}
        self._metrics_users = directory / "metrics-users"
        write_private(self._metrics_users, f"{METRICS_READER}:{self.passwords[METRICS_READER]}\n")
        self._credentials = {user: self._credential(user, SCRAM_512) for user in USERS}
        self.users = {
            user: {
                SCRAM_256: format_credential(self._credential(user, SCRAM_256)),
                SCRAM_512: format_credential(credential),
            }
            for user, credential in self._credentials.items()
        }
        self.secured = (
            "ZooKeeper: one port, TLS with client certificates; znodes belong to the cluster's certificate",
            "brokers: SASL_SSL with SCRAM-SHA-512 for clients, for one another and for controllers",
            f"controllers: {door.protocol} for brokers ({door.value}); TLS with client certificates among themselves",
            "metrics of controllers: TLS with client certificates, and a password",
            f"permissions: {len(USERS) - 3} users with as few as they need, and one without any",
        )

    def zookeeper_options(self) -> ZooKeeperOptions:
        return ZooKeeperOptions(tls=ZooKeeperTls(self.store("zookeeper"), self._trust))

    def session(self, hosts: str, *, certificate: str = ZOOKEEPER_CLIENT) -> SessionOptions:
        return options_from(typed_settings(self._zookeeper(certificate), "drill"), hosts)

    def of_controller(self, node: int) -> dict[str, str]:
        return {
            "listener.security.protocol.map": self._protocols(),
            "inter.broker.listener.name": REPLICATION,
            **self._common(f"{CONTROLLER}-{node}"),
            **self._door_keys(CONTROLLER),
            **self._login_keys(REPLICATION, SCRAM_512, CONTROLLER),
            **self._zookeeper(),
            **self._metrics(node),
        }

    def of_broker(self, broker: int, ports: BrokerPorts, *, in_zookeeper: bool) -> dict[str, str]:
        return {
            **super().of_broker(broker, ports, in_zookeeper=in_zookeeper),
            "listeners": f"{REPLICATION}://127.0.0.1:{ports.replication},{CLIENTS}://127.0.0.1:{ports.clients}",
            "listener.security.protocol.map": self._protocols(),
            "inter.broker.listener.name": REPLICATION,
            **self._common(f"{BROKER}-{broker}"),
            **self._door_keys(BROKER, by_scram=not in_zookeeper),
            **self._login_keys(REPLICATION, SCRAM_512, BROKER),
            **self._login_keys(CLIENTS, SCRAM_512, ""),
            **(self._zookeeper() if in_zookeeper else {}),
        }

    def login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM_512,
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self._trust),
        }

    def at_brokers(self, user: str, *, password: str | None = None) -> ListenerSecurity:
        keys = self._common(user) | self._login_keys(CLIENTS, SCRAM_512, user, password)
        return listener_security(keys, CLIENTS, "SASL_SSL", client_mechanism=SCRAM_512)

    def at_controllers(self, user: str) -> ListenerSecurity:
        keys = self._common(user) | self._door_keys(user)
        mechanism = keys.get(MECHANISM)
        return listener_security(keys, "CONTROLLER", self._door.protocol, client_mechanism=mechanism)

    def of_light_broker(self, broker: int) -> ListenerSecurity:
        keys = self._common(f"{BROKER}-{broker}") | self._login_keys(REPLICATION, SCRAM_512, BROKER)
        accounts = _Accounts(self._credentials)
        return listener_security(keys, REPLICATION, "SASL_SSL", client_mechanism=SCRAM_512, accounts=accounts)

    def store(self, name: str) -> Path:
        """A PEM file with a private key and its certificate, whose subject is ``CN=name``."""
        file = self._directory / f"{name}.pem"
        if not file.exists():
            write_private(file, "".join(self.authority.issue(name, valid_for=LIFE)))
        return file

    def strangers(self) -> Mapping[str, ListenerSecurity]:
        """Connections of callers who must be refused, by their credentials. These callers trust our certificates."""
        nothing = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._trust)}
        something = nothing | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self._foreign())}
        return {
            WITH_NOTHING: listener_security(nothing, "CONTROLLER", "SSL", serves=False),
            OF_ANOTHER_AUTHORITY: listener_security(something, "CONTROLLER", "SSL", serves=False),
        }

    def strangers_at_brokers(self) -> Mapping[str, ListenerSecurity]:
        """Like `strangers`, at a listener with a login."""
        return {
            "without a login": self.strangers()[WITH_NOTHING],
            "with a wrong password": self.at_brokers(BROKER, password="a guess"),  # noqa: S106 - it is none
            "who has no account": self.at_brokers("nobody-knows-me", password="a guess"),  # noqa: S106
        }

    def grpc_credentials(self, name: str) -> grpc.ChannelCredentials:
        """The credentials of the owner of a certificate of ours with this name."""
        return self._credentials_of(self.store(name))

    def grpc_strangers(self) -> Mapping[str, grpc.ChannelCredentials]:
        """Like `strangers`."""
        nothing = grpc.ssl_channel_credentials(self._trust.read_bytes())
        return {WITH_NOTHING: nothing, OF_ANOTHER_AUTHORITY: self._credentials_of(self._foreign())}

    def at_metrics(self, store: Path | None = None) -> ssl.SSLContext:
        """The TLS context of an operator's machine at the metrics of controllers, without the password."""
        context = ssl.create_default_context(cafile=self._trust)
        context.load_cert_chain(store or self.store(OPERATOR))
        return context

    def strangers_at_metrics(self) -> Mapping[str, ssl.SSLContext]:
        """Like `strangers`."""
        nothing = ssl.create_default_context(cafile=self._trust)
        return {WITH_NOTHING: nothing, OF_ANOTHER_AUTHORITY: self.at_metrics(self._foreign())}

    def _foreign(self) -> Path:
        file = self._directory / "stranger.pem"
        if not file.exists():
            write_private(file, "".join(Authority("stranger").issue(CONTROLLER, valid_for=LIFE)))
        return file

    def _credentials_of(self, store: Path) -> grpc.ChannelCredentials:
        both = store.read_bytes()
        return grpc.ssl_channel_credentials(self._trust.read_bytes(), both, both)

    def _credential(self, user: str, mechanism: str) -> ScramCredential:
        return scram_credential(mechanism, self.passwords[user], secrets.token_bytes(SALT_BYTES))

    def _protocols(self) -> str:
        return f"CONTROLLER:{self._door.protocol},{REPLICATION}:SASL_SSL,{CLIENTS}:SASL_SSL"

    def _common(self, name: str) -> dict[str, str]:
        """Properties of every node: its certificate ``CN=name``, the trusted authority, and the super users."""
        anonymous = ["ANONYMOUS"] if self._door is ControllerDoor.TLS else []
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.store(name)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trust),
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)(-[0-9]+)?$/$1/,DEFAULT",
            "super.users": ";".join(f"User:{user}" for user in (BROKER, CONTROLLER, *anonymous)),
            "allow.everyone.if.no.acl.found": "false",
        }

    def _door_keys(self, user: str, *, by_scram: bool = False) -> dict[str, str]:
        """Properties of the controllers' listener: the accepted login, and that of ``user``."""
        mechanism = self._door.mechanism
        if mechanism is None:
            wanted = "required" if self._door is ControllerDoor.MUTUAL_TLS else "none"
            return {"listener.name.controller.ssl.client.auth": wanted}
        keys = self._login_keys("CONTROLLER", "PLAIN", user) | self._login_keys("CONTROLLER", mechanism, user)
        enabled = ",".join(dict.fromkeys(("PLAIN", mechanism)))
        keys["listener.name.controller.sasl.enabled.mechanisms"] = enabled
        return keys | {MECHANISM: mechanism if by_scram else "PLAIN"}

    def _login_keys(self, listener: str, mechanism: str, user: str, password: str | None = None) -> dict[str, str]:
        """Properties of a listener with SASL: its only mechanism, and the login of ``user``, if any, at the same
        listener of other nodes."""
        prefix = f"listener.name.{listener.lower()}."
        line = f"{_MODULES[mechanism]} required"
        if user:
            line += f' username="{user}" password="{password or self.passwords[user]}"'
        if mechanism == "PLAIN":
            line += "".join(f' user_{name}="{known}"' for name, known in self.passwords.items() if name in USERS)
        keys = {
            f"{prefix}sasl.enabled.mechanisms": mechanism,
            f"{prefix}{mechanism.lower()}.sasl.jaas.config": f"{line};",
        }
        return keys | ({"sasl.mechanism.inter.broker.protocol": mechanism} if listener == REPLICATION else {})

    def _metrics(self, node: int) -> dict[str, str]:
        files = self.authority.files(self._directory / f"metrics-{node}", CONTROLLER, valid_for=LIFE)
        return {
            "migrator.metrics.listener": f"127.0.0.1:{free_port()}",
            "migrator.metrics.tls.certificate.file": str(files.certificate),
            "migrator.metrics.tls.key.file": str(files.key),
            "migrator.metrics.tls.ca.file": str(files.authority),
            "migrator.metrics.basic.auth.file": str(self._metrics_users),
        }

    def _zookeeper(self, certificate: str = ZOOKEEPER_CLIENT) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(self.store(certificate)),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(self._trust),
            "zookeeper.set.acl": "true",
        }
