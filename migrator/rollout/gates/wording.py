"""Parts of sentences that several gates use. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.rollout.ports import Observation, Shut

NAMED_MAX = 5
SEE_STATUS = "See 'migrator status', and the log of the controllers"
REACH_CONTROLLERS = "See that the controllers run, and that this machine reaches them ('access' of the inventory)"
REACH_ZOOKEEPER = "See that ZooKeeper runs, and that this machine reaches it ('access' of the inventory)"

Found = Iterator[Shut]


def unknown(what: str, seen: Observation) -> str:
    """The sentence with the reasons why something is unknown; a reason that is the sentence itself is not repeated."""
    if any(reason.startswith(what) for reason in seen.unknown):
        return named(seen.unknown)
    return f"{what}: {named(seen.unknown)}" if seen.unknown else what


def named(names: tuple[str, ...]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f", and {more} more" if more > 0 else "")
