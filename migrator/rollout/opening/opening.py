"""How a rollout begins, and how it is turned back: the first lines of its journal.

`migrator rollout` calls ``may_...`` before it asks the operator, and the function without it after the yes; before
both, `check_address` says whether the ZooKeeper that 'access' names holds a Kafka cluster. Refusals come before the
first line of a rollout; one that loses the race for the lock is closed at once. A new rollout notes every property
file, so that later changes by others are seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from secrets import token_hex

from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.observe.printable import printable
from migrator.rollout.engine.decisions import refuse_reopened, reopened
from migrator.rollout.engine.reviewed import Reviewed
from migrator.rollout.files.examined import remove_left_copies
from migrator.rollout.files.property_files import properties_of, text_of, texts_of
from migrator.rollout.gates.excuses import TAKE_IN, back_again, baseline_of, by_brokers, refuse_gone
from migrator.rollout.gates.gates import FINISHED
from migrator.rollout.inventory import Inventory
from migrator.rollout.journal.journal import FORMAT, Detail, Entry, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.journal.summary import has_changed_something
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.lock.lock import held
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.opening.first_level import first_level
from migrator.rollout.opening.refusals import (
    refuse_ahead,
    refuse_back,
    refuse_dynamic_maps,
    refuse_ended,
    refuse_files,
    refuse_lost_brokers,
)
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import REASON_MAX
from migrator.rollout.plan.modes import digest, parsed
from migrator.rollout.plan.plan import is_same_canary, refuse_canary
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.ports import LockedError, Observation
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession

ID_BYTES = 4
AFTER_THE_WAY_BACK = {
    NodeKind.BROKER: "After the way back, set its file to ZooKeeper mode by hand, and start it",
    NodeKind.CONTROLLER: "Do not start it. The next 'migrator rollout apply --with-node {}' moves its directory away, "
    "and formats it anew",
}
"""The remedy for a node that is taken in again too late for the way back."""


async def may_open(parts: RolloutParts, journal: RolloutJournal, canary: str = "") -> Observation:
    """Check whether a rollout can begin, or go on forward, before the operator is asked and a line is written.

    :raises OperatorError: as `refuse_canary_of` and `refuse_reopened`; or the rollout under way goes back, or the lock
        is held.
    """
    progress = journal.progress
    refuse_canary_of(parts.inventory, journal.entries, progress, canary)
    seen = await parts.observer.observe(partitions=False)  # is the migration over, and so where the lock is
    if not _begins_anew(parts, progress, seen):
        refuse_reopened(seen, progress)
    if not progress.rollout or progress.closed:
        await _refuse_held(parts)
        return seen
    await parts.lock.acquire(progress.rollout)
    if progress.direction is Direction.BACK and not seen.is_finished:
        raise OperatorError(
            "a rollback is under way",
            where=str(journal.path),
            remedy="Bring it to its end with 'migrator rollout resume'; then a new rollout can begin",
        )
    return seen


def _begins_anew(parts: RolloutParts, progress: Progress, seen: Observation) -> bool:
    return parts.ends_again and progress.ends_again != reopened(seen)


async def open_rollout(
    parts: RolloutParts, journal: RolloutJournal, canary: str = "", reviewed: Reviewed | None = None
) -> None:
    """Begin a rollout, or continue the one that is under way. One that goes back, although the migration is over, goes
    forward again. One that has changed nothing yet begins anew with another canary. One that is to end a reopened
    migration again begins anew, too: it has to look at every step.

    From then on the journal knows every property file, so a change from outside the rollout is seen.

    :param reviewed: the plan that a person has reviewed; None without one.
    :raises OperatorError: as `may_open`; or a file cannot be read, or is not the one that was compared with the plan.
    """
    progress = journal.progress
    seen = await may_open(parts, journal, canary)
    anew = _begins_anew(parts, progress, seen)
    if progress.rollout and not progress.closed:
        if progress.direction is Direction.BACK:
            parts.tell(f"the migration {FINISHED}. So the rollout goes forward again")
            journal.append(parts.clock.wall_ms(), Event.FORWARD)
            await _note_baseline(parts, journal)
        if not anew and (not canary or is_same_canary(parts.inventory, canary, progress.canary)):
            note_plan(parts, journal, reviewed)
            return
        await remove_left_copies(parts, progress)
        rollout, canary = progress.rollout, canary or progress.canary
    else:
        rollout = token_hex(ID_BYTES)
    await _note_opened(parts, journal, canary, rollout, reviewed)


def note_plan(parts: RolloutParts, journal: RolloutJournal, reviewed: Reviewed | None) -> None:
    """Note that the rollout goes on with a reviewed plan; nothing without one."""
    if reviewed is not None:
        journal.append(parts.clock.wall_ms(), Event.RESUMED, "", "", **_of_plan(reviewed))


def _of_plan(reviewed: Reviewed) -> dict[str, str | int]:
    """The details of a line about the reviewed plan."""
    return {"plan": reviewed.plan, "accepted": reviewed.accepted}


def _refuse_other_files(nodes: Sequence[Node], texts: Mapping[str, str], reviewed: Reviewed) -> None:
    for node in nodes:
        if digest(encoded(texts[node.name])) != reviewed.files[node.name]:
            raise OperatorError(
                "the file was changed since it was compared with the plan; nothing was done",
                where=node.file_place,
                remedy="Look at it. 'migrator rollout apply --plan FILE' compares again",
            )


async def _note_opened(
    parts: RolloutParts, journal: RolloutJournal, canary: str, rollout: str, reviewed: Reviewed | None
) -> None:
    texts = await texts_of(parts.executor, parts.inventory.nodes)
    for node in parts.inventory.nodes:
        parsed(node, texts[node.name])
    if reviewed is not None:
        _refuse_other_files(parts.inventory.nodes, texts, reviewed)
    seen = await parts.observer.observe(partitions=False)
    refuse_lost_brokers(parts.inventory, seen, texts)
    refuse_dynamic_maps(parts.inventory, seen)
    refuse_files(parts.inventory, texts, parts.mode_settings(""))
    refuse_ahead(parts.inventory.brokers.nodes, texts, seen)
    level = first_level(parts.inventory, seen)
    now = parts.clock.wall_ms()
    direction = Direction.FORWARD.value
    more: dict[str, str | int] = {"canary": canary, "release_version": level, "format": FORMAT}
    more |= {"cluster": parts.inventory.cluster, "cluster_id": seen.cluster_id}
    more |= {"ends_again": reopened(seen)} if parts.ends_again else {}
    more |= {} if reviewed is None else _of_plan(reviewed)
    journal.append(now, Event.OPENED, "", "", rollout=rollout, direction=direction, **more)
    await _note_baseline(parts, journal)
    for name, text in texts.items():
        journal.append(now, Event.FILE, node=name, file=digest(encoded(text)))
    await _lock_opened(parts, journal, rollout)


def refuse_canary_of(inventory: Inventory, entries: Sequence[Entry], progress: Progress, canary: str) -> None:
    """
    :param entries: of the journal.
    :param progress: their fold.
    :param canary: as the operator has just typed it; "" for none.
    :raises OperatorError: there is no such broker, or the rollout under way has changed something with another canary.
    """
    refuse_canary(inventory, canary)
    if not canary or not progress.rollout or progress.closed or is_same_canary(inventory, canary, progress.canary):
        return
    if has_changed_something(entries):
        has = f"the canary {progress.canary}" if progress.canary else "no canary"
        raise OperatorError(
            f"the rollout that is under way has {has}",
            where="--canary",
            remedy="Go on without --canary. Another one can be chosen only before a step has changed something",
        )


async def may_go_on(parts: RolloutParts, journal: RolloutJournal) -> None:
    """Takes the lock, so that no line is written for a rollout that another process works on.

    :raises OperatorError: the rollout goes back, and the migration is over meanwhile; or it goes forward, and the
        migration was reopened; or the lock is held.
    """
    progress = journal.progress
    seen = await parts.observer.observe(partitions=False)  # is the migration over, and so where the lock is
    await parts.lock.acquire(progress.rollout)
    if progress.goes_back:
        refuse_ended(seen, progress)
    else:
        refuse_reopened(seen, progress)


async def may_turn_back(parts: RolloutParts, journal: RolloutJournal) -> Observation:
    """Check whether a rollout can turn back; or, if it goes back already, whether it can reopen a migration that has
    ended meanwhile.

    :returns: what is seen now; nothing where the rollout goes on as before.
    :raises OperatorError: the migration has ended, or this is unknown; or it cannot be reopened.
    """
    progress = journal.progress
    if progress.goes_back and (progress.reopens or not parts.reopens):
        await may_go_on(parts, journal)
        return Observation()
    texts = await texts_of(parts.executor, parts.inventory.controllers.nodes)
    seen = await parts.observer.observe(partitions=False)
    refuse_back(parts.inventory, progress, seen, texts, reopens=parts.reopens)
    return seen


async def turn_back(parts: RolloutParts, journal: RolloutJournal, seen: Observation) -> None:
    """Note that the rollout goes back. A rollout that is complete, or that never began, can go back, too. One that goes
    back begins its way anew where it is to reopen a migration that has ended meanwhile.

    This is called right after the operator's yes, and writes its line at once: when the command is killed now, the next
    one goes back. `may_turn_back` has been called before.

    :raises LockedError: the lock is held.
    """
    progress, reopening = journal.progress, parts.reopens and seen.is_finished
    if progress.goes_back and not reopening:
        return
    is_new = not progress.rollout or (progress.direction is Direction.BACK and not progress.goes_back)
    if is_new:
        await _refuse_held(parts)
    else:
        await parts.lock.acquire(progress.rollout)
    level = seen.metadata_version or progress.release_version or parts.inventory.controllers.release_version
    now = parts.clock.wall_ms()
    reopens: dict[str, Detail] = {"reopens_migration": True} if reopening else {}
    if is_new:
        rollout, direction = token_hex(ID_BYTES), Direction.BACK.value
        more: dict[str, str | int] = {"format": FORMAT, "cluster": parts.inventory.cluster}
        journal.append(
            now, Event.OPENED, "", "", rollout=rollout, direction=direction, release_version=level, **more, **reopens
        )
        await _note_baseline(parts, journal)
        await _lock_opened(parts, journal, rollout)
    else:
        journal.append(now, Event.TURNED, "", "", release_version=level, **reopens)
        await _note_baseline(parts, journal)


async def refuse_without(parts: RolloutParts, journal: RolloutJournal) -> None:
    """The operator is told which nodes were left out before, and serve again.

    :raises OperatorError: a node serves that the rollout should go on without from now on.
    """
    progress, gone = journal.progress, parts.inventory.gone
    if not gone:
        return
    seen = await parts.observer.observe(partitions=False)
    refuse_gone([node for node in gone if node.name not in progress.left_out], seen)
    controllers = {node.name for node in gone if node.role is NodeKind.CONTROLLER}
    for name in back_again(gone, seen):
        if name in controllers & progress.rolled_back.keys():
            parts.tell(f"{name} was left out of a rollback and answers, with the log of that quorum: stop it")
        else:
            parts.tell(f"{name} was left out and is there again. {TAKE_IN.format(name)}")


def note_without(parts: RolloutParts, journal: RolloutJournal, reason: str) -> None:
    """Note the nodes that the rollout goes on without."""
    known = journal.progress.left_out
    for node in parts.inventory.gone:
        if node.name not in known:
            journal.append(parts.clock.wall_ms(), Event.LEFT_OUT, node=node.name, reason=printable(reason[:REASON_MAX]))


async def refuse_with(parts: RolloutParts, journal: RolloutJournal) -> None:
    """
    :raises OperatorError: a node to be taken in again does not serve; or it comes too late, because the way back has
        begun to stop the controllers.
    """
    progress = journal.progress
    stops = [name for name in progress.steps if name.startswith(f"{Phase.STOP_QUORUM.value}/")]
    for node in _returned(parts, progress):
        if progress.goes_back and any(progress.of(name).done for name in stops):
            raise OperatorError(
                f"{node.name} comes too late: the controllers are being stopped",
                where="--with-node",
                remedy=f"Leave the option out. {AFTER_THE_WAY_BACK[node.role].format(node.name)}",
            )
        await properties_of(parts.executor, node)
        await parts.executor.incarnation(node)


async def note_with(parts: RolloutParts, journal: RolloutJournal) -> None:
    """Note the nodes that were left out and are taken in again; their files count as they are.

    :raises OperatorError: a file cannot be read.
    """
    for node in _returned(parts, journal.progress):
        now = digest(encoded(await text_of(parts.executor, node)))
        journal.append(parts.clock.wall_ms(), Event.FILE, node=node.name, file=now)
        journal.append(parts.clock.wall_ms(), Event.BACK_IN, node=node.name)
        parts.tell(f"{node.name} is not left out any more: what it has missed comes first")


def _returned(parts: RolloutParts, progress: Progress) -> list[Node]:
    return [node for node in parts.inventory.nodes if node.name in progress.left_out]


async def _refuse_held(parts: RolloutParts) -> None:
    """Called before the first line of a rollout. Its id is in no lock yet, and a lock whose id no journal has would
    stay.

    :raises LockedError: the lock is held.
    """
    holder = await parts.lock.holder()
    if holder is not None:
        raise held(holder)


async def _lock_opened(parts: RolloutParts, journal: RolloutJournal, rollout: str) -> None:
    """Take the lock of a new rollout. If another rollout was faster, this one is closed; otherwise it would continue
    later with property files as they are now."""
    try:
        await parts.lock.acquire(rollout)
    except LockedError:
        journal.append(parts.clock.wall_ms(), Event.CLOSED)
        raise


async def _note_baseline(parts: RolloutParts, journal: RolloutJournal) -> None:
    """Note the partitions that are unhealthy now: they do not delay the rollout. The operator is told."""
    for brokers, names in by_brokers(baseline_of(await parts.observer.observe())).items():
        ids, partitions = " ".join(map(str, sorted(brokers))), " ".join(names)
        journal.append(parts.clock.wall_ms(), Event.BASELINE, brokers=ids, partitions=partitions)
        parts.tell(f"not in sync on broker {ids} before the rollout, and not waited for: {partitions}")


async def check_address(session: ZooKeeperSession | None, seen: Observation) -> str:
    """Returns what could not be looked at, or "". After the migration, ZooKeeper need not hold anything any more.

    :raises NoClusterError: there is no cluster; says where one is instead.
    """
    why = "; ".join(seen.unknown) or "it does not answer"
    if session is not None and not seen.is_finished:
        if not seen.zookeeper_answers:
            return f"ZooKeeper could not be looked at, so the plan does not know what is done already: {why}"
        await asyncio.to_thread(read_cluster_id, session)
    if seen.brokers is None and seen.quorum is not None:
        return f"the quorum does not say which brokers there are, so the plan does not know what is done already: {why}"
    return ""


def refuse_without_zookeeper(seen: Observation) -> None:
    """Refuse to begin a rollout whose 'access' names no ZooKeeper, because its lock is there until the migration is
    over.

    :raises OperatorError: the migration is not known to be over.
    """
    if not seen.is_finished:
        raise OperatorError(
            "zookeeper.connect is not set, and the migration is not known to have ended. Without ZooKeeper a rollout "
            "has no lock, and does not see the brokers",
            where="access",
            remedy="Copy zookeeper.connect from a broker's property file",
        )
