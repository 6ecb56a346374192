"""Waits until gates are open: looks again and again, and names the nodes that it waits for.

The engine has one `Gatekeeper` for a run. A wait ends with open gates, with an error after the time of the inventory,
or at once when a started process has ended or loops, or when the operator aborts. One good look is not enough while a
registration may be that of a dead broker (`Steadiness`).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from migrator.config.types import trimmed
from migrator.errors import OperatorError
from migrator.rollout.files.property_files import properties_of, text_of
from migrator.rollout.gates.excuses import Baseline, as_judged, by_brokers, excused, healed
from migrator.rollout.gates.gates import SEE_BROKER, SEE_CONTROLLER, judge, unseen
from migrator.rollout.gates.lifelines import Lifelines, WaitTeller
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.looks import look_at
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.jobs import tail
from migrator.rollout.plan.modes import SESSION_TIMEOUT, SESSION_TIMEOUT_MS, parsed, session_ms, watched_keys
from migrator.rollout.ports import LOOP, ExecutorError, Gate, GateKind, Observation, Output, Shut

Note = Callable[..., None]
SHOWN_MAX = 5


GatesNow = Callable[[Observation], Sequence[Gate]]
"""The gates of a check, made at each look, because a broker that was down may serve at the next look."""


class GateTimeoutError(OperatorError):
    """A gate stayed shut for too long; the message names what it waits for."""


class GateShutError(OperatorError):
    """A gate is shut, and nothing can open it any more; the message says why."""


class ProcessEndedError(OperatorError):
    """A process that this rollout has started has ended, or restarts in a loop, and a gate waits for it.

    :param output: the last lines of its log; None where no command gives them.
    :param loops: what is seen of a process that restarts in a loop; "" for one that has ended.
    """

    def __init__(self, node: Node, step: str, output: Output | None, loops: str = "") -> None:
        goes_on = "looks again" if loops else f"starts {node.name}"
        see = f"its log ({node.place})" if output is None else "the last lines of its log, above"
        super().__init__(
            loops or f"{node.name} has ended: no process runs with {node.properties}",
            where=step,
            remedy=f"See {see}. Mend what it names; then 'migrator rollout resume': it {goes_on}, and goes on",
        )
        self.output = output


class AbortedError(OperatorError):
    """The operator has asked for an end, during a wait for a gate or a soak."""


async def _never(_: Observation) -> bool:
    return False


class Steadiness:
    """The ages of the brokers' registrations in ZooKeeper. Pure.

    A broker that dies stays registered until its session times out, and until then its partitions look healthy. So one
    good look is enough only if each registration is older than the session time-out, or this rollout has renewed it.
    """

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._steady_ms: int | None = None
        """When every registration will be old enough."""
        self._renewed: set[int] = set()

    def renews(self, broker_id: int) -> None:
        """This rollout restarts the broker, so its new registration needs no age."""
        self._renewed.add(broker_id)

    def look(self, seen: Observation, now_ms: int) -> Iterator[Shut]:
        """Add one look; yields the reasons why it is not enough."""
        if seen.brokers is None or seen.controller_broker is None:
            return  # the quorum's leader gets heartbeats, and a broker that does not answer opens no gate
        found = {broker: each.registration for broker, each in seen.brokers.items() if each.mode is not None}
        changed = {broker for broker in {*found, *self._known} if found.get(broker) != self._known.get(broker)}
        session = _session_ms(seen)
        ages = [seen.brokers[broker].age_ms if broker in found else 0 for broker in changed - self._renewed]
        if ages or self._steady_ms is None:
            self._steady_ms = max(self._steady_ms or now_ms, now_ms + session - min(ages, default=0))
        self._renewed -= {broker for broker in changed if broker in found}
        self._known = found
        if now_ms < self._steady_ms:
            what = f"must be registered for {session / 1000:.0f} s: a broker that died stays registered so long"
            yield Shut("brokers", what, "Wait for the time-out of their sessions")


def _session_ms(seen: Observation) -> int:
    told = [(each.settings or {}).get(SESSION_TIMEOUT, "") for each in (seen.brokers or {}).values()]
    return max((int(text) for text in told if text.isdecimal()), default=SESSION_TIMEOUT_MS)


class Gatekeeper:
    """The waits of one run.

    :param baseline: gives the partitions that were unhealthy before.
    :param note: writes to the journal which of them are healthy again.
    :param is_aborted: whether the operator has asked for an end.
    :param saw: takes in each look, for the report: the step, what was seen, and who is waited for.
    """

    def __init__(
        self,
        parts: RolloutParts,
        baseline: Callable[[], Baseline],
        note: Note,
        is_aborted: Callable[[], bool] = lambda: False,
        saw: Callable[[str, Observation, str], None] = lambda *_: None,
    ) -> None:
        self._is_aborted = is_aborted
        self._saw = saw
        self._parts = parts
        self._baseline = baseline
        self._note = note
        self.steadiness = Steadiness()
        self.lifelines = Lifelines()
        self._places: dict[str, str] = {}
        """The last message about the place of each node, such as its pod."""
        self._session_ms = 0
        """The longest session time-out seen of any broker, for a broker whose file cannot be read."""

    async def wait(
        self,
        asked: GatesNow,
        step: str,
        is_over: Callable[[Observation], Awaitable[bool]] = _never,
        seen: Observation | None = None,
        is_shut: Callable[[str], None] = lambda _: None,
        started: Sequence[Node] = (),
    ) -> int:
        """Wait until the gates are open.

        :param asked: makes the gates from a look.
        :param step: its name, for messages.
        :param is_over: whether the gates do not matter any more.
        :param seen: the first look, if there was one just now.
        :param is_shut: is called after each look that finds a gate shut, with who is waited for, and why.
        :param started: nodes that this rollout has started; the wait ends if one of them has ended.
        :returns: the number of looks until the gates were open; 0 when ``is_over``.
        :raises GateTimeoutError: a gate stays shut.
        :raises GateShutError: a gate is shut for ever; raised at once.
        :raises ProcessEndedError: a gate is shut, and a node of ``started`` has ended.
        :raises AbortedError: a gate is shut, and the operator has asked for an end.
        """
        with self.patience(step) as patience:
            return await self._until_open(patience, asked, step, is_over, seen, is_shut, started)

    async def _until_open(
        self,
        patience: WaitTeller,
        asked: GatesNow,
        step: str,
        is_over: Callable[[Observation], Awaitable[bool]],
        seen: Observation | None,
        is_shut: Callable[[str], None],
        started: Sequence[Node],
    ) -> int:
        times, clock = self._parts.inventory.times, self._parts.clock
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        looks, least = 0, sys.maxsize
        files: dict[str, tuple[str, Mapping[str, str]]] = {}
        while True:
            if seen is None:
                seen = await self._parts.observer.observe()
            looks += 1
            self._shrink(seen)
            gates = [await self._with_file(gate, seen, files) for gate in asked(seen)]
            waiting = tuple(self._waiting(gates, seen))
            self._saw(step, seen, said_of(waiting))
            if not waiting:
                for sentence in (text for gate in gates for text in unseen(gate, seen)):
                    self._parts.tell(f"{step}: {sentence}")
                return looks
            if shut := [each for each in waiting if each.for_ever]:
                raise GateShutError(said_of(shut), where=step, remedy=shut[0].remedy)
            if await is_over(seen):
                return 0
            is_shut(said_of(waiting))
            if len(waiting) == 1 and 0 <= waiting[0].left < least:
                least, deadline = waiting[0].left, clock.monotonic_ms() + int(times.gate * 1000)
                patience.begins_anew(clock.monotonic_ms())
            patience.waits(said_of(waiting), clock.monotonic_ms(), look_at(seen).said)
            await self._refuse_ended(started, step)
            if self._is_aborted():
                self._parts.tell(
                    f"{step}: stops here, as was asked for; 'migrator rollout resume' looks at this gate again"
                )
                raise AbortedError("the wait for a gate was stopped", where=step)
            if clock.monotonic_ms() >= deadline:
                remedy = _with_resume(waiting[0], started)
                raise GateTimeoutError(f"not within {times.gate:.0f} s: {said_of(waiting)}", where=step, remedy=remedy)
            await self.sleep(patience)
            seen = None

    @contextmanager
    def patience(self, step: str) -> Iterator[WaitTeller]:
        """The patience for a wait that begins now and lasts as long as a gate may stay shut."""
        limit_ms, silences = int(self._parts.inventory.times.gate * 1000), self._parts.silences
        try:
            yield WaitTeller(step, self._parts.tell, silences.draws, self._parts.clock.monotonic_ms(), limit_ms)
        finally:
            silences.hides()

    async def sleep(self, patience: WaitTeller) -> None:
        """Wait for the next look, and tell meanwhile that this waits."""
        clock = self._parts.clock
        end_ms = clock.monotonic_ms() + self._parts.inventory.times.poll * 1000
        while (now_ms := clock.monotonic_ms()) < end_ms:
            await clock.sleep(min(end_ms - now_ms, patience.silence_ms(now_ms)) / 1000)
            patience.goes_on(clock.monotonic_ms())

    async def _refuse_ended(self, started: Sequence[Node], step: str) -> None:
        """Raise if a started node has ended, or restarts in a loop. A place that comes back by itself, such as a pod,
        is waited for."""
        executor = self._parts.executor
        for node in started:
            await self._refuse_looping_place(node, step)
            if not executor.stops_and_starts(node):
                continue
            try:
                runs = await executor.incarnation(node)
            except ExecutorError:
                continue  # the executor cannot tell
            if runs is not None:
                await self._refuse_loop(node, step, runs)
            elif self.lifelines.is_missing(node.name, self._parts.clock.monotonic_ms()):
                self._parts.tell(f"{step}: {node.name} has ended")
                raise ProcessEndedError(node, step, await self._last_lines(node, step))

    async def _refuse_loop(self, node: Node, step: str, incarnation: str) -> None:
        """Count the restarts by something else than this rollout, such as a supervisor."""
        before = self.lifelines.restarts_of(node.name)
        restarts = self.lifelines.shows(node.name, incarnation)
        if restarts == before:
            return
        times = "once" if restarts == 1 else f"{restarts} times"
        said = f"{node.name} has ended and was started again {times} since this rollout started it"
        self._parts.tell(f"{step}: {said}")
        if restarts >= LOOP:
            loops = f"{said}: it restarts in a loop"
            raise ProcessEndedError(node, step, await self._last_lines(node, step), loops)

    async def _refuse_looping_place(self, node: Node, step: str) -> None:
        """Tell what is wrong with a node's pod, and raise if the pod restarts in a loop."""
        with suppress(ExecutorError):  # the executor cannot tell
            place = await self._parts.executor.place_of(node)
            said = "" if place is None else place.said
            if said and said != self._places.get(node.name):
                self._parts.tell(f"{step}: {node.name}: {said}")
            self._places[node.name] = said
            if place is not None and place.loops:
                raise ProcessEndedError(node, step, await self._last_lines(node, step), f"{node.name}: {said}")

    async def _last_lines(self, node: Node, step: str) -> Output | None:
        """Show and return the last lines of the node's log."""
        try:
            output = await self._parts.executor.log_of(node)
        except ExecutorError as error:
            self._parts.tell(f"{step}: {error}")
            return None
        if output is not None:
            self._parts.tell(f"{step}: the log of {node.name} ends so:")
            for line in tail(output):
                self._parts.tell(f"  {line}")
        return output

    async def until_gone(self, node: Node, step: str) -> None:
        """Wait until a stopped broker is not registered any more; but it must not stay down. When its registration
        cannot be seen, the time-out of its session is waited for; when it stays, as long as for any gate. When the
        broker's process runs again, it was started outside the rollout, and the wait ends."""
        with self.patience(step) as patience:
            await self._until_gone(patience, node, step)

    async def _until_gone(self, patience: WaitTeller, node: Node, step: str) -> None:
        clock, times = self._parts.clock, self._parts.inventory.times
        began_ms = clock.monotonic_ms()
        own_ms = await self._own_session_ms(node)
        while True:
            seen = await self._parts.observer.observe(partitions=False)
            self._session_ms = max(self._session_ms, _session_ms(seen))
            waiting = judge(Gate(GateKind.BROKER_GONE, node), seen)
            self._saw(step, seen, said_of(waiting))
            if not waiting or await self._runs(node):
                return
            passed_ms, shown = clock.monotonic_ms() - began_ms, said_of(waiting)
            if passed_ms >= (own_ms or self._session_ms) and (seen.brokers is None or passed_ms >= times.gate * 1000):
                self._parts.tell(f"{step}: starts {node.name} nevertheless, {passed_ms // 1000} s later: {shown}")
                return
            patience.waits(shown, clock.monotonic_ms(), look_at(seen).said)
            await self.sleep(patience)

    async def _own_session_ms(self, node: Node) -> int:
        """The session time-out in the broker's file, but no longer than a gate may stay shut, or than Kafka's default.
        0: the file cannot be read."""
        try:
            told = session_ms(await properties_of(self._parts.executor, node))
        except OperatorError:
            return 0
        return min(told, max(SESSION_TIMEOUT_MS, int(self._parts.inventory.times.gate * 1000)))

    async def _runs(self, node: Node) -> bool:
        try:
            return await self._parts.executor.incarnation(node) is not None
        except ExecutorError:
            return False  # it is started next, and to start a running broker does nothing

    def _shrink(self, seen: Observation) -> None:
        """Note replicas of the baseline that are in sync again: gates wait for them from now on."""
        for brokers, names in by_brokers(healed(self._baseline(), seen)).items():
            self._note(Event.HEALED, brokers=" ".join(map(str, sorted(brokers))), partitions=" ".join(names))

    async def _with_file(self, gate: Gate, seen: Observation, files: dict[str, tuple[str, Mapping[str, str]]]) -> Gate:
        """The gate with the broker's property file as it was at the first look after this start: a later change of the
        file needs another restart.

        :param files: by broker, its registration, and its file then, of the keys that a rollout changes.
        """
        node, broker = gate.node, seen.broker(gate.node)
        if gate.kind is not GateKind.BROKER_BACK or node is None or broker is None or not broker.serving:
            return gate
        if node.name not in files or files[node.name][0] != broker.registration:
            text = await text_of(self._parts.executor, node)
            watched = watched_keys(self._parts.inventory.brokers.settings)
            found = {key: trimmed(value) for key, value in parsed(node, text).items() if key in watched}
            files[node.name] = broker.registration, found
        return replace(gate, file=files[node.name][1])

    def _waiting(self, gates: Sequence[Gate], seen: Observation) -> Iterator[Shut]:
        gone, baseline = self._parts.inventory.gone, self._baseline()
        self._session_ms = max(self._session_ms, _session_ms(seen))
        names = {f"broker {node.node_id}": node.name for node in self._parts.inventory.brokers.nodes}
        found: list[Shut] = []
        for gate in gates:
            known = {each.who for each in found} & {*names.values()}
            for each in judge(gate, as_judged(gate.kind, seen, gone, baseline)):
                waiting = replace(each, who=names.get(each.who, each.who))
                if waiting.who not in known or gate.kind is not GateKind.PARTITIONS_HEALTHY:
                    found.append(waiting)
        counted = excused(seen, gone, baseline)
        unsteady = list(self.steadiness.look(counted, self._parts.clock.monotonic_ms()))
        yield from found
        if not found and any(gate.kind is GateKind.PARTITIONS_HEALTHY for gate in gates):
            yield from unsteady


def _with_resume(waiting: Shut, started: Sequence[Node]) -> str:
    """The remedy; for a node that this rollout has started, it says what `resume` does."""
    for node in started:
        if waiting.who in (node.name, f"controller {node.node_id}") and waiting.remedy in (SEE_BROKER, SEE_CONTROLLER):
            return f"See the log of {node.name}. If it has ended, mend it; 'migrator rollout resume' starts it"
    return waiting.remedy


def said_of(waiting: Sequence[Shut]) -> str:
    """The nodes that a gate waits for, with reasons. A reason is not repeated when it is the same as before."""
    said: list[str] = []
    for each in waiting:
        what, _, why = each.what.partition(": ")
        is_said = why and any(before.endswith(why) for before in said)
        said.append(f"{each.who}: {what if is_said else each.what}")
    said = list(dict.fromkeys(said))
    return "; ".join(said[:SHOWN_MAX]) + (f"; and {len(said) - SHOWN_MAX} more" if len(said) > SHOWN_MAX else "")
