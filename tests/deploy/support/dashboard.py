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
from migrator.values import value

FILE = Path(__file__).parents[3] / "deploy/grafana/dashboard.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
COLUMNS = 24
STAT, CURVE, LINE_OF_TIME = "stat", "timeseries", "state-timeline"
_CONTROLLER = "kafka_controller_kafkacontroller_"


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
        {"": "max(migrator_migration_public_state)"},
        names={0: "MigrationIneligible", 1: "MigrateZkData", 2: "DualWrite", 3: "Finished"},
    ),
    Panel(
        "Record in the log", "ZkMigrationState, as Kafka numbers it", STAT, {"": f"max({_CONTROLLER}zkmigrationstate)"},
        names={0: "NONE", 1: "MIGRATION", 2: "PRE_MIGRATION", 3: "POST_MIGRATION"},
    ),
    Panel(
        "Active controllers", "One, but for the moments of an election", STAT,
        {"": f"sum({_CONTROLLER}activecontrollercount) or vector(0)"},
    ),
    Panel("ZooKeeper lacks", "Committed records that are not in ZooKeeper yet; below 0: nobody knows", STAT,
          {"": f"max({_CONTROLLER}zookeeperwritebehindlag) or vector(0)"}, "short"),
    Panel("Brokers in ZooKeeper mode", "That are registered with the quorum", STAT,
          {"": f"max({_CONTROLLER}migratingzkbrokercount)"}),
    Panel(
        "Last verify", "What `migrator verify` found last", STAT, {"": "max(migrator_verify_last_verdict)"},
        names={-1: "never verified", 0: "DIFFERENT", 1: "equal"},
    ),
    Panel(
        "What the active controller does", "The row of the table of states", LINE_OF_TIME,
        {"{{state}}": "max by (state) (migrator_migration_internal_state) == 1"},
    ),
    Panel(
        "Waited for before the copy", "Who keeps it from starting; `migrator status` names them", CURVE,
        {
            "brokers": f"max({_CONTROLLER}migrationineligiblebrokercount)",
            "controllers": f"max({_CONTROLLER}migrationineligiblecontrollercount)",
        },
    ),
    Panel(
        "Records that ZooKeeper lacks", "Above migrator.write.behind.max.records administrative writes wait", CURVE,
        {"{{instance}}": f"{_CONTROLLER}zookeeperwritebehindlag"}, "short",
    ),
    Panel(
        "Writes that wait for ZooKeeper", "Milliseconds of waiting in a second", CURVE,
        {"{{instance}}": f"rate({_CONTROLLER}zookeeperblockingkraftmillis[1m])"}, "ms",
    ),
    Panel(
        "Committed records a second", "At least two: a leader commits an empty record every half second", CURVE,
        {"{{instance}}": "rate(kafka_server_raft_metrics_high_watermark[1m])"}, "short",
    ),
    Panel(
        "Log of each controller", "Its end, and what its image has applied", CURVE,
        {
            "end {{instance}}": "kafka_server_raft_metrics_log_end_offset",
            "applied {{instance}}": f"{_CONTROLLER}lastappliedrecordoffset",
        },
        "short",
    ),
    Panel(
        "Brokers", "As the controllers see them", CURVE,
        {
            "active": f"max({_CONTROLLER}activebrokercount)",
            "fenced": f"max({_CONTROLLER}fencedbrokercount)",
            "offline": "max(migrator_offline_brokers)",
            "not told": "max(migrator_brokers_not_told)",
        },
    ),
    Panel(
        "Topics and partitions", "In the metadata log", CURVE,
        {
            "topics": f"max({_CONTROLLER}globaltopiccount)",
            "partitions": f"max({_CONTROLLER}globalpartitioncount)",
        },
        "short",
    ),
    Panel(
        "From a commit until the last broker knows it", "99 of 100 changes", CURVE,
        {"{{mode}}": f"histogram_quantile(0.99, sum by (le, mode) (rate({PROPAGATION}_bucket[5m])))"},
        "s",
    ),
    Panel(
        "Longest turn of the event loop", "In the last minute", CURVE, {"{{instance}}": "migrator_event_loop_stall_ms"},
        "ms",
    ),
    Panel(
        "Errors that nobody expected", "By kind of task, in an hour", CURVE,
        {"{{instance}} {{task}}": "increase(migrator_task_failures_total[1h])"},
    ),
    Panel(
        "Appends that a log refused", "Above 0 a controller does not follow", CURVE,
        {"{{instance}}": "migrator_log_refused_appends"},
    ),
    Panel(
        "Failed logins and expired sessions", "At each door, in five minutes", CURVE,
        {
            "failed {{instance}} {{door}}": "increase(migrator_failed_logins_total[5m])",
            "expired {{instance}} {{door}}": "increase(migrator_expired_sessions_total[5m])",
        },
    ),
    Panel(
        "Certificates end in", "Days; a file is read again when it changes", CURVE,
        {"{{instance}} {{use}}": "(migrator_certificate_end_seconds - time()) / 86400"}, "d",
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
        "templating": {"list": []},
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
