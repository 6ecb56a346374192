"""Performs a published procedure on real brokers: the only code there is for all of them.

It fills the gaps, does each step, and fails where a step's result does not come.
"""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from random import SystemRandom

import orjson
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, WAIT_SECONDS, ControllerProcess
from migrator.drill.kafka import cluster
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.probes import highest_state_epoch
from migrator.errors import ExitCode
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.quorum_state import FILE_NAME
from migrator.migration.machine.finish import POST_MIGRATION_FLAG_WARNING
from migrator.parts.kafka import KafkaRelease
from migrator.parts.processes import free_port, run_to_end
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.records.metadata import ZkMigrationState
from migrator.records.uuid import random_uuid, uuid_to_text
from migrator.zookeeper.znodes import paths
from tests.interop.procedures.support.procedure import Procedure, Shell, Step, properties
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import broker_is_controller, problems, stage

METRICS_LISTENER = "migrator.metrics.listener"
SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
OF_THE_TEST = (
    "log.dirs",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "group.initial.rebalance.delay.ms",
    "log.cleaner.dedupe.buffer.size",
)
"""Lines of a broker's file for two brokers on one machine, beside the procedure's own lines."""
ABOVE = 1000
"""By how much ``/controller_epoch`` is raised: above any epoch of the quorum."""
LAG_MAX = 1000
"""cp-ansible takes a controller for well below it."""


