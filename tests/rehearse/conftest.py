"""One ZooKeeper for the room, whose znodes tests may lock themselves out of: nothing is removed before its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from migrator.parts.zookeeper import EmbeddedZooKeeper
from tests.rehearse.support.cluster import make_cluster

MakeCluster = Callable[..., str]


@pytest.fixture(scope="module")
def new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    """Gives the connection string of another cluster each time."""
    numbers = itertools.count()
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield lambda **options: make_cluster(server.hosts, f"kafka-{next(numbers)}", **options)
