"""M1xx: brokers, by their registrations in ZooKeeper, their property files, and their answers. Pure.

Each function takes the evidence and yields a case for each fault; `CHECKS` at the end gives it number, severity, title
and remedy, and `preflight.table` lists them. Where evidence is missing a check finds nothing. docs/checks.md is made of
the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.config.endpoints import ZooKeeperAddress, parse_zookeeper_connect
from migrator.config.kafkas_broker import controllers_protocol
from migrator.config.key_uses import misspelt_in
from migrator.config.keys import CONNECT, FLAG, IBP, SERVERS, VOTERS
from migrator.config.reading import listener_names, log_directories
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Concerns, Found, PreflightCheck, of_zookeeper
from migrator.preflight.checks.broker_threads import refused_in_kraft
from migrator.preflight.evidence import BrokerFile, ControllerFile, Evidence, ZooKeeperFacts
from migrator.records.metadata import SecurityProtocol
from migrator.records.versions import MinLevel, version_at
from migrator.wire.raft_transport import READS_VOTERS_SINCE
from migrator.wire.schemas import FETCH, LEADER_AND_ISR
from migrator.zookeeper.znodes import paths

FIRST_GENERATED_ID = 1001
ADD_PARTITIONS_TO_TXN, VERSION_OF_3_6 = 24, 4
"""The only API whose versions tell a broker of 3.6 from an older one."""
ZOOKEEPER_KEYS = ("zookeeper.set.acl", "zookeeper.ssl.client.enable")
QUORUM_KEYS = (VOTERS, SERVERS)
"""Each of these keys gives a broker the addresses of the controllers."""


@of_zookeeper
def none_registered(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    if not zookeeper.brokers:
        yield Found(paths.BROKER_IDS, "no broker is registered")


@of_zookeeper
def absent(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    for broker_id in sorted(zookeeper.topics.replicas.keys() - zookeeper.brokers.keys()):
        yield Found(paths.BROKER_IDS, "it holds replicas, but is not registered", hosts=(f"broker {broker_id}",))


@of_zookeeper
def only_configured(zookeeper: ZooKeeperFacts) -> Iterator[Found]:
    for broker_id in sorted(zookeeper.configured_brokers - zookeeper.brokers.keys() - zookeeper.topics.replicas.keys()):
        yield Found(
            f"{paths.BROKER_CONFIGS}/{broker_id}",
            "it has a dynamic configuration, but neither runs nor holds replicas",
            hosts=(f"broker {broker_id}",),
        )


def wrong_listener(evidence: Evidence) -> Iterator[Found]:
    """Find controllers whose file names a listener that the brokers do not have, or have with another protocol."""
    if evidence.zookeeper is None:
        return
    for controller in evidence.controllers:
        name = controller.settings.broker_rpc_listener
        for broker_id, broker in sorted(evidence.zookeeper.brokers.items()):
            ends = {end.name.upper(): SecurityProtocol(end.security_protocol).name for end in broker.endpoints}
            hosts = (controller.who, f"broker {broker_id}")
            if name not in ends:
                yield Found(
                    controller.file.at("inter.broker.listener.name"),
                    f"controllers would talk to brokers on {name}, but brokers have "
                    f"{', '.join(sorted(ends)) or 'no listener'}",
                    hosts=hosts,
                )
            elif controller.protocols.get(name, ends[name]) != ends[name]:
                yield Found(
                    controller.file.at("listener.security.protocol.map"),
                    f"controllers map {name} to {controller.protocols[name]}, brokers to {ends[name]}",
                    "Copy the entry of the brokers",
                    hosts,
                )


def control_plane(evidence: Evidence) -> Iterator[Found]:
    key = "control.plane.listener.name"
    for broker in evidence.brokers:
        if not broker.file.sets(key):
            continue
        for controller in evidence.controllers:
            if controller.file.get(key).upper() != broker.file.get(key).upper():
                yield Found(
                    controller.file.at(key),
                    f"it is {controller.file.shown(key)} on controllers, but brokers expect their controller on "
                    f"{broker.file.get(key)}",
                    hosts=(controller.who, broker.who),
                )


def control_plane_of_controllers(evidence: Evidence) -> Iterator[Found]:
    key = "control.plane.listener.name"
    for controller in evidence.controllers:
        if controller.file.sets(key):
            yield Found(controller.file.at(key), f"it is {controller.file.get(key)}", hosts=(controller.who,))


def control_plane_in_kraft(evidence: Evidence) -> Iterator[Found]:
    key = "control.plane.listener.name"
    for broker in evidence.brokers:
        if broker.file.sets(key):
            what = "it has a control-plane listener, which KRaft mode refuses"
            yield Found(broker.file.at(key), what, hosts=(broker.who,))


def old_protocol_version(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        unknown = broker.level is None and broker.file.sets(IBP)
        if unknown or (broker.level is not None and broker.level < MinLevel.TRANSACTIONS):
            doubt = ", before 3.0 or unknown" if unknown else ""
            what = f"it has {broker.file.get(IBP)}{doubt}: a migration needs 3.6-IV1"
            yield Found(broker.file.at(IBP), what, hosts=(broker.who,))


def unpinned_protocol_version(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        if not broker.file.sets(IBP):
            what = "it does not set the key: that of its own release counts then"
            yield Found(broker.file.at(IBP), what, hosts=(broker.who,))


def differing_protocol_versions(evidence: Evidence) -> Iterator[Found]:
    """Find brokers that differ from each other, or from the version of a controller's directory."""
    known = [broker for broker in evidence.brokers if broker.level is not None]
    for broker in known[1:]:
        if broker.level != known[0].level:
            yield Found(
                broker.file.at(IBP),
                f"it has {broker.file.get(IBP)}, {known[0].who} {known[0].file.get(IBP)}",
                hosts=(broker.who,),
            )
    for controller in evidence.controllers:
        level = controller.directory.level
        for broker in known:
            if level is not None and level != broker.level:
                yield Found(
                    broker.file.at(IBP),
                    f"brokers have {broker.file.get(IBP)}, but controllers were formatted with metadata.version "
                    f"{version_at(level).name}",
                    hosts=(broker.who, controller.who),
                )


