"""`migrator rollout plan`, and the questions that `apply --plan` asks before it begins.

It shows every step and changes nothing. A reviewed plan is compared with what would be done now; each difference is
shown, and only an accepted one is passed over. A plan's file is written whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from migrator.cli.interrupted import at_a_question
from migrator.cli.rollout_text import plan_lines
from migrator.cli.terminal import ask, say, say_json
from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.rollout.engine.preview import PreviewFacts, StepPreview, gather, preview
from migrator.rollout.engine.reviewed import (
    SHOWN,
    Reviewed,
    differences,
    document,
    is_of,
    keep_reviewed,
    known_files,
    read_reviewed,
    text_of_document,
)
from migrator.rollout.journal.journal import read_journal
from migrator.rollout.journal.progress import Progress, progress_of
from migrator.rollout.meanwhile import Meanwhile
from migrator.rollout.opening.first_level import first_level
from migrator.rollout.opening.opening import check_address
from migrator.rollout.opening.refusals import (
    refuse_ahead,
    refuse_back,
    refuse_dynamic_maps,
    refuse_files,
    refuse_lost_brokers,
)
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import digest
from migrator.rollout.plan.plan import plan, refuse_canary
from migrator.rollout.plan.steps import Direction
from migrator.rollout.ports import HostUnreachableError
from migrator.rollout.site import Site, parts_at
from migrator.values import value

ASKS = "asks the controllers for the metadata"
LOOKS = "looks at ZooKeeper, controllers and brokers"
ANEW = "Make and review it anew: 'migrator rollout plan --out FILE'"
READS = "reads the property files of the nodes, and looks at the cluster again"
ASKS_LOCK = "asks where the lock is, and ends its connections"


def say_aside(line: str) -> None:
    """Print a line on standard error: standard output is for the result."""
    say(line, err=True)


@value
class Shown:
    """``level``: the metadata.version of the controllers; "" unknown. ``canary``: as it counts."""

    steps: list[StepPreview]
    facts: PreviewFacts
    level: str
    direction: Direction
    canary: str

    async def as_document(self, parts: RolloutParts) -> dict[str, Any]:
        """The document, for a review; its digests take a while."""
        made = (parts, self.direction, self.canary, self.steps, self.facts, self.level)
        return await asyncio.to_thread(document, *made)


async def show_plan(site: Site, canary: str, *, back: bool, as_json: bool, out: Path | None) -> None:
    """
    :param out: a new file for the plan as a document; None for none.
    """
    entries = read_journal(site.state)
    progress = progress_of(entries)
    direction = Direction.BACK if back or progress.goes_back else Direction.FORWARD
    async with Meanwhile(say_aside, ASKS) as meanwhile, parts_at(site, say_aside) as (parts, zookeeper):
        meanwhile.what = LOOKS
        seen = await parts.observer.observe(partitions=False)
        unknown = await check_address(zookeeper, seen)
        away = "" if seen.zookeeper_answers or not parts.zookeeper_connect else ". ZooKeeper does not answer"
        meanwhile.what = f"{READS}{away}"
        shown = await previews(parts, progress, direction, canary)
        meanwhile.what = f"{ASKS_LOCK}{away}"
        if out is not None:
            write_document(out, await shown.as_document(parts))
        if as_json:
            steps = [one.as_json() for one in shown.steps]
            head = {"cluster": site.inventory.cluster, "direction": direction.value, "unknown": unknown or None}
            say_json({**head, "steps": steps}, indent=True)
            return
        if progress.goes_back:
            say("a rollback is under way, so this is the way back; 'migrator rollout resume' goes on with it")
        if unknown:
            say(unknown)
        local = False
        with suppress(OperatorError):  # unknown yet: `apply` reports it
            local = await parts.lock.is_local()
        for line in plan_lines(site, parts.zookeeper_connect, shown.steps, entries, lock_is_local=local):
            say(line)
        if out is not None:
            say(f"this plan is in {out}; 'migrator rollout apply --plan {out}' does it as it is there")
        if unknown:  # again, because its first place is many screens above
            say(unknown)


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """
    :raises OperatorError: there is such a file already, or it cannot be written.
    """
    text = text_of_document(content)
    try:
        with path.open("x", encoding="utf-8") as file, _whole(path):
            file.write(text)
            file.flush()
    except OSError as error:
        what = f"the plan cannot be written: {error.strerror or error}"
        remedy = "Name a new file with --out, in a directory that you may write to, on a disk with room"
        raise OperatorError(what, where=str(path), remedy=remedy) from error


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Remove a file that could not be written whole: nobody may take it for a plan, and its name is free again."""
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


