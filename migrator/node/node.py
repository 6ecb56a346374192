"""One controller: everything put together, from its start to its end.

`migrator controller` and tests call `run_node`. An `AsyncExitStack` closes the parts in the opposite order of their
start, also when the start fails half-way. The controller listens before its disk is loaded (ADR 45), but stands for no
election until its disk shows that it may, and its peers, too, unless its log is empty and its migration flag is off. At
the end ZooKeeper catches up first, then the leadership is handed over, then servers and files close.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.endpoints import parse_host_port
from migrator.config.listen_errors import cannot_listen
from migrator.config.settings import Settings
from migrator.controller.context import SUPPORTED_FEATURES, Context
from migrator.controller.features import finalized_levels
from migrator.controller.mutation_quotas import MutationBuckets
from migrator.controller.quorum_target import target_of
from migrator.image.model import MetadataImage
from migrator.machine import Machine, machine, running_on
from migrator.node.access.accounts import PublishedAccounts
from migrator.node.access.audit import Audit
from migrator.node.access.connection_bounds import IpRates, connection_quotas, listener_limits
from migrator.node.access.dynamic_bounds import DynamicBounds
from migrator.node.access.own_principal import check_own_principal
from migrator.node.core import NodeCore, OpenedDirectory, node_addresses
from migrator.node.endpoint import ControllerEndpoint
from migrator.node.image_proof import JOURNAL_KIND as IMAGES_KIND
from migrator.node.metrics import LoopReader, node_health, reader
from migrator.node.migration.cluster import migrated_cluster
from migrator.node.migration.runtime import MigrationRuntime
from migrator.node.migration.start_check import check_start, stands_first
from migrator.node.migration.status import MigrationInsight
from migrator.node.migration.witnesses import Witnesses
from migrator.node.migration.write_gate import WriteGate
from migrator.node.orders import KafkaOrders, opened_journal
from migrator.node.own_threads import OWN_THREADS, OwnThreads
from migrator.node.propagation import KRaftPropagation
from migrator.node.quorum.describe import QuorumDescriber
from migrator.node.quorum.gossip import Gossip, GossipTransport
from migrator.node.quorum.roll_call import ElectionFacts, NotedTransport, RollCall, VoteNotes, noted
from migrator.node.quorum.transports import (
    EitherTransport,
    grpc_address,
    grpc_tls,
    kafka_transport,
    peer_clients,
    raft_transport,
)
from migrator.node.quorum.view import NodeQuorumView
from migrator.node.quorum.voter_change_apis import VOTER_CHANGE_APIS, VoterChangeApis
from migrator.node.quorum.voter_changes import OwnEntry
from migrator.node.reassignment import VoterReassignment
from migrator.node.refused_brokers import RefusedBrokers
from migrator.node.registration import ControllerRegistrar
from migrator.node.status_source import NodeStatusSource
from migrator.node.stop_reason import StoppedError, StopReason
from migrator.node.voter_orders import VoterOrders
from migrator.observe.beans import bean_reader
from migrator.observe.certificates import CertificateBook
from migrator.observe.doors import DoorCollector
from migrator.observe.health import NodeHealth
from migrator.observe.journal import Journal
from migrator.observe.logins import LoginBook
from migrator.observe.loop_health import LoopHealth
from migrator.observe.metrics import Reading, ReadingCollector
from migrator.observe.metrics_access import access_files
from migrator.observe.metrics_endpoint import MetricsEndpoint
from migrator.observe.propagation import PropagationMode, PropagationTimes
from migrator.observe.write_times import WriteTimes
from migrator.rpc.identity import Identities
from migrator.rpc.leader_over_kafka import answering
from migrator.rpc.operator_service import OperatorService, VotersService
from migrator.rpc.quorum_service import QuorumService
from migrator.rpc.server import GrpcServer, Service
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.wire.api_versions import OUR_FEATURE, OUR_FEATURE_RANGE, Features
from migrator.wire.aside import lanes
from migrator.wire.listener_settings import broker_security, controller_security, named_security
from migrator.wire.raft_transport import RaftService
from migrator.wire.schemas import DESCRIBE_QUORUM, SERVED_APIS, VersionRange
from migrator.wire.security import ListenerSecurity
from migrator.wire.server import KafkaListener
from migrator.wire.voters import VoterSignals

log = logging.getLogger(__name__)

REGISTRATION = TaskKind("controller-registration", OnError.RESTART)
OWN_ENTRY = TaskKind("own-voter-entry", OnError.RESTART)
GOSSIP = TaskKind("address-gossip", OnError.RESTART)
ROLL_CALL = TaskKind("roll-call", OnError.RESTART)
HAND_OVER_SECONDS = 5.0


class Notes:
    """The parts that note events for operators; the controller does not need them for its work."""

    def __init__(self, audit: Audit | None = None, orders: KafkaOrders | None = None) -> None:
        self.votes = VoteNotes()
        self.refused = RefusedBrokers()
        self.audit = audit
        self.orders = orders
        self.says: Callable[[str], Awaitable[bytes]] | None = None
        """Answers questions to the leader that come over Kafka's protocol."""


