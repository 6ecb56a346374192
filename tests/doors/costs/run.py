"""One attack, or several at a time, on one place: what they cost."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from migrator.observe.metrics_endpoint import SILENCE_SECONDS
from migrator.parts.processes import ChildProcess
from migrator.parts.usage import Sampler
from migrator.values import value
from tests.doors.costs import attackers, honest
from tests.doors.costs.place import (
    ROOT,
    SCRAPER,
    Door,
    MeasuredController,
    Place,
    Who,
    give_priority,
    password_of,
    pss_bytes,
)
from tests.doors.costs.table import Attack
from tests.patience import until

MIB = 2**20
SAMPLE_SECONDS = 0.1
REST_SECONDS = 2.0
DRAIN_SECONDS = 70.0
LOWER = 19
"""The priority of attackers: the lowest that there is, unless honest processes are given more than usual."""


@value
class Answered:
    """One request of an honest caller. ``failures``: attempts that were refused or cut off."""

    what: str
    began: float
    seconds: float
    failures: int


@value
class Latency:
    """Of honest requests of one kind that were under way during an attack, in milliseconds."""

    answered: int
    """Of them, how many were answered before the attack ended."""
    failures: int
    median: float
    p99: float
    longest: float


@value
class Costs:
    """The cost of an attack. Memory in MiB; the longest turn of the loop in milliseconds, None for stock.

    :ivar sent: frames, or connections, of the attackers.
    :ivar scrapes: answered, of how many; None where there is no such door.
    :ivar scrapes_refused: how many ended without an answer before any time-out of the endpoint.
    """

    rest: float
    above_rest: float
    sent: int
    answered: int
    refused: int
    latencies: dict[str, Latency]
    turn_processor: float | None
    turn_wall: float | None
    scrapes: tuple[int, int] | None
    scrapes_refused: int
    survived: bool
    elections: int


class Memory(Sampler):
    """The most that a place's leader took."""

    def __init__(self, place: Place) -> None:
        super().__init__(SAMPLE_SECONDS)
        self._leader = place.leader
        self.samples: list[int] = []

    def look(self) -> None:
        """See `Sampler`."""
        self.samples.append(pss_bytes(self._leader))


@contextlib.contextmanager
def _honest_callers(place: Place, epoch: int) -> Iterator[Path]:
    """All of them at work; gives the file that they note their answers in."""
    ports = place.ports[place.leader.node_id]
    spec = honest.Spec(
        sasl=ports[Door.SASL_SSL],
        tls=ports[Door.SSL],
        metrics=0 if place.stock else ports[Door.METRICS],
        authority=place.authority.pem,
        voter=place.authority.issue(Who.VOTER.value),
        broker=(Who.BROKER.value, password_of(Who.BROKER)),
        operator=(Who.OPERATOR.value, password_of(Who.OPERATOR)),
        scraper=SCRAPER,
        epoch=epoch,
    )
    expected = [honest.HEARTBEAT, honest.FETCH, honest.OPERATOR, *([] if place.stock else [honest.SCRAPE])]
    path = place.directory / "honest.json"
    path.write_text(json.dumps(asdict(spec)), encoding="utf-8")
    notes = path.with_suffix(".notes")
    notes.unlink(missing_ok=True)  # of an earlier attack on the same place
    child = _child("honest", "tests.doors.costs.honest", path, place.nice)
    try:
        until(lambda: notes.exists() and all(what in notes.read_text() for what in expected))
        yield notes
        child.stop(grace_seconds=DRAIN_SECONDS)
    finally:
        child.kill()


@contextlib.contextmanager
def _attackers(place: Place, attacks: Sequence[Attack]) -> Iterator[list[Path]]:
    """All of them at work; gives their files."""
    paths: list[Path] = []
    children: list[ChildProcess] = []
    ports = place.ports[place.leader.node_id]
    with contextlib.ExitStack() as all_end:
        for attack in attacks:
            for _ in range(attack.processes):
                path = place.directory / f"attackers-{len(paths)}.json"
                _spec(place, attack, ports[attack.door]).write(path)
                attackers.forget(path)
                paths.append(path)
                children.append(_child("attackers", "tests.doors.costs.attackers", path, place.nice))
                all_end.callback(children[-1].kill)
        until(lambda: all(attackers.counts_of(path).total() for path in paths) or not place.leader.runs)
        for child in children:  # from here on: on a machine in use the lowest priority would not even start them
            give_priority(child, min(place.nice + LOWER, LOWER))
        yield paths