async def agree(
    site: Site,
    parts: RolloutParts,
    progress: Progress,
    reviewed: Mapping[str, Any] | None,
    canary: str,
    *,
    yes: bool,
) -> Reviewed | None:
    """Compare a reviewed plan with what would be done now. Each difference is shown and asked for, until no further one
    comes up. Plan and accepted differences are kept beside the journal.

    :param reviewed: None for the plan that the rollout under way began with. The command does not ask again about
        differences that the operator accepted then.
    :param yes: the operator wants no question; differences are refused then, because nobody has seen them.
    :returns: None if there is no plan to compare with.
    :raises OperatorError: the plan is another cluster's, or the differences are not accepted.
    """
    accepted: list[str] = []
    if reviewed is None:
        if not progress.plan or not is_of(progress, progress.plan):
            return None
        kept = read_reviewed(site.state, progress.plan)
        if kept is None:
            parts.tell(
                f"the reviewed plan {progress.plan[:SHOWN]} is not in {site.state}, so nothing is compared with it. "
                "'migrator rollout apply --plan FILE' compares"
            )
            return None
        (reviewed, accepted), canary = kept, canary or progress.canary
    if reviewed["cluster"] != parts.inventory.cluster:
        what = f"the plan is of the cluster {reviewed['cluster']}, and the inventory is of {parts.inventory.cluster}"
        raise OperatorError(what, where="--plan", remedy="Name the plan of this cluster")
    plan_digest = str(reviewed["digest"])
    while True:
        async with Meanwhile(parts.tell, f"{READS}, and compares that with the reviewed plan"):
            try:
                shown = await previews(parts, progress, Direction.FORWARD, canary)
            except HostUnreachableError as error:
                raise _not_compared(error, plan_digest) from error
            now = await shown.as_document(parts)
        known = known_files(progress, plan_digest, shown.facts)
        found = differences(reviewed, now, known=known, under_way=is_of(progress, plan_digest))
        if not set(found) - set(accepted):
            break
        _show_differences(reviewed, found)
        if yes:
            raise OperatorError(
                "what would be done differs from the reviewed plan, and --yes does not accept that",
                where="--plan",
                remedy=f"{ANEW}. Or leave out --yes, and answer",
            )
        with at_a_question():
            ask("Nobody has reviewed these differences. Go on, as it is now?", abort=True)
        parts.silences.begins()
        accepted = found
    said = f"{len(found)} accepted differences from it" if found else "nothing differs from it"
    parts.tell(f"the reviewed plan {plan_digest[:SHOWN]}: {said}")
    if read_reviewed(site.state, plan_digest) != (reviewed, found):  # the disk may be full
        keep_reviewed(site.state, reviewed, found)
    files = {name: digest(encoded(text)) for name, text in shown.facts.texts.items()}
    return Reviewed(plan_digest, files, len(found))


def _not_compared(error: HostUnreachableError, plan_digest: str) -> OperatorError:
    return OperatorError(
        f"the reviewed plan {plan_digest[:SHOWN]} cannot be compared with what would be done, which needs the property "
        f"files of all nodes: {error.what}",
        where=error.where,
        remedy=f"{error.remedy}, and type the command again. If that node is gone for good, add '--without-node NAME "
        "--reason TEXT'. Nothing was done",
    )


def _show_differences(reviewed: Mapping[str, Any], found: Sequence[str]) -> None:
    say(f"different from the reviewed plan {reviewed['digest'][:SHOWN]}:")
    for line in found:
        say(f"  {line}")


async def previews(parts: RolloutParts, progress: Progress, direction: Direction, canary: str = "") -> Shown:
    """Everything that a rollout would do now.

    :raises OperatorError: the rollout would be refused, or a host cannot be reached.
    """
    refuse_canary(parts.inventory, canary)
    begun = progress.rollout and not progress.closed and progress.direction is direction
    canary = (progress.canary if begun else "") or canary
    steps = plan(parts.inventory, direction, canary, reopens=parts.reopens or bool(begun and progress.reopens))
    known = progress if begun else Progress(rollout=progress.rollout)
    facts = await gather(parts, steps, known)
    if not facts.seen.cluster_id:  # ZooKeeper may not answer just now, or be off after the end
        facts = replace(facts, seen=replace(facts.seen, cluster_id=known.cluster_id))
    if direction is Direction.BACK:
        refuse_back(parts.inventory, progress, facts.seen, facts.texts, reopens=parts.reopens)
    else:
        refuse_lost_brokers(parts.inventory, facts.seen, facts.texts)
        refuse_dynamic_maps(parts.inventory, facts.seen)
        refuse_files(parts.inventory, facts.texts, parts.mode_settings(""))
        refuse_ahead(parts.inventory.brokers.nodes, facts.texts, facts.seen)
        if facts.seen.brokers and not known.release_version:  # otherwise that level is unknown yet
            known = replace(known, release_version=first_level(parts.inventory, facts.seen))
    return Shown(preview(parts, steps, known, facts), facts, known.release_version, direction, canary)
