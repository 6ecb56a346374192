"""`migrator status` of real controllers at 3 a.m.: in each awkward state it says what is so, and what comes next."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from migrator.drill.cluster import ControllerProcess
from migrator.drill.light.broker import LightBrokerMode
from migrator.drill.report import DrillReport
from migrator.errors import ExitCode
from migrator.migration.machine.states import State
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all
from tests.people.support.commands import MIGRATOR, Said, migrator

OTHER_LEVEL = 20
"""Of metadata.version: 3.9 is 21."""


async def status(controller: ControllerProcess, *more: str) -> Said:
    return await migrator("status", "-c", str(controller.property_file), *more)


async def until_said(cluster: FaultCluster, controller: ControllerProcess, *texts: str) -> Said:
    """Ask until the answer has all of these."""
    found: list[Said] = []

    async def said() -> bool:
        found[:] = [await status(controller)]
        return all(text in found[0] for text in texts)

    try:
        await cluster.until(f"status says {texts}", said)
    except AssertionError as error:
        raise AssertionError(f"{found[0].text}\n{error}") from None
    return found[0]


async def test_before_the_first_leader(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=3, partitions=30) as cluster:
        one, *_ = cluster.controllers
        down = await status(one)
        assert down.code == ExitCode.REFUSED
        assert "Start the controller" in down

        one.start()
        await cluster.until("it answers", one.status)
        first = await until_said(cluster, one, "there is no answer from controllers 3002, 3003")
        assert first.code == ExitCode.DIFFERENT, "no leader"
        assert "Unknown (no controller has been elected yet)" in first
        assert "An election needs 2 of 3 voters" in first
        assert "next: start the controllers" in first
        assert "MigrationIneligible" not in first
        assert "metadata.version" not in first


async def test_all_blockers_at_once_a_refused_registration_and_a_pause(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=3, partitions=30) as cluster:
        one, two, three = cluster.controllers
        prepared, wrong, without_flag = cluster.brokers
        good = wrong.options
        await asyncio.gather(*(broker.stop(controlled=False) for broker in cluster.brokers))
        start_all(cluster)
        leader = await cluster.until_state(State.WAITING_FOR_BROKERS)
        blocked = await until_said(cluster, one, "no broker is registered in ZooKeeper. Start the brokers in migration")
        assert blocked.code == ExitCode.OK
        assert "Delete /config/brokers" not in blocked, "whether they hold replicas is not known yet"

        wrong.options = replace(good, metadata_version=OTHER_LEVEL)
        await asyncio.gather(prepared.start(), wrong.start(), without_flag.start(LightBrokerMode.ZOOKEEPER))
        refused = await until_said(
            cluster,
            two,
            "broker 2: its registration is refused: UNSUPPORTED_VERSION",
            "broker 3: it runs, but has not registered with the quorum. Set zookeeper.metadata.migration.enable=true",
        )
        assert "The cluster is at level 21 of 'metadata.version'; broker 2 supports 20 to 20" in refused
        assert "set its inter.broker.protocol.version to the release" in refused
        assert "broker 2: it runs, but has not registered" not in refused
        assert "restart every broker with the settings of the migration" in refused

        paused = await migrator("pause", "-c", str(leader.property_file), "--reason", "night")
        assert paused.code == ExitCode.OK, paused.text
        await until_said(cluster, three, "paused", "migrator resume", "its registration is refused")
        await asyncio.gather(wrong.stop(controlled=False), without_flag.stop(controlled=False))
        wrong.options = good
        await asyncio.gather(wrong.start(), without_flag.start())
        ready = await until_said(cluster, one, "(paused for", "next: run 'migrator resume'")
        assert "refused" not in ready
        assert "night" in ready
        resumed = await migrator("resume", "-c", str(leader.property_file))
        assert resumed.code == ExitCode.OK, resumed.text
        await until_said(
            cluster, two, "DualWrite (dual-writing for", "restart the brokers in KRaft mode", "brokers 1-3"
        )


async def test_who_is_down_who_leads_and_whom_to_ask(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=20) as cluster:
        start_all(cluster)
        leader = await cluster.until_dual_writing()
        follower, other = (each for each in cluster.controllers if each is not leader)

        asked = await status(follower)
        assert asked.code == ExitCode.OK
        says = (
            f"controller {follower.node_id} does not lead; this is what controller {leader.node_id} says, which leads"
        )
        assert says in asked
        assert "DualWrite (dual-writing for" in asked
        alone = await migrator(
            "status", "--server", follower.properties["migrator.grpc.listener"],
            "--command-config", str(follower.property_file),
        )  # fmt: skip
        assert f"as controller {follower.node_id} knows it, which follows controller {leader.node_id}" in alone
        assert f"run this command with the property file of controller {leader.node_id}" in alone
        assert "for 0 s" not in alone

        watch = await asyncio.create_subprocess_exec(
            *MIGRATOR, "status", "-c", str(leader.property_file), "--watch", stdout=asyncio.subprocess.PIPE
        )
        assert watch.stdout is not None
        line = (await watch.stdout.readline()).decode()
        assert f"DualWrite (dual-writing), controller {leader.node_id} leads; brokers 1, 2 Running" in line

        await asyncio.to_thread(follower.kill)
        line = (await watch.stdout.readline()).decode()
        assert line.endswith(f"; controller {follower.node_id}: it is silent\n")
        watch.terminate()
        await watch.communicate()
        watch._transport.close()  # type: ignore[attr-defined]

        silent = await until_said(cluster, leader, f"controller {follower.node_id}: last heard", " s ago")
        assert silent.code == ExitCode.OK
        assert "next: first do what the messages below say" in silent
        of_the_dead = await status(follower)
        assert of_the_dead.code == ExitCode.OK
        assert "the controller does not answer" in of_the_dead
        assert f"this is what controller {leader.node_id} says, which leads" in of_the_dead
        facts = json.loads((await status(leader, "--json")).text)
        assert facts["has_leader"]
        assert facts["is_leaders_view"]
        assert facts["next"].startswith("first do")
        assert [group["problems"][0]["who"] for group in facts["problem_groups"]] == [f"controller {follower.node_id}"]

        await asyncio.to_thread(leader.kill)
        names = f"controllers {', '.join(map(str, sorted((leader.node_id, follower.node_id))))}"
        gone = await until_said(cluster, other, "no controller leads", f"there is no answer from {names}")
        assert gone.code == ExitCode.DIFFERENT
        assert f"Start {names}" in gone
        assert "DualWrite (no controller leads; the last known state)" in gone
        text = other.process.output_text() if other.process else ""
        await cluster.until("the log says why", lambda: "No controller has led for" in _log(other))
        assert "Candidate in epoch" not in text

        leader.start()
        follower.start()
        await cluster.until_dual_writing()
        await cluster.roll_to_kraft(DrillReport({}))
        await until_said(cluster, other, "run 'migrator verify', then restart the controllers")
        for controller in cluster.controllers:
            controller.set_migration(enabled=False)
            await asyncio.to_thread(controller.stop)
            controller.start()
        done = await until_said(cluster, other, "Finished (finished for")
        assert "next: stop ZooKeeper if nothing else uses it" in done
        assert "migration │" not in done, "that the migration is off everywhere is how it should be"


def _log(controller: ControllerProcess) -> str:
    return controller.process.output_text() if controller.process else ""


async def test_the_log_is_a_page_and_ends_with_what_zookeeper_has(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=20) as cluster:
        start_all(cluster)
        leader = await cluster.until_dual_writing()
        follower, other = (each for each in cluster.controllers if each is not leader)
        for controller in cluster.controllers:
            assert len(_log(controller).splitlines()) < 50, _log(controller)
            # what Bitnami's runbook waits for, on any controller
            assert "Transitioning ZK migration state from PRE_MIGRATION to MIGRATION" in _log(controller)
        for as_kafka_says in (  # what Kafka's manual waits for, as the manual and as the code words it
            "Completed migration of metadata from Zookeeper to KRaft",
            "Completed migration of metadata from ZooKeeper to KRaft",
            f"{leader.node_id} transitioning from KRAFT_CONTROLLER_TO_BROKER_COMM to DUAL_WRITE state",
        ):
            assert _log(leader).count(as_kafka_says) == 1, _log(leader)
        before = len(_log(leader).splitlines())
        for gate in cluster.gates.values():
            gate.cut()
        await cluster.until("it says that ZooKeeper is away", lambda: "has been out of reach for" in _log(leader))
        for gate in cluster.gates.values():
            gate.mend()
        await cluster.until("it says that ZooKeeper is back", lambda: "answers again, after" in _log(leader))
        await cluster.until_dual_writing()
        # A machine with much other work makes the loop late, which is another subject.
        away = [line for line in _log(leader).splitlines()[before:] if "loop_health" not in line]
        assert not [line for line in away if "kazoo" in line]
        assert len([line for line in away if "WARNING" in line]) == 1, away
        assert cluster.gates[leader.node_id].hosts in away[0]

        assert await asyncio.to_thread(follower.stop) == 0
        assert f"Stopped; controller {leader.node_id} leads, and writes to ZooKeeper" in _log(follower)
        await cluster.until_dual_writing()
        assert await asyncio.to_thread(leader.stop) == 0
        assert "Stopped, ZooKeeper has everything" in _log(leader).splitlines()[-1]
        await asyncio.to_thread(other.stop)
        assert "ZooKeeper has everything" not in _log(other)
