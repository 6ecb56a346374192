"""Stops and starts the processes of nodes. When a failure comes between stop and start, the node is started all the
same.

`acts` calls `Processes`. No command is believed: a restart counts when another incarnation is seen. A node whose
process cannot be seen but that answers is not started a second time.
"""

from __future__ import annotations

from contextlib import suppress

from migrator.errors import OperatorError
from migrator.rollout.engine import decisions
from migrator.rollout.gates.gatekeeper import Gatekeeper
from migrator.rollout.nodes import Node, Role
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.phases import program_of
from migrator.rollout.plan.steps import Step
from migrator.rollout.ports import ExecutorError, HostUnreachableError, Observation
from migrator.seeing.controllers import ControllerProgram

IN_ZOOKEEPER = (FileMode.BROKER_MIGRATING, FileMode.BROKER_ZOOKEEPER)


class UntrueRestartError(OperatorError):
    """A command to stop or restart succeeded, but the same process still runs."""


class HiddenProcessError(OperatorError):
    """The executor finds no process, but the node answers: a start would start it a second time."""


class Processes:
    def __init__(self, parts: RolloutParts, gates: Gatekeeper) -> None:
        self._parts = parts
        self._gates = gates

    async def incarnation(self, node: Node, seen: Observation | None = None) -> str | None:
        """The incarnation of the node's process; None when none runs and none answers. The process may have just begun
        or ended.

        :param seen: a look of just now, if there was one.
        :raises HiddenProcessError: the node answers, but no process is found, so a stop could not be verified.
        """
        found = await self._parts.executor.incarnation(node)
        program = program_of(self._parts.inventory)
        for look in (seen, None):
            if found is not None:
                return found
            if not _answers(node, look or await self._parts.observer.observe(partitions=False), program):
                return None
            found = await self._parts.executor.incarnation(node)
        if found is not None:
            return found
        raise HiddenProcessError(
            "the node answers, and its executor says that no process of it runs",
            where=f"{node.name} on {node.host}",
            remedy="Try the command 'incarnation' of its executor, and correct the command or its variables, such as "
            "'unit' or 'users'. If somebody has started it in another way, stop it, and start it as the executor does. "
            "Then 'migrator rollout resume'",
        )

    async def restart(self, step: Step, node: Node, before: str | None) -> None:
        """Restart a process, or start it if none runs.

        :param before: the incarnation of the process that runs; None when none runs.
        :raises UntrueRestartError: the same process still runs.
        :raises ExecutorError: a command fails, and the process has not ended; or it cannot be started.
        """
        if before is None:
            self._parts.tell(f"{step.name}: starts {node.name}")
            await self.start_again(step, node)
        else:
            self._parts.tell(f"{step.name}: restarts {node.name}")
            if self._parts.executor.stops_and_starts(node):
                await self.stop(step, node, before)
                await self.start_again(step, node)
            else:
                await self._parts.executor.restart(node)
        await self._believe(node, before)

    async def stop(self, step: Step, node: Node, before: str) -> None:
        """Stop a process; it has ended when this returns. A command that fails or times out may have begun the stop:
        Kafka takes minutes to hand over its partitions. So the process is watched as long as a gate may stay shut.

        :raises ExecutorError: the command failed, and the process still runs after that time.
        :raises UntrueRestartError: the command succeeded, and the process still runs after that time.
        """
        failed: ExecutorError | None = None
        try:
            await self._parts.executor.stop(node)
        except ExecutorError as error:
            failed = error
            self._parts.tell(f"{step.name}: {error}. Waits whether {node.name} ends nevertheless")
        if before == decisions.UNKNOWN_INCARNATION and failed is None:
            return
        has_ended = await self._ends(node, before, step.name)
        if failed is not None and not has_ended:
            raise failed
        if has_ended is False:
            raise _untrue(node, "stop")

    async def start_again(self, step: Step, node: Node) -> None:
        """Start a node after its stop. If a broker could not close its ZooKeeper session, wait until its znode is gone,
        because it would not start beside it."""
        if step.mode in IN_ZOOKEEPER:
            await self._gates.until_gone(node, step.name)
        self._gates.lifelines.starts(node.name)
        if self._parts.executor.stops_and_starts(node):
            await self._start(step, node)
        elif await self._parts.executor.incarnation(node) is None:  # otherwise it was started outside the rollout
            await self._parts.executor.restart(node)
        with suppress(ExecutorError):  # the gate after this step looks again
            if (runs := await self._parts.executor.incarnation(node)) is not None:
                self._gates.lifelines.shows(node.name, runs)

    async def _start(self, step: Step, node: Node) -> None:
        """Start a node; try again while its host is unreachable. To start a running node does nothing."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        while True:
            try:
                await self._parts.executor.start(node)
            except HostUnreachableError as error:
                if clock.monotonic_ms() >= deadline:
                    raise
                self._parts.tell(f"{step.name}: {error}. Tries again")
                await clock.sleep(times.poll)
            else:
                return

    async def _ends(self, node: Node, before: str, step: str) -> bool | None:
        """Whether the process ends; None when this stays unknown."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        with self._gates.patience(step) as patience:
            while True:
                ended: bool | None = None
                try:
                    ended = await self._parts.executor.incarnation(node) != before
                except ExecutorError as error:
                    self._parts.tell(f"{node.name}: {error}")
                if ended or clock.monotonic_ms() >= deadline:
                    return ended
                patience.waits(f"{node.name} has still to end", clock.monotonic_ms())
                await self._gates.sleep(patience)

    async def _believe(self, node: Node, before: str | None) -> None:
        after = await self._parts.executor.incarnation(node)
        if after is not None and after == before and after != decisions.UNKNOWN_INCARNATION:
            raise _untrue(node, "restart")


def _answers(node: Node, seen: Observation, program: ControllerProgram) -> bool:
    """Whether the node's process has answered at this look.

    :param program: for a controller, its program: during a hand-over another program may answer under the same id.
    """
    if node.role is Role.BROKER:
        broker = seen.broker(node)
        return broker is not None and broker.serving
    voter = seen.voter(node)
    return voter is not None and voter.program is program


def _untrue(node: Node, command: str) -> UntrueRestartError:
    return UntrueRestartError(
        f"the {command} command succeeded, but the same process runs",
        where=f"{node.name} on {node.host}",
        remedy="Correct the command in the inventory; then 'migrator rollout resume'",
    )
