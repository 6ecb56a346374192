"""docs/runbook.md, typed as it stands there: real brokers, a real ZooKeeper, a producer whose every record is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CHROOT, CLUSTER_ID, zookeeper_client
from migrator.drill.kafka.clients import Admin, Traffic, consume
from migrator.drill.kafka.cluster import until
from migrator.parts.kafka import StockKafka
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.people.support.machines import Machines
from tests.people.support.runbook import PAGE, Part, parts

pytestmark = pytest.mark.lane("test-long")
TOPIC = "orders"
PHASES = {part.number: part for part in parts(PAGE.read_text()) if not part.back}
BACK = {part.number: part for part in parts(PAGE.read_text()) if part.back}


@pytest.fixture
def machines(kafka_391: StockKafka, own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Machines]:
    """Brokers in ZooKeeper mode, as the page begins."""
    with zookeeper_client(own_zookeeper.hosts) as client:
        client.create(CHROOT + paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with Machines(kafka_391, tmp_path / "m", own_zookeeper.hosts) as machines:
        try:
            machines.perform(PHASES[0])
            yield machines
        finally:
            print("\n".join(machines.transcript))  # noqa: T201 - shown when it fails, and with -rP


@contextmanager
def counted(machines: Machines) -> Iterator[None]:
    """A producer writes meanwhile; in the end every record is read back, once."""
    admin = Admin(machines.bootstrap, 3)
    admin.create(TOPIC, 3, 3)
    with Traffic(machines.bootstrap, TOPIC) as traffic:
        yield
        until("messages are acknowledged", traffic.goes_on)
        traffic.stop()
    assert traffic.errors == []
    values = consume(machines.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
    print(f"{traffic.sent} records produced and read back, 0 lost")  # noqa: T201 - shown with -rP


def test_the_straight_way(machines: Machines) -> None:
    with counted(machines):
        for phase in sorted(PHASES.keys() - {0}):
            machines.perform(PHASES[phase])
