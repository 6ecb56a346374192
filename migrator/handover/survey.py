"""What a hand-over sees: the quorum, and whether its committed metadata let Kafka's controllers take over."""

from __future__ import annotations

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.observations import ObservedQuorum
from migrator.records.versions import FEATURE_NAME
from migrator.seeing.controllers import ControllerSeen
from migrator.seeing.quorum import QuorumEyes


class Survey:
    """One hand-over's eyes.

    :param settings: of any voter; names the others, and how to log in.
    """

    def __init__(self, settings: Settings) -> None:
        self._eyes = QuorumEyes(settings)
        self._voters = tuple(voter.voter_id for voter in settings.voters)
        self._finished: bool | None = None
        """What the last image that was seen says: the end is final, and while nobody leads nothing changes."""
        self._level = 0

    async def look(self) -> ObservedQuorum:
        """The quorum as it is now."""
        look = await self._eyes.look_and_close()
        if look.image is not None:
            self._finished = self._finished or not look.image.features.zk_migration_state.is_under_way
            self._level = look.image.features.levels.get(FEATURE_NAME, 0)
        nobody = {voter: ControllerSeen(voter, None) for voter in self._voters}
        return ObservedQuorum(
            voters=nobody | dict(look.seen.voters if look.seen else {}),
            leader_id=None if look.seen is None else look.seen.leader_id,
            finished=self._finished,
            level=self._level,
            target=None if look.seen is None else look.seen.target,
        )

    async def cluster_id(self) -> str:
        """:raises OperatorError: nobody says."""
        found = await self._eyes.cluster_id()
        if found is None:
            raise OperatorError(
                "no controller answers with the cluster id",
                where="controller.quorum.voters",
                remedy="See 'migrator status'",
            )
        return found
