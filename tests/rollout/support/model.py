"""A model of a cluster behind the interfaces of a rollout: brokers, controllers, ZooKeeper, files, processes, time.

It obeys what real parts obey, and notes in `violations` whatever would have harmed a real cluster. `Points` names every
boundary at which a process may die: before and after each line of the journal, before and after each effect.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from migrator.config.keys import IBP
from migrator.config.properties import decoded, parse_properties
from migrator.records.versions import parse_version
from migrator.rollout.executors.presets import check_value
from migrator.rollout.inventory import ControllerKind, Inventory
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode, watched_keys
from migrator.rollout.ports import (
    BrokerMode,
    BrokerSeen,
    FileChangedError,
    MigrationSeen,
    Observation,
    Output,
    PartitionsSeen,
)
from migrator.seeing.controllers import ControllerProgram, ControllerSeen, QuorumSeen
from tests.rollout.support.model_files import SECRET, broker_file, controller_file, from_outside
from tests.rollout.support.model_hosts import ModelHosts
from tests.rollout.support.model_pieces import (
    DUAL_WRITE,
    FINISHED,
    INELIGIBLE,
    Directories,
    Process,
    below,
    is_kept,
    majority_lost,
    partitions_seen,
    placed,
    started,
    voter_seen,
    without,
    wrong_modes,
)
from tests.rollout.support.model_start import refused_of_broker, refused_of_controller

MODES = {
    FileMode.BROKER_ZOOKEEPER: BrokerMode.ZOOKEEPER,
    FileMode.BROKER_MIGRATING: BrokerMode.MIGRATING,
    FileMode.BROKER_KRAFT: BrokerMode.KRAFT,
}


def nothing(*_: object) -> None:
    """Happens."""


class Points:
    """Boundaries at which a process may die: `at` is called at each, with its name."""

    def __init__(self) -> None:
        self.at: Callable[[str], None] = nothing

    def boundary(self, where: str) -> None:
        self.at(where)


class ModelCluster(ModelHosts):
    """Executor and observer of a model cluster, and what happens in it.

    :param fault: called with action and node before each effect; may raise, or change the model.
    """

    def __init__(self, inventory: Inventory, *, stops: bool = True, replicas: int = 3, min_isr: int = 2) -> None:
        super().__init__()
        self.inventory = inventory
        self.points = Points()
        self.stops = stops
        self.processes: dict[str, Process] = {}
        self.restarts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        self.directories = Directories()
        self.formatted = self.directories.formatted
        self.cluster_id = "XkYOzJkUQQ-rHVYhnWGvTg"
        self.level = ""
        """metadata.version that the controllers were formatted with."""
        self.state = ""
        self.kraft_claims = False
        self.controller_broker: int | None = inventory.brokers.nodes[0].node_id
        self.fault = nothing
        self.lies: set[str] = set()
        self.lagging: set[str] = set()
        """Brokers that run, and whose replicas are not in sync."""
        self.unnoticed: set[str] = set()
        """Brokers that have ended without a word, and that ZooKeeper and its controller still count."""
        self.racks: dict[str, str] = {node.name: node.rack for node in inventory.brokers.nodes}
        """As the brokers' own ``broker.rack`` says."""
        self.old_settings: set[str] = set()
        self.overridden: dict[str, dict[str, str]] = {}
        """By broker, settings that the command that starts it gives it, whatever its file says."""
        self.dynamic_maps: dict[str, str] = {}
        """By broker, its listener.security.protocol.map, where that is set dynamically."""
        self.release = "3.9.1"
        """Of the brokers."""
        self.hides_settings = False
        """The login may not look at them."""
        self.silent: set[str] = set()
        """Brokers that run, and do not answer who looks."""
        self.tells = ""
        """Before the number of an incarnation, as the command that tells it words it."""
        self.foreign_writes: tuple[str, ...] = ()
        self.lag = 0
        self.leader_writes = True
        """A new leader compares ZooKeeper with the log before it does."""
        self.problems: tuple[str, ...] = ()
        """Of the leader's status."""
        self.behind_ms = 0
        self.reopened = ""
        """How long the oldest record has waited that ZooKeeper lacks."""
        self.unregistered: set[int] = set()
        """Brokers that are gone, and that the quorum has forgotten."""
        self.kraft_in_log: set[int] = set()
        """Brokers that the quorum has registered in KRaft mode, whether they run or not."""
        self.left_out: set[str] = set()
        """Nodes that the operator has left out: without them a majority may be lost for a while."""
        self.forced: set[int] = set()
        """Voters that the leader was ordered to end without."""
        self.target = ""
        """Of a reassignment of the voters."""
        self.leader = -1
        """The preferred leader while it runs; otherwise the first controller that runs."""
        self.new_leader = False
        """Another one leads just after an order, and knows nothing of it."""
        self.zookeeper_answers = True
        self.examined: dict[tuple[str, str], bytes] = {}
        self._is_stock = inventory.controllers.kind is ControllerKind.STOCK
        self._incarnations = 0
        self._watched = watched_keys(inventory.brokers.settings)
        self._old_content: dict[str, bytes] = {}
        self._min_isr = min_isr
        self.partitions = placed(inventory, replicas)
        self._homes = {node.name: node for node in self._everybody()}
        for node in inventory.controllers.nodes:
            self.files[node.name, node.properties] = controller_file(node)
        for node in inventory.brokers.nodes:
            self.files[node.name, node.properties] = broker_file(node)
            self._start(node)

    # What a rollout does.

    async def write(self, node: Node, path: str, content: bytes, *, expected: str | None, backup: str) -> None:
        self.fault("write", node)
        self.points.boundary(f"before write {node.name}")
        key = self._home(node), path
        old = self.files.get(key)
        if (None if old is None else hashlib.sha256(old).hexdigest()) != expected:
            raise FileChangedError("the file has another digest", where=node.name)
        if backup and old is not None:
            self.files.setdefault((key[0], backup), old)
        self.files[key] = content
        self.points.boundary(f"after write {node.name}")

    async def copy(self, node: Node, path: str, content: bytes) -> None:
        self.fault("copy", node)
        self.points.boundary(f"before copy {node.name}")
        assert (node.name, path) not in self.files, "a copy is a new file"
        self.files[node.name, path] = content
        self.points.boundary(f"after copy {node.name}")

    async def stop(self, node: Node) -> None:
        self.fault("stop", node)
        self.points.boundary(f"before stop {node.name}")
        if node.name not in self.lies:
            self._judge_stop(node)
            self._stop(node)
        self.points.boundary(f"after stop {node.name}")

    async def start(self, node: Node) -> None:
        self.fault("start", node)
        self.points.boundary(f"before start {node.name}")
        if node.name not in self.lies and node.name not in self.processes:
            self._start(node)
        self.points.boundary(f"after start {node.name}")

    async def restart(self, node: Node) -> None:
        self.fault("restart", node)
        self.points.boundary(f"before restart {node.name}")
        if node.name not in self.lies:
            self._judge_stop(node)
            self._stop(node)
            self._start(node)
        self.points.boundary(f"after restart {node.name}")

    def stops_and_starts(self, node: Node) -> bool:
        return self.stops

    async def incarnation(self, node: Node) -> str | None:
        self.fault("incarnation", node)
        process = self.processes.get(node.name)
        return None if process is None else f"{self.tells}{process.incarnation}"

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        name = "here" if words[-1] == "--here" else words[words[0] not in ("cp", "mv", "ls", "mkdir", "rm", "sh")]
        self.fault(name, node)
        self.points.boundary(f"before {name} {node.name}")
        self.commands.append(tuple(check_value("words", word) for word in words))
        code = self.exit_codes.get(name, 0) or (self._refuses(words) if name == "force" else 0)
        if name == "rollback" and self.kraft_in_log:
            code = 2
        if name == "ls":
            return self.listing(node, words)
        if code == 0:
            self._run(name, node, words)
        self.points.boundary(f"after {name} {node.name}")
        said = {"said": SECRET, "differences": code, "forecast": {"dual_write": {"seconds": 12.2, "error": 3.1}}}
        return Output(code, self.prints.get(name, json.dumps(said)), SECRET)

    # What a rollout sees.

    async def observe(self, *, partitions: bool = True) -> Observation:
        self._settle()
        quorum = self._quorum()
        leads = quorum is not None and quorum.leader_id is not None
        return Observation(
            cluster_id=self.cluster_id,
            brokers=None if quorum is not None and not leads else self._registered(),
            partitions=self._health() if partitions else None,
            quorum=quorum,
            migration=self._migration() if leads else None,
            controller_broker=self.controller_broker,
            quorum_claims=self.kraft_claims,
            zookeeper_answers=self.zookeeper_answers,
            metadata_version=self.level if leads else "",
        )

    def _registered(self) -> dict[int, BrokerSeen]:
        """Where controllers answer, and none leads, nobody says it."""
        known = [node for node in self.inventory.brokers.nodes if node.node_id not in self.unregistered]
        return {node.node_id: self._seen(node) for node in known}

    def _migration(self) -> MigrationSeen:
        keeps_up = self.leader_writes and (self.lag == 0 or not self._is_stock)
        lag = self.lag if self.leader_writes else -1
        return MigrationSeen(
            self.state,
            lag,
            self.foreign_writes,
            self.problems,
            finishing=self._finishing(),
            keeps_up=keeps_up,
            behind_ms=self.behind_ms,
            reopened=self.reopened,
        )

    async def unregister(self, broker_id: int) -> str:
        if self._quorum() is None:
            return "no controller answers"
        self.kraft_in_log.discard(broker_id)
        self.unregistered.add(broker_id)
        return ""

    async def close(self) -> None:
        pass

    # What the cluster is.

    def end_state(self) -> dict[str, object]:
        """The state that has to be the same, however often the rollout was killed."""
        self._settle()
        return {
            "files": {key: text for key, text in self.files.items() if not is_kept(key[1])},
            "modes": self.modes(),
            "processes": sorted(self.processes),
            "state": self.state,
            "controller": self.controller_broker is not None,
        }

    def modes(self) -> dict[str, BrokerMode | None]:
        """How each broker runs."""
        return {node.name: self._mode(node) for node in self.inventory.brokers.nodes}

    def crash(self, node: Node) -> None:
        """The process ends by itself."""
        self._stop(node)

    def rename(self, old: str, new: str) -> None:
        """The same node has another name in the inventory from now on."""
        self.files = {(new if name == old else name, path): text for (name, path), text in self.files.items()}
        self.processes[new] = self.processes.pop(old)
        self.racks[new] = self.racks.pop(old)

    def start_as_configured(self, node: Node) -> None:
        """An operator starts it again."""
        self.old_settings.discard(node.name)
        self._stop(node)
        self._start(node)

    def _everybody(self) -> list[Node]:
        return [*self.inventory.nodes, *self.inventory.controllers.stock.values()]

    def _start(self, node: Node) -> None:
        content = self.files[self._home(node), node.properties]
        if node.role is NodeKind.CONTROLLER and node.name not in self.formatted:
            self.violations.append(f"{node.name} started with an unformatted directory")
        if node.name in self.old_settings:
            content = self._old_content[node.name]
        self._incarnations += 1
        properties = parse_properties(decoded(content)) | self.overridden.get(node.name, {})
        self.processes[node.name] = started(self._incarnations, node.role, properties, self._watched)
        self.restarts[node.name] += 1
        self._old_content[node.name] = content
        if node.role is NodeKind.BROKER:
            self.unregistered.discard(node.node_id)
        self._judge_start(node)
        self._settle()

    def _judge_start(self, node: Node) -> None:
        if node.role is not NodeKind.BROKER:
            ours = self.inventory.controllers.kind is ControllerKind.MIGRATOR and node in self.inventory.nodes
            self.violations += [] if ours else refused_of_controller(node, self.processes[node.name].properties)
            beside = [self._home(each) for each in self._everybody() if each.name in self.processes]
            if len(self.directories.quorums_of(beside)) > 1:
                self.violations.append(f"{node.name} started with the log of another quorum")
            return
        self.violations += refused_of_broker(node, self.processes[node.name].properties)
        mode = self._mode(node)
        if mode is BrokerMode.KRAFT:
            self.kraft_in_log.add(node.node_id)
        if mode is BrokerMode.MIGRATING:
            self.kraft_in_log.discard(node.node_id)
        self.violations += [f"{node.name} in {what}" for what in wrong_modes(mode, self.state, ruled=self.kraft_claims)]

    def _judge_stop(self, node: Node) -> None:
        """Brokers in KRaft mode have no other controller than the quorum."""
        voters = {each.node_id for each in self.inventory.controllers.nodes if each.name not in self.left_out}
        quorum = self._quorum()
        if quorum is None or quorum.leader_id is None or not self.kraft_in_log or len(voters) < len(quorum.voters):
            return
        self.violations += majority_lost(node, voters, quorum)

    def _stop(self, node: Node) -> None:
        if self.processes.pop(node.name, None) is None:
            return
        if node.role is NodeKind.BROKER:
            down = {each.node_id for each in self.inventory.brokers.nodes if each.name not in self.processes}
            away = down | {each.node_id for each in self.inventory.brokers.nodes if each.name in self.lagging}
            for replicas in self.partitions:
                if node.node_id in replicas and len(replicas - away) < self._min_isr:
                    self.violations.append(f"a partition of {sorted(replicas)} below min ISR without {sorted(down)}")
                    break
        self._settle()

    def _run(self, name: str, node: Node, words: Sequence[str]) -> None:
        if name == "format":
            self.directories.format(node.name)
            self.level = words[words.index("--release-version") + 1] if "--release-version" in words else "3.9-IV0"
            self.files[node.name, f"/data/{node.name}/meta.properties"] = b"x"
        elif name == "force":
            self.forced |= set() if self.new_leader else without(words)
            self._settle()
        elif name in ("rollback", "reopen"):
            (self._give_back if name == "rollback" else self._reopen)()
        elif name == "rm":
            for key in below(self.files, node.name, words[-1]):
                del self.files[key]
        elif name == "preflight":
            self.examined = {key: text for key, text in self.files.items() if key[1] in words}
        elif name == "cp":
            found = {key: self.files[key] for key in below(self.files, node.name, words[-2])}
            self.files |= {(node.name, words[-1] + path[len(words[-2]) :]): it for (_, path), it in found.items()}
        elif name == "mv" and not below(self.files, node.name, words[-1]):  # mv -n leaves it, and succeeds
            self._moved_aside(node, words[-2], words[-1])

    def _moved_aside(self, node: Node, directory: str, name: str) -> None:
        if node.name in self.processes:
            self.violations.append(f"the directory of {node.name} moved away under its process")
        self.directories.move_away(node.name)
        identity = self.files.pop((node.name, f"{directory}/meta.properties"), None)
        if identity is not None:
            self.files[node.name, f"{name}/meta.properties"] = identity

    def _refuses(self, words: Sequence[str]) -> int:
        """The leader does, unless it waits for these nodes."""
        running = {node.node_id for node in self.inventory.controllers.nodes if node.name in self.processes}
        return 2 if not self._finishing() or without(words) & running else 0

    def _finishing(self) -> bool:
        quorum = self._quorum()
        leads = quorum is not None and quorum.leader_id is not None
        voters = () if quorum is None else quorum.voters.values()
        return self.state == DUAL_WRITE and leads and not any(voter.migration_on for voter in voters)

    def _reopen(self) -> None:
        if self.state != FINISHED or not all(
            self._voter(each).migration_on for each in self.inventory.controllers.nodes
        ):
            self.violations.append("reopened before the end, or while a controller has the migration off")
        self.state, self.reopened, self.kraft_claims = DUAL_WRITE, "by the rollout", True

    def _give_back(self) -> None:
        if any(each.name in self.processes for each in self.inventory.controllers.nodes):
            self.violations.append("rollback while a controller runs")
        gone = [each for each in self.inventory.brokers.nodes if self._mode(each) is None]
        if any(each.node_id not in self.unregistered for each in gone):
            self.violations.append("rollback while the quorum has a broker that is gone")
        self.kraft_in_log.clear()
        self.kraft_claims = False
        self.state = ""
        self.directories.given_back |= self.formatted
        self.controller_broker = self.inventory.brokers.nodes[0].node_id

    def _settle(self) -> None:
        voters = [self._voter(node) for node in self.inventory.controllers.nodes]
        up = [voter for voter in voters if voter.program is not None]
        if 2 * len(up) <= len(voters):
            return
        if not self.state:
            self.state = INELIGIBLE
        modes = [self._mode(node) for node in self.inventory.brokers.nodes]
        is_new = not self.directories.given_back & self.processes.keys()
        migrates = len(up) == len(voters) and all(mode is BrokerMode.MIGRATING for mode in modes)
        if self.state == INELIGIBLE and is_new and migrates:
            self.state, self.kraft_claims, self.controller_broker = DUAL_WRITE, True, None
        asked = [voter for voter in voters if voter.program is not None or voter.node_id not in self.forced]
        off = all(voter.migration_on is False for voter in asked)
        if self._is_stock:  # one leader without the flag is enough
            off = min(up, key=lambda voter: voter.node_id).migration_on is False
        if self.state == DUAL_WRITE and off:
            gone = self.unregistered
            modes = [self._mode(node) for node in self.inventory.brokers.nodes if node.node_id not in gone]
            if any(mode is not BrokerMode.KRAFT for mode in modes):
                self.violations.append("finished while a broker is not in KRaft mode")
            self.state, self.reopened = FINISHED, ""

    def _quorum(self) -> QuorumSeen | None:
        voters = {node.node_id: self._voter(node) for node in self.inventory.controllers.nodes}
        up = [voter.node_id for voter in voters.values() if voter.program is not None]
        if not up:
            return None
        leader = self.leader if self.leader in up else min(up)
        if 2 * len(up) > len(voters):
            return QuorumSeen(leader, voters, target=self.target)
        return QuorumSeen(None, {voter: replace(each, lag_records=-1) for voter, each in voters.items()})

    def _voter(self, node: Node) -> ControllerSeen:
        stock = self.inventory.controllers.stock.get(node.node_id)
        if stock is not None and stock.name in self.processes:
            if node.name in self.processes:
                self.violations.append(f"two processes on the directory of {node.name}")
            return ControllerSeen(node.node_id, ControllerProgram.STOCK, migration_on=False, lag_records=0)
        process = self.processes.get(node.name)
        if process is None:
            return ControllerSeen(node.node_id, None)
        return voter_seen(node.node_id, process, is_stock=self._is_stock)

    def _mode(self, node: Node) -> BrokerMode | None:
        process = self.processes.get(node.name)
        return None if process is None else MODES[process.mode]

    def _seen(self, node: Node) -> BrokerSeen:
        process = self.processes.get(node.name)
        if process is None and node.name in self.unnoticed:
            return BrokerSeen(node.node_id, BrokerMode.ZOOKEEPER, "old")
        if process is None:
            return BrokerSeen(node.node_id, None, kraft_in_log=node.node_id in self.kraft_in_log)
        stamp, rack = str(process.incarnation), self.racks[node.name]
        mode, level = self._mode(node), process.properties.get(IBP, "3.9-IV0")
        refused = (
            mode is BrokerMode.MIGRATING and bool(self.level) and parse_version(level) != parse_version(self.level)
        )
        settings = {IBP: level}
        in_log, dynamic = node.node_id in self.kraft_in_log, self.dynamic_maps.get(node.name, "")
        seen = BrokerSeen(
            node.node_id,
            mode,
            stamp,
            not refused,
            release=self.release,
            settings=settings,
            rack=rack,
            kraft_in_log=in_log,
            dynamic_map=dynamic,
        )
        quorum = self._quorum()
        shown = None if self.hides_settings else process.shown
        leads = quorum is not None and quorum.leader_id is not None
        return from_outside(seen, shown, leads=leads, answers=node.name not in self.silent)

    def _health(self) -> PartitionsSeen:
        nodes = self.inventory.brokers.nodes
        away = {node.node_id for node in nodes if node.name not in self.processes or node.name in self.lagging}
        away -= {node.node_id for node in nodes if node.name in self.unnoticed}
        return partitions_seen(self.partitions, away, self._min_isr)
