"""The metrics endpoint: every figure of a reading arrives over HTTP, and a reading that fails does not end it."""

from __future__ import annotations

import re
import statistics
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from migrator.observe.metrics import (
    FEATURE_GAUGE,
    GAUGES,
    METRICS,
    STATE_GAUGE,
    TASK_COUNTER,
    TASK_GAUGE,
    MetadataType,
    MigrationFigures,
    Reading,
    ReadingCollector,
)
from migrator.observe.metrics_endpoint import MetricsEndpoint
from migrator.observe.propagation import PROPAGATION, PropagationMode, PropagationTimes
from migrator.observe.write_times import KEPT, QUANTILES, Durations, WriteTimes
from migrator.supervision import TaskFailures
from migrator.zookeeper.znodes.migration import CRC_FIELD
from tests.patience import PATIENCE_SECONDS

RAFT = "kafka_server_raft_metrics_"
UNRELATED = {
    "migrator_log_refused_appends",
    "migrator_voters",
    "migrator_voter_reassignment",
    "migrator_voter_reassignment_idle_ms",
    "migrator_images_different",
    "migrator_images_age_ms",
    "migrator_authorizer_log_failing",
    "migrator_authorizer_log_lost_lines",
}
"""Of the quorum, not of the migration."""
MIGRATION = MigrationFigures(
    public_state=2,
    internal_states={"inactive": False, "dual-writing": True},
    dual_writing=True,
    enabled=True,
    state_age_ms=3,
    ineligible_brokers=4,
    ineligible_controllers=5,
)
NUMBERS = {field.name: 100 + number for number, field in enumerate(fields(Reading)) if field.type in ("int", "float")}
READING = Reading(
    **NUMBERS | {"epoch": 7, "role": "leader", "active": True, "voter_reassignment": True},  # type: ignore[arg-type]
    authorizer_log_failing=True,
    voted_directory="AAAAAAAAAAAAAAAAAAAAAA",
    kafka_raft_state="leader",
    migration=MIGRATION,
    metadata_type=MetadataType.DUAL,
    features={"metadata.version": 21},
    task_failures={"broker-channel": TaskFailures(2, "UnicodeError", 1_000)},
)


@contextmanager
def served(read: Any) -> Iterator[int]:
    server = MetricsEndpoint("127.0.0.1", 0, [ReadingCollector(read)])
    try:
        yield server.port
    finally:
        server.close()


def scrape(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_is_read_from_the_endpoint() -> None:
    with served(lambda: READING) as port:
        found = scrape(port)
    ours = (("epoch", "7"), ("role", "leader"))
    for name, _, figure in GAUGES:
        assert found[name, ours] == float(figure(READING)), name
    assert found[FEATURE_GAUGE, (("epoch", "7"), ("feature", "metadata.version"), ("role", "leader"))] == 21
    assert found[STATE_GAUGE, (*ours, ("state", "dual-writing"))] == 1
    assert found[STATE_GAUGE, (*ours, ("state", "inactive"))] == 0
    assert found[TASK_COUNTER, (("task", "broker-channel"),)] == 2
    assert found[TASK_GAUGE, (("error", "UnicodeError"), ("task", "broker-channel"))] == 1_000


def test_the_time_until_the_last_broker_knows_a_change_is_a_histogram() -> None:
    times = PropagationTimes()
    times.observe(PropagationMode.ZOOKEEPER, 0.02)
    times.observe(PropagationMode.KRAFT, 1.5)
    server = MetricsEndpoint("127.0.0.1", 0, [ReadingCollector(lambda: READING), times.histogram])
    try:
        found = scrape(server.port)
    finally:
        server.close()
    assert found[f"{PROPAGATION}_count", (("mode", "zookeeper"),)] == 1
    assert found[f"{PROPAGATION}_sum", (("mode", "kraft"),)] == 1.5
    assert found[f"{PROPAGATION}_bucket", (("le", "0.025"), ("mode", "zookeeper"))] == 1
    assert found[f"{PROPAGATION}_bucket", (("le", "1.0"), ("mode", "kraft"))] == 0


def test_the_page_on_kip_866_names_every_metric_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kip-866.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:kafka|migrator)_[a-z_]+)", page)) - {CRC_FIELD}
    own = {name for name in METRICS if not name.startswith((PROPAGATION, RAFT))} | {PROPAGATION}
    assert named == own - UNRELATED


def test_no_figure_is_left_out() -> None:
    shown = [figure(READING) for *_, figure in GAUGES]
    missing = set()
    for name in NUMBERS.keys() - {"epoch"}:
        moved: Any = {name: NUMBERS[name] + 1}
        if [figure(replace(READING, **moved)) for *_, figure in GAUGES] == shown:
            missing.add(name)
    assert missing == set()


def test_a_reading_that_fails_is_one_answer_that_fails() -> None:
    readings: list[Any] = [LookupError("planted"), READING]

    def read() -> Reading:
        found = readings.pop(0)
        if isinstance(found, Exception):
            raise found
        reading: Reading = found
        return reading

    with served(read) as port:
        with pytest.raises(urllib.error.HTTPError):
            scrape(port)
        assert scrape(port)


def test_write_times_are_summaries_with_the_quantiles_that_a_jmx_exporter_shows() -> None:
    writes = WriteTimes()
    for ms in range(1, 101):
        writes.delta.note(ms)
    server = MetricsEndpoint("127.0.0.1", 0, [writes])
    try:
        found = scrape(server.port)
    finally:
        server.close()
    delta, snapshot = (f"kafka_controller_kafkacontroller_zkwrite{kind}timems" for kind in ("delta", "snapshot"))
    assert (found[f"{delta}_count", ()], found[f"{delta}_sum", ()], found[f"{snapshot}_count", ()]) == (100, 5050, 0)
    assert found[delta, (("quantile", "0.5"),)] == 50.5
    assert found[delta, (("quantile", "0.999"),)] == 100
    assert found[snapshot, (("quantile", "0.999"),)] == 0


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=KEPT + 50))
def test_durations_are_bounded_and_say_what_was_noted(noted: list[int]) -> None:
    durations = Durations()
    for ms in noted:
        durations.note(ms)
    found = durations.attributes()
    assert (found["Count"], found["Min"], found["Max"]) == (len(noted), min(noted), max(noted))
    assert found["Mean"] == pytest.approx(statistics.fmean(noted))
    assert found["StdDev"] == pytest.approx(statistics.stdev(noted) if len(noted) > 1 else 0, rel=1e-6, abs=1e-3)
    quantiles = [found[f"{name}Percentile"] for name in QUANTILES]
    assert quantiles == sorted(quantiles)
    assert min(noted) <= quantiles[0] <= quantiles[-1] <= max(noted)