def _spec(place: Place, attack: Attack, port: int) -> attackers.Spec:
    caller = place.caller(attack.door, attack.who)
    login = caller.login
    return attackers.Spec(
        port=port,
        move=attack.move,
        frame=attack.frame,
        connections=attack.connections,
        bare=attack.bare,
        authority=caller.authority,
        key_and_certificate=caller.key_and_certificate,
        user=None if login is None else login.user,
        password=None if login is None else login.password,
    )


def _child(name: str, module: str, path: Path, nice: int) -> ChildProcess:
    command = [sys.executable, "-m", module, str(path)]
    child = ChildProcess(name, command, output=path.with_suffix(".log"), cwd=ROOT)
    give_priority(child, nice)
    return child


def costs_of(place: Place, attacks: Sequence[Attack], seconds: float) -> Costs:
    """Attack the leader of a place that is at rest."""
    before = place.led()
    place.let_operate()
    with _honest_callers(place, before[1]) as notes, Memory(place) as memory:
        time.sleep(REST_SECONDS)
        until(lambda: bool(memory.samples))
        rest = max(memory.samples)
        memory.samples.clear()
        began = time.monotonic()
        with _attackers(place, attacks) as paths:
            attacked = time.monotonic()
            time.sleep(seconds)
            until(lambda: (_heard(place, notes, attacked) and bool(memory.samples)) or not place.leader.runs)
            ended = time.monotonic()
            done = sum((attackers.counts_of(path) for path in paths), Counter[str]())
        peak = max(memory.samples)
        survived = place.leader.runs
        after = place.led() if survived else None
    found = [each for each in _answers(notes) if each.began < ended and each.began + each.seconds > began]
    kinds = {each.what: [one for one in found if one.what == each.what] for each in found}
    scrapes = kinds.pop(honest.SCRAPE, None)
    turns = _turns(place, began, ended)
    return Costs(
        rest=rest / MIB,
        above_rest=(peak - rest) / MIB,
        sent=done["sent"],
        answered=done["answered"],
        refused=done["refused"],
        latencies={what: _latency(answers, ended) for what, answers in kinds.items()},
        turn_processor=None if turns is None else turns[0],
        turn_wall=None if turns is None else turns[1],
        scrapes=None if scrapes is None else (sum(not each.failures for each in scrapes), len(scrapes)),
        scrapes_refused=sum(each.failures > 0 and each.seconds < SILENCE_SECONDS for each in scrapes or ()),
        survived=survived,
        elections=0 if after == before else 1,
    )


def _answers(notes: Path) -> Iterator[Answered]:
    for line in notes.read_text(encoding="ascii").splitlines():
        what, began, seconds, failures = line.split()
        yield Answered(what, float(began), float(seconds), int(failures))


def _heard(place: Place, notes: Path, began: float) -> bool:
    """Whether one heartbeat of each broker at least was answered since then, and one scrape that began since then,
    however busy the machine is."""
    answers = list(_answers(notes))
    beats = sum(each.what == honest.HEARTBEAT and each.began + each.seconds > began for each in answers)
    scraped = any(each.what == honest.SCRAPE and each.began > began and not each.failures for each in answers)
    return beats >= honest.BROKERS and (place.stock or scraped)


def _latency(answers: Sequence[Answered], ended: float) -> Latency:
    times = sorted(each.seconds * 1000 for each in answers)
    return Latency(
        answered=sum(each.began + each.seconds <= ended for each in answers),
        failures=sum(each.failures for each in answers),
        median=times[len(times) // 2],
        p99=times[int(len(times) * 0.99)],
        longest=times[-1],
    )


def _turns(place: Place, began: float, ended: float) -> tuple[float, float] | None:
    """The longest turn of the leader's loop: processor and wall time in milliseconds; None of stock."""
    if not isinstance(place.leader, MeasuredController):
        return None
    lines = [[float(text) for text in line.split()] for line in place.leader.turns.read_text().splitlines()]
    meanwhile = [line for line in lines if len(line) == 3 and began <= line[0] <= ended]
    return max((line[1] for line in meanwhile), default=0.0), max((line[2] for line in meanwhile), default=0.0)
