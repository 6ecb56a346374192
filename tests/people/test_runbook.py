"""docs/runbook.md, typed as it stands there: real brokers, a real ZooKeeper, a producer whose records are counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.drill.cluster import CHROOT, CLUSTER_ID, zookeeper_client
from migrator.drill.kafka.clients import Admin, Traffic, consume
from migrator.drill.kafka.cluster import until
from migrator.parts.kafka import StockKafka
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.people.support.machines import Machines
from tests.people.support.runbook import EACH_BROKER, EACH_CONTROLLER, PAGE, parts

TOPIC = "orders"
TWO = {EACH_BROKER: 2, EACH_CONTROLLER: 2}
SEEN = ("rehearse", "verify")
"""Commands that `test_to_the_end` types: they look, and each of them starts a Spark."""
PARTS = parts(PAGE.read_text())
PHASES = {part.phases[0]: part for part in PARTS if not part.back}
BACK = {phase: part for part in PARTS if part.back for phase in part.phases}


@pytest.fixture
def machines(kafka_391: StockKafka, own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Machines]:
    """Brokers in ZooKeeper mode, as the page begins."""
    with zookeeper_client(own_zookeeper.hosts) as client:
        client.create(CHROOT + paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with Machines(kafka_391, tmp_path / "m", own_zookeeper.hosts) as machines:
        try:
            machines.perform(PHASES[0])
            machines.start_brokers()
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


def test_to_the_end(machines: Machines) -> None:
    """Each phase, and the ways back of the last two."""
    with counted(machines):
        for phase in (1, 2, 3, 4, 5):
            machines.perform(PHASES[phase])
        machines.perform(PHASES[6], only=TWO, interrupted=True)
        machines.perform(BACK[6], only=TWO)
        machines.perform(PHASES[6])
        machines.perform(PHASES[7])
        machines.perform(BACK[7])


def test_back_from_each_phase(machines: Machines) -> None:
    """To a cluster without any trace of the migration, again and again."""
    with counted(machines):
        machines.perform(PHASES[1], without=SEEN)
        machines.perform(BACK[1])
        machines.perform(PHASES[1], without=SEEN)
        machines.perform(PHASES[2], only=TWO)
        machines.perform(BACK[2], only={EACH_BROKER: 2})
        for last in (4, 5):
            for phase in range(1, last + 1):
                machines.perform(PHASES[phase], without=SEEN)
            machines.perform(BACK[last])
        assert BACK[5].then in BACK[4].phases
        machines.perform(BACK[4])


def test_to_dual_write_and_back(machines: Machines) -> None:
    with counted(machines):
        for phase in (1, 2, 3):
            machines.perform(PHASES[phase], without=SEEN)
        machines.perform(BACK[3])
