"""The rules between settings, as a table of small checks. The first one that fails is refused.

Source: ``KafkaConfig.validateValues``, ``RaftManager``, docs/ops (migration), and this project's own limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from migrator.config.endpoints import parse_host_port, parse_per_ip, parse_zookeeper_connect
from migrator.config.java_options import java_options
from migrator.config.key_uses import ignored_keys, key_problems, misspelt, unknown_keys
from migrator.config.open_doors import open_doors
from migrator.config.reading import number_of
from migrator.config.settings import Settings
from migrator.config.super_users import unmatchable_entries
from migrator.config.types import entries_of, trimmed
from migrator.errors import OperatorError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The authorizer of KRaft mode, and that of ZooKeeper mode."""
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

Problem = tuple[str, str, str]
"""(key, the fault of its value, remedy)."""


def check_settings(settings: Settings) -> list[str]:
    """Refuse settings that can't work together.

    :returns: warnings.
    :raises OperatorError: for the first problem, with file, key, value and remedy.
    """
    for key, what, remedy in problems_of(settings):
        written = misspelt(settings, key)
        hint = f"Did you mean {key}? The file sets {written}, which is unknown. " if written else ""
        raise OperatorError(what, where=f"{settings.source}: {key}", remedy=f"{hint}{remedy}")
    found = (*open_doors(settings), *unmatchable_entries(settings))
    doors = [f"{settings.source}: {key}: {what}. {remedy}" for key, what, remedy in found]
    ignored = ignored_keys(settings)
    note = [f"{settings.source}: these keys have no effect here, see docs/configuration.md: {', '.join(ignored)}"]
    return warnings_of(settings) + doors + (note if ignored else [])


def problems_of(settings: Settings) -> Iterator[Problem]:
    """All problems. The search ends at a check that needs a value which an earlier check has refused."""
    refused = False
    for check in CHECKS:
        try:
            for problem in check(settings):
                refused = True
                yield problem
        except (ValueError, LookupError):
            if refused:
                return
            raise


def warnings_of(settings: Settings) -> list[str]:
    """Warnings about settings that work, but probably not as intended; one sentence each."""
    return [f"{settings.source}: {text}" for text in _warnings(settings)]


def _roles(settings: Settings) -> Iterator[Problem]:
    roles = settings.process_roles
    if roles == ("broker",) or (not roles and "broker.id" in settings.explicit):
        what = f"the key is {'broker' if roles else 'not set, and broker.id is'}: this looks like the file of a broker"
        yield "process.roles", what, "Give the file of a controller, which sets process.roles=controller"
    elif not roles:
        yield "process.roles", "the key is not set", "Set process.roles=controller"
    elif "controller" not in roles:
        yield "process.roles", f"{','.join(roles)} is no role of a controller", "Set process.roles=controller"
    elif roles != ("controller",):
        why = "which Kafka forbids during a migration" if settings.zookeeper_metadata_migration_enable else "no broker"
        yield (
            "process.roles",
            f"{','.join(roles)} asks for a combined node, {why}: migrator is a controller only",
            "Set process.roles=controller and run the broker with Kafka",
        )


def _identity(settings: Settings) -> Iterator[Problem]:
    if settings.node_id < 0:
        yield "node.id", "the key is not set", "Set the id of this node, as controller.quorum.voters names it"
    old = number_of(settings.explicit, "broker.id")
    if {"node.id", "broker.id"} <= settings.explicit.keys() and old != settings.node_id:
        what = f"{settings.explicit['broker.id']!r} is not the value of node.id, {settings.node_id}, as Kafka demands"
        yield "broker.id", what, "Remove the key: a controller needs node.id only"
    if not settings.log_directories:
        yield "log.dirs", "the key names no directory", "Set one directory for the metadata log"
    if settings.metadata_log_dir == "":
        what = "the key is empty: Kafka would take the directory that it is started in"
        yield "metadata.log.dir", what, "Write the whole path, from / on, or remove the key"


DIRECTORY_KEYS = ("log.dirs", "log.dir", "metadata.log.dir")


