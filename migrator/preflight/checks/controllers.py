"""M2xx: the controllers, by their property files and directories. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy. A check says whether it concerns our controllers, Kafka's, or both. Where evidence is missing, only M201,
M209 and M210 find something.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.endpoints import parse_host_port
from migrator.config.kafkas_controller import refused_by_kafka
from migrator.config.key_uses import concerns_this_program_only
from migrator.config.keys import AUTHORIZER, FLAG, VOTERS
from migrator.config.reading import means_the_same
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Concerns, Found, PreflightCheck
from migrator.preflight.evidence import ControllerFile, Evidence
from migrator.records.metadata import ZkMigrationState
from migrator.records.versions import LATEST_SUPPORTED, MinLevel, version_at

JAVA_CLASS_KEYS = (
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    AUTHORIZER,
    "principal.builder.class",
)
"""Keys that only our controllers refuse; a check in `security` finds them."""
RUNS_WITH_IT = (
    "A controller runs with this log: find out which cluster it serves. Only if none needs it, stop it, move the "
    "directory away and format a new one"
)
_OURS = "migrator."
_BEFORE_COPY = {ZkMigrationState.PRE_MIGRATION.name}


def no_controller(evidence: Evidence) -> Iterator[Found]:
    if not evidence.controllers:
        yield Found("-c", "no property file of a controller could be used: most checks had nothing to look at")


def refused_file(evidence: Evidence) -> Iterator[Found]:
    for trouble in evidence.refused_files:
        yield Found(trouble.where, trouble.what, trouble.remedy)


def refused_settings(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for key, what, remedy in controller.problems:
            if key not in JAVA_CLASS_KEYS and not key.startswith(_OURS) and not concerns_this_program_only(key):
                yield Found(controller.file.at(key), what, remedy, (controller.who,))


def refused_own_settings(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for key, what, remedy in controller.problems:
            if key.startswith(_OURS):
                yield Found(controller.file.at(key), what, remedy, (controller.who,))


def doubtful_settings(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for sentence in controller.warnings:
            key, _, what = sentence.removeprefix(f"{controller.path}: ").partition(": ")
            yield Found(controller.file.at(key), what, hosts=(controller.who,))


def clashing_ids(evidence: Evidence) -> Iterator[Found]:
    """Find voters with the id of a broker: within a cluster, an id may belong to one node only."""
    known: dict[int, str] = {}
    if evidence.zookeeper is not None:
        known |= dict.fromkeys(evidence.zookeeper.topics.replicas, "the assignments in ZooKeeper")
        known |= dict.fromkeys(evidence.zookeeper.brokers, "a registration in /brokers/ids")
    known |= {broker.broker_id: broker.path for broker in evidence.brokers if broker.broker_id is not None}
    for controller in evidence.controllers:
        for voter in controller.voters:
            if voter.voter_id in known:
                yield Found(
                    controller.file.at("controller.quorum.voters"),
                    f"it has the id of a broker, by {known[voter.voter_id]}",
                    hosts=(f"controller {voter.voter_id}",),
                )
        if not controller.voters and controller.node_id in known:
            yield Found(
                controller.file.at("node.id"),
                f"it has the id of a broker, by {known[controller.node_id]}",
                hosts=(controller.who,),
            )


def quarrelling_files(evidence: Evidence) -> Iterator[Found]:
    """Find controllers whose files do not make one quorum together."""
    seen: dict[int, ControllerFile] = {}
    for controller in evidence.controllers:
        if controller.node_id in seen:
            what = f"{seen[controller.node_id].path} has {controller.node_id}, too"
            yield Found(controller.file.at("node.id"), what, hosts=(controller.who,))
        seen[controller.node_id] = controller
    for controller in evidence.controllers[1:]:
        first = evidence.controllers[0]
        for key in ("controller.quorum.voters", "migrator.grpc.voters", "migrator.grpc.voter.principals"):
            if not means_the_same(key, controller.file.get(key), first.file.get(key)):
                yield Found(
                    controller.file.at(key),
                    f"it has {controller.file.shown(key)}, but {first.who} {first.file.shown(key)} ({first.path})",
                    hosts=(controller.who,),
                )


def accidental_end(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        if not controller.settings.zookeeper_metadata_migration_enable:
            what = "it does not have the migration on"
            yield Found(controller.file.at(FLAG), what, hosts=(controller.who,))


def voters_not_seen(evidence: Evidence) -> Iterator[Found]:
    if not evidence.controllers:
        return
    first = evidence.controllers[0]
    seen = {controller.node_id for controller in evidence.controllers}
    for voter in first.voters:
        if voter.voter_id not in seen:
            yield Found(
                first.file.at("controller.quorum.voters"),
                "no file was given of it: whether it has the migration on was not seen",
                hosts=(f"controller {voter.voter_id}",),
            )


def not_formatted(evidence: Evidence) -> Iterator[Found]:
    cluster_id = None if evidence.zookeeper is None else evidence.zookeeper.standing.cluster_id
    for controller in evidence.controllers:
        if controller.directory.identity is None and controller.directory.path:
            remedy = f"Format it with --cluster-id {cluster_id} on its machine, or run preflight there"
            what = "it has no formatted directory on this machine"
            yield Found(controller.directory.path, what, remedy if cluster_id else "", (controller.who,))


def wrong_directory(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        identity = controller.directory.identity
        if identity is not None and identity.node_id != controller.node_id:
            yield Found(
                controller.directory.path,
                f"it belongs to node {identity.node_id}, the file says {controller.node_id}",
                hosts=(controller.who,),
            )


def used_log(evidence: Evidence) -> Iterator[Found]:
    """A log that was used for more than waiting for this migration, while a ZooKeeper broker is the controller. Without
    a look at ZooKeeper it may be the cluster's only metadata."""
    if evidence.zookeeper is None or evidence.zookeeper.is_migrating:
        return
    for controller in evidence.controllers:
        state = controller.directory.log_state
        if state is None or state in _BEFORE_COPY:
            continue
        origin = "comes from an earlier migration"
        if state == ZkMigrationState.NONE.name:
            origin = f"was begun without {FLAG}=true, for a cluster in KRaft mode"
        what = f"its log {origin} (migration state {state}), but ZooKeeper records no copy"
        remedy = RUNS_WITH_IT if controller.directory.in_use else ""
        yield Found(controller.directory.path, what, remedy, (controller.who,))


