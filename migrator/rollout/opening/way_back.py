"""Whether there is still a way back to ZooKeeper. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.errors import OperatorError
from migrator.rollout.gates.gates import FINISHED, FORWARD_AGAIN, ONLY_A_BACKUP
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.ports import Observation


def refuse_back(seen: Observation, files: Sequence[FileMode], *, one_ends_it: bool, is_complete: bool) -> None:
    """
    :param files: what the controllers' property files are for.
    :param is_complete: whether the rollout has come to its end.
    :param one_ends_it: whether one leader without the migration ends it, as with Kafka's controllers.
    :raises OperatorError: the end of the migration was reached, or nobody can say that it was not.
    """
    off = [mode is FileMode.CONTROLLER_ENDED for mode in files]
    refuse_ended(seen, is_complete=is_complete)
    if (seen.migration is None or not seen.migration.state) and (any(off) if one_ends_it else all(off)):
        raise OperatorError(
            "controllers have the migration off, and none of them answers: the migration may be finished",
            where="rollback",
            remedy="Start the controllers; 'migrator status' says whether it is finished",
        )


def refuse_ended(seen: Observation, *, is_complete: bool) -> None:
    """
    :raises OperatorError: the end of the migration was reached.
    """
    if seen.is_finished:
        go_on = "Nothing is to be done" if is_complete else FORWARD_AGAIN
        raise OperatorError(f"the migration {FINISHED}", where="rollback", remedy=f"{go_on}. {ONLY_A_BACKUP}")
