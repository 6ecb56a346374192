"""Three lanes: `make test` for every change, `make test-all` before a merge, `make test-long` for all there is.

A test runs in the lane of its place (`PLACES`, "test" elsewhere), unless it says otherwise itself:
``@pytest.mark.lane("test-all")`` on a test, a module (``pytestmark``) or one case (``pytest.param(..., marks=...)``).
The narrowest mark counts. Without ``--lane`` pytest runs whatever it is asked for. docs/lanes.md says how to choose.

Who runs beside whom (`UNITS`): tests with whole clusters take turns on one worker, all others fill the other ones:
those that share one Spark, those that start a few controllers or a JVM, and all light ones. A cluster is three
controllers, a ZooKeeper and mostly some Kafka brokers. Two of them at once on two cores starve each other.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import hypothesis
import pytest
from _pytest.mark.structures import ParameterSet
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TEST, TEST_ALL, TEST_LONG = LANES = ("test", "test-all", "test-long")
CI = ".ci/run"
MINUTES = {TEST: 8, TEST_ALL: 42, CI: 54}
"""That the longest of the latest runs took on two cores; `make test-all` runs `TEST`, too. Pages and help quote it:
``python -m tests.quotes`` writes the numbers there."""
LIMITS = {TEST: 360, TEST_ALL: 2400, CI: 3000}
"""Seconds that a run may take, of a lane by itself. A run says how far it is above."""
TEST_SECONDS = 5.0
"""Of processors, that a test of `TEST` may take without a line in `HEAVY`; a run names those that take more."""
HEAVY = {
    "tests/interop/test_log_handover.py": "the one stock controller that goes on with our log",
    "tests/migration/model/": "every order of things; the first test that asks for a search makes it",
    "tests/raft/test_exhaustive.py": "most responses end the download that they answer, so it is begun again for each",
    "tests/rehearse/test_command.py": "each command reads a whole cluster in a process of its own",
    "tests/simulation/": "seeds of whole controllers, in processes of their own",
    "tests/verify/": "the tests of one Spark",
}
"""Why tests at a place take more."""
CLUSTERS, SPARK, BESIDE = UNITS = ("clusters", "spark", "beside")
"""The tests that one worker runs without a break, the longest first; ``BESIDE``: each file is a unit of its own."""


class Place(NamedTuple):
    """The defaults of tests at one place: see `PLACES`."""

    lane: str
    unit: str


PLACES = {
    "tests/interop/": Place(TEST_ALL, CLUSTERS),
    "tests/interop/test_discovery.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_empty_disks.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_equal_images.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_format.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_format_version.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_log_handover.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_log_tools.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_logins.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_recover.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_rollout_lock.py": Place(TEST_ALL, BESIDE),
    "tests/interop/test_pages.py": Place(TEST, BESIDE),
    "tests/interop/procedures/test_variations.py": Place(TEST, BESIDE),
    "tests/interop/test_lost_state.py": Place(TEST_LONG, CLUSTERS),
    "tests/interop/test_many_partitions.py": Place(TEST_LONG, CLUSTERS),
    "tests/interop/test_proof_on_stock.py": Place(TEST_LONG, CLUSTERS),
    "tests/interop/test_real_brokers.py": Place(TEST_LONG, CLUSTERS),
    "tests/peers/test_franz_go.py": Place(TEST_LONG, CLUSTERS),
    "tests/peers/test_librdkafka.py": Place(TEST_LONG, CLUSTERS),
    "tests/faults/": Place(TEST_ALL, CLUSTERS),
    "tests/people/test_mistakes.py": Place(TEST_ALL, BESIDE),
    "tests/people/test_status.py": Place(TEST_ALL, CLUSTERS),
    "tests/people/test_top.py": Place(TEST_ALL, CLUSTERS),
    "tests/people/test_without_grpc.py": Place(TEST_ALL, CLUSTERS),
    "tests/people/test_runbook.py": Place(TEST_LONG, CLUSTERS),
    "tests/people/test_tutorial.py": Place(TEST, CLUSTERS),
    "tests/differential/": Place(TEST_ALL, BESIDE),
    "tests/drill/kafka/test_cluster.py": Place(TEST, CLUSTERS),
    "tests/drill/test_run.py": Place(TEST_ALL, CLUSTERS),
    "tests/drill/test_reassign.py": Place(TEST, CLUSTERS),
    "tests/rehearse/test_forecast.py": Place(TEST_ALL, CLUSTERS),
    "tests/rollout/test_observer.py": Place(TEST_ALL, CLUSTERS),
    "tests/bench/test_kraft.py": Place(TEST_ALL, BESIDE),
    "tests/bench/test_verify.py": Place(TEST_ALL, BESIDE),
    "tests/doors/test_controllers.py": Place(TEST_ALL, BESIDE),
    "tests/doors/test_certificate_changes.py": Place(TEST_ALL, BESIDE),
    "tests/doors/test_orders.py": Place(TEST_ALL, BESIDE),
    "tests/doors/costs/": Place(TEST_ALL, BESIDE),
    "tests/verify/": Place(TEST, SPARK),
}
"""Where clusters and JVMs are started. The longest path that a test's name begins with counts."""
EXAMPLES = {TEST: 0.25, TEST_LONG: 20.0}
"""By lane, so many times the examples that a test asks for are tried."""

