"""How a bug on purpose is registered: with what to replace, and with options that make its situation frequent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from migrator.raft.snapshot import CHUNK_BYTES_MAX

Patches = list[tuple[object, str, object]]
"""Object, attribute, replacement."""
Plant = Callable[[], Patches]
BUGS: dict[str, Plant] = {}
LIKELIER: dict[str, Mapping[str, str]] = {}
"""The options of each bug."""
SHORT_AND_CALM = {
    "chaos_seconds": 6,
    "controllers": 3,
    "observers": 0,
    "writes": 10,
    "pause_ms_max": 50,
    "big_share": 0,
    "loss": 0,
    "skew": 0,
    "kill_rate": 0,
    "crash_rate": 0,
    "power_rate": 0,
    "blackout_rate": 0,
    "stop_rate": 0,
    "hang_rate": 0,
    "cut_rate": 0,
    "reset_rate": 0,
    "alone_rate": 0,
    "aside_rate": 0,
    "slow_rate": 0,
    "wipe_rate": 0,
    "full_rate": 0,
    "fault_rate": 0,
    "seeks": "no",
    "calm_rate": 0,
    "recover_rate": 0,
    "settings_rate": 0,
    "level_rate": 0,
    "upgrade_rate": 0,
    "look_rate": 0,
    "operators": 1,
    "other_share": 0,
    "brokers": 0,
    "change_rate": 0,
    "snapshot_bytes": 10_000_000,
    "retention_bytes": 100_000_000,
    "segment_bytes": 1_000_000_000,
    "clean_seconds": 60,
    "chunk_bytes": CHUNK_BYTES_MAX,
    "turn_ms_max": 0.2,
    "thread_ms_max": 0.3,
    "minority_stays_dead": "no",
}
"""Where a bug does not say otherwise: what has nothing to do with it costs only time."""
CRASHES = {"power_rate": 0.4, "blackout_rate": 0.15}
ELECTIONS = {"cut_rate": 1, "kill_rate": 0.3}
ALONE = {"alone_rate": 0.4, "chaos_seconds": 12}
"""Leaders append what is cut from their logs later."""


def bug(**options: object) -> Callable[[Plant], Plant]:
    """Register a bug under its function's name; the function returns what to replace. Its world is short and calm, but
    for these options."""

    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = plant
        LIKELIER[plant.__name__] = {name: str(value) for name, value in (SHORT_AND_CALM | options).items()}
        return plant

    return register
