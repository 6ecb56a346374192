"""Grafana's dashboard: every figure of it is one that a controller shows, and Prometheus understands every query."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import yaml

from migrator.observe.metrics import METRICS
from migrator.rollout.journal.figures import ROLLOUT_METRICS
from tests.deploy.support.dashboard import COLUMNS, FILE, JOB, PANELS, SOURCE, dashboard, text
from tests.deploy.test_alert_series import needs_promtool, promtool
from tests.deploy.test_files import DEPLOY, METRIC, rules

NOT_SHOWN = {
    "kafka_controller_kafkacontroller_zkwritebehindlag",  # the lag, by its other name
    "kafka_controller_kafkacontroller_metadatatype",  # follows from the record
    "kafka_controller_kafkacontroller_offlinepartitionscount",  # of the cluster, not of the migration
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_controller_kafkacontroller_metadataerrorcount",  # the panel of failed tasks has these errors
    "kafka_controller_kafkacontroller_zkwritesnapshottimems",
    "kafka_controller_kafkacontroller_zkwritedeltatimems",
    "kafka_server_metadataloader_finalizedlevel",
    "kafka_controller_kafkacontroller_lastcommittedrecordoffset",  # the high watermark says it
    "kafka_controller_kafkacontroller_lastappliedrecordtimestamp",  # the panel of each log says it
    "kafka_controller_kafkacontroller_lastappliedrecordlagms",
    "kafka_controller_kafkacontroller_newactivecontrollerscount",  # the panel of active controllers shows elections
    "kafka_server_raft_metrics_current_leader",
    "kafka_server_raft_metrics_current_epoch",
    "kafka_server_raft_metrics_current_vote",
    "kafka_server_raft_metrics_log_end_epoch",
    "migrator_migration_state_age_ms",  # the line of states has it
    "migrator_dual_writing",
    "migrator_migration_enabled",
    "migrator_partition_versions_missing",  # for some minutes behind a reopening
    "migrator_graced_brokers",  # for less than a minute after a leader has hung
    "migrator_images_different",  # an alert says it at once
    "migrator_images_age_ms",
    "migrator_authorizer_log_failing",  # an alert says it at once
    "migrator_authorizer_log_lost_lines",
    "migrator_voters",
    "migrator_voter_reassignment",
    "migrator_voter_reassignment_idle_ms",
    "migrator_task_last_failure_ms",
    "migrator_certificate_reload_failures_total",
    "migrator_change_propagation_seconds_sum",
    "migrator_change_propagation_seconds_count",
}
OF_JOB = re.compile(r"\bkafka_[a-z_]+\{job=~")
QUERIES = [query for panel in PANELS for query in panel.queries.values()]


def test_the_file_is_made_from_the_table() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: python -m tests.deploy.support.dashboard"
    assert json.loads(text()) == dashboard()


def test_every_metric_is_on_it_or_left_out_on_purpose() -> None:
    shown = {name for query in QUERIES for name in METRIC.findall(query)}
    assert shown <= METRICS | ROLLOUT_METRICS.keys()
    assert METRICS - shown == NOT_SHOWN
    assert ROLLOUT_METRICS.keys() <= shown


def test_no_query_takes_brokers_in_zookeeper_mode_or_another_cluster_for_controllers() -> None:
    """They have metrics of the same names."""
    for query in QUERIES:
        of_controllers = [name for name in METRIC.findall(query) if name not in ROLLOUT_METRICS]
        assert len(of_controllers) == query.count(JOB), query
    for rule in rules():
        names = [name for name in METRIC.findall(rule["expr"]) if name.startswith("kafka_")]
        assert len(names) == len(OF_JOB.findall(rule["expr"])), rule["alert"]


def test_panels_lie_beside_one_another() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    titles = [panel.title for panel in PANELS]
    assert len(set(titles)) == len(titles)


def test_the_data_source_is_the_one_that_is_provisioned() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8"))
    assert {(source["type"], source["uid"]) for source in sources["datasources"]} == {(SOURCE["type"], SOURCE["uid"])}


@needs_promtool
def test_prometheus_understands_every_query_and_its_own_configuration(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = promtool("check", "rules", "queries.yaml", cwd=tmp_path)
    assert f"{len(QUERIES)} rules found" in done.stdout, done.stderr
    for name in ("compose/prometheus.yaml", "prometheus/alerts.yaml"):  # beside one another, as in the container
        (tmp_path / Path(name).name).write_text((DEPLOY / name).read_text(encoding="utf-8"))
    done = promtool("check", "config", "prometheus.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