def unfit_level(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        level = controller.directory.level
        if level is not None and not MinLevel.TRANSACTIONS <= level <= LATEST_SUPPORTED:
            yield Found(
                controller.directory.path,
                f"it has metadata.version {version_at(level).name}; a migration needs "
                f"{version_at(MinLevel.TRANSACTIONS).name} to {version_at(LATEST_SUPPORTED).name}",
                hosts=(controller.who,),
            )


def differing_levels(evidence: Evidence) -> Iterator[Found]:
    known = [controller for controller in evidence.controllers if controller.directory.level is not None]
    for controller in known[1:]:
        if controller.directory.level != known[0].directory.level:
            yield Found(
                controller.directory.path,
                f"it has metadata.version {_name(controller)}, {known[0].who} {_name(known[0])}",
                hosts=(controller.who,),
            )


def level_without_tokens(evidence: Evidence) -> Iterator[Found]:
    """Find directories with a metadata.version below 3.6-IV2, which has no delegation tokens."""
    if evidence.zookeeper is None or not evidence.zookeeper.tokens.count:
        return
    for controller in evidence.controllers:
        level = controller.directory.level
        if level is not None and MinLevel.TRANSACTIONS <= level < MinLevel.DELEGATION_TOKENS:
            yield Found(
                controller.directory.path,
                f"it has metadata.version {version_at(level).name}, which has no delegation tokens; ZooKeeper holds "
                f"{evidence.zookeeper.tokens.count:,}",
                hosts=(controller.who,),
            )


def refused_at_the_hand_over(evidence: Evidence) -> Iterator[Found]:
    """Find keys that stop a stock controller, but not ours: they would show only after ours has stopped."""
    for controller in evidence.controllers:
        known = {key: text for key, text in controller.file.values.items() if key not in controller.file.hidden}
        for key, what, remedy in refused_by_kafka(known):
            yield Found(controller.file.at(key), what, remedy, hosts=(controller.who,))


def _name(controller: ControllerFile) -> str:
    return version_at(controller.directory.level or 0).name


ADVERTISED, GRPC_VOTERS, GRPC_LISTENER = "advertised.listeners", "migrator.grpc.voters", "migrator.grpc.listener"
ANY_PORT = 0


def another_port(evidence: Evidence) -> Iterator[Found]:
    """A controller's own entry among the voters names another port than its listener. Kafka never compares them: the
    others wait for it in vain. Hosts are not compared: one host has several names."""
    for controller in evidence.controllers:
        for key, opened_by, named, opened in (*_of_kafka(controller), *_of_grpc(controller)):
            if opened not in (named, ANY_PORT):
                what = f"its own entry names port {named}, and {opened_by} has port {opened}"
                yield Found(controller.file.at(key), what, hosts=(controller.who,))


def _of_kafka(controller: ControllerFile) -> Iterator[tuple[str, str, int, int]]:
    """The key of the voters, the source of the open port, the port by the voters, and the open port."""
    try:
        listeners = controller.settings.advertised_controller_listeners
    except ValueError:  # another finding refuses the listeners already
        return
    own = [voter for voter in controller.voters if voter.voter_id == controller.node_id]
    if own and listeners:
        first = listeners[0]
        told = (controller.settings.advertised_listeners or "").upper()
        key = ADVERTISED if f"{first.name}://" in told else "listeners"
        yield VOTERS, f"{first.name} in {key}", own[0].port, first.port


def _of_grpc(controller: ControllerFile) -> Iterator[tuple[str, str, int, int]]:
    """Like `_of_kafka`, for the quorum's gRPC."""
    settings = controller.settings
    try:
        port = parse_host_port(settings.migrator_grpc_listener)[1]
        voters = settings.grpc_voters
    except ValueError:  # not set, or refused already
        return
    for voter in voters:
        if voter.voter_id == controller.node_id:
            yield GRPC_VOTERS, GRPC_LISTENER, voter.port, port


CHECKS = (
    PreflightCheck(
        "M201", Severity.BLOCKER, "No controller to look at", no_controller,
        "Correct the file, and give the property file of a controller",
    ),
    PreflightCheck(
        "M202", Severity.BLOCKER, "A value in a controller's file cannot be used", refused_file,
        "Correct the value", of_host=True,
    ),
    PreflightCheck(
        "M203", Severity.BLOCKER, "Settings of a controller that contradict each other", refused_settings,
        "Correct the settings; process.roles=broker,controller, for one, is refused during a migration",
    ),
    PreflightCheck(
        "M204", Severity.BLOCKER, "Settings of this program that contradict each other", refused_own_settings,
        "Correct the settings", Concerns.OURS,
    ),
    PreflightCheck(
        "M205", Severity.WARNING, "Doubtful settings of a controller", doubtful_settings,
        "Check whether you intend this setting",
    ),
    PreflightCheck(
        "M206", Severity.BLOCKER, "Node ids clash", clashing_ids,
        "Give the controllers ids that no broker has or had, 3001 and so on",
    ),
    PreflightCheck(
        "M207", Severity.BLOCKER, "Controllers' files do not make one quorum", quarrelling_files,
        "Give each controller its own node.id, and all the same voters",
    ),
    PreflightCheck(
        "M208", Severity.BLOCKER, "A voter could finish the migration by accident", accidental_end,
        "Set zookeeper.metadata.migration.enable=true on every controller until the migration is to be finished",
    ),
    PreflightCheck(
        "M209", Severity.WARNING, "Voters that were not looked at", voters_not_seen,
        "Give the file of each voter with -c, or run preflight on its machine",
    ),
    PreflightCheck(
        "M210", Severity.WARNING, "Not formatted", not_formatted,
        "Format it with the id in /cluster/id, or run preflight on that machine",
    ),
    PreflightCheck(
        "M211", Severity.BLOCKER, "Another node's directory", wrong_directory,
        "Correct node.id, or the directory",
    ),
    PreflightCheck(
        "M212", Severity.BLOCKER, "A log that is not fresh", used_log,
        "Empty the controllers' directories and format them anew: a migration starts from an empty log",
    ),
    PreflightCheck(
        "M213", Severity.BLOCKER, "metadata.version does not suit a migration", unfit_level,
        "Empty the directory, and format it with --release-version 3.6 to 3.9 as the brokers have it (KAFKA-17457)",
    ),
    PreflightCheck(
        "M214", Severity.BLOCKER, "Controllers formatted differently", differing_levels,
        "Format all with the same --release-version. Otherwise the first elected leader decides which version counts",
    ),
    PreflightCheck(
        "M215", Severity.BLOCKER, "metadata.version without delegation tokens", level_without_tokens,
        "Empty the directory, and format it with --release-version 3.6-IV2 or later; the brokers need the same",
    ),
    PreflightCheck(
        "M216", Severity.WARNING, "Kafka's own controller does not start with this file", refused_at_the_hand_over,
        "Correct the setting before Kafka's controllers take over",
    ),
    PreflightCheck(
        "M217", Severity.WARNING, "Other controllers would look for a controller at a port that it does not open",
        another_port,
        "Correct the port in the one or the other, in every file that has it. If a proxy or a container maps the port, "
            "say so with advertised.listeners (Kafka 3.9 and this program)", asks=True,
    ),
)  # fmt: skip
