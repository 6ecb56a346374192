"""What a seed expands to: sizes, time-outs and the rates of every kind of fault."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

JOURNEYS = ("random", "grow and shrink", "move")


@dataclass(frozen=True, slots=True)
class Options:
    """Times are milliseconds of simulated time, rates are per second of it, shares are probabilities."""

    seed: int
    voters: int
    observers: int
    barred: bool
    """Whether the last voter may not get anybody's vote in its first, third, ... life (``may_grant_vote``)."""
    chaos_ms: int
    loss: float
    duplication: float
    delay_max_ms: int
    straggler_share: float
    """Share of messages that come up to 20 times later than others, so that they are overtaken."""
    crash_rate: float
    partition_rate: float
    pause_rate: float
    slow_disk_rate: float
    full_disk_rate: float
    handover_rate: float
    clock_skew: float
    sync_max_ms: int
    parallel_syncs: bool
    """Whether each request for an fsync gets its own, which may overtake others, instead of sharing one."""
    client_interval_ms: int
    transaction_share: float
    snapshot_every: int
    fetch_max_bytes: int
    pre_votes: bool
    """Whether nodes ask for pre-votes before they stand for election."""
    dynamic: bool
    """Whether the voters are in the log and change (kraft.version 1)."""
    journey: str
    """Where plans lead: "random" ones, "grow and shrink" (1-3-5-3-1) or "move" to three other nodes."""
    spares: int
    """Nodes that are no voters at first, with an empty disk."""
    change_rate: float
    """How often an operator asks a node for a change by hand."""
    wipe_rate: float
    crash_after_change: float
    """Share of the changes after whose append the leader loses its power."""
    unknown_share: float
    """Share of the other nodes whose addresses a node does not know when it boots (only with voters in the log)."""
    disk_loss_rate: float
    """How often a configured voter gets an empty disk under its old name (only without voters in the log)."""
    disk_losses_at_once: int
    """How many of them may have to fetch first at a time; more than a minority may never elect anybody again."""
    door_rate: float
    """How often a node that runs closes its connections and its port to some others, or to all, for a moment."""
    is_advertised: bool
    """Whether a leader knows who can go on with a plan, so that it hands over to one of them before it leaves."""

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def expand(seed: int, overrides: dict[str, str] | None = None) -> Options:
    """The options of a seed. Each kind of fault is absent from some seeds, so that others get room (swarm testing)."""
    random = Random(f"options {seed}")

    def sometimes(share: float, low: float, high: float) -> float:
        return round(random.uniform(low, high), 3) if random.random() < share else 0.0

    journey, disks = Random(f"journey {seed}").choice(JOURNEYS), Random(f"disks {seed}")
    options = Options(
        seed=seed,
        voters=random.choice((3, 5)),
        observers=random.choice((0, 0, 1)),
        barred=random.random() < 0.15,
        chaos_ms=random.choice((3000, 6000)),
        loss=sometimes(0.6, 0.0, 0.2),
        duplication=sometimes(0.5, 0.0, 0.2),
        delay_max_ms=random.choice((2, 10, 40)),
        straggler_share=sometimes(0.5, 0.0, 0.1),
        crash_rate=sometimes(0.8, 0.3, 4.0),
        partition_rate=sometimes(0.8, 0.3, 3.0),
        pause_rate=sometimes(0.4, 0.2, 4.0),
        slow_disk_rate=sometimes(0.5, 0.3, 2.0),
        full_disk_rate=sometimes(0.3, 0.3, 1.0),
        handover_rate=sometimes(0.4, 0.3, 2.0),
        clock_skew=sometimes(0.5, 0.0, 0.2),
        sync_max_ms=random.choice((1, 5, 30)),
        parallel_syncs=random.random() < 0.5,
        client_interval_ms=random.choice((10, 20, 40)),
        transaction_share=sometimes(0.7, 0.1, 0.6),
        snapshot_every=random.choice((5, 15, 40)),
        fetch_max_bytes=random.choice((32, 64, 256)),
        pre_votes=random.random() < 0.5,
        dynamic=random.random() < 0.5,
        journey=journey,
        spares={"random": random.choice((0, 1, 2)), "grow and shrink": 4, "move": 3}[journey],
        change_rate=sometimes(0.6, 1.0, 10.0),
        wipe_rate=sometimes(0.6, 0.1, 0.6),
        crash_after_change=sometimes(0.6, 0.2, 1.0),
        unknown_share=Random(f"addresses {seed}").choice((0.0, 0.0, 0.4, 0.8)),
        disk_loss_rate=disks.choice((0.0, 0.3, 1.0)),
        disk_losses_at_once=disks.choice((1, 1, 2)),
        door_rate=Random(f"doors {seed}").choice((0.0, 0.5, 2.0)),
        is_advertised=random.random() < 0.6,
    )
    types = {field.name: type(getattr(options, field.name)) for field in fields(options)}
    changes = {name: _parse(types[name], text) for name, text in (overrides or {}).items()}
    return replace(options, **changes)  # type: ignore[arg-type]


def _parse(kind: type, text: str) -> object:
    return text.lower() in {"1", "true", "yes"} if kind is bool else kind(text)
