"""The cluster of a procedure, before its first step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.drill.cluster import CLUSTER_ID, zookeeper_client
from migrator.drill.kafka.cluster import KafkaBrokerMode
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.interop.procedures.support.audit import TOPIC
from tests.interop.procedures.support.procedure import Procedure
from tests.interop.procedures.support.runner import Performance


@pytest.fixture
def performance(
    request: pytest.FixtureRequest, own_zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> Iterator[Performance]:
    """Brokers in ZooKeeper mode, and controllers that are not formatted yet; of the test's indirect parameter."""
    procedure: Procedure = request.param
    with zookeeper_client(own_zookeeper.hosts) as client:
        client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
        with Performance(procedure, tmp_path, own_zookeeper, client) as performance:
            performance.start_brokers(KafkaBrokerMode.ZOOKEEPER)
            performance.admin.create(TOPIC, 3, 2)
            yield performance
