"""Replaces three controllers by three others while clients write: the voters are written to the log, others join, the
first ones leave.

The steps are those of docs/quorum.md, as an operator takes them (KIP-853, KIP-642).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable

from migrator.drill.cluster import COMMAND_SECONDS, MIGRATOR, WAIT_SECONDS, Cluster, ControllerProcess
from migrator.drill.probes import answers, until
from migrator.drill.report import DrillReport
from migrator.drill.workload.workload import Workload
from migrator.errors import ExitCode, OperatorError
from migrator.observe.voters import VotersDescription
from migrator.parts.processes import run_to_end
from migrator.raft.voter_set import DYNAMIC_VERSION
from migrator.rpc.operator_client import OperatorClient

LOOK_SECONDS = 0.1
WORK_SECONDS = 2.0
"""Seconds that clients write before and after the change."""


async def reassign(cluster: Cluster, report: DrillReport, earlier: Workload) -> Workload:
    """Replace the cluster's controllers by as many others.

    :param earlier: the changes so far, none of which may be lost.
    :returns: the changes, with those that were made meanwhile.
    :raises DrillFailedError: the drill cannot continue.
    :raises OperatorError: a command is refused.
    """
    old = list(cluster.controllers)
    new = cluster.successors()
    with report.step("The voters go into the metadata log"):
        await _order(report, await _leading(cluster), "upgrade")
        for controller in old:
            code = await asyncio.to_thread(controller.stop)
            report.check(f"controller {controller.node_id} left in good order", code == ExitCode.OK, code)
            await asyncio.to_thread(controller.start)
            back = functools.partial(answers, cluster, controller.node_id)
            await until(cluster, report, f"controller {controller.node_id} is back", back, seconds=WAIT_SECONDS)
        found = await _seen(cluster, report, {each.node_id for each in old}, "the voters are in the log")
        report.check("kraft.version is 1", found.kraft_version == DYNAMIC_VERSION, found.kraft_version)
    with report.step("As many other controllers start"):
        for controller in new:
            await asyncio.to_thread(controller.format_observer)
            await asyncio.to_thread(controller.start)
        cluster.use_controllers([*old, *new])
        await cluster.name_controllers(report, cluster.addresses)
    workload = await _move(cluster, report, earlier, new)
    with report.step("The first controllers leave"):
        for controller in old:
            code = await asyncio.to_thread(controller.stop)
            report.check(f"controller {controller.node_id} left in good order", code == ExitCode.OK, code)
        cluster.use_controllers(new)
        await _seen(cluster, report, {each.node_id for each in new}, "the others lead without them")
    return workload


async def _move(cluster: Cluster, report: DrillReport, earlier: Workload, new: list[ControllerProcess]) -> Workload:
    """Give one order, which each new leader continues."""
    ids = [controller.node_id for controller in new]
    with report.step(f"The voters become {_text(ids)} while clients write"):
        workload = cluster.workload()
        workload.continue_from(earlier)
        running = asyncio.create_task(workload.run())
        try:
            await asyncio.wait({running}, timeout=WORK_SECONDS)
            begin = asyncio.get_running_loop().time()
            await _order(report, await _leading(cluster), "reassign", "--to", ",".join(map(str, ids)))
            found = await _seen(cluster, report, set(ids), f"the voters are {_text(ids)}")
            report.figure("seconds from the order to the new voters", asyncio.get_running_loop().time() - begin)
            report.check("the target is reached and cleared", not found.target, found.target)
            await asyncio.wait({running}, timeout=WORK_SECONDS)
        finally:
            workload.stop()
            await running
            await workload.close()
        report.figure("acknowledged changes meanwhile", sum(workload.acknowledged.values()))
        report.figure("longest wait for an answer, seconds", workload.longest_wait_seconds)
        report.check("no change was refused", not workload.refusals, workload.refusals[:5])
    return workload


async def _seen(cluster: Cluster, report: DrillReport, wanted: set[int], what: str) -> VotersDescription:
    """The leader's description, once these controllers are the voters and no step is left; the progress is shown
    live."""
    last: VotersDescription | None = None

    async def there() -> bool:
        nonlocal last
        last = await _described(cluster) or last
        if last is None:
            return False
        report.wait_for(_sentence(last, what))
        return {int(text.split("@")[0]) for text in last.voters.split(",")} == wanted and not last.target

    await until(cluster, report, what, there, seconds=WAIT_SECONDS)
    if last is None:
        raise OperatorError("no controller says which controllers are voters", where=str(cluster.directory))
    return last


def _sentence(found: VotersDescription, what: str) -> str:
    parts = [f"{what}; now {found.voters}", f"waits: {found.waiting_for}" if found.waiting_for else ""]
    parts.append(f"next: {found.next_steps[0]}" if found.next_steps else "")
    return "; ".join(part for part in parts if part)


async def _described(cluster: Cluster) -> VotersDescription | None:
    """The description of the leader; None while there is none."""
    leader = await cluster.leader()
    if leader is None:
        return None
    try:
        async with OperatorClient.on_socket(leader.metadata_directory) as client:
            found = await client.voters()
    except OperatorError:
        return None
    return found if found.leader_id == leader.node_id else None


async def _leading(cluster: Cluster) -> ControllerProcess:
    while (leader := await cluster.leader()) is None:
        await asyncio.sleep(LOOK_SECONDS)
    return leader


async def _order(report: DrillReport, leader: ControllerProcess, *words: str) -> None:
    report.wait_for(f"migrator quorum {' '.join(words)}")
    command = [MIGRATOR, "quorum", *words, "-c", str(leader.property_file)]
    await asyncio.to_thread(run_to_end, "quorum", command, timeout_seconds=COMMAND_SECONDS)


def _text(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
