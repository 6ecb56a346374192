"""Grafana's dashboard, from a table of what it shows.

``python -m tests.deploy.support.dashboard`` writes deploy/grafana/dashboard.json anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from migrator.observe.propagation import PROPAGATION
from migrator.rollout.journal.figures import LAST_LOOK, SHUT_SINCE
from migrator.values import value

FILE = Path(__file__).parents[3] / "deploy/grafana/dashboard.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS = 24
STAT, CURVE, LINE_OF_TIME = "stat", "timeseries", "state-timeline"
_CONTROLLER = "kafka_controller_kafkacontroller_"
JOB = '{job="$job"}'
"""Brokers in ZooKeeper mode have some of the names, too, and a Prometheus may scrape several clusters."""
_OF_THE_LEADER = f"and on (job, instance) {_CONTROLLER}activecontrollercount{JOB} == 1"
JOBS = {
    "name": "job",
    "label": "Job",
    "type": "query",
    "datasource": SOURCE,
    "query": {"query": f"label_values({_CONTROLLER}activecontrollercount, job)", "refId": "job"},
    "regex": "/^kraft-migrator/",
    "refresh": 2,
    "sort": 1,
}


@value
class Panel:
    """``queries``: by legend; ``names`` of values, instead of the number."""

    title: str
    about: str
    kind: str
    queries: Mapping[str, str]
    unit: str = "none"
    names: Mapping[int, str] = field(default_factory=dict)


PANELS = (
    Panel(
        "Migration", "The public state, as the active controller tells it", STAT,
        {"": f"max(migrator_migration_public_state{JOB})"},
        names={0: "MigrationIneligible", 1: "MigrateZkData", 2: "DualWrite", 3: "Finished"},
    ),
    Panel(
        "Record in the log", "ZkMigrationState, as Kafka numbers it", STAT,
        {"": f"max({_CONTROLLER}zkmigrationstate{JOB})"},
        names={0: "NONE", 1: "MIGRATION", 2: "PRE_MIGRATION", 3: "POST_MIGRATION"},
    ),
    Panel(
        "Active controllers", "One, but for the moments of an election", STAT,
        {"": f"sum({_CONTROLLER}activecontrollercount{JOB}) or vector(0)"},
    ),
    Panel(
        "ZooKeeper lacks", "Committed records that are not in ZooKeeper yet, as the active controller knows", STAT,
        {"": f"(min({_CONTROLLER}zookeeperwritebehindlag{JOB}) < 0) or max({_CONTROLLER}zookeeperwritebehindlag{JOB})"},
        "short", names={-1: "nobody knows"},
    ),
    Panel("Brokers in ZooKeeper mode", "That are registered with the quorum", STAT,
          {"": f"max({_CONTROLLER}migratingzkbrokercount{JOB})"}),
    Panel(
        "Last verify", "What the active controller was told by `migrator verify --report`", STAT,
        {"": f"max(migrator_verify_last_verdict{JOB})"},
        names={-1: "not verified", 0: "DIFFERENT", 1: "equal"},
    ),
    Panel(
        "What the active controller does", "The row of the table of states", LINE_OF_TIME,
        {"{{state}}": f"max by (state) (migrator_migration_internal_state{JOB} {_OF_THE_LEADER}) == 1"},
    ),
    Panel(
        "Waited for before the copy", "Who keeps it from starting; `migrator status` names them", CURVE,
        {
            "brokers": f"max({_CONTROLLER}migrationineligiblebrokercount{JOB})",
            "controllers": f"max({_CONTROLLER}migrationineligiblecontrollercount{JOB})",
        },
    ),
    Panel(
        "Records that ZooKeeper lacks", "Above migrator.write.behind.max.records administrative writes wait", CURVE,
        {"{{instance}}": f"{_CONTROLLER}zookeeperwritebehindlag{JOB}"}, "short",
    ),
    Panel(
        "Writes that wait for ZooKeeper", "Milliseconds of waiting in a second", CURVE,
        {"{{instance}}": f"rate({_CONTROLLER}zookeeperblockingkraftmillis{JOB}[1m])"}, "ms",
    ),
    Panel(
        "Committed records a second", "At least two: a leader commits an empty record every half second", CURVE,
        {"{{instance}}": f"rate(kafka_server_raft_metrics_high_watermark{JOB}[1m])"}, "short",
    ),
    Panel(
        "Log of each controller", "Its end, and what its image has applied", CURVE,
        {
            "end {{instance}}": f"kafka_server_raft_metrics_log_end_offset{JOB}",
            "applied {{instance}}": f"{_CONTROLLER}lastappliedrecordoffset{JOB}",
        },
        "short",
    ),
    Panel(
        "Brokers", "As the controllers see them", CURVE,
        {
            "active": f"max({_CONTROLLER}activebrokercount{JOB})",
            "fenced": f"max({_CONTROLLER}fencedbrokercount{JOB})",
            "offline": f"max(migrator_offline_brokers{JOB})",
            "not told": f"max(migrator_brokers_not_told{JOB})",
        },
    ),
    Panel(
        "Topics and partitions", "In the metadata log", CURVE,
        {
            "topics": f"max({_CONTROLLER}globaltopiccount{JOB})",
            "partitions": f"max({_CONTROLLER}globalpartitioncount{JOB})",
        },
        "short",
    ),
    Panel(
        "From a commit until the last broker knows it", "99 of 100 changes", CURVE,
        {"{{mode}}": f"histogram_quantile(0.99, sum by (le, mode) (rate({PROPAGATION}_bucket{JOB}[5m])))"},
        "s",
    ),
    Panel(
        "Longest turn of the event loop", "In the last minute", CURVE,
        {"{{instance}}": f"migrator_event_loop_stall_ms{JOB}"},
        "ms",
    ),
    Panel(
        "Errors that nobody expected", "By kind of task, since the controller was started", CURVE,
        {"{{instance}} {{task}}": f"migrator_task_failures_total{JOB}"},
    ),
    Panel(
        "Appends that a log refused", "Above 0 a controller does not follow", CURVE,
        {"{{instance}}": f"migrator_log_refused_appends{JOB}"},
    ),
    Panel(
        "Failed logins and expired sessions", "At each door, in five minutes", CURVE,
        {
            "failed {{instance}} {{door}}": f"increase(migrator_failed_logins_total{JOB}[5m])",
            "expired {{instance}} {{door}}": f"increase(migrator_expired_sessions_total{JOB}[5m])",
        },
    ),
    Panel(
        "Certificates end in", "Days; a file is read again when it changes", CURVE,
        {"{{instance}} {{use}}": f"(migrator_certificate_end_seconds{JOB} - time()) / 86400"}, "d",
    ),
    Panel(
        "Rollout: a gate has been shut for", "By step; `migrator rollout status` names who is waited for", CURVE,
        {"{{step}}": f"time() - {SHUT_SINCE}"}, "s",
    ),
    Panel(
        "Rollout: last look", "How long ago it looked at its gates, by step", CURVE,
        {"{{step}}": f"time() - {LAST_LOOK}"}, "s",
    ),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """As Grafana imports it: figures in the first line, curves in pairs below."""
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(PANELS, 1):
        width, height = (4, 4) if panel.kind == STAT else (12, 8)
        if x + width > COLUMNS:
            x, y = 0, y + int(panels[-1]["gridPos"]["h"])
        panels.append(_panel(number, panel) | {"gridPos": {"x": x, "y": y, "w": width, "h": height}})
        x += width
    return {
        "uid": "kraft-migrator",
        "title": "kraft-migrator",
        "description": "A migration from ZooKeeper to KRaft, and the quorum of controllers that does it",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "tags": ["kafka", "kraft", "zookeeper"],
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [JOBS]},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    names = {str(number): {"text": text, "index": at} for at, (number, text) in enumerate(panel.names.items())}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "type": panel.kind,
        "datasource": SOURCE,
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": SOURCE}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "mappings": [{"type": "value", "options": names}] if names else [],
            },
            "overrides": [],
        },
        "options": {},
    }


def text() -> str:
    """Of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
