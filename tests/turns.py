"""Who runs beside whom: tests with whole clusters take turns on one worker, all others fill the second one.

A cluster is three controllers, a ZooKeeper and mostly some Kafka brokers. Two of them at once on two cores starve each
other, and then sessions expire, brokers are fenced and ISRs shrink for no reason of the program's.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

CLUSTERS = "clusters"
_PLACES = (
    "tests/interop/",
    "tests/faults/",
    "tests/differential/",
    "tests/bench/",
    "tests/drill/test_run.py",
    "tests/rehearse/test_forecast.py",
)


def runs_clusters(nodeid: str) -> bool:
    """Whether it is one of the tests that start whole clusters."""
    return nodeid.startswith(_PLACES)


class ClustersInTurn(LoadFileScheduling):  # type: ignore[misc]
    """One unit of work a file, but only one for all the clusters."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return CLUSTERS if runs_clusters(nodeid) else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ClustersInTurn:
    """The clusters take longest: they are handed out first (`pytest_collection_modifyitems`)."""
    config.option.loadscopereorder = False
    return ClustersInTurn(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Clusters first; among themselves they keep their random order."""
    items.sort(key=lambda item: not runs_clusters(item.nodeid))