async def run_node(
    settings: Settings,
    failure: StopReason,
    *,
    own_machine: Machine | None = None,
    threads: OwnThreads = OWN_THREADS,
    when_ready: Callable[[], None] = lambda: None,
) -> None:
    """Run a controller until ``failure.stop`` is set, or it fails. The caller sets up what the whole process shares
    (signals, limits, the garbage collector).

    :param own_machine: a new machine: its counts and its threads belong to this controller.
    :param when_ready: called right before the log says that the controller is ready.
    :raises OperatorError: the controller can't start, or its disk fails; or it has stopped as ordered, but ZooKeeper
        lacks changes of the log (exit code 3).
    :raises InvariantViolation: the controller has found a wrong state of its own.
    """
    with running_on(own_machine or Machine()):
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lanes().close)
            with suppress(StoppedError):
                await _assemble(settings, failure, stack, threads)
                when_ready()
                log.info("Controller %d is ready for requests", settings.node_id)
            await failure.stop.wait()
            log.info("Stopping")
    if failure.error is not None:
        raise failure.error
    log.info("%s", failure.farewell)
    if failure.not_drained is not None:
        raise failure.not_drained


async def _assemble(
    settings: Settings, failure: StopReason, stack: AsyncExitStack, threads: OwnThreads = OWN_THREADS
) -> None:
    """Build and start everything; the stack closes it in the opposite order."""
    health = LoopHealth()
    security = controller_security(settings)
    check_own_principal(settings, security)
    directory = OpenedDirectory(settings)
    cluster_id = directory.identity.cluster_id
    addresses = node_addresses(settings, directory)
    gossip = Gossip(settings, addresses)
    transport = raft_transport(settings, cluster_id, addresses, gossip, security, threads.connect_grpc)
    stack.push_async_callback(transport.close)
    gate = WriteGate(settings)
    signals = VoterSignals(settings, addresses.voters, security, addresses.registered)
    stack.push_async_callback(signals.close)
    audit = _audit(settings, failure, threads, stack)
    journal = opened_journal(settings)
    stack.callback(journal.close)
    notes = Notes(audit, KafkaOrders(journal))
    core = NodeCore(
        settings,
        directory,
        NotedTransport(transport, notes.votes),
        on_failure=failure,
        admit=gate.admit,
        check=gate.check,
        ask_voter=signals.ask_one,
        addresses=addresses,
        has_address=lambda node_id: addresses.knows(node_id) or gossip.knows(node_id),
        ask_image=transport.grpc.image_digest if isinstance(transport, EitherTransport) else None,
    )
    stack.push_async_callback(core.close)  # closed after all parts that read the log
    core.boot()
    core.is_admitted = False
    times = PropagationTimes()
    insight = _migration(settings, core, times, gate, signals, journal, failure, stack)
    reassignment = _reassignment(settings, core, signals, journal, failure, stack)
    orders = VoterOrders(settings, core, reassignment, journal)
    roll = _roll_call(settings, core, signals, notes.votes)
    source = NodeStatusSource(settings, core, insight, journal.after, roll, notes.refused.current, journal)
    notes.says = answering(source)
    _serve_metrics(
        settings,
        LoopReader(reader(settings, core, insight, reassignment, health, audit.log), health),
        partial(node_health, core, health),
        times,
        insight.write_times,
        stack,
    )

    ports = await _serve_kafka(settings, cluster_id, core, notes, failure, stack)
    services: list[Service] = [OperatorService(source), VotersService(orders)]
    server = await _grpc(settings, core, gossip, notes, services, failure, threads)
    stack.push_async_callback(server.close)
    stack.push_async_callback(core.leave, HAND_OVER_SECONDS)
    following = KRaftPropagation(core, times, failure)
    stack.callback(following.close)
    core.start()
    stack.push_async_callback(_drain, insight, settings.migrator_write_behind_drain_ms / 1000, failure)
    supervisor = _introduce(settings, core, security, ports, roll, failure, stack)
    if isinstance(transport, EitherTransport):
        _gossip(core, gossip, transport.grpc, supervisor)
    health.start()
    stack.callback(health.stop)
    await failure.unless_stopped(_admit(settings, core, signals, security))


