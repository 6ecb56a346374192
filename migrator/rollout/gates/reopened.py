"""A migration that was reopened after its end: a rollout goes forward in it only by an explicit order. Pure."""

from __future__ import annotations

from migrator.errors import OperatorError
from migrator.rollout.journal.progress import Progress
from migrator.rollout.ports import Observation

HOME_OR_FORWARD = (
    "'migrator rollout rollback' returns the cluster to ZooKeeper. 'migrator rollout apply --end-again' ends the "
    "migration again"
)


def reopened(seen: Observation) -> str:
    """The time and the reason of the reopening; "" if it was not."""
    return "" if seen.migration is None else seen.migration.reopened


def refuse_reopened(seen: Observation, progress: Progress) -> None:
    """Refuse to go forward in a migration that was reopened after its end, because the rollout would end it again.

    :raises OperatorError: the migration was reopened, and the operator does not know of this reopening.
    """
    found = reopened(seen)
    if found and not progress.goes_back and progress.ends_again != found:
        raise OperatorError(
            f"the migration was finished, and reopened ({found}). A rollout that goes forward would end it again. "
            "Nothing was done",
            where="rollout",
            remedy=HOME_OR_FORWARD,
        )