class PrintedController(ControllerProcess):
    """A controller whose file is the procedure's text, in its order and with doubled keys."""

    text = ""

    def write_properties(self) -> None:
        """See its base."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.property_file.write_text(self.text)


class Performance(KafkaCluster):
    """Two brokers and the controllers of a procedure; its property files are those of the procedure."""

    def __init__(
        self, procedure: Procedure, directory: Path, zookeeper: EmbeddedZooKeeper, client: KazooClient
    ) -> None:
        super().__init__(
            KafkaRelease(procedure.release).fetch(),
            directory,
            controllers=procedure.controllers,
            brokers=2,
            zookeeper=zookeeper.hosts,
            release_version=procedure.protocol,
        )
        self.procedure = procedure
        self.client = client
        self.zookeeper = zookeeper
        self._printed = [PrintedController(each.node_id, each.directory, {}) for each in self.controllers]
        self.controllers = [*self._printed]
        random = SystemRandom()
        self._planes = {broker: free_port() for broker in self.brokers}
        self._polled = [f"127.0.0.1:{free_port()}" for _ in self.controllers]
        self._directory_ids = [uuid_to_text(random_uuid(random)) for _ in self.controllers]
        self._set_controllers(procedure.prepared)
        self._tries = 0
        self._rejoins = False
        self._has_zookeeper = True

    @cached_property
    def admin(self) -> Admin:
        """A client, from the moment that the brokers run."""
        return Admin(self.bootstrap, 2)

    def properties_of(self, broker: int, mode: KafkaBrokerMode) -> dict[str, str]:
        """See its base."""
        own = super().properties_of(broker, mode)
        text = self.procedure.brokers[mode]
        if self._rejoins and mode is KafkaBrokerMode.MIGRATING:
            text = self.procedure.rejoining or text
        said = properties(text, self._gaps(broker, self.broker_addresses[broker][1]))
        return {key: own[key] for key in OF_THE_TEST} | said

    def restart_broker(self, broker: int, mode: KafkaBrokerMode) -> None:
        """See its base; then what the procedure waits for in the broker's log."""
        super().restart_broker(broker, mode)
        for line in self.procedure.broker_waits:
            self.brokers[broker].process.wait_for_output(line, timeout_seconds=WAIT_SECONDS)

    def perform(self) -> None:
        """Every step, in the order of the procedure."""
        self.do(*self.procedure.steps)

    def do(self, *steps: Step | Shell) -> None:
        """Some steps, in this order."""
        for step in steps:
            with stage(str(step)):
                if isinstance(step, Shell):
                    self._shell(step.command)
                else:
                    self._actions[step]()

    @property
    def _actions(self) -> Mapping[Step, Callable[[], object]]:
        return {
            Step.CLUSTER_ID: self._read_cluster_id,
            Step.FORMAT: self._format,
            Step.PROVISION: self._provision,
            Step.HEALTH: self._until_well,
            Step.POLL_2: partial(self._until_polled, ZkMigrationState.PRE_MIGRATION),
            Step.POLL_1: partial(self._until_polled, ZkMigrationState.MIGRATION),
            Step.POLL_3: partial(self._until_polled, ZkMigrationState.POST_MIGRATION),
            Step.MIGRATING: partial(self._roll, KafkaBrokerMode.MIGRATING),
            Step.DUAL_WRITE: self._until_dual_write,
            Step.KRAFT: partial(self._roll, KafkaBrokerMode.KRAFT),
            Step.KRAFT_TOGETHER: self._roll_together,
            Step.FINALIZE: self._finalize,
            Step.FINALIZE_AT_ONCE: self._finalize_at_once,
            Step.STOP_ZOOKEEPER: self._stop_zookeeper,
            Step.FINISHED: self._until_finished,
            Step.FLAG_AGAIN: self._flag_again,
            Step.DEPROVISION: self.stop_controllers,
            Step.FORGET_CONTROLLERS_LOG: self._forget_controllers_log,
            Step.FORGET_BROKERS_LOG: self._forget_brokers_log,
            Step.NEW_QUORUM: self._new_quorum,
            Step.REFUSED: self._until_refused,
            Step.BROKER_IS_CONTROLLER: self._until_broker_is_controller,
            Step.RAISE_EPOCH: self._raise_epoch,
            Step.ZOOKEEPER: partial(self._roll, KafkaBrokerMode.ZOOKEEPER),
            Step.REJOIN_ZOOKEEPER: self._rejoin_zookeeper,
        }

    def _gaps(self, node: int, port: int) -> dict[str, str]:
        addresses = [f"localhost:{port}" for _, port in self.controller_addresses]
        ids = [str(controller.node_id) for controller in self.controllers]
        voters = [f"{voter}@{address}" for voter, address in zip(ids, addresses, strict=True)]
        return {
            "id": str(node),
            "port": str(port),
            "plane": str(self._planes.get(node, 0)),
            "zookeeper": self._zookeeper or "",
            "protocol": self.procedure.protocol,
            "servers": ",".join(addresses),
            "voters": ",".join(voters),
            "initial": ",".join(f"{voter}:{disk}" for voter, disk in zip(voters, self._directory_ids, strict=True)),
        }

    def _set_controllers(self, text: str) -> None:
        rows = zip(self._printed, self.controller_addresses, self._polled, strict=True)
        for controller, (_, port), polled in rows:
            gaps = self._gaps(controller.node_id, port)
            controller.text = f"log.dirs={controller.metadata_directory}\n" + text.format(**gaps)
            if self.procedure.polled:
                controller.text += f"\n{METRICS_LISTENER}={polled}\n"
            controller.properties = properties(text, gaps)

    def _shell(self, command: str) -> str:
        return self.kafka.tool(
            SHELL, "-server", self.zookeeper.hosts, *command.split(), directory=self.directory / "shell"
        )

    def _read_cluster_id(self) -> None:
        assert CLUSTER_ID in self._shell("get /cluster/id")

    def _format(self) -> None:
        rows = zip_longest(self.controllers, self.procedure.format, fillvalue=self.procedure.format[-1])
        for controller, words in rows:
            assert isinstance(controller, ControllerProcess)
            self.format_one(controller, words)

    def format_one(self, controller: ControllerProcess, words: Sequence[str]) -> None:
        """With these words; :raises OperatorError: it was refused."""
        controller.write_properties()
        gaps = self._gaps(controller.node_id, 0) | {"cluster": CLUSTER_ID, "file": str(controller.property_file)}
        command = [MIGRATOR, "format", *(word.format(**gaps) for word in words)]
        run_to_end("format", command, timeout_seconds=COMMAND_SECONDS)

    def _start(self, controller: ControllerProcess) -> None:
        if self.procedure.every_start:
            self.format_one(controller, self.procedure.format[0])
            (controller.metadata_directory / DIRECTORY_NAME / FILE_NAME).unlink(missing_ok=True)
        controller.start()

    def _provision(self) -> None:
        for controller in self.controllers:
            self._start(controller)
        until("every controller is there", lambda: len(self.statuses()) == len(self.controllers))
        self._until_led()

    def _until_led(self) -> None:
        until("a controller leads", lambda: self.leader() is not None)

    def _roll(self, mode: KafkaBrokerMode) -> None:
        self.roll_brokers(mode, self.admin.in_sync)

    def _rejoin_zookeeper(self) -> None:
        self._rejoins = True
        self._roll(KafkaBrokerMode.MIGRATING)
        self._rejoins = False

    def _stop_zookeeper(self) -> None:
        self.zookeeper.stop()
        self._has_zookeeper = False

    def _roll_together(self) -> None:
        for controller in self.controllers:
            cluster._must_end_well(controller)
            self._start(controller)
        self._roll(KafkaBrokerMode.KRAFT)

    def _until_well(self) -> None:
        until("kafka-metadata-quorum calls all controllers well", self._is_well)

    def _is_well(self) -> bool:
        leading = self.leading()
        port = self.controller_addresses[self.controllers.index(leading)][1]
        words = [word.format(file=leading.property_file) for word in self.procedure.health]
        said = self.kafka.tool(
            QUORUM, "--bootstrap-controller", f"localhost:{port}", *words, directory=self.directory / "tool"
        )
        if "--status" in words:
            return re.search(rf"^LeaderId:\s+{leading.node_id}$", said, re.MULTILINE) is not None
        rows = [line.split() for line in said.splitlines()]
        found = {row[0]: (int(row[-5]), int(row[-4])) for row in rows if row and row[0].isdigit()}
        voters = [found.get(str(controller.node_id), (0, LAG_MAX)) for controller in self.controllers]
        return all(end > 0 and lag < LAG_MAX for end, lag in voters)

    def _until_polled(self, state: ZkMigrationState) -> None:
        until(f"every controller answers {state}", lambda: set(map(self._poll, self._polled)) == {int(state)})

    def _poll(self, address: str) -> int:
        with urllib.request.urlopen(f"http://{address}{self.procedure.polled}", timeout=COMMAND_SECONDS) as answer:
            said = orjson.loads(answer.read())
        return int(said["state"] if "state" in said else said["value"]["Value"])

    def _until_dual_write(self) -> None:
        until("dual-write", lambda: self.migration_state() == "dual-writing")
        until("both brokers are unfenced", lambda: self.running_brokers() == {1: True, 2: True})
        said = (self.leading().directory / "controller.log").read_text()
        for line in self.procedure.waits:
            assert re.search(line, said), f"the active controller never said {line!r}"
        self._tries += 1
        topic = f"hybrid-{self._tries}"
        self.admin.create(topic, 1, 2)
        until("a new topic is in ZooKeeper", lambda: self.client.exists(paths.partition_state(topic, 0)))

    def _finalize(self) -> None:
        self._set_controllers(self.procedure.finalized)
        for controller in self.controllers:
            self._stop_one(controller)
            self._start(controller)
            until("a leader, and the controller is back", partial(self._is_back, controller.node_id))
            if self.procedure.health:
                self._until_well()

    def _stop_one(self, controller: ControllerProcess) -> None:
        if self._has_zookeeper:
            cluster._must_end_well(controller)
        else:
            assert controller.stop() in (ExitCode.OK, ExitCode.NOT_DRAINED)

    def _finalize_at_once(self) -> None:
        self._set_controllers(self.procedure.finalized)
        self.stop_controllers()
        self._provision()

    def _until_finished(self) -> None:
        until("the migration is finished", lambda: self.public_states() == {"Finished"})
        self.admin.create("later", 1, 2)
        if self._has_zookeeper:
            assert not self.client.exists(paths.topic("later"))

    def _flag_again(self) -> None:
        self._set_controllers(self.procedure.prepared)
        controller = self.controllers[0]
        cluster._must_end_well(controller)
        controller.start()
        until("the controller is back", partial(self._is_back, controller.node_id))
        assert self.public_states() == {"Finished"}
        assert POST_MIGRATION_FLAG_WARNING in (controller.directory / "controller.log").read_text()

    def _forget_controllers_log(self) -> None:
        for controller in self.controllers:
            shutil.rmtree(controller.metadata_directory / DIRECTORY_NAME)

    def _forget_brokers_log(self) -> None:
        for broker in self.brokers.values():
            shutil.rmtree(broker.directory / "data" / DIRECTORY_NAME, ignore_errors=True)

    def _new_quorum(self) -> None:
        for controller in self.controllers:
            shutil.rmtree(controller.metadata_directory)

    def _until_refused(self) -> None:
        until("the quorum refuses", lambda: self.migration_state() == "refused")
        said = problems(self)
        assert "left from another quorum" in said
        assert "delete /migration" in said

    def _until_broker_is_controller(self) -> None:
        until("a broker is the controller", lambda: broker_is_controller(self.client))

    def _raise_epoch(self) -> None:
        raised = int(self.client.get(paths.CONTROLLER_EPOCH)[0]) + ABOVE
        self._shell(f"set /controller_epoch {raised}")
        self.admin.create("raised", 1, 2)
        until("the topic is in ZooKeeper", lambda: self.client.exists(paths.partition_state("raised", 0)))
        assert highest_state_epoch(self.client) <= int(self.client.get(paths.CONTROLLER_EPOCH)[0]) >= raised
