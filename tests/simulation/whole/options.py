"""What one seed means: every number of its world, printed with each failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from migrator.raft.snapshot import CHUNK_BYTES_MAX
from migrator.records.versions import LATEST_SUPPORTED, MINIMUM_BOOTSTRAP


@dataclass(frozen=True)
class Options:
    """Rates are per second of the world, of the whole cluster."""

    seed: int
    controllers: int = 3
    observers: int = 0
    dynamic: bool = False
    """The voters are in the log."""
    chaos_seconds: float = 15.0
    """Until the last fault."""
    writes: float = 10.0
    """That are begun in a second."""
    pause_ms_max: float = 800.0
    """Of a client that is refused again and again."""
    other_share: float = 0.0
    """Of the writes: topics, configurations, ACLs and credentials; quotas are the rest."""
    brokers: int = 0
    big_share: float = 0.0
    """Of the quotas: some thousand records, which are decided and encoded beside the loop."""
    big_groups: int = 1
    """Of users for such writes: the image has 1,010 quotas for each."""
    delay_ms_min: float = 0.1
    delay_ms_max: float = 2.0
    loss: float = 0.0
    split: float = 0.1
    sync_ms_max: float = 3.0
    turn_ms_max: float = 0.2
    thread_ms_max: float = 0.3
    """Until a thread gets a processor."""
    skew: float = 0.0
    kill_rate: float = 0.0
    """Kills of a process."""
    crash_rate: float = 0.0
    """Kills in the middle of what is written to the disk."""
    power_rate: float = 0.0
    """Power cuts of one machine."""
    blackout_rate: float = 0.0
    """Power cuts of all machines."""
    stop_rate: float = 0.0
    """Stops in order."""
    hang_rate: float = 0.0
    cut_rate: float = 0.0
    """Of wires, of one controller or of two sides, in one direction or both."""
    alone_rate: float = 0.0
    """Cuts between the leader and all others."""
    aside_rate: float = 0.0
    """Cuts between all others and two: the leader, and the next one that gets a snapshot."""
    reset_rate: float = 0.0
    """Losses of all connections of a machine, which may also refuse new ones for a moment."""
    slow_rate: float = 0.0
    wipe_rate: float = 0.0
    """Disks that are lost, and formatted anew."""
    wiped_at_once: int = 1
    """Two of three is more than a quorum can heal from by itself: then only a voter with the whole log may lead."""
    full_rate: float = 0.0
    fault_rate: float = 0.0
    """Disks that fail for a while, at what `fails_at` names."""
    fails_at: str = "reads writes fsyncs"
    seeks: bool = False
    """The faults seek the states of a controller, so that each meets each."""
    calm_rate: float = 0.0
    """Times without new faults, in which a majority that can talk must elect a leader."""
    change_rate: float = 0.0
    """Orders of an operator to add, remove or move a voter."""
    operators: int = 1
    """How many such orders may wait for an answer at the same time."""
    look_rate: float = 0.0
    """Questions about the quorum, and orders that it refuses."""
    level_rate: float = 0.0
    """Orders of an operator to change metadata.version."""
    upgrade_rate: float = 0.0
    """Orders to take the voters from the configuration into the log (kraft.version 1)."""
    recover_rate: float = 0.0
    """Losses of a majority of the voters in the log, and recoveries of what is left."""
    names_given_up: bool = False
    """Files of the new quorum name the addresses of replicas that were given up, too."""
    settings_rate: float = 0.0
    """Restarts with other property files: other settings, other ports, of one or of all."""
    metadata_version: int = LATEST_SUPPORTED
    """With which a static quorum is formatted."""
    snapshot_bytes: int = 20_000
    retention_bytes: int = 100_000_000
    """Beyond it a log drops what a snapshot holds, and a controller that is behind gets the snapshot."""
    segment_bytes: int = 1_000_000_000
    clean_seconds: float = 60.0
    """How often a log drops that, beside soon after a start; 60 as in the product."""
    chunk_bytes: int = CHUNK_BYTES_MAX
    """The most of a snapshot that is sent at once."""
    requires_bootstrap: bool = True
    minority_stays_dead: bool = False
    without_grpc: int = 0
    """Controllers that know nothing of gRPC."""
    compare_seconds: float = 60.0
    """How often the leader compares the images of the controllers."""
    replay_seconds: float = 3600.0
    """How often each one compares its image with a replay of its log."""


def expand(seed: int, changes: Mapping[str, str] | None = None) -> Options:
    """The options of a seed, some of them overruled."""
    random = Random(f"options {seed}")

    def rate(share: float, most: float) -> float:
        return round(random.uniform(0.02, most), 3) if random.random() < share else 0.0

    dynamic = random.random() < 0.5
    options = Options(
        seed=seed,
        controllers=random.choice((3, 3, 3, 5 if seed % 4 < 2 else 3)),  # five cost twice as much as three
        observers=random.choice((0, 0, 2 if seed % 4 < 2 else 1)) if dynamic else 0,
        dynamic=dynamic,
        chaos_seconds=round(15 + 45 * random.random() ** 6, 1),  # many short ones find more than few long ones
        writes=random.choice((1.0, 2.0, 5.0, 10.0)),
        big_share=random.choice((0.0, 0.0, 0.01)),
        delay_ms_max=random.choice((0.5, 2.0, 10.0, 40.0)),
        loss=random.choice((0.0, 0.0, 0.01, 0.05)),
        split=random.choice((0.0, 0.1, 0.5)),
        sync_ms_max=random.choice((0.5, 3.0, 20.0)),
        turn_ms_max=random.choice((0.1, 0.2, 1.0)),
        skew=random.choice((0.0, 0.0, 0.002, 0.02)),
        kill_rate=rate(0.6, 0.3),
        crash_rate=rate(0.5, 0.3),
        power_rate=rate(0.5, 0.3),
        blackout_rate=rate(0.2, 0.05),
        stop_rate=rate(0.4, 0.2),
        hang_rate=rate(0.4, 0.2),
        cut_rate=rate(0.6, 0.4),
        slow_rate=rate(0.3, 0.2),
        wipe_rate=rate(0.25, 0.05),
        full_rate=rate(0.15, 0.05),
        change_rate=rate(0.7, 0.3) if dynamic else 0.0,
        snapshot_bytes=random.choice((3_000, 20_000, 10_000_000)),
        retention_bytes=random.choice((1, 30_000, 100_000_000)),
        segment_bytes=random.choice((1_000, 20_000, 1_000_000_000)),
        wiped_at_once=random.choice((1, 1, 2)),
        big_groups=random.choice((1, 1, 4)),
        requires_bootstrap=random.random() < 0.7,
        minority_stays_dead=random.random() < 0.2,
        without_grpc=random.choice((0, 0, 0, 0, 0, 1, 1, 2, 7)),
        compare_seconds=random.choice((1.0, 4.0, 60.0)),
        replay_seconds=random.choice((3.0, 20.0, 3600.0)),
        fault_rate=rate(0.4, 0.15),
        calm_rate=rate(0.6, 0.15),
        thread_ms_max=random.choice((0.3, 0.3, 30.0)),
    )
    options = replace(options, **_of_operators(seed, options))
    return overruled(_for_seekers(options) if options.seeks else options, changes or {})


def _for_seekers(options: Options) -> Options:
    """Half as many faults at any time, and small logs: a controller that was away gets a snapshot."""
    rates = ("kill_rate", "crash_rate", "power_rate", "blackout_rate", "stop_rate", "hang_rate", "cut_rate")
    fewer = {name: getattr(options, name) / 2 for name in rates}
    small = replace(options, snapshot_bytes=3_000, retention_bytes=1, segment_bytes=1_000, wiped_at_once=1)
    return replace(small, **fewer)


def _of_operators(seed: int, options: Options) -> dict[str, Any]:
    """What administrators and operators do, drawn apart: so a new option moves nothing else of a seed."""
    random = Random(f"operators {seed}")

    def rate(share: float, most: float) -> float:
        return round(random.uniform(0.02, most), 3) if random.random() < share else 0.0

    begins_old = random.random() < 0.5
    upgrade_rate = rate(0.5, 0.4)
    recover_rate = rate(0.3, 0.2) if options.dynamic else 0.0
    return {
        "other_share": random.choice((0.0, 0.3, 0.8)),
        "brokers": random.choice((0, 1, 3)),
        "recover_rate": recover_rate,
        "names_given_up": random.random() < 0.3,
        "settings_rate": rate(0.4, 0.1),
        "metadata_version": random.randint(MINIMUM_BOOTSTRAP, LATEST_SUPPORTED) if begins_old else LATEST_SUPPORTED,
        "level_rate": random.choice((0.1, 0.5)) if begins_old else rate(0.3, 0.1),
        "upgrade_rate": upgrade_rate,
        "change_rate": options.change_rate if options.dynamic or not upgrade_rate else rate(0.5, 0.3),
        "alone_rate": rate(0.4, 0.1),
        "seeks": random.random() < 0.7,
        "clean_seconds": random.choice((1.0, 5.0, 60.0)),
        "aside_rate": rate(0.3, 0.1),
        "reset_rate": rate(0.4, 0.2),
        "look_rate": rate(0.7, 0.4),
        "chunk_bytes": random.choice((20_000 if options.big_share else 300, CHUNK_BYTES_MAX)),
    }


def overruled(options: Options, changes: Mapping[str, str]) -> Options:
    types = {field.name: type(getattr(options, field.name)) for field in fields(Options)}
    changed = replace(options, **{name: _parsed(types[name], text) for name, text in changes.items()})
    if changed.dynamic:
        return replace(changed, metadata_version=LATEST_SUPPORTED)  # older ones have no voters in the log
    return replace(changed, observers=0)  # who votes is in everybody's property file


def _parsed(kind: type, text: str) -> Any:
    return text in {"yes", "true", "True"} if kind is bool else kind(text)


QUIET = Options(0)
"""No faults: for figures, and for what must hold on a good day."""
