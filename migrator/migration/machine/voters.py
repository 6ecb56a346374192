"""Decides which changes of the voters are allowed while a migration is prepared or under way. Pure.

A stock leader without the migration flag ends the migration, so each of our voters asks a candidate what it is before
it votes for it (`migrator.node.quorum.ballot`). Three rules follow: a new voter can be asked, even by a voter that has
not seen it join; a new voter may lead; and stock voters, which do not ask, are never enough to elect a leader.
"""

from __future__ import annotations

from collections.abc import Iterator

from kio.schema.errors import ErrorCode

from migrator.config.keys import FLAG
from migrator.image.model import ClusterImage, MetadataImage
from migrator.migration.machine.readiness import is_too_many_stock
from migrator.raft.voter_changes import AddVoter, Refusal, RemoveVoter, UpgradeVoters, VoterChange
from migrator.raft.voter_set import VoterSet
from migrator.values import value


@value
class VoterKinds:
    """The answers of the voters, and of a controller that is to join, about themselves now. A node that does not answer
    is in no set.

    ``may_lead``: this program, and stock controllers with the migration flag.
    """

    ours: frozenset[int] = frozenset()
    may_lead: frozenset[int] = frozenset()


NOBODY_ASKED = VoterKinds()
REOPENED = (
    "The migration was reopened, and ZooKeeper does not hold everything yet. Wait until 'migrator status' says "
    "dual-writing, and add the controller then."
)


def why_not_in_migration(
    published: MetadataImage, image: MetadataImage, voters: VoterSet, change: VoterChange, kinds: VoterKinds
) -> Refusal | None:
    """Why a change of the voters would harm the migration; None when it would not, or there is no migration.

    :param published: the image that a majority has.
    :param image: the image at the end of the log.
    """
    states = {published.features.zk_migration_state, image.features.zk_migration_state}
    if not any(state.is_under_way for state in states):
        return None
    if isinstance(change, AddVoter) and any(each.features.migration_reopening for each in (published, image)):
        return Refusal(ErrorCode.invalid_request, REOPENED)
    return next(_refusals(published.cluster, voters, change, kinds), None)


def _refusals(cluster: ClusterImage, voters: VoterSet, change: VoterChange, kinds: VoterKinds) -> Iterator[Refusal]:
    match change:
        case UpgradeVoters():
            message = "The migration is not finished. Finish it first, or roll it back."
            yield Refusal(ErrorCode.invalid_update_version, message)
        case AddVoter(voter):
            node_id, names = voter.voter_id, {at.name for at in voter.endpoints}
            registered = cluster.controllers.get(node_id)
            if registered is None or not names & {at.name for at in registered.listeners}:
                message = (
                    f"Controller {node_id} has not registered, so a voter that has not seen it join could not ask it "
                    "whether it may lead. Start it, wait until it has registered, and try again."
                )
                yield Refusal(ErrorCode.request_timed_out, message)
            if node_id not in kinds.may_lead:
                message = (
                    f"Controller {node_id} is a stock controller without {FLAG}=true. As the leader it would end the "
                    "migration, so it would get no votes. Set the key in its file, restart it, and add it then."
                )
                yield Refusal(ErrorCode.invalid_request, message)
            yield from _too_many_stock(voters.ids | {node_id}, kinds)
        case RemoveVoter(key):
            yield from _too_many_stock(voters.ids - {key.node_id}, kinds)
        case _:
            return


def _too_many_stock(ids: frozenset[int], kinds: VoterKinds) -> Iterator[Refusal]:
    """Whether stock voters might elect alone. A voter that does not answer counts as a stock controller."""
    others = ids - kinds.ours
    if is_too_many_stock(others, len(ids)):
        names = ", ".join(map(str, sorted(others)))
        message = (
            f"The controllers {names} are stock, or do not answer. After this change they would be enough to elect a "
            "leader that ends the migration. Start those that are down, or add a controller of this program first."
        )
        yield Refusal(ErrorCode.invalid_request, message)
