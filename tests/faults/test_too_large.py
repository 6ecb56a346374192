"""A real server closes the connection at a request above its jute.maxbuffer, which it answers with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.errors import ExitCode
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.request_size import JUTE_MAXBUFFER
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.faults.support.requests import REQUEST_SECONDS, create_topic

VALUE = "x" * 30_000
"""A longer one no record can hold."""
BROKER = 4
LIMIT = "migrator.zookeeper.jute.maxbuffer"


async def configure(channel: ControllerChannel, entries: int) -> Any:
    """Give the default of brokers so many configs of plug-ins, and no others; the error code."""
    configs = [{"name": f"plugin.{number}", "value": VALUE} for number in range(entries)]
    resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    request = build(request_type(33, 2), resources=[resource], validate_only=False)
    answer = await channel.request(request, timeout_seconds=REQUEST_SECONDS)
    return answer.responses[0].error_code


async def test_a_change_above_the_servers_limit_is_refused_or_set_aside(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """We believe first that the servers take more than they do; then we know."""
    path = paths.config("brokers/<default>")
    many = JUTE_MAXBUFFER // len(VALUE) + 1
    async with cluster_in(
        tmp_path,
        zookeeper.hosts,
        controllers=1,
        partitions=20,
        migrator_zookeeper_jute_maxbuffer=str(4 * JUTE_MAXBUFFER),
    ) as cluster:
        (controller,) = cluster.controllers
        start_all(cluster)
        await cluster.until_converged()
        assert await configure(cluster.client, many) is ErrorCode.none
        said = await cluster.until_problem(path, "too large", "the connection was lost")
        assert "jute.maxbuffer" in said
        assert await create_topic(cluster.client, "after") is ErrorCode.none
        await cluster.until_dual_writing()
        assert zookeeper_client.exists(paths.topic("after")) is not None

        # A new leader finds it again, and now the limit is the servers'; what is too large may only become smaller.
        controller.properties[LIMIT] = str(JUTE_MAXBUFFER)
        assert controller.process is not None
        stopped = controller.process
        assert controller.stop() == ExitCode.NOT_DRAINED
        assert path in stopped.tail()
        controller.start()
        await cluster.until_problem(path, "too large", f"{LIMIT} is {JUTE_MAXBUFFER:,}")
        assert await configure(cluster.client, many + 1) is ErrorCode.policy_violation
        assert await configure(cluster.client, 1) is ErrorCode.none
        await cluster.until_converged()
        assert await configure(cluster.client, many) is ErrorCode.policy_violation
        assert controller.stop() == ExitCode.OK
