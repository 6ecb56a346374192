"""Our own sessions on the real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from tests.conftest import ZooKeeperSpace


@pytest.fixture
def session(zookeeper: ZooKeeperSpace) -> Iterator[ZooKeeperSession]:
    """A connected session in the test's own chroot."""
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as started:
        yield started