def several_directories(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        directories = log_directories(broker.file.values)
        if len(directories) > 1 and (broker.level or 0) < MinLevel.DIRECTORY_ASSIGNMENT and broker.file.sets(IBP):
            yield Found(
                broker.file.at("log.dirs"),
                f"it has {len(directories)} log directories with {IBP} {broker.file.get(IBP)}",
                hosts=(broker.who,),
            )


def generated_ids(evidence: Evidence) -> Iterator[Found]:
    for broker in evidence.brokers:
        if broker.broker_id is None:
            ids = sorted({identity.node_id for _, identity in broker.identities})
            known = f"; its directories say {', '.join(map(str, ids))}" if ids else ""
            yield Found(broker.file.at("broker.id"), f"it is {broker.file.shown('broker.id')}: generated{known}")


def maybe_generated_ids(evidence: Evidence) -> Iterator[Found]:
    """Find brokers with ids that Kafka may have generated, among those whose files were not given."""
    if evidence.zookeeper is None or not evidence.zookeeper.ids_generated:
        return
    with_files = {broker.broker_id for broker in evidence.brokers}
    for broker_id in sorted(evidence.zookeeper.brokers.keys() - with_files):
        if broker_id >= FIRST_GENERATED_ID:
            what = "it looks like one of the broker ids that ZooKeeper gave out"
            yield Found("/brokers/seqid", what, hosts=(f"broker {broker_id}",))


def not_prepared(evidence: Evidence) -> Iterator[Found]:
    """Find property files that lack keys for the roll into migration mode."""
    for broker in evidence.brokers:
        if _cannot_start(broker):
            continue
        needed = {
            FLAG: broker.file.is_on(FLAG),
            "controller.quorum.voters": any(map(broker.file.sets, QUORUM_KEYS)),
            "controller.listener.names": broker.file.sets("controller.listener.names"),
        }
        missing = [key for key, is_set in needed.items() if not is_set]
        if missing:
            what = f"it is not prepared: it lacks {', '.join(missing)}{_misspelt(broker, missing)}"
            yield Found(broker.file.at(missing[0]), what, hosts=(broker.who,))


def half_prepared(evidence: Evidence) -> Iterator[Found]:
    """Files that fit neither the time before the migration nor the migration, so that Kafka does not start with
    them."""
    for broker in filter(_cannot_start, evidence.brokers):
        what = (
            f"Kafka refuses to start with this file: it sets controller.listener.names, and lacks {FLAG}=true"
            f"{_misspelt(broker, [FLAG])}"
        )
        yield Found(broker.file.at(FLAG), what, hosts=(broker.who,))


def _cannot_start(broker: BrokerFile) -> bool:
    """Whether Kafka refuses the file: ``controller.listener.names`` in ZooKeeper mode (``KafkaConfig``)."""
    file = broker.file
    is_kraft = file.sets("process.roles")
    migrates = file.is_on(FLAG) or FLAG in file.hidden
    return file.sets("controller.listener.names") and not is_kraft and not migrates


def _misspelt(broker: BrokerFile, missing: Sequence[str]) -> str:
    written = [name for key in missing if (name := misspelt_in(broker.file.values, key))]
    return f" (it sets {', '.join(written)}, which Kafka does not know)" if written else ""


def wrong_quorum(evidence: Evidence) -> Iterator[Found]:
    """Find brokers whose files name another quorum than the controllers."""
    if not evidence.controllers:
        return
    controller = evidence.controllers[0]
    for broker in evidence.brokers:
        if broker.file.sets("controller.quorum.voters") and broker.voters != controller.voters:
            yield Found(
                broker.file.at("controller.quorum.voters"),
                f"it names {broker.file.get('controller.quorum.voters')}, {controller.who} "
                f"{controller.file.get('controller.quorum.voters')}",
                hosts=(broker.who,),
            )
        names = [name.upper() for name in listener_names(broker.file.get("controller.listener.names"))]
        if not names:
            continue
        ours = controller.settings.controller_listeners
        protocol = controller.protocols.get(names[0])
        if names[0] not in ours:
            yield Found(
                broker.file.at("controller.listener.names"),
                f"it looks for the listener {names[0]}, {controller.who} has {', '.join(ours) or 'none'}",
                hosts=(broker.who,),
            )
        elif (spoken := controllers_protocol(broker.file.values)) not in (None, protocol):
            yield Found(
                broker.file.at("listener.security.protocol.map"),
                f"it would speak {spoken} to the listener {names[0]}, {controller.who} speaks {protocol}",
                hosts=(broker.who,),
            )


def other_zookeeper(evidence: Evidence) -> Iterator[Found]:
    """Find files with another chroot than preflight read: another chroot is another cluster."""
    for it in _connected(evidence):
        text = it.file.get(CONNECT)
        if evidence.zookeeper is not None and _address(text).chroot != _address(evidence.zookeeper.hosts).chroot:
            what = f"it has {text}, but preflight read {evidence.zookeeper.hosts}"
            yield Found(it.file.at(CONNECT), what, hosts=(it.who,))


def other_servers(evidence: Evidence) -> Iterator[Found]:
    for it in _connected(evidence):
        text = it.file.get(CONNECT)
        if evidence.zookeeper is None:
            continue
        here, there = _address(text), _address(evidence.zookeeper.hosts)
        if here.chroot == there.chroot and not {*here.servers} & {*there.servers}:
            what = f"it has {text}, but preflight read {evidence.zookeeper.hosts}"
            yield Found(it.file.at(CONNECT), what, hosts=(it.who,))


def differing_zookeeper_settings(evidence: Evidence) -> Iterator[Found]:
    for controller in evidence.controllers:
        for broker in evidence.brokers:
            for key in ZOOKEEPER_KEYS:
                if controller.file.is_on(key) != broker.file.is_on(key):
                    yield differs(key, controller, controller.file.get(key), broker, broker.file.get(key))


def old_logs(evidence: Evidence) -> Iterator[Found]:
    """Find metadata logs of earlier attempts. None while a migration may run, which uses these logs."""
    zookeeper = evidence.zookeeper
    if zookeeper is None or zookeeper.is_migrating or any(it.directory.in_use for it in evidence.controllers):
        return
    for broker in evidence.brokers:
        for path in broker.old_logs:
            yield Found(path, "it keeps a metadata log of an earlier attempt (KAFKA-16463)", hosts=(broker.who,))


def wrong_files(evidence: Evidence) -> Iterator[Found]:
    seen: dict[int, BrokerFile] = {}
    for broker in evidence.brokers:
        if broker.broker_id is None:
            continue
        if broker.broker_id in seen:
            what = f"{seen[broker.broker_id].path} has {broker.broker_id}, too"
            yield Found(broker.file.at("broker.id"), what, hosts=(broker.who,))
        seen[broker.broker_id] = broker
        for directory, identity in broker.identities:
            if identity.node_id != broker.broker_id:
                what = f"it belongs to broker {identity.node_id}, the file says {broker.broker_id}"
                yield Found(directory, what, hosts=(broker.who,))


def too_old(evidence: Evidence) -> Iterator[Found]:
    for broker_id, answer in sorted(evidence.machine.answers.items()):
        if answer.apis is None:
            continue
        highest, hosts = answer.apis.get(ADD_PARTITIONS_TO_TXN, -1), (f"broker {broker_id}",)
        if LEADER_AND_ISR not in answer.apis:
            yield Found(answer.address, "it does not take LeaderAndIsr: no ZooKeeper mode", hosts=hosts)
        elif highest < VERSION_OF_3_6:
            what = f"it is older than Kafka 3.6 (AddPartitionsToTxn up to version {highest})"
            yield Found(answer.address, what, hosts=hosts)


def cannot_read_voters(evidence: Evidence) -> Iterator[Found]:
    """Find brokers that cannot read voters in the log, when the controllers keep them there (KIP-853)."""
    dynamic = [
        controller
        for controller in evidence.controllers
        if controller.file.sets(QUORUM_KEYS[1]) and not controller.file.sets(QUORUM_KEYS[0])
    ]
    if not dynamic:
        return
    for broker_id, answer in sorted(evidence.machine.answers.items()):
        highest = None if answer.apis is None else answer.apis.get(FETCH, -1)
        if highest is not None and highest < READS_VOTERS_SINCE[FETCH]:
            yield Found(
                answer.address,
                f"it is older than Kafka 3.9 (Fetch up to version {highest}), and {dynamic[0].who} has no "
                "controller.quorum.voters: the log will hold the voters, which such a broker cannot read",
                hosts=(f"broker {broker_id}",),
            )


def unreachable(evidence: Evidence) -> Iterator[Found]:
    for broker_id, answer in sorted(evidence.machine.answers.items()):
        if answer.apis is None:
            yield Found(answer.address, f"it does not answer here: {answer.fault}", hosts=(f"broker {broker_id}",))


def differs(key: str, controller: ControllerFile, one: str, broker: BrokerFile, other: str) -> Found:
    """The finding for a key that controllers should set as brokers do."""
    return Found(
        controller.file.at(key),
        f"{key} is {one or '(not set)'} on controllers, {other or '(not set)'} on brokers",
        hosts=(controller.who, broker.who),
    )


def _connected(evidence: Evidence) -> Iterator[ControllerFile | BrokerFile]:
    """The nodes whose files set zookeeper.connect."""
    return (it for it in evidence.nodes if it.file.get(CONNECT))


def _address(text: str) -> ZooKeeperAddress:
    """The parsed address; one that cannot be parsed is kept as it is written."""
    try:
        return parse_zookeeper_connect(text)
    except ValueError:
        return ZooKeeperAddress((text,), "".join(text.partition("/")[1:]))


CHECKS = (
    PreflightCheck(
        "M101", Severity.BLOCKER, "No broker is registered", none_registered,
        "Start the brokers: a migration begins only while brokers run",
    ),
    PreflightCheck(
        "M102", Severity.BLOCKER, "Brokers that hold replicas do not run", absent,
        "Start the broker: the copy waits for it. If the broker will never come back, move its replicas to other "
            "brokers",
    ),
    PreflightCheck(
        "M103", Severity.WARNING, "Configurations of brokers that are gone", only_configured,
        "If the broker is gone for good, delete its configuration with kafka-configs",
    ),
    PreflightCheck(
        "M104", Severity.BLOCKER, "Controllers would talk to a listener that brokers do not have", wrong_listener,
        "Give the controllers the inter.broker.listener.name (or control.plane.listener.name) and the "
        "listener.security.protocol.map of the brokers",
    ),
    PreflightCheck(
        "M105", Severity.BLOCKER, "Control-plane listeners differ", control_plane,
        "Set control.plane.listener.name on the controllers as on the brokers (KAFKA-17788)", Concerns.OURS,
    ),
    PreflightCheck(
        "M106", Severity.WARNING, "A control-plane listener", control_plane_in_kraft,
        "Remove the key from the file with which the broker starts in KRaft mode",
    ),
    PreflightCheck(
        "M107", Severity.BLOCKER, "inter.broker.protocol.version is too old", old_protocol_version,
        "Upgrade the brokers, and raise inter.broker.protocol.version to 3.6 or later in a roll of its own",
    ),
    PreflightCheck(
        "M108", Severity.WARNING, "inter.broker.protocol.version is not pinned", unpinned_protocol_version,
        "Set it to the metadata.version that the controllers are formatted with: brokers of several releases would "
        "not agree with the quorum",
    ),
    PreflightCheck(
        "M109", Severity.BLOCKER, "inter.broker.protocol.version is not metadata.version", differing_protocol_versions,
        "Set the same on all brokers, and format the controllers with --release-version of that value",
    ),
    PreflightCheck(
        "M110", Severity.BLOCKER, "Several log directories before 3.7-IV2", several_directories,
        "Raise inter.broker.protocol.version to 3.7 or later (KAFKA-16431), or leave the broker one directory",
    ),
    PreflightCheck(
        "M111", Severity.BLOCKER, "Generated broker ids", generated_ids,
        "Write the broker's id from meta.properties into broker.id (KAFKA-17042)",
    ),
    PreflightCheck(
        "M112", Severity.WARNING, "Broker ids that look generated", maybe_generated_ids,
        "Check that the broker's file sets broker.id, and give the file with --brokers",
    ),
    PreflightCheck(
        "M113", Severity.WARNING, "Brokers are not prepared", not_prepared,
        "Before the roll into migration mode, set zookeeper.metadata.migration.enable=true, controller.quorum.voters "
        "(or, if the voters are in the log, controller.quorum.bootstrap.servers) and controller.listener.names; and "
        "give that listener an entry in listener.security.protocol.map",
    ),
    PreflightCheck(
        "M114", Severity.BLOCKER, "Brokers are told of another quorum", wrong_quorum,
        "Copy controller.quorum.voters, controller.listener.names and the entry of listener.security.protocol.map "
        "from the controllers",
    ),
    PreflightCheck(
        "M116", Severity.BLOCKER, "Another chroot", other_zookeeper,
        "Set zookeeper.connect to what the brokers use, chroot included",
    ),
    PreflightCheck(
        "M117", Severity.WARNING, "Other ZooKeeper servers", other_servers,
        "Make sure that all of them are the same ensemble",
    ),
    PreflightCheck(
        "M118", Severity.WARNING, "ZooKeeper settings differ", differing_zookeeper_settings,
        "Copy the brokers' zookeeper.* settings to the controllers",
    ),
    PreflightCheck(
        "M119", Severity.WARNING, "A metadata log of an earlier attempt", old_logs,
        "If the controllers of a migration run already, the broker uses this log: leave it. Otherwise stop the broker "
        "and delete the directory before the broker starts in migration mode: one of 3.6 or 3.7.0 would go on with it, "
        "and may not register. Later ones delete it themselves, and 'migrator rollout' deletes it everywhere",
    ),
    PreflightCheck(
        "M120", Severity.BLOCKER, "Property files do not belong to their brokers", wrong_files,
        "Give each broker its own file and id",
    ),
    PreflightCheck(
        "M121", Severity.BLOCKER, "Brokers too old", too_old,
        "Upgrade the broker to 3.6 or later",
    ),
    PreflightCheck(
        "M122", Severity.WARNING, "Brokers that do not answer", unreachable,
        "Controllers must reach the listener of every broker. Check network, TLS and credentials, or run preflight "
            "on a controller's machine",
    ),
    PreflightCheck(
        "M123", Severity.WARNING, "Numbers of threads that KRaft brokers refuse", refused_in_kraft,
        "Before the migration, bring the dynamic number to between half and twice the one of the property file, or "
            "change the file. A broker in KRaft mode would run with the number of its file, and refuse every change of "
            "its configuration",
    ),
    PreflightCheck(
        "M124", Severity.BLOCKER, "Brokers that cannot read voters in the log", cannot_read_voters,
        "Upgrade the broker to 3.9, or set controller.quorum.voters on all controllers and brokers and format the "
            "controllers without --standalone and --initial-controllers; 'migrator quorum upgrade' comes later",
    ),
    PreflightCheck(
        "M125", Severity.BLOCKER, "Broker files that are prepared by half", half_prepared,
        "For the roll into migration mode, set zookeeper.metadata.migration.enable=true and controller.quorum.voters "
            "(or, if the voters are in the log, controller.quorum.bootstrap.servers). For a broker that is not to be "
            "prepared yet, remove controller.listener.names",
    ),
    PreflightCheck(
        "M126", Severity.BLOCKER, "A control-plane listener of controllers", control_plane_of_controllers,
        "Remove control.plane.listener.name from the controllers' files: Kafka's controllers do not start with it, and "
            "talk to the brokers on inter.broker.listener.name", Concerns.STOCK,
    ),
)  # fmt: skip
