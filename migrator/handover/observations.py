"""What a hand-over looks at before each step, as values."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.seeing.controllers import ControllerProgram, ControllerSeen
from migrator.values import value


@value
class ObservedQuorum:
    """``leader_id`` None: nobody leads, or nobody can be asked. ``finished``: whether the committed metadata say that
    the migration is over, or never was; None: unknown. ``level`` is the finalized metadata.version, 0 unknown.
    ``target``: of a reassignment, empty without one, None unknown."""

    voters: Mapping[int, ControllerSeen]
    leader_id: int | None = None
    finished: bool | None = None
    level: int = 0
    target: str | None = ""

    def is_up(self, node_id: int) -> bool:
        """Whether a voter answers and has everything that is committed."""
        voter = self.voters[node_id]
        return self.leader_id is not None and voter.program is not None and voter.lag_records == 0

    def missing(self, node_id: int) -> tuple[int, ...]:
        """The other voters that are away or behind."""
        return tuple(other for other in sorted(self.voters) if other != node_id and not self.is_up(other))

    def others_of(self, program: ControllerProgram, node_id: int) -> tuple[int, ...]:
        """The other voters that run a program."""
        return tuple(
            other for other, voter in sorted(self.voters.items()) if other != node_id and voter.program is program
        )


@value
class MetadataDirectory:
    """A node's metadata directory. While a process holds it, only what that process says is known. ``holds_log``: there
    are records in it; ``finished`` and ``level`` as of `ObservedQuorum`, from those records."""

    in_use: bool = False
    formatted: bool = False
    holds_log: bool = False
    finished: bool | None = None
    level: int = 0


@value
class LocalNode:
    """A voter whose directory and property file are at hand. ``file_written``: whether the stock property file is there
    as it has to be."""

    node_id: int
    directory: MetadataDirectory
    file_written: bool
