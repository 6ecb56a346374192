"""A real server closes the connection at a request above its jute.maxbuffer, which it answers with nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.fill import PLAIN_TOPIC
from migrator.errors import ExitCode
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.request_size import JUTE_MAXBUFFER
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.faults.cluster import cluster_in, start_all
from tests.faults.requests import REQUEST_SECONDS, create_topic

TOPIC = PLAIN_TOPIC + "000007"
KEY = "leader.replication.throttled.replicas"
ENTRY = "0:1"
LIMIT = "migrator.zookeeper.jute.maxbuffer"


async def throttle(channel: ControllerChannel, entries: int) -> Any:
    """Set the one config of a topic that may be a list of any length; its error code."""
    config = {"name": KEY, "config_operation": 0, "value": ",".join([ENTRY] * entries)}
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
    request = build(request_type(44, 1), resources=[resource], validate_only=False)
    answer = await channel.request(request, timeout_seconds=REQUEST_SECONDS)
    return answer.responses[0].error_code


async def test_a_change_above_the_servers_limit_is_refused_or_set_aside(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """We believe first that the servers take more than they do; then we know."""
    path = paths.topic_config(TOPIC)
    many = JUTE_MAXBUFFER // len(ENTRY)
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
        assert await throttle(cluster.client, many) is ErrorCode.none
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
        assert await throttle(cluster.client, many + 1) is ErrorCode.policy_violation
        assert await throttle(cluster.client, 1) is ErrorCode.none
        await cluster.until_converged()
        assert await throttle(cluster.client, many) is ErrorCode.policy_violation
        assert controller.stop() == ExitCode.OK
