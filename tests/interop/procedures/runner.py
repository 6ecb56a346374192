"""Performs a published procedure: the only code there is for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka import cluster
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.parts.kafka import KafkaRelease
from migrator.parts.processes import run_to_end
from migrator.zookeeper.znodes import paths
from tests.interop.procedures.procedure import Procedure, Step, properties
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import broker_is_controller, stage

OF_THE_TEST = (
    "log.dirs",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "group.initial.rebalance.delay.ms",
    "log.cleaner.dedupe.buffer.size",
)
"""What a broker's file says for two brokers on one machine, beside the procedure's own lines."""
ABOVE = 1000
"""By how much ``/controller_epoch`` is raised: above any epoch of the quorum."""


class Performance(KafkaCluster):
    """Two brokers and the controllers of a procedure; its property files are those of the procedure."""

    def __init__(self, procedure: Procedure, directory: Path, zookeeper: str, client: KazooClient) -> None:
        release = KafkaRelease(procedure.release).fetch()
        super().__init__(
            release,
            directory,
            controllers=procedure.controllers,
            brokers=2,
            zookeeper=zookeeper,
            release_version=procedure.protocol,
        )
        self.procedure = procedure
        self.client = client
        self._set_controllers(procedure.prepared)

    @cached_property
    def admin(self) -> Admin:
        """A client, from the moment that the brokers run."""
        return Admin(self.bootstrap, 2)

    def properties_of(self, broker: int, mode: KafkaBrokerMode) -> dict[str, str]:
        """See its base."""
        own = super().properties_of(broker, mode)
        _, port = self.broker_addresses[broker]
        return {key: own[key] for key in OF_THE_TEST} | properties(self.procedure.brokers[mode], self._gaps(broker, port))

    def perform(self) -> None:
        """Every step, in the order of the procedure."""
        for step in self.procedure.steps:
            with stage(step):
                self._actions[step]()

    @property
    def _actions(self) -> Mapping[Step, Callable[[], object]]:
        return {
            Step.FORMAT: self._format,
            Step.PROVISION: self.resume_controllers,
            Step.MIGRATING: partial(self._roll, KafkaBrokerMode.MIGRATING),
            Step.DUAL_WRITE: self._until_dual_write,
            Step.KRAFT: partial(self._roll, KafkaBrokerMode.KRAFT),
            Step.FINALIZE: self._finalize,
            Step.FINISHED: self._until_finished,
            Step.DEPROVISION: self.stop_controllers,
            Step.DELETE_CONTROLLER: self._delete_controller,
            Step.DELETE_MIGRATION: partial(self.client.delete, paths.MIGRATION),
            Step.RAISE_EPOCH: self._raise_epoch,
            Step.ZOOKEEPER: partial(self._roll, KafkaBrokerMode.ZOOKEEPER),
            Step.REJOIN_ZOOKEEPER: partial(self._roll, KafkaBrokerMode.MIGRATING),
        }

    def _gaps(self, node: int, port: int) -> dict[str, str]:
        addresses = [f"localhost:{port}" for _, port in self.controller_addresses]
        ids = [str(controller.node_id) for controller in self.controllers]
        return {
            "id": str(node),
            "port": str(port),
            "zookeeper": self._zookeeper or "",
            "protocol": self.procedure.protocol,
            "servers": ",".join(addresses),
            "voters": ",".join(f"{voter}@{address}" for voter, address in zip(ids, addresses, strict=True)),
        }

    def _set_controllers(self, text: str) -> None:
        for controller, (_, port) in zip(self.controllers, self.controller_addresses, strict=True):
            said = properties(text, self._gaps(controller.node_id, port))
            controller.properties = {"log.dirs": str(controller.metadata_directory), **said}

    def _format(self) -> None:
        for controller in self.controllers:
            controller.write_properties()
            gaps = {"cluster": CLUSTER_ID, "file": str(controller.property_file), "protocol": self.procedure.protocol}
            words = [word.format(**gaps) for word in self.procedure.format]
            run_to_end("format", [MIGRATOR, "format", *words], timeout_seconds=COMMAND_SECONDS)

    def _roll(self, mode: KafkaBrokerMode) -> None:
        self.roll_brokers(mode, self.admin.in_sync)

    def _until_dual_write(self) -> None:
        until("dual-write", lambda: self.migration_state() == "dual-writing")
        until("both brokers are unfenced", lambda: self.running_brokers() == {1: True, 2: True})
        said = (self.leading().directory / "controller.log").read_text()
        for line in self.procedure.waits:
            assert re.search(line, said), f"the active controller never said {line!r}"
        topic = f"hybrid-{self.client.exists(paths.CONTROLLER_EPOCH).version}"
        self.admin.create(topic, 1, 2)
        until("a new topic is in ZooKeeper", lambda: self.client.exists(paths.partition_state(topic, 0)))

    def _finalize(self) -> None:
        self._set_controllers(self.procedure.finalized)
        for controller in self.controllers:
            cluster._must_end_well(controller)
            controller.start()
            until("a leader, and the controller is back", partial(self._is_back, controller.node_id))

    def _until_finished(self) -> None:
        until("the migration is finished", lambda: self.public_states() == {"Finished"})
        self.admin.create("later", 1, 2)
        assert not self.client.exists(paths.topic("later"))

    def _delete_controller(self) -> None:
        self.client.delete(paths.CONTROLLER)
        until("a broker is the controller", lambda: broker_is_controller(self.client))

    def _raise_epoch(self) -> None:
        data, _ = self.client.get(paths.CONTROLLER_EPOCH)
        raised = int(data) + ABOVE
        self.client.set(paths.CONTROLLER_EPOCH, str(raised).encode())
        until("the quorum claims above it", lambda: int(self.client.get(paths.CONTROLLER_EPOCH)[0]) > raised)
