"""One controller: its disk, its settings, and the lives of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from migrator.config.load import settings_from
from migrator.config.settings import Settings
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.meta_properties import read_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.node.core import NodeCore
from migrator.node.node import run_node
from migrator.node.own_threads import OwnThreads
from migrator.node.stop_reason import StopReason
from migrator.observe.authorizer_log import AuthorizerLog
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.records.versions import version_at
from tests.simulation.whole import certificates
from tests.simulation.whole.claims import Inside, inside_of
from tests.simulation.whole.disk import File, SimulatedDisk
from tests.simulation.whole.grpc_wire import Server, connect
from tests.simulation.whole.machine import SimulatedMachine, SkewedClock

if TYPE_CHECKING:
    from tests.simulation.whole.world import World

T = TypeVar("T")
CLUSTER_ID = "9egfFDzKSbaonHwNn88EuQ"
PORT = 9093
GRPC_PORT = 19094
DIRECTORY = Path("/data")
SESSION_MS = 3_000
"""Of brokers."""
CACHE_DROPPED = 0.5
"""How often the memory of a machine was needed for other things, by the next start of the controller."""


class NoAuthorizerLog(AuthorizerLog):
    """Its thread and its files are not simulated: nobody reads it here."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.lost, self.is_failing = 0, False

    def put(self, contents: Iterable[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


class Controller:
    """One node id, with one machine. Its disk may be replaced."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"controller {node_id}"
        self.host = f"10.0.0.{node_id}"
        self.port = PORT
        self.other_settings: dict[str, str] = {}
        """Of its property file, since an operator has changed it."""
        self._parsed: tuple[dict[str, str], Settings] | None = None
        self.disk = SimulatedDisk()
        self.directory_id: Uuid = ZERO_UUID
        self.has_grpc = True
        self.life = 0
        random, skew = world.random, world.options.skew
        self.clock = SkewedClock(
            rate=1 + random.uniform(-skew, skew),
            offset_ns=random.randrange(10**12),
            wall_offset_ns=int(random.uniform(-skew, skew) * 1e11),
        )
        self.machine: SimulatedMachine | None = None
        self.core: NodeCore | None = None
        self.inside: Inside | None = None
        """Both as soon as it is booted."""
        self._failure: StopReason | None = None
        self.run: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.is_given_up = False
        """Its disk is that of a replica which a recovery of the quorum has given up."""
        self.restart_wanted = False
        """It is down because of a fault that ends."""

    @property
    def key(self) -> ReplicaKey:
        """With the disk that it has now."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def runs(self) -> bool:
        return self.machine is not None

    @property
    def is_ending(self) -> bool:
        """After an order, or because something has failed."""
        return self._failure is not None and self._failure.stop.is_set()

    def keys(self) -> dict[str, str]:
        """Its property file."""
        world, options = self.world, self.world.options
        own = {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{self.host}:{self.port}",
            "log.dirs": str(DIRECTORY),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "broker.session.timeout.ms": str(SESSION_MS),
            "metadata.log.max.record.bytes.between.snapshots": str(options.snapshot_bytes),
            "metadata.log.max.snapshot.interval.ms": "0",
            "metadata.log.segment.bytes": str(options.segment_bytes),
            "metadata.max.retention.bytes": str(options.retention_bytes),
            "migrator.quorum.require.bootstrap": str(options.requires_bootstrap).lower(),
        }
        addresses = [(one.node_id, f"{one.host}:{one.port}") for one in self._known()]
        if options.dynamic:
            own["controller.quorum.bootstrap.servers"] = ",".join(address for _, address in addresses)
        else:
            voters = [f"{node_id}@{address}" for node_id, address in addresses if node_id in world.first_voters]
            own["controller.quorum.voters"] = ",".join(voters)
        return {**own, **(self._grpc_keys() if self.has_grpc else {}), **self.other_settings}

    def _known(self) -> list[Controller]:
        """A file of the new quorum names none that was given up, if the operator has followed the manual."""
        names_all = self.is_given_up or self.world.options.names_given_up
        return [one for one in self.world.controllers.values() if names_all or not one.is_given_up]

    def _grpc_keys(self) -> Mapping[str, str]:
        controllers = self._known()
        names = [(one.node_id, certificates.principal(certificates.voter(one.node_id))) for one in controllers]
        voters = [one for one in controllers if one.node_id in self.world.first_voters]
        return {
            "migrator.grpc.listener": f"{self.host}:{GRPC_PORT}",
            "migrator.grpc.voters": ",".join(f"{one.node_id}@{one.host}:{GRPC_PORT}" for one in voters),
            "migrator.grpc.voter.principals": ";".join(f"{node_id}@{principal}" for node_id, principal in names),
            "migrator.grpc.operator.principals": certificates.principal(certificates.OPERATOR),
            **certificates.keys_of_files(),
        }

    def settings(self) -> Settings:
        """Of its property file. Rules ask for them twice a second, and to parse them each time was 2 % of a seed."""
        keys = self.keys()
        if self._parsed is None or self._parsed[0] != keys:
            self._parsed = keys, settings_from(keys, "simulated")[0]
        return self._parsed[1]

    def format(self, voters: VoterSet | None = None) -> None:
        """An empty disk becomes that of this node; with ``voters`` that of one of the first ones of a quorum."""
        machine = self.begin_life()
        plan = FormatPlan(
            (DIRECTORY,),
            DIRECTORY,
            CLUSTER_ID,
            self.node_id,
            version_at(self.world.options.metadata_version),
            voters=voters,
        )
        random = Random(self.world.random.getrandbits(64))
        machine.context.run(lambda: format_directories(plan, random=random, now_ms=0))
        found = machine.context.run(lambda: read_meta_properties(DIRECTORY))
        self.directory_id = ZERO_UUID if found is None or found.directory_id is None else found.directory_id
        machine.die()
        certificates.install(self.disk, certificates.voter(self.node_id))

    def begin_life(self) -> SimulatedMachine:
        self.life += 1
        return SimulatedMachine(self.world, self.name, self.host, self.disk, self.clock, self.life)

    def start(self) -> None:
        """Begin the process; what becomes of it `ended` tells."""
        machine = self.machine = self.begin_life()
        self.world.processes_changed()
        if machine.chance.random() < CACHE_DROPPED:
            self.disk.root.drop_cache()
        self.core, self.inside, self.is_stopping, self.restart_wanted = None, None, False, False
        self.world.network.machines_off.discard(self.host)
        failure = self._failure = machine.context.run(StopReason)
        machine.loop.from_outside(self._run, machine, failure)
        self.world.started(self)

    def _run(self, machine: SimulatedMachine, failure: StopReason) -> None:
        def serve_grpc(services: Any, identities: Any) -> Any:
            self._booted(services)
            return Server(machine, services, identities)

        threads = OwnThreads(serve_grpc, connect, NoAuthorizerLog)
        work = run_node(self.settings(), failure, own_machine=machine, threads=threads)
        self.run = machine.loop.create_task(work, name=self.name)
        self.run.add_done_callback(lambda done: self._ended(machine, done))

    def _booted(self, services: Any) -> None:
        inside = self.inside = inside_of(self.settings(), services, NoAuthorizerLog(DIRECTORY, 0))
        self.core = inside.core
        self.world.booted(self, inside)

    def _ended(self, machine: SimulatedMachine, run: asyncio.Task[None]) -> None:
        if not machine.is_alive:
            return
        error = None if run.cancelled() else run.exception()
        self.world.after(0.0, lambda: self.world.ended(self, machine, error))

    def stop(self) -> None:
        """In order, as SIGTERM."""
        if self.machine is not None and self._failure is not None:
            self.is_stopping = True
            self.machine.loop.from_outside(self._failure.stop.set)

    def gone(self) -> None:
        """The process has ended, for any reason."""
        self.machine = self.core = self.inside = None
        self.world.processes_changed()

    def durable_content(self, name: str) -> bytes | None:
        """Of a file beside the log, after a power cut now: what its directory names then, as far as it is written."""
        file = self.disk.directory(DIRECTORY / DIRECTORY_NAME).durable.get(name)
        return file.durable if isinstance(file, File) else None

    def in_process(self, look: Callable[[], T]) -> T:
        """Look at something of the process without its taking time there."""
        machine = self.machine
        if machine is None:
            raise RuntimeError(f"{self.name} does not run")
        disk, spent, fault = machine.disk, machine._spent_ns, machine.disk.fails_at
        disk.fails_at = None
        try:
            return machine.context.copy().run(look)  # which changes nothing, so it cannot crash there
        finally:
            machine._spent_ns, disk.fails_at = spent, fault
