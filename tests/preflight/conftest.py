"""A cluster for each test; its brokers answer from this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.conftest import connect, disconnect, remove_below
from tests.preflight.support.ready_cluster import ReadyCluster, ReadyZooKeeper, answering_broker


@pytest.fixture(scope="session")
def broker_port() -> Iterator[int]:
    with answering_broker(add_partitions_to_txn=4, fetch=17) as port:
        yield port


@pytest.fixture(scope="session")
def old_broker_port() -> Iterator[int]:
    with answering_broker(add_partitions_to_txn=3, fetch=13) as port:
        yield port


@pytest.fixture(scope="module")
def filled(zookeeper_server: str, broker_port: int) -> Iterator[Callable[[], AbstractContextManager[ReadyZooKeeper]]]:
    """Lends the znodes of the cluster: those of the test before, if it left them as they had been filled.
    They go with the module: other tests ask for clusters anywhere on the server."""
    client = connect(zookeeper_server)
    left: list[ReadyZooKeeper] = []
    numbers = itertools.count()

    @contextmanager
    def lend() -> Iterator[ReadyZooKeeper]:
        lent = left.pop() if left else make()
        try:
            yield lent
        finally:
            if lent.is_as_filled:
                left.append(lent)
            else:
                remove(lent)

    def make() -> ReadyZooKeeper:
        chroot = f"/preflight-{os.getpid()}-{next(numbers)}"
        client.create(chroot)
        return ReadyZooKeeper(connect(zookeeper_server + chroot), zookeeper_server + chroot, broker_port)

    def remove(made: ReadyZooKeeper) -> None:
        disconnect(made.client)
        remove_below(client, made.hosts.removeprefix(zookeeper_server))

    yield lend
    for made in left:
        remove(made)
    disconnect(client)


@pytest.fixture
def cluster(
    filled: Callable[[], AbstractContextManager[ReadyZooKeeper]], tmp_path: Path, broker_port: int, old_broker_port: int
) -> Iterator[ReadyCluster]:
    with filled() as zookeeper:
        made = ReadyCluster(zookeeper, tmp_path, broker_port, old_broker_port)
        yield made
        for undo in reversed(made.undo):
            undo()
