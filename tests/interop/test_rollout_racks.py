"""`migrator rollout` takes a cluster rack by rack to KRaft: light brokers as processes, controllers of ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import MIGRATOR
from migrator.parts.processes import ChildProcess
from tests.conftest import ZooKeeperSpace
from tests.interop.support.light_rollout import LightRacks
from tests.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("brokers", [6, pytest.param(30, marks=pytest.mark.lane("test-long"))])
def test_no_two_racks_are_down_and_no_partition_falls_below_its_min_isr(
    zookeeper: ZooKeeperSpace,
    zookeeper_client: KazooClient,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    brokers: int,
) -> None:
    with LightRacks(tmp_path, zookeeper.hosts, brokers) as racks:
        racks.prepare(zookeeper_client)
        command = [MIGRATOR, "rollout", "apply", "-i", str(racks.inventory), "--yes"]
        begun = time.monotonic()
        with ChildProcess("rollout", command, output=tmp_path / "rollout.log") as rollout:
            rollout.wait_until(
                lambda: rollout.exit_code() is not None,
                "the rollout ends",
                timeout_seconds=PATIENCE_SECONDS * brokers,
            )
            assert rollout.exit_code() == 0, rollout.output_text()
            seconds = time.monotonic() - begun
            share = next(line for line in rollout.output_text().splitlines() if line.startswith("restarts "))
        assert dict(racks.restarts()) == dict.fromkeys(racks.racks, 2)
        assert not list(racks.harm())
        assert not list(racks.harm_in_log())
        figures = f"{sum(racks.restarts().values())} restarts of brokers in {seconds:.0f} s; {share}"
        record_property("figures", figures)
        sys.stdout.write(f"{brokers} brokers: {figures}\n")
