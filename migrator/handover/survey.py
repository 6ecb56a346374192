"""What a hand-over sees: the quorum, and whether its committed metadata let Kafka's controllers take over."""

from __future__ import annotations

from dataclasses import replace

from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.handover.plan import migration_seen
from migrator.records.versions import FEATURE_NAME, version_at
from migrator.rollout.ports import Observation
from migrator.seeing.controllers import ControllerSeen, QuorumSeen
from migrator.seeing.quorum import QuorumEyes


class Survey:
    """One hand-over's eyes.

    :param settings: of any voter; names the others, and how to log in.
    """

    def __init__(self, settings: Settings) -> None:
        self._eyes = QuorumEyes(settings)
        self._voters = tuple(voter.voter_id for voter in settings.voters)
        self._seen = Observation()
        """What the last image that was seen says: the end is final, and while nobody leads nothing changes."""

    async def look(self) -> Observation:
        """The quorum as it is now."""
        look = await self._eyes.look_and_close()
        if look.image is not None:
            is_over = self._seen.is_finished or not look.image.features.zk_migration_state.is_under_way
            level = look.image.features.levels.get(FEATURE_NAME, 0)
            self._seen = Observation(
                migration=migration_seen(is_over=is_over), metadata_version=version_at(level).name if level else ""
            )
        nobody = {voter: ControllerSeen(voter, None) for voter in self._voters}
        seen = look.seen or QuorumSeen(None, {})
        return replace(self._seen, quorum=replace(seen, voters=nobody | dict(seen.voters)), unknown=look.unknown)

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
