"""Which faults met which states of a controller, and on which operation on its disk a crash fell.

What is counted here is what the seeds may claim to have tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.raft.states import Follower

if TYPE_CHECKING:
    from tests.simulation.whole.controller import Controller

STATES = (
    "starting",
    "empty",
    "unattached",
    "prospective",
    "candidate",
    "follower",
    "observer",
    "snapshot",
    "leader",
    "resigned",
    "stopping",
)
FILES = {
    "must-fetch-first": "mark of an empty disk",
    "quorum-state": "election state",
    "leader-epoch-checkpoint": "epochs",
    "synced-end": "synced end",
    "__cluster_metadata-0": "directory of the log",
    ".checkpoint": "snapshot",
    ".log": "segment",
    "journal": "journal",
}
"""By a part of their names."""
OPERATIONS = {
    "segment": ("create", "write", "fsync", "truncate", "rename"),
    "snapshot": ("create", "write", "fsync", "rename", "remove"),
    "election state": ("create", "write", "fsync", "rename"),
    "epochs": ("create", "write", "fsync", "rename"),
    "mark of an empty disk": ("create", "write", "fsync", "rename", "remove"),
    "synced end": ("create", "write", "fsync", "rename", "remove"),
    "directory of the log": ("fsync",),
    "journal": ("create", "write", "fsync"),
}
"""What a controller does with each kind of file, so that a crash can fall on it."""
POINTS = tuple(f"crash at {operation} | {kind}" for kind, found in OPERATIONS.items() for operation in found)
FAULTS = ("kill", "power cut", "stop", "hang", "cut", "slow", "full", "failing", "wipe")


TOO_RARE = {
    "wipe | leader": "it has just written what too few others have, so its disk may not be lost",
}
"""Cells that the seeds of a lane need not meet, and why."""


def state_of(controller: Controller) -> str:
    """One of `STATES`."""
    core = controller.core
    if core is None:
        return "starting"
    if controller.is_stopping:
        return "stopping"
    quorum = core.quorum._core._quorum
    state = quorum.state
    if core.metadata._work is not None:
        return "snapshot"
    if quorum.must_fetch_first and quorum.is_barred:
        return "empty"
    if not isinstance(state, Follower):
        return state.role.value
    if state.download is not None or quorum.finishing is not None:
        return "snapshot"
    return "follower" if quorum.is_voter else "observer"


def fault(name: str, controller: Controller) -> str:
    """What is counted when a fault meets a controller."""
    return f"{name} | {state_of(controller)}"


def crash_point(operation: str, path: Path) -> str:
    """What is counted when a crash falls on an operation on a file."""
    name = path.name
    kind = next((kind for part, kind in FILES.items() if part in name), "others")
    return f"crash at {operation} | {kind}"


def is_cell(name: str) -> bool:
    """Whether a count is one of these."""
    return " | " in name


def never_met(counts: Mapping[str, int]) -> list[str]:
    """Cells of the tables that have to be."""
    cells = [f"{fault} | {state}" for fault in FAULTS for state in STATES] + list(POINTS)
    return [cell for cell in cells if not counts.get(cell) and cell not in TOO_RARE]


def tables(counts: Mapping[str, int]) -> str:
    """Faults by states, and crashes by files: how often they met."""
    crashes = tuple(dict.fromkeys(point.split(" | ")[0] for point in POINTS))
    return "\n".join((*_rows(FAULTS, STATES, counts), "", *_rows(crashes, tuple(OPERATIONS), counts)))


def _rows(rows: tuple[str, ...], columns: tuple[str, ...], counts: Mapping[str, int]) -> list[str]:
    width = max(map(len, rows))
    widths = [max(6, len(column) + 1) for column in columns]
    lines = [" " * width + "".join(f"{column:>{wide}}" for column, wide in zip(columns, widths, strict=True))]
    for row in rows:
        met = (counts.get(f"{row} | {column}", 0) for column in columns)
        lines.append(f"{row:{width}}" + "".join(f"{count:>{wide}}" for count, wide in zip(met, widths, strict=True)))
    return lines
