"""What has to hold between settings, as a table of small checks; the first that fails is refused.

Source: ``KafkaConfig.validateValues``, ``RaftManager``, docs/ops (migration), and this project's own limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from migrator.config.endpoints import parse_host_port
from migrator.config.settings import Settings
from migrator.config.types import split_list
from migrator.errors import OperatorError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

Problem = tuple[str, str, str]
"""(key, what is wrong with its value, remedy)."""


def check_settings(settings: Settings) -> list[str]:
    """Refuse settings that can't work together.

    :returns: warnings.
    :raises OperatorError: for the first problem, with file, key, value and remedy.
    """
    for key, what, remedy in problems_of(settings):
        raise OperatorError(what, where=f"{settings.source}: {key}", remedy=remedy)
    return warnings_of(settings)


def problems_of(settings: Settings) -> Iterator[Problem]:
    """Everything that the checks find; a check that needs what an earlier one refused ends it."""
    refused = False
    for check in CHECKS:
        try:
            for problem in check(settings):
                refused = True
                yield problem
        except ValueError:
            if refused:
                return
            raise


def warnings_of(settings: Settings) -> list[str]:
    """What works, but hardly as meant; one sentence each."""
    return [f"{settings.source}: {text}" for text in _warnings(settings)]


def _roles(settings: Settings) -> Iterator[Problem]:
    roles = settings.process_roles
    if "controller" not in roles:
        yield "process.roles", f"{','.join(roles) or 'empty'} has no controller", "Set process.roles=controller"
    elif roles != ("controller",):
        why = "which Kafka forbids during a migration" if settings.zookeeper_metadata_migration_enable else "no broker"
        yield (
            "process.roles",
            f"{','.join(roles)} asks for a combined node, {why}: migrator is a controller only",
            "Set process.roles=controller and run the broker with Kafka",
        )


def _identity(settings: Settings) -> Iterator[Problem]:
    if settings.node_id < 0:
        yield "node.id", "is not set", "Set the id under which controller.quorum.voters names this node"
    log_dirs = split_list(settings.log_dirs or settings.log_dir)
    if not log_dirs:
        yield "log.dirs", "is empty", "Set one directory for the metadata log"


def _quorum(settings: Settings) -> Iterator[Problem]:
    try:
        voters = settings.voters
    except ValueError as error:
        yield "controller.quorum.voters", str(error), "Write id@host:port, separated by commas"
        return
    if not voters:
        remedy = "Set id@host:port of each controller, separated by commas"
        if settings.controller_quorum_bootstrap_servers:
            remedy += " (a dynamic quorum by controller.quorum.bootstrap.servers needs brokers from 3.9 on: not here)"
        yield "controller.quorum.voters", "is not set", remedy
    elif settings.node_id not in {voter.voter_id for voter in voters}:
        yield (
            "controller.quorum.voters",
            f"does not name this node, {settings.node_id}",
            f"Add {settings.node_id}@host:port, or correct node.id",
        )


def _listeners(settings: Settings) -> Iterator[Problem]:
    if not settings.controller_listeners:
        yield "controller.listener.names", "is not set", "Set it, for example to CONTROLLER"
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
    bound = {listener.name for listener in settings.parsed_listeners}
    if missing := [name for name in settings.controller_listeners[:1] if name not in bound]:
        yield "listeners", f"has no listener {missing[0]}", f"Add {missing[0]}://host:port, a controller.listener.name"
    if extra := sorted(bound - set(settings.controller_listeners)):
        yield "listeners", f"{extra[0]} is not a controller listener", "List only controller.listener.names"


def _java_classes(settings: Settings) -> Iterator[Problem]:
    for key, name, accepted in (
        ("create.topic.policy.class.name", settings.create_topic_policy_class_name, ""),
        ("alter.config.policy.class.name", settings.alter_config_policy_class_name, ""),
        ("authorizer.class.name", settings.authorizer_class_name, STANDARD_AUTHORIZER),
        ("principal.builder.class", settings.principal_builder_class, DEFAULT_PRINCIPAL_BUILDER),
    ):
        if name and name != accepted:
            instead = f", or use {accepted}" if accepted else ""
            yield key, f"{name} is a Java class, which can't run here", f"Remove the key for the migration{instead}"


def _migration(settings: Settings) -> Iterator[Problem]:
    if not settings.zookeeper_metadata_migration_enable:
        return
    if not settings.zookeeper_connect:
        remedy = (
            "Set host:port[,host:port][/chroot]; to end a migration, remove zookeeper.metadata.migration.enable too"
        )
        yield "zookeeper.connect", "is not set, while the migration is turned on", remedy
    name = settings.broker_rpc_listener
    if name not in settings.protocol_map:
        key = "inter.broker.listener.name" if settings.inter_broker_listener_name else "security.inter.broker.protocol"
        yield (
            key,
            f"listener {name} has no entry in listener.security.protocol.map",
            "Copy inter.broker.listener.name and its entry of listener.security.protocol.map from the brokers",
        )


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
    if named and named != {voter.voter_id for voter in settings.voters}:
        yield "migrator.grpc.voters", "names other ids than controller.quorum.voters", "Name the same voters in both"
    if named and not settings.migrator_grpc_listener:
        yield "migrator.grpc.listener", "is not set, while migrator.grpc.voters is", "Set this node's own host:port"


CHECKS: tuple[Callable[[Settings], Iterator[Problem]], ...] = (
    _roles,
    _identity,
    _quorum,
    _listeners,
    _java_classes,
    _migration,
    _own,
)


def _warnings(settings: Settings) -> Iterator[str]:
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        yield "broker.session.timeout.ms: is below two heartbeats, brokers will be fenced for a single late one"
    if settings.zookeeper_metadata_migration_enable and not settings.inter_broker_listener_name:
        yield (
            "inter.broker.listener.name: is not set, brokers will be sought on their "
            f"{settings.broker_rpc_listener} listener; copy it from the brokers if they set it"
        )
    if settings.authorizer_class_name and not settings.super_users and len(settings.voters) > 1:
        yield (
            "super.users: is empty, while authorizer.class.name is set. Access control entries are known only once a "
            "leader is elected, and without them no controller may vote after all were stopped. Name the principals of "
            "the controllers in super.users"
        )
    if settings.zookeeper_metadata_migration_enable and settings.password_encoder_secret is None:
        yield "password.encoder.secret: is not set; encoded passwords in ZooKeeper, if there are any, stop the copy"
