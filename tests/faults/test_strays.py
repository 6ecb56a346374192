"""Brokers that are started after the copy as they should not be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from migrator.drill.light.broker import LightBroker, LightBrokerMode
from migrator.migration.machine.states import State
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all


async def test_a_broker_without_the_migration_and_one_with_the_id_of_a_controller_are_named(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    async with cluster_in(
        tmp_path, zookeeper.hosts, controllers=1, brokers=2, partitions=30, migrator_audit_interval_ms="1000"
    ) as cluster:
        (controller,) = cluster.controllers
        start_all(cluster)
        await cluster.until_converged()
        forgotten, options = cluster.brokers[1], cluster.brokers[0].options
        await forgotten.stop()
        await forgotten.start(LightBrokerMode.ZOOKEEPER)
        named = f"broker {forgotten.options.broker_id}"
        await cluster.until_problem(named, "sends no heartbeats", "zookeeper.metadata.migration.enable=true")

        impostor = LightBroker(replace(options, broker_id=controller.node_id))
        cluster.brokers.append(impostor)
        await impostor.start()
        intruder = f"broker {controller.node_id}"
        await cluster.until_problem(intruder, "the id of a controller")
        found = await cluster.active()
        assert found is not None
        status = found[1]
        assert controller.node_id not in {broker.broker_id for broker in status.brokers}, "its registration is refused"
        journal = [event.text for event in status.recent_events if event.kind == "audit"]
        assert any(named in text for text in journal)

        await impostor.stop()
        await forgotten.stop()
        await forgotten.start()

        async def calm() -> bool:
            found = await cluster.active()
            return found is not None and not any(
                problem.who.startswith("broker")
                and not (problem.who == intruder and "registration is refused" in problem.what)  # kept for minutes
                for problem in found[1].problems
            )

        await cluster.until("nobody is named any more", calm)
        assert await cluster.in_state(State.DUAL_WRITING)