def home_directories(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """The key, the fault, and the remedy: Kafka would make a directory with the name ``~``."""
    for key, name in _named(settings):
        if name.startswith("~"):
            what = f"{name!r} is not in your home directory: only a shell replaces ~, and no shell reads this file"
            yield key, what, "Write the whole path, from / on"


def relative_directories(settings: Settings) -> Iterator[str]:
    """A sentence for each relative path: a start from another directory would find an empty one."""
    for key, name in _named(settings):
        if not Path(name).is_absolute():
            yield (
                f"{key}: {name!r} depends on the directory that this program is started in; here it is "
                f"{Path(name).absolute()}. Write the whole path, from / on"
            )


def _named(settings: Settings) -> Iterator[tuple[str, str]]:
    for key in DIRECTORY_KEYS:
        for name in entries_of(settings.explicit.get(key, "")):
            yield key, name


def _quorum(settings: Settings) -> Iterator[Problem]:
    try:
        voters = settings.voters
    except ValueError as error:
        yield "controller.quorum.voters", str(error), "Write id@host:port, separated by commas"
        return
    try:
        servers = settings.bootstrap_servers
    except ValueError as error:
        yield "controller.quorum.bootstrap.servers", str(error), "Write host:port, separated by commas"
        return
    if not voters and not servers:
        remedy = (
            "Set id@host:port of each controller, separated by commas. Or set controller.quorum.bootstrap.servers to "
            "their host:port, where the log says who votes"
        )
        yield "controller.quorum.voters", "the key is not set", remedy
    elif voters and settings.node_id not in {voter.voter_id for voter in voters}:
        yield (
            "controller.quorum.voters",
            f"the key does not name this node, {settings.node_id}",
            f"Add {settings.node_id}@host:port, or correct node.id",
        )


def _listeners(settings: Settings) -> Iterator[Problem]:
    if not settings.controller_listeners:
        yield "controller.listener.names", "the key is not set", "Set the key, for example to CONTROLLER"
        return
    if "" in settings.controller_listeners:
        yield "controller.listener.names", "an entry before a comma is empty", "Write names, separated by commas"
        return
    for key, read in (
        ("listener.security.protocol.map", lambda: settings.protocol_map),
        ("listeners", lambda: settings.parsed_listeners),
        ("advertised.listeners", lambda: settings.parsed_advertised_listeners),
    ):
        try:
            read()
        except ValueError as error:
            yield key, str(error), "Write NAME://host:port, and map every name in listener.security.protocol.map"
            return
    yield from _names_of_brokers(settings)
    for listener in settings.parsed_advertised_listeners if settings.advertised_listeners else ():
        if listener.host == "0.0.0.0":  # noqa: S104 (compared)
            what = f"no client can connect to 0.0.0.0, which the key says of listener {listener.name}"
            yield "advertised.listeners", what, "Write the address at which others reach this node"
    bound = {listener.name for listener in settings.parsed_listeners}
    if missing := [name for name in settings.controller_listeners[:1] if name not in bound]:
        yield (
            "listeners",
            f"the key has no listener {missing[0]}",
            f"Add {missing[0]}://host:port, a controller.listener.name",
        )
    if extra := sorted(bound - set(settings.controller_listeners)):
        yield "listeners", f"{extra[0]} is not a controller listener", "List only controller.listener.names"


def _names_of_brokers(settings: Settings) -> Iterator[Problem]:
    """``KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol``."""
    key, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    for name in (key, "control.plane.listener.name"):
        if settings.explicit.get(name) is not None and not trimmed(settings.explicit[name]):
            yield name, "the key is empty", "Name a listener of the brokers, or remove the key"
    if {key, by_protocol} <= settings.explicit.keys():
        yield by_protocol, f"{key} is set, too: Kafka takes only one of them", f"Remove {by_protocol}"


def _connections(settings: Settings) -> Iterator[Problem]:
    try:
        parse_per_ip(settings.max_connections_per_ip_overrides)
    except ValueError as error:
        yield "max.connections.per.ip.overrides", str(error), "Write host:number, separated by commas"


def _java_classes(settings: Settings) -> Iterator[Problem]:
    for key, name, accepted in (
        ("create.topic.policy.class.name", settings.create_topic_policy_class_name, ""),
        ("alter.config.policy.class.name", settings.alter_config_policy_class_name, ""),
        ("authorizer.class.name", settings.authorizer_class_name, STANDARD_AUTHORIZER),
        ("principal.builder.class", settings.principal_builder_class, DEFAULT_PRINCIPAL_BUILDER),
    ):
        if name and name != accepted:
            instead = f", or use {accepted}" if accepted else ""
            yield key, f"{name} is a Java class, which cannot run here", f"Remove the key for the migration{instead}"


def _super_users(settings: Settings) -> Iterator[Problem]:
    """The form is that of ``SecurityUtils.parseKafkaPrincipal``: any other text names no principal."""
    for name in sorted(settings.super_user_names):
        kind, separator, rest = name.partition(":")
        if not (kind and separator and rest):
            yield "super.users", f"{name!r} is not a principal", "Write User:name, with ';' between names"
        elif "," in name and re.search(r",\s*\w+:", name):
            yield "super.users", f"{name!r} is read as one name with a comma in it", "Write ';' between names"


def _scram_among_controllers(settings: Settings) -> Iterator[Problem]:
    """Credentials are in the metadata log, which has no leader before the controllers have logged in to each other.
    Kafka's controllers cannot use SCRAM either: their ``ScramPublisher`` begins after the first known high
    watermark."""
    if len(settings.voters) == 1 or settings.migrator_grpc_voters or not _uses_sasl(settings):
        return
    mechanism = settings.sasl_mechanism_controller_protocol
    remedy = "Set PLAIN or OAUTHBEARER for controllers, or let them use client certificates or migrator.grpc.voters"
    if mechanism.upper().startswith("SCRAM-"):
        yield (
            "sasl.mechanism.controller.protocol",
            f"{mechanism} between controllers could never elect a leader: credentials are known once there is one",
            f"{remedy}; brokers may still log in by SCRAM",
        )


def _uses_sasl(settings: Settings) -> bool:
    return settings.protocol_map.get(settings.controller_listeners[0], "").startswith("SASL_")


def _protected_znodes(settings: Settings) -> Iterator[Problem]:
    """The rule of ``KafkaZkClient.createZkClient``; it applies only to a migration."""
    migrates = settings.zookeeper_metadata_migration_enable
    if migrates and settings.zookeeper_set_acl and not settings.zookeeper_authenticated:
        remedy = (
            "Set migrator.zookeeper.jaas.file, or zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location, "
            "as the brokers log in; or set zookeeper.set.acl=false"
        )
        yield (
            "zookeeper.set.acl",
            "the key is true, but this node has no login at ZooKeeper, so its znodes could have no owner",
            remedy,
        )


def _migration(settings: Settings) -> Iterator[Problem]:
    if not settings.zookeeper_metadata_migration_enable:
        return
    if not settings.zookeeper_connect:
        remedy = (
            "Set host:port[,host:port][/chroot]; to end a migration, remove zookeeper.metadata.migration.enable too"
        )
        yield "zookeeper.connect", "the key is not set, while the migration is turned on", remedy
    try:
        parse_zookeeper_connect(settings.zookeeper_connect or "localhost")
    except ValueError as error:
        yield "zookeeper.connect", str(error), "Copy zookeeper.connect of the brokers"
    if settings.broker_rpc_protocol is None:
        key = "control.plane.listener.name" if settings.control_plane_listener_name else "inter.broker.listener.name"
        yield (
            key,
            f"listener {settings.broker_rpc_listener} has no entry in listener.security.protocol.map",
            "Copy inter.broker.listener.name and its entry of listener.security.protocol.map from the brokers",
        )


EVERYWHERE = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 (compared)
"""Hosts that mean every address of the machine."""


def _own(settings: Settings) -> Iterator[Problem]:
    for key, text in (
        ("migrator.grpc.listener", settings.migrator_grpc_listener),
        ("migrator.metrics.listener", settings.migrator_metrics_listener),
    ):
        try:
            if text:
                parse_host_port(text)
        except ValueError as error:
            yield key, str(error), "Write host:port"
    try:
        named = {voter.voter_id for voter in settings.grpc_voters}
    except ValueError as error:
        yield "migrator.grpc.voters", str(error), "Write id@host:port, separated by commas"
        return
    if named and settings.voters and named != {voter.voter_id for voter in settings.voters}:
        yield (
            "migrator.grpc.voters",
            "the key names other ids than controller.quorum.voters",
            "Name the same voters in both",
        )
    if named and not settings.migrator_grpc_listener:
        yield (
            "migrator.grpc.listener",
            "the key is not set, while migrator.grpc.voters is",
            "Set this node's own host:port",
        )


def _ports(settings: Settings) -> Iterator[Problem]:
    """Two listeners with one port. Without this check the error would be that another program uses the port."""
    try:
        taken = [("listeners", it.name, it.host, it.port) for it in settings.parsed_listeners]
        for key in ("migrator.grpc.listener", "migrator.metrics.listener"):
            text = settings.explicit.get(key, "")
            taken += [(key, key, *parse_host_port(text))] if text else []
    except ValueError:
        return  # other checks report this fault
    for number, (key, name, host, port) in enumerate(taken):
        for _, other, its_host, its_port in taken[:number]:
            if port and port == its_port and (host == its_host or {host, its_host} & EVERYWHERE):
                yield key, f"{name} has port {port}, and {other} of this file, too", "Give each its own port"


def _grpc_doors(settings: Settings) -> Iterator[Problem]:
    """gRPC has no clear text and no anonymous callers: without certificates and names of voters it does not start."""
    if not settings.migrator_grpc_listener:
        return
    files = {
        "migrator.grpc.tls.certificate.file": settings.migrator_grpc_tls_certificate_file,
        "migrator.grpc.tls.key.file": settings.migrator_grpc_tls_key_file,
        "migrator.grpc.tls.ca.file": settings.migrator_grpc_tls_ca_file,
    }
    for key in (key for key, file in files.items() if not file):
        what = "the key is not set, while migrator.grpc.listener is: gRPC needs mutual TLS on every address"
        yield key, what, f"Set {', '.join(files)}, or remove every migrator.grpc.* key"
    key, form = "migrator.grpc.voter.principals", "Write id@User:SUBJECT of each voter's certificate, with semicolons"
    try:
        ids = set(settings.grpc_voter_principals.values())
    except ValueError as error:
        yield key, str(error), form
        return
    voters = {voter.voter_id for voter in settings.voters or settings.grpc_voters}
    if not ids:
        yield (
            key,
            "the key is not set, while migrator.grpc.listener is: no certificate would be known as a voter's",
            form,
        )
    elif settings.voters and (strangers := sorted(ids - voters)):
        yield (
            key,
            f"the key names {strangers[0]}, which controller.quorum.voters does not",
            "Name the ids of the voters",
        )
    elif nameless := sorted(voters - ids):
        yield (
            key,
            f"the key has no principal for voter {nameless[0]}",
            f"Add {nameless[0]}@User:SUBJECT of its certificate",
        )
    try:
        _ = settings.grpc_operator_principals
    except ValueError as error:
        yield "migrator.grpc.operator.principals", str(error), "Write User:SUBJECT, with semicolons"


def _metrics(settings: Settings) -> Iterator[Problem]:
    certificate, key = settings.migrator_metrics_tls_certificate_file, settings.migrator_metrics_tls_key_file
    if bool(certificate) != bool(key):
        yield (
            f"migrator.metrics.tls.{'key' if certificate else 'certificate'}.file",
            "the key is not set, while the other half of the pair is",
            "Set both, or neither",
        )
    if settings.migrator_metrics_tls_ca_file and not certificate:
        yield (
            "migrator.metrics.tls.ca.file",
            "the key is set, while the endpoint has no certificate of its own, so nobody would be asked for theirs",
            "Set migrator.metrics.tls.certificate.file and .key.file as well",
        )


CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _roles,
    _identity,
    home_directories,
    _quorum,
    _listeners,
    _connections,
    key_problems,
    _java_classes,
    _super_users,
    _scram_among_controllers,
    _protected_znodes,
    _migration,
    _own,
    _ports,
    _grpc_doors,
    _metrics,
)


