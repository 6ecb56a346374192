"""`migrator rollout` ends a migration without a controller that is gone, and takes it in again: light brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import MIGRATOR
from migrator.drill.kafka.cluster import until
from migrator.parts.processes import ChildProcess
from migrator.rollout.executors.local_process import find
from migrator.rollout.journal.journal import Event, read_journal
from tests.conftest import ZooKeeperSpace
from tests.interop.support.light_rollout import LightRacks
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.lane("test-long")
BROKERS = 3


def typed(racks: LightRacks, name: str, *words: str) -> str:
    """The output of a command with exit code 0."""
    command = [MIGRATOR, "rollout", name, "-i", str(racks.inventory), *words]
    output = racks.directory / f"{name}-{len(list(racks.directory.glob('*.log')))}.log"
    with ChildProcess(f"rollout {name}", command, output=output) as child:
        child.wait_until(lambda: child.exit_code() is not None, "it ends", timeout_seconds=PATIENCE_SECONDS * BROKERS)
        assert child.exit_code() == 0, child.output_text()
        return child.output_text()


def test_the_leader_ends_without_a_controller_and_it_is_taken_in_again(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    with LightRacks(tmp_path, zookeeper.hosts, BROKERS) as racks:
        racks.prepare(zookeeper_client)
        typed(racks, "apply", "--until", "kraft", "--yes")
        lost = racks.controllers[-1]
        killed = find(str(lost.property_file), ("controller",))
        assert killed
        for process in killed:
            process.kill()
        until("it has ended", lambda: not find(str(lost.property_file), ("controller",)))
        said = typed(racks, "resume", "--yes", "--without-node", str(lost.node_id), "--reason", "its disk is broken")
        assert f"to end without {lost.node_id}" in said
        assert "the rollout is complete" in said
        assert not find(str(lost.property_file), ("controller",))
        said = typed(racks, "apply", "--yes", "--with-node", str(lost.node_id))
        assert "the rollout is complete" in said
        assert find(str(lost.property_file), ("controller",))
        events = [entry.event for entry in read_journal(tmp_path / "inventory.rollout")]
        assert Event.BACK_IN in events