_times = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    lanes = parser.getgroup("lanes")
    lanes.addoption("--lane", choices=LANES, help="Run the tests of this lane only (default: all that are asked for).")
    lanes.addoption("--list-lanes", action="store_true", help="A line for each test: its lane, a tab, its node id.")


def pytest_configure(config: pytest.Config) -> None:
    global _times  # noqa: PLW0603 - tests ask for it while they are imported, and are handed no configuration there
    config.addinivalue_line("markers", "lane(name): the lane of this test, one of " + ", ".join(LANES))
    _times = EXAMPLES.get(config.getoption("lane"), 1.0)
    hypothesis.settings.register_profile(
        "lanes",
        max_examples=examples(100),
        deadline=None,  # how fast an example is made or run says something about the machine, nothing about the program
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("lanes")


def examples(count: int) -> int:
    """How many examples hypothesis shall try: ``count``, fewer in `TEST` and more in the long lane."""
    return round(count * _times)


def seeds(few: int, many: int) -> list[ParameterSet]:
    """Ranges of seeds for a parameter: the first ``few`` in the lane of the test, ``many`` others in the long one."""
    return [
        pytest.param(range(few), id=f"{few} seeds"),
        pytest.param(range(few, few + many), id=f"{many} more seeds", marks=pytest.mark.lane(TEST_LONG)),
    ]


def place_of(nodeid: str) -> Place:
    """Where a test is: the narrowest of `PLACES`; elsewhere tests are light, and run beside all others."""
    return _place_of_file(nodeid.partition("::")[0])


@cache
def _place_of_file(file: str) -> Place:
    found = max((path for path in PLACES if file.startswith(path)), key=len, default=None)
    return PLACES[found] if found else Place(TEST, BESIDE)


def lane_of(item: pytest.Item) -> str:
    """The lane that a test runs in. Raises `pytest.UsageError` for a mark that names none."""
    own = [mark for mark in item.own_markers if mark.name == "lane"]  # a function's first, then those of one case
    mark = own[-1] if own else item.get_closest_marker("lane")
    if mark is None:
        return place_of(item.nodeid).lane
    if len(mark.args) != 1 or mark.args[0] not in LANES:
        raise pytest.UsageError(f"{item.nodeid}: there is no lane {mark.args}, there are {', '.join(LANES)}")
    return str(mark.args[0])


def runs_in(lane: str, item: pytest.Item) -> bool:
    """Whether a test belongs to a lane. What draws examples is in the long lane, too, and draws more there."""
    return lane_of(item) == lane or (lane == TEST_LONG and item.get_closest_marker("hypothesis") is not None)


def unit_of(nodeid: str) -> str:
    """The name of the unit that a test belongs to: one of `UNITS`, or its file."""
    unit = place_of(nodeid).unit
    return nodeid.partition("::")[0] if unit == BESIDE else unit


def turn_of(nodeid: str) -> tuple[int, bool]:
    """When a test is handed out: big units first, then files with much to do, then the light ones, so that the workers
    end together."""
    place = place_of(nodeid)
    return UNITS.index(place.unit), place.lane == TEST and not nodeid.startswith(tuple(HEAVY))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Units in their turn; among themselves tests keep their random order."""
    lane = config.getoption("lane")
    kept = [item for item in items if lane_of(item) and (lane is None or runs_in(lane, item))]
    config.hook.pytest_deselected(items=list(set(items).difference(kept)))
    items[:] = sorted(kept, key=lambda item: turn_of(item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("list_lanes"):
        writer = session.config.get_terminal_writer()
        for item in session.items:
            writer.line(f"{lane_of(item)}\t{item.nodeid}")


class ClustersInTurn(LoadFileScheduling):  # type: ignore[misc]
    """One unit of work a file, but only one for all the clusters, and one for all who share a Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ClustersInTurn:
    """Units are handed out in the order of the tests."""
    config.option.loadscopereorder = False
    return ClustersInTurn(config, log)