def _accepts_scram_only(settings: Settings) -> bool:
    mechanisms = settings.mechanisms_of(settings.controller_listeners[0])
    return _uses_sasl(settings) and all(name.upper().startswith("SCRAM-") for name in mechanisms)


def _warnings(settings: Settings) -> Iterator[str]:
    yield from unknown_keys(settings)
    yield from relative_directories(settings)
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        yield "broker.session.timeout.ms: the value is less than two heartbeats: one late heartbeat fences a broker"
    if settings.zookeeper_metadata_migration_enable and not settings.inter_broker_listener_name:
        yield (
            "inter.broker.listener.name: the key is not set, brokers will be sought on their "
            f"{settings.broker_rpc_listener} listener; copy the key from the brokers if they set it"
        )
    if settings.zookeeper_metadata_migration_enable and settings.password_encoder_secret is None:
        yield "password.encoder.secret: the key is not set, so any encoded password in ZooKeeper stops the copy"
    if settings.zookeeper_metadata_migration_enable and _accepts_scram_only(settings):
        yield (
            "sasl.enabled.mechanisms: the key names SCRAM only, while the migration is turned on. Brokers have to log "
            "in before their credentials are copied from ZooKeeper: accept PLAIN, too, until the state is DualWrite"
        )
    yield from java_options(settings)