async def _admit(settings: Settings, core: NodeCore, signals: VoterSignals, security: ListenerSecurity) -> None:
    """Let this node stand for election, once its disk and its peers show that it may."""
    await core.metadata.loaded()
    own = core.metadata.image
    if stands_first(settings, own):
        core.admit()
    await _check_start(settings, core, own, signals, security)
    core.admit()


async def _check_start(
    settings: Settings, core: NodeCore, own: MetadataImage, signals: VoterSignals, security: ListenerSecurity
) -> None:
    addresses = core.addresses
    asking = kafka_transport(settings, addresses, security)
    voters = addresses.voter_ids
    others = (*sorted(voters - {settings.node_id}), *addresses.bootstrap_ids)
    try:
        await check_start(settings, own, core.cluster_id, asking, signals.ask, voters=voters, others=others)
    finally:
        await asking.close()


def _roll_call(settings: Settings, core: NodeCore, signals: VoterSignals, votes: VoteNotes) -> RollCall:
    """The voters that answer while there is no leader."""

    def facts(answers: Mapping[int, bool]) -> ElectionFacts:
        log_end = core.storage.log.end_offset()
        words = core.quorum.status().waits_for
        return ElectionFacts(
            settings.node_id,
            core.addresses.voter_ids,
            answers,
            (core.storage.log.last_epoch(), log_end),
            dict(votes.ends),
            frozenset(votes.refusing),
            waits_for_log=bool(words),
            words=words,
        )

    return RollCall(lambda: core.quorum.status().has_leader, signals.ask, facts, votes)


def _gossip(core: NodeCore, gossip: Gossip, peers: GossipTransport, supervisor: Supervisor) -> None:
    """Exchange gRPC addresses with our own nodes, at once when a node stands for election."""
    core.leadership.role_listeners.append(gossip.wake)
    core.leadership.address_listeners.append(gossip.wake)
    gossip.news_listeners.append(core.quorum.look_again)
    supervisor.keep(GOSSIP, partial(gossip.run, peers))


def _introduce(
    settings: Settings,
    core: NodeCore,
    security: ListenerSecurity,
    ports: Mapping[str, int],
    roll: RollCall,
    failure: StopReason,
    stack: AsyncExitStack,
) -> Supervisor:
    """Register with the leader, and look for a leader, again and again. Returns the supervisor of these tasks."""
    clients = peer_clients(core.addresses, security)
    stack.push_async_callback(clients.close)
    registrar = ControllerRegistrar(settings, core.metadata, core.quorum, core.controller, clients, ports)
    own_entry = OwnEntry(settings, core.cluster_id, core.quorum, core.addresses, core.voter_changes, clients)
    supervisor = Supervisor(failure)
    supervisor.keep(REGISTRATION, registrar.run)
    supervisor.keep(ROLL_CALL, roll.run)
    supervisor.keep(OWN_ENTRY, own_entry.run)
    stack.push_async_callback(supervisor.close)
    return supervisor


