"""The drill's cluster of real brokers and its admin client, with additions for tests.

Each method waits until its effect is there, so that a test needs no wait of its own. Leaving the context ends every
process.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from migrator.config.property_edits import file_of
from migrator.drill.cluster import ControllerProcess, leader_among, statuses_of
from migrator.drill.kafka import clients, cluster
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.observe.status import BrokerState, Status


class KafkaCluster(cluster.KafkaCluster):
    """See its base; each method waits until what it does is done."""

    def start_controllers(self) -> None:
        """Format and start our controllers, and wait for a leader."""
        self.format_controllers()
        self.resume_controllers()

    def format_controllers(self) -> None:
        """Give each of our controllers an empty log of this cluster."""
        for controller in self.controllers:
            controller.format(self._release_version)

    def resume_controllers(self) -> None:
        """Start our controllers on the logs that they have, and wait for a leader."""
        for controller in self.controllers:
            controller.start()
        until("a controller leads", lambda: self.leader() is not None)

    def forget_controllers(self) -> None:
        """Delete the directories of controllers that have ended: the next are a new quorum, with the migration on."""
        for controller in self.controllers:
            shutil.rmtree(controller.metadata_directory)
            controller.set_migration(enabled=True)

    def roll_brokers(self, mode: KafkaBrokerMode, in_sync: Callable[[], bool]) -> None:
        """One broker after the other: a controlled shutdown, a start in another mode, and the wait for its replicas."""

        def in_sync_again() -> bool:
            self.restart_brokers_without_alter_partition()
            return in_sync()

        for broker in self.brokers:
            self.restart_broker(broker, mode)
            until(f"replicas of broker {broker} are in sync", in_sync_again)

    def restart_killed_broker(self, broker: int) -> None:
        """Start a broker again as it was, when ZooKeeper has forgotten it."""
        if self._zookeeper is not None:
            self._until_forgotten(broker)
        self.brokers[broker].start()

    def finish_migration(self) -> None:
        """One controller after the other: a restart with the migration turned off."""
        for controller in self.controllers:
            controller.set_migration(enabled=False)
            cluster._must_end_well(controller)
            controller.start()
            until("a leader, and the controller is back", partial(self._is_back, controller.node_id))

    def migration_state(self) -> str:
        """The leader's internal state of the migration; empty without a leader."""
        leader = self.leader()
        return "" if leader is None else leader.migration.internal_state

    def public_states(self) -> set[str]:
        """The reports of our controllers."""
        return {status.migration.public_state for status in self.statuses().values()}

    def running_brokers(self) -> dict[int, bool]:
        """Of the unfenced brokers, as the leader sees them: whether they are in ZooKeeper mode."""
        leader = self.leader()
        brokers = () if leader is None else leader.brokers
        return {each.broker_id: each.in_zookeeper_mode for each in brokers if each.state is BrokerState.RUNNING}

    def statuses(self) -> dict[int, Status]:
        """By node id, of our controllers that answer."""
        return asyncio.run(statuses_of(self.controllers))

    def leader(self) -> Status | None:
        """The leader's status; None without a leader."""
        return leader_among(self.statuses().values())

    def leading(self) -> ControllerProcess:
        """The controller that leads, once one does and says so in time: it may be busy."""
        found: list[Status] = []

        def leads() -> bool:
            leader = self.leader()
            found.extend([] if leader is None else [leader])
            return bool(found)

        until("a controller leads", leads)
        return next(each for each in self.controllers if each.node_id == found[0].node_id)

    def kill_leader(self) -> None:
        """SIGKILL for the controller that leads; it comes back when another one leads."""
        controller = self.leading()
        controller.kill()
        until("another controller leads", lambda: self.leader() is not None)
        controller.start()
        until("the controller is back", partial(self._is_back, controller.node_id))

    def _is_back(self, node_id: int) -> bool:
        return node_id in self.statuses() and self.leader() is not None

    def quotas(self, *arguments: str) -> str:
        """``kafka-configs``, with which quotas of clients are set and shown."""
        return self.kafka.configs("--bootstrap-server", self.bootstrap, *arguments, directory=self.directory)

    def write_properties(self, mode: KafkaBrokerMode) -> list[Path]:
        """Files with what the brokers' property files say in that mode, beside those that they run with."""
        files = [self.directory / f"broker-{broker}.{mode.value}.properties" for broker in self.brokers]
        for broker, file in zip(self.brokers, files, strict=True):
            file.write_text(file_of(self.properties_of(broker, mode)))
        return files


class Admin(clients.Admin):
    """See its base."""

    def create_on(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """Create a topic with these replicas of each partition."""
        replicas = [list(brokers) for brokers in assignment]
        self.wait(self.client.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas)]))

    def alter_config(self, kind: ResourceType, name: str, key: str, text: str) -> None:
        """Set one value of a topic's or a broker's configuration."""
        change = ConfigEntry(key, text, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[change])
        self.wait(self.client.incremental_alter_configs([resource]))

    def topic_config(self, name: str, key: str) -> str:
        """One value of a topic's configuration, as a broker has it."""
        answer = self.wait(self.client.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        return str(next(iter(answer.values()))[key].value)
