"""The text that `migrator rollout` prints: plans, questions, endings, status, history. Pure.

The commands of `rollout` call it with values of `migrator.rollout` and print the lines. It decides nothing. Every act
that changes or compares something, and every ending, has words here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.observe.printable import printable, utc
from migrator.rollout.engine.apply import Ending
from migrator.rollout.engine.decisions import HOME_OR_FORWARD
from migrator.rollout.engine.job_acts import VERDICT_MS
from migrator.rollout.engine.preview import StepPreview, StepState, asked
from migrator.rollout.engine.reviewed import SHOWN
from migrator.rollout.engine.standing import RolloutStatus, seen_lines
from migrator.rollout.gates.gates import ONLY_REOPEN
from migrator.rollout.inventory import ControllerKind, Inventory, Roll
from migrator.rollout.journal.journal import Entry
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.summary import LastEqual, durations_of, forecast_of, line_of, of_last, without_controller
from migrator.rollout.lock.places import BREAK_REMEDY
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Act, Direction, Phase
from migrator.rollout.ports import LockHolder
from migrator.rollout.site import Site

DOES = {
    Act.CONFIRM: "asks you",
    Act.EDIT: "changes {file}",
    Act.STOP: "stops {node}",
    Act.START: "starts {started}",
    Act.RESTART: "restarts {node}",
    Act.SOAK: "watches both sides being written for {soak:.0f} s",
    Act.PROVE: "compares both sides again, if the last comparison is older than {verdict:.0f} minutes",
    Act.RUN: "runs {command}",
}
LEAVES = {
    Act.EDIT: "{file} as it is",
    Act.STOP: "{node} stopped",
    Act.START: "{started} as it runs",
    Act.RESTART: "{node} as it runs",
}
"""The words for steps that are done already, or not needed."""
NEXT = {
    Ending.REACHED: "'migrator rollout resume' goes on",
    Ending.PAUSED: "'migrator rollout resume' goes on",
    Ending.ABORTED: "'migrator rollout resume' goes on",
    Ending.NOT_CONFIRMED: "'migrator rollout resume' asks again, 'migrator rollout rollback' goes back",
    Ending.COMPLETE: "",
    Ending.ALREADY: "",
    Ending.NO_WAY_BACK: "",
}


REOPENS = (
    "The migration is finished. The rollout turns it on again on every controller, and orders 'migrator reopen': "
    "ZooKeeper gets everything that has changed since, and what others have changed there since is overwritten. No "
    "command sees the groups of type 'consumer', whose consumers stop, nor everything in the files of brokers: see "
    "docs/way-back.md."
)


def plan_lines(
    site: Site, zookeeper: str, shown: Sequence[StepPreview], entries: Sequence[Entry], *, lock_is_local: bool
) -> Iterator[str]:
    """All steps.

    :param lock_is_local: whether the lock exists only on this host.
    """
    inventory = site.inventory
    yield from _head(inventory, zookeeper, entries, lock_is_local=lock_is_local)
    if any(one.step.phase is Phase.STOP_QUORUM for one in shown):
        yield from way_back(shown)
    yield from step_lines(shown, inventory)


def step_lines(shown: Sequence[StepPreview], inventory: Inventory) -> Iterator[str]:
    for number, one in enumerate(shown, 1):
        yield from _step(number, one, inventory)


def _head(inventory: Inventory, zookeeper: str, entries: Sequence[Entry], *, lock_is_local: bool) -> Iterator[str]:
    controllers, brokers = inventory.controllers, inventory.brokers
    whose = "Kafka's" if controllers.kind is ControllerKind.STOCK else "of this program"
    roll = "one rack at a time" if brokers.roll is Roll.RACK else "one at a time"
    how_many = f"{_count(controllers.nodes, 'controller')} {whose}, {_count(brokers.nodes, 'broker')}"
    yield f"cluster {inventory.cluster}: {how_many}, {roll}"
    yield f"a gate waits at most {inventory.times.gate:.0f} s, then the rollout stops"
    if lock_is_local:
        yield (
            "the lock is on this host only: neither ZooKeeper nor a quorum of this program has it. Let nobody begin a "
            "rollout on another host"
        )
    elif controllers.kind is ControllerKind.STOCK:
        yield "once ZooKeeper is gone, the lock is on this host only"
    elif inventory.handover is not None:
        yield "once Kafka's controllers have taken over and ZooKeeper is gone, the lock is on this host only"
    if not zookeeper:
        yield "'access' names no ZooKeeper: it has no lock, and brokers are seen through the quorum only"
    forecast = forecast_of(entries)
    yield f"forecast: {forecast}" if forecast is not None else "forecast: none yet; the step 'rehearse' makes one"


def _count(nodes: Sequence[object], kind: str) -> str:
    return f"{len(nodes)} {kind}{'' if len(nodes) == 1 else 's'}"


def way_back(shown: Sequence[StepPreview]) -> Iterator[str]:
    yield "nothing is lost: ZooKeeper gets everything that the quorum has committed before the controllers stop"
    gives_back = any(one.step.phase is Phase.GIVE_BACK and one.state is StepState.OPEN for one in shown)
    if gives_back:
        yield (
            "without a controller: from the stop of the last controller until 'migrator rollback' has ended, mostly "
            "some seconds. Clients read and write meanwhile; elections and changes of topics wait"
        )
    else:
        yield "without a controller: never. A broker is the ZooKeeper controller already"


def _step(number: int, one: StepPreview, inventory: Inventory) -> Iterator[str]:
    step = one.step
    started = step.successor or step.node
    where = "" if step.node is None else f" (node {step.node.node_id} on {step.node.host})"
    yield f"{number:>3} {step.name}{where}: {one.state.value}"
    if one.state in (StepState.DONE, StepState.NOT_NEEDED):
        return
    yield f"      why: {step.rules.why}"
    for line in asked(step.before):
        yield f"      before: {line}"
    names = {
        "file": one.file or "the property file",
        "node": "" if step.node is None else step.node.name,
        "started": "" if started is None else started.name,
        "soak": inventory.times.soak,
        "verdict": VERDICT_MS / 60_000,
        "command": " ".join(one.command),
    }
    for act in step.acts:
        if act in one.left:
            yield from (f"      does: leaves {words.format(**names)}" for words in (LEAVES.get(act),) if words)
        elif act in DOES and (act is not Act.RUN or one.command):
            does = "creates {file}, a new file" if act is Act.EDIT and one.is_new else DOES[act]
            yield f"      does: {does.format(**names)}"
        if act is Act.EDIT:
            yield from (f"        {line}" for line in one.changes)
    for line in asked(step.after):
        yield f"      after: {line}"
    yield f"      undo: {step.rules.undo}"


def finish_question(
    inventory: Inventory, left: Sequence[str], verdict: LastEqual | None, now_ms: int
) -> tuple[str, ...]:
    """The question that the command asks before the end of the migration.

    :param verdict: the verdict of the last comparison; None if there was none.
    :param left: the controllers that are still to be restarted without the migration.
    """
    if len(left) == 1:
        yet = f"Now {left[0]}, the last controller, is restarted without the migration. This ends the migration of"
    else:
        names = ", ".join(left)
        yet = f"Now {names} are restarted without the migration, one after the other. This ends the migration of"
    back = "'migrator rollout rollback' returns the cluster to ZooKeeper"
    if inventory.controllers.kind is ControllerKind.STOCK:
        until = (
            f"Until now {back}. From the first restart on that is not sure: the migration is over as soon as one of "
            "Kafka's controllers leads without the migration. Then the rollout has no way back."
        )
    else:
        until = f"Until the last controller is restarted, {back}. After the restart of the last one {ONLY_REOPEN}."
        if inventory.handover is not None:
            until += " Then Kafka's own controllers take over; with '--until Finished' the rollout stops before."
    proof = "ZooKeeper was not compared with the log." if verdict is None else verdict.said(now_ms)
    return f"{yet} {inventory.cluster}. {until}", f"{proof} End the migration?"


def ending_lines(inventory: Inventory, ending: Ending, entries: Sequence[Entry]) -> Iterator[str]:
    """Why a command has ended, and what comes next."""
    last = of_last(entries)
    is_back = ending is Ending.COMPLETE and progress_of(last).direction is Direction.BACK
    said = "the way back is complete: ZooKeeper and its brokers have the cluster" if is_back else ending.value
    yield f"{said}{f'. {NEXT[ending]}' if NEXT[ending] else ''}"
    if ending is Ending.COMPLETE:
        progress = progress_of(last)
        yield str(durations_of(last, plan(inventory, progress.direction, progress.canary, reopens=progress.reopens)))
        gap = without_controller(last)
        if progress.direction is Direction.BACK and gap is not None:
            yield f"without a controller: {gap:.1f} s"
    if ending in (Ending.COMPLETE, Ending.ALREADY):
        archive = next((entry.details["archive"] for entry in reversed(last) if "archive" in entry.details), None)
        if archive is not None:
            yield f"archive: {archive}"


def status_lines(standing: RolloutStatus) -> Iterator[str]:
    """The state of a rollout."""
    if standing.state == "none":
        yield f"cluster {standing.cluster}: no rollout was begun"
    else:
        way = "forward" if standing.direction is Direction.FORWARD else "back"
        yield (
            f"cluster {standing.cluster}: rollout {standing.rollout}, {way}: {standing.state}; "
            f"{standing.done} of {standing.steps} steps"
        )
    if standing.plan:
        yield f"reviewed plan: {standing.plan[:SHOWN]}"
    if standing.step is not None:
        yield f"next: {standing.step.name}: {standing.step.rules.why}"
    yield from _gate(standing)
    if standing.soaked_seconds:
        yield f"soaked: {standing.soaked_seconds} s"
    yield from _remedy_lines(standing)
    if standing.trouble:
        yield f"{'the cluster' if standing.seen is None else 'the lock'} could not be looked at: {standing.trouble}"
    else:
        yield f"lock: {'nobody holds it' if standing.holder is None else holder_line(standing.holder)}"
    if standing.seen is not None:
        yield from seen_lines(standing.seen, standing.names)


def _gate(standing: RolloutStatus) -> Iterator[str]:
    gate = standing.gate
    if gate is None:
        return
    waits = "waits" if standing.state == "running" else "the command waited as it ended"
    yield f"{waits}: {gate.last.step}: {gate.last.waits}; since {utc(gate.since_ms, 'Z')}"
    yield f"last look, {utc(gate.last.time_ms, 'Z')}: {gate.last.said or 'nothing of the cluster was seen'}"


def _remedy_lines(standing: RolloutStatus) -> Iterator[str]:
    if standing.is_locked_out:
        yield f"do: 'migrator rollout resume' is refused: another rollout holds the lock. {BREAK_REMEDY}"
    elif standing.is_reopened:
        yield f"do: the migration was reopened after its end. {HOME_OR_FORWARD}"
    elif standing.state == "stopped":
        yield "do: 'migrator rollout resume' goes on"
    if standing.failure is not None:
        yield f"failed: {standing.failure}"
        if standing.failure.output:
            yield f"output: {standing.failure.output}"
        if standing.failure.remedy:
            yield f"do: {standing.failure.remedy}"


def holder_line(holder: LockHolder) -> str:
    since = utc(holder.since_ms, "Z")
    return printable(f"rollout {holder.rollout}, {holder.owner} on {holder.host}, since {since}{holder.place}")


def history_line(entry: Entry) -> str:
    return f"{utc(entry.time_ms, 'Z')} {printable(line_of(entry))}"