def _migration(
    settings: Settings,
    core: NodeCore,
    times: PropagationTimes,
    gate: WriteGate,
    signals: VoterSignals,
    journal: Journal,
    failure: StopReason,
    stack: AsyncExitStack,
) -> MigrationInsight:
    """The migration of this node. It always exists, also without settings: the log may say that a migration is under
    way."""
    core.image_comparison.listeners.append(lambda text: journal.note(wall_ms(), IMAGES_KIND, text))
    cluster = migrated_cluster(settings, core, failure, partial(times.observe, PropagationMode.ZOOKEEPER))
    runtime = MigrationRuntime(settings, core, cluster, signals, journal, failure)
    if settings.zookeeper_metadata_migration_enable:
        stack.push_async_callback(Witnesses(settings, core, broker_security(settings), failure).close)
    gate.measures(lambda: runtime.lag, lambda: runtime.must_follow)
    runtime.start()
    stack.push_async_callback(runtime.close)
    insight = MigrationInsight(core, runtime, gate, signals)
    stack.callback(_farewell, insight, failure)
    return insight


def _audit(settings: Settings, failure: StopReason, threads: OwnThreads, stack: AsyncExitStack) -> Audit:
    audit = Audit(settings, failure, threads.open_authorizer_log)
    stack.push_async_callback(audit.close)
    audit.start()
    return audit


def _reassignment(
    settings: Settings,
    core: NodeCore,
    signals: VoterSignals,
    journal: Journal,
    failure: StopReason,
    stack: AsyncExitStack,
) -> VoterReassignment:
    reassignment = VoterReassignment(settings, core, journal, signals.ask_one, failure)
    stack.push_async_callback(reassignment.close)
    return reassignment


def _serve_metrics(
    settings: Settings,
    read: Callable[[], Reading],
    health: Callable[[], NodeHealth],
    times: PropagationTimes,
    writes: WriteTimes,
    stack: AsyncExitStack,
) -> None:
    if settings.migrator_metrics_listener:
        address = parse_host_port(settings.migrator_metrics_listener)
        doors = DoorCollector(machine().own(LoginBook), machine().own(CertificateBook))
        collectors = (ReadingCollector(read), times.histogram, writes, doors)
        beans = bean_reader(read, writes)
        access = access_files(settings)
        stack.callback(MetricsEndpoint(*address, collectors, access=access, beans=beans, health=health).close)


async def _bind(listener: KafkaListener, host: str, port: int) -> int:
    try:
        return await listener.start(host, port)
    except OSError as error:
        raise cannot_listen(error, host, port, f"listeners: {listener.name}") from error


async def _serve_kafka(
    settings: Settings,
    cluster_id: str,
    core: NodeCore,
    notes: Notes,
    failure: StopReason,
    stack: AsyncExitStack,
) -> dict[str, int]:
    """Open the listeners; returns the port of each."""
    ports = {}
    listeners = _listeners(settings, cluster_id, core, failure, notes)
    for listener in listeners:
        bound = next(at for at in settings.parsed_listeners if at.name == listener.name)
        ports[listener.name] = await _bind(listener, bound.host, bound.port)
        stack.push_async_callback(listener.close)
    bounds = DynamicBounds(settings, listeners[0].quotas, ports, core.metadata, failure)
    bounds.start()
    stack.push_async_callback(bounds.close)
    return ports


def _listeners(
    settings: Settings, cluster_id: str, core: NodeCore, failure: StopReason, notes: Notes | None = None
) -> list[KafkaListener]:
    addresses, notes = core.addresses, notes or Notes()
    voter_changes = VoterChangeApis(
        cluster_id, core.quorum, addresses, core.voter_changes, lambda: target_of(core.metadata.published)
    )
    endpoint = ControllerEndpoint(
        settings,
        core.metadata,
        core.controller,
        RaftService(
            noted(core.quorum.handle, notes.votes),
            addresses.find,
            told=addresses.told_by_leader,
            listener=addresses.listener,
            kraft_version=lambda: addresses.kraft_version,
        ),
        quorum_answers={
            DESCRIBE_QUORUM: QuorumDescriber(core.quorum, addresses, notes.says),
            **dict.fromkeys(VOTER_CHANGE_APIS, voter_changes),
        },
        read_context=_read_context(settings, core),
        on_failure=failure,
        refused=notes.refused,
        audit=notes.audit,
        orders=notes.orders,
    )
    quotas = connection_quotas(settings, IpRates(lambda: core.metadata.published.quotas))
    accounts = PublishedAccounts(settings, cluster_id, core.metadata)
    return [
        KafkaListener(
            at.name,
            endpoint,
            apis=SERVED_APIS,
            features=_features(settings, core),
            security=named_security(settings, at.name, accounts),
            limits=listener_limits(settings, at.name),
            quotas=quotas,
            callers=endpoint.callers,
            on_violation=failure,
        )
        for at in settings.parsed_listeners
    ]


def _features(settings: Settings, core: NodeCore) -> Callable[[], Features]:
    supported = {
        feature.name: VersionRange(feature.min_version, feature.max_version) for feature in SUPPORTED_FEATURES
    } | {OUR_FEATURE: OUR_FEATURE_RANGE}

    def features() -> Features:
        image = core.metadata.published
        return Features(
            supported=supported,
            finalized=finalized_levels(image, core.addresses.kraft_version),
            epoch=image.provenance.offset,
            zk_migration_ready=settings.zookeeper_metadata_migration_enable,
        )

    return features


def _read_context(settings: Settings, core: NodeCore) -> Callable[[], Context]:
    """The context of reads, on any node; reads that need an index ask the active controller."""
    mutations, random = MutationBuckets(), machine().random()

    def context() -> Context:
        leader = core.quorum.leader_id
        return Context(
            cluster_id=core.cluster_id,
            settings=settings,
            voters=core.addresses.voter_ids,
            kraft_version=core.addresses.kraft_version,
            index=core.keeper.index,
            sessions=core.keeper.sessions,
            mutations=mutations,
            random=random,
            now_ms=monotonic_ms(),
            wall_ms=wall_ms(),
            next_offset=core.storage.log.end_offset(),
            leader_id=-1 if leader is None else leader,
        )

    return context


async def _grpc(
    settings: Settings,
    core: NodeCore,
    gossip: Gossip,
    notes: Notes,
    services: list[Service],
    failure: StopReason,
    threads: OwnThreads,
) -> GrpcServer:
    address = grpc_address(settings)
    if settings.grpc_voters and address is not None:
        view = NodeQuorumView(core.quorum, core.addresses, gossip, core.image_proof.image_digest)
        services.append(QuorumService(core.cluster_id, noted(core.quorum.handle, notes.votes), view, failure))
    server = threads.serve_grpc(services, Identities(settings.grpc_voter_principals, settings.grpc_operator_principals))
    server.listen_unix(settings.metadata_directory)
    if address is not None:
        server.listen(*address, grpc_tls(settings))
    await server.start()
    return server


def _farewell(insight: MigrationInsight, failure: StopReason) -> None:
    """Log the farewell, after the leadership is given up: now it is known what ZooKeeper holds."""
    failure.farewell = insight.farewell(failure.not_drained).sentence


async def _drain(insight: MigrationInsight, seconds: float, failure: StopReason) -> None:
    failure.not_drained = await insight.drain(seconds)
    if failure.not_drained is not None:
        log.warning("%s", failure.not_drained)
