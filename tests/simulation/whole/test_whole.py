"""Whole controllers: seeds without a violation, the same seed twice, and that the simulation does what it says."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import grpc
import pytest
from kio.schema.errors import ErrorCode

from migrator.node.registration import ControllerRegistrar
from migrator.records.batch import Batch, build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.metadata import NoOpRecord
from migrator.records.versions import LATEST_SUPPORTED
from tests.lanes import TEST, TEST_ALL, TEST_LONG
from tests.simulation.whole import branches, cells, grpc_wire, runner
from tests.simulation.whole.agreement import why_fenced, why_not_agreed
from tests.simulation.whole.controller import GRPC_PORT
from tests.simulation.whole.disk import Directory, File, SimulatedDisk
from tests.simulation.whole.options import QUIET, Options, overruled
from tests.simulation.whole.planted import BUGS, FOUND, LIKELIER, TABLE, planted
from tests.simulation.whole.world import Outcome, World, simulate

ROOT = Path(__file__).parents[3]
BUSY = {
    "chaos_seconds": "12",
    "kill_rate": "0.1",
    "power_rate": "0.05",
    "seeks": "no",
    "writes": "20",
    "other_share": "0.8",
    "big_share": "0.02",  # worked on by threads, of which none may be a real one
    "brokers": "3",
    "dynamic": "yes",
    "recover_rate": "0.2",
    "names_given_up": "yes",
}
"""Within a few seconds, many things that could depend on an order."""


UP_TO = {TEST: 40, TEST_ALL: 500, TEST_LONG: 5_000}
"""The seeds of the lanes: each goes on from where the one before it ends."""
CASE = 100
"""Seeds of one case in the long lane, which goes on with the next case where it was stopped."""
CASES = [UP_TO[TEST_ALL], *range(-(-UP_TO[TEST_ALL] // CASE) * CASE, UP_TO[TEST_LONG] + 1, CASE)]
NUMBERS = [
    pytest.param(range(UP_TO[TEST]), id="seeds"),
    *(
        pytest.param(range(first, last), id=f"seeds {first} to {last - 1}", marks=pytest.mark.lane(TEST_LONG))
        for first, last in pairwise(CASES)
        if first < last
    ),
]


@pytest.mark.parametrize("numbers", NUMBERS)
def test_no_seed_breaks_a_rule(numbers: range) -> None:
    """Each is a quorum of whole controllers, with faults, up to the stop in order of all of them."""
    judged(numbers)


@pytest.mark.lane(TEST_ALL)
def test_more_seeds_break_no_rule_and_every_fault_meets_every_state() -> None:
    """And a crash every operation on a disk: else the seeds try less than they seem to."""
    counts = judged(range(UP_TO[TEST], UP_TO[TEST_ALL]))
    assert cells.never_met(counts) == [], cells.tables(counts)


def judged(numbers: range) -> Counter[str]:
    """The events that they met."""
    coverage: Counter[str] = Counter()
    failures = []
    for outcome, _ in runner.run_seeds(numbers):
        coverage.update(outcome.coverage)
        if outcome.rule is not None:
            failures.append(runner.describe_failure(outcome))
    assert not failures, "\n".join(failures)
    assert coverage["elections"] >= len(numbers)
    assert coverage["acknowledged writes"] >= len(numbers)
    return coverage


@pytest.mark.lane(TEST_ALL)
@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_found_by_a_seed_again(name: str) -> None:
    """A change of the product moves what a seed does, so the next two are tried, too: when none of the three finds it,
    hunt the bug with ``--planted``."""
    for seed in range(FOUND[name], FOUND[name] + 3):
        outcome, _ = runner.run_seed(seed, LIKELIER[name], name)
        if outcome.rule is not None:
            break
    assert outcome.rule is not None
    sound = without_a_bug(seed, tuple(LIKELIER[name].items()))
    assert sound.rule is None, runner.describe_failure(sound, LIKELIER[name])


@cache
def without_a_bug(seed: int, options: tuple[tuple[str, str], ...]) -> Outcome:
    """Some bugs share seed and options."""
    return runner.run_seed(seed, dict(options))[0]


def test_a_failure_names_the_command_that_shows_it_again() -> None:
    """With the bug: without it the seed breaks no rule."""
    outcome, _ = runner.run_seed(7, {"writes": "20"}, "half_is_a_majority")
    assert outcome.rule is not None
    said = runner.describe_failure(outcome, {"writes": "20"}, "half_is_a_majority")
    assert said.endswith("--seed 7 --option writes=20 --bug half_is_a_majority --trace")


def test_the_table_holds_every_planted_bug() -> None:
    """Each replaces something that is there."""
    rows = [row.bug for rows in TABLE.values() for row in rows]
    assert sorted(rows) == sorted(BUGS)
    for bug in rows:
        with planted(bug):
            pass


def test_the_page_names_functions_that_are_there() -> None:
    """A command writes those names, and the code goes on."""
    found = branches.noted(branches.PAGE.read_text())
    assert found
    for file, names in found.items():
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for name in names:
            assert name.rpartition(".")[2] in inspect.getsource(module), f"{file}: {name}"


@pytest.mark.parametrize(
    ("options", "rule", "words"),
    [
        ({"compare_seconds": "2"}, "the_images_of_the_controllers_are_equal", "the controllers disagree at offset"),
        ({"replay_seconds": "5"}, "nobody_stops_itself", "are not what a replay of its own log gives"),
    ],
)
def test_controllers_find_themselves_that_an_image_is_wrong(options: dict[str, str], rule: str, words: str) -> None:
    """The leader compares what they say over gRPC; each one compares its image with its own log."""
    outcome, _ = runner.isolated(overruled(QUIET, options), "image_of_one_controller_is_wrong")
    assert outcome.rule == rule, outcome.message
    assert words in outcome.message
    sound, _ = runner.isolated(overruled(QUIET, options))
    assert sound.rule is None, sound.message
    assert sound.coverage["gRPC Vote"]


@pytest.mark.lane(TEST_ALL)
def test_seeds_are_the_same_whatever_the_hashes_of_texts_are() -> None:
    """Texts and bytes have other hashes in each process, and sets and maps of them another order. The fingerprint of a
    seed is that of its events and of the log."""
    said = set()
    for hash_seed in ("1", "2"):
        options = (f"--option={name}={text}" for name, text in BUSY.items())
        run = ["-m", "tests.simulation.whole", "--first", "2", "--seeds", "2", "--jobs", "1"]
        command = [sys.executable, *run, *options]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        said.add("\n".join(line for line in done.stdout.splitlines() if "processor seconds" not in line))
    assert len(said) == 1, "\n".join(said)
    report = said.pop()
    assert report.count("fingerprint") == 2
    for met in ("recoveries ", "changes of an ISR "):
        assert f"  {met}" in report


def test_an_error_that_nobody_expects_is_seen_at_once_and_where_it_was_raised() -> None:
    """It was seen at the end of a run, in the one book of all controllers."""
    outcome = runner.in_child(lambda: failing_registration(QUIET))
    assert outcome.rule == "nothing_unexpected_is_raised"
    assert "controller 2: tasks failed: {'controller-registration'" in outcome.message
    assert outcome.seconds < 1


def failing_registration(options: Options) -> Outcome:
    sound = ControllerRegistrar.run

    async def run(registrar: ControllerRegistrar) -> None:
        if registrar._own.controller_id == 2:
            raise LookupError("planted")
        await sound(registrar)

    with patch.object(ControllerRegistrar, "run", run):
        return simulate(options)


def test_a_controller_that_still_asks_the_others_at_its_start_stops_when_it_is_told() -> None:
    """They do not answer, as their machines have no power: each question lasts until its time is over."""
    outcome = runner.in_child(lambda: lonely_start(QUIET))
    assert outcome.rule is None, outcome.message


def lonely_start(options: Options) -> Outcome:
    world = World(options)
    first, *others = world.controllers.values()
    world.network.machines_off.update(one.host for one in others)
    first.format()
    first.start()
    world.run_for(3.0)
    assert first.core is not None, "it is about to ask"
    first.stop()
    stops = world.run_until(lambda: not first.runs, world.now + 7.0)
    rule = None if stops else "who_is_told_to_stop_stops"
    return Outcome(options, rule, "it still asks", world.coverage, world.now, world.fingerprint)


def test_a_busy_processor_makes_no_disk_slow() -> None:
    """A turn with an fsync in it took 300 times as long as the fsync: a minute, when all had to be well again."""
    assert runner.in_child(lambda: slow_turn(QUIET)) < 1


def slow_turn(options: Options) -> float:
    machine = World(options).controllers[1].begin_life()
    machine.slowness = 300.0
    machine.loop.call_soon(machine.spend, 0.2)
    machine.turn()
    return machine.busy_until


def test_a_connection_that_fails_after_its_caller_gave_up_concerns_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error that nobody expected, of a controller that had done nothing wrong."""
    complaints: list[Any] = []

    async def give_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        answer = loop.create_future()
        monkeypatch.setattr(grpc_wire, "_dial", lambda *_: answer_of(answer))
        channel = grpc_wire.Channel("nowhere", 1, b"", b"")
        connecting = loop.create_task(channel.connect())
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        answer.set_exception(ConnectionRefusedError())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(give_up())
    gc.collect()
    assert not complaints


async def answer_of(answer: asyncio.Future[Any]) -> Any:
    return await answer


def test_a_channel_gets_through_when_the_machine_has_power_again() -> None:
    """Its first attempt lasted for ever, so a follower could not fetch from its leader (seed 32019)."""
    assert runner.in_child(lambda: knocks_until_it_is_heard(QUIET))


def knocks_until_it_is_heard(options: Options) -> bool:
    world = World(options)
    there, knocking = world.controllers[1], world.client.machine.loop
    heard: list[str] = []

    async def knock() -> None:
        channel = grpc_wire.Channel(there.host, GRPC_PORT, b"", b"")
        while not heard or "another certificate" not in heard[-1]:
            with suppress(TimeoutError):
                try:
                    await asyncio.wait_for(channel.connect(), 0.5)
                except grpc.aio.AioRpcError as error:
                    heard.append(error.details() or "")

    there.format()
    there.start()
    world.run_for(1.0)
    world.network.machines_off.add(there.host)
    knocking.from_outside(lambda: knocking.create_task(knock()))
    world.run_for(1.5)
    world.network.machines_off.discard(there.host)
    return world.run_until(lambda: bool(heard) and "another certificate" in heard[-1], world.now + 3.0)


def test_who_followed_the_given_up_is_known_by_a_record_that_the_survivor_has_otherwise() -> None:
    """Both quorums have offset 0; at 1 the survivor has a record that no majority had, before those of the recovery."""
    assert runner.in_child(lambda: apart_after_a_recovery(QUIET)) == (False, True)


def apart_after_a_recovery(options: Options) -> tuple[bool, bool]:
    """Whether a new controller counts as one of the given-up: with records of the survivor, and with one of theirs."""
    world = World(options)
    watch, (survivor, given_up, new, *_) = world.watch, world.controllers.values()
    kept, unknown, recovery, other = (batch_at(0, 1), batch_at(1, 1), batch_at(2, 1_000_001), batch_at(1, 2))
    watch._is_committed(survivor, kept)
    watch.recovered(survivor, [kept, unknown, recovery], frozenset((given_up.key,)))
    watch._is_committed(given_up, other)
    watch._is_committed(new, kept)
    watch._is_committed(new, unknown)
    before = watch.is_apart(new)
    watch._is_committed(new, other)
    return before, watch.is_apart(new)


def test_a_broker_that_only_the_given_up_hear_is_fenced_in_the_quorum() -> None:
    """Its heartbeats were answered, so it had to be unfenced: seed 158 under one of six hash seeds."""
    words = runner.in_child(lambda: heard_by_the_given_up(replace(QUIET, brokers=1)))
    assert words == ["broker 101 sends heartbeats, and is not registered", ""]


def heard_by_the_given_up(options: Options) -> list[str]:
    """What is wrong when a controller hears the broker, and when that controller is given up."""
    world = World(options)
    (broker,), controller = world.brokers, world.controllers[1]
    answer = SimpleNamespace(error_code=ErrorCode.none), controller.node_id
    said = []
    with patch.object(world.client, "ask", AsyncMock(return_value=answer)):
        for controller.is_given_up in (False, True):
            asyncio.run(broker._heartbeat(1))
            said.append(why_fenced(world))
    return said


def batch_at(offset: int, epoch: int) -> Batch:
    values = encode_all([NoOpRecord()], LATEST_SUPPORTED)
    return next(iter_batches(build_batch(values, timestamp_ms=epoch, base_offset=offset, leader_epoch=epoch)))


def test_an_idle_controller_wakes_up_for_little() -> None:
    """Two records a second with all that they take, and 20 looks at how late the loop is: no polls beside these."""
    assert runner.in_child(lambda: idle_turns(replace(QUIET, writes=0.0))) <= 60


def idle_turns(options: Options) -> float:
    """Of the event loop of one controller, in a second."""
    world = World(options)
    world.begin()
    assert world.run_until(lambda: not why_not_agreed(world.watch), 20.0)
    world.run_for(3.0)  # until all of them are registered
    before = world._turns
    world.run_for(10.0)
    return (world._turns - before) / 10 / options.controllers


def test_a_power_cut_leaves_what_was_made_durable() -> None:
    lost_content, lost_name = set(), set()
    for seed in range(200):
        disk, directory = SimulatedDisk(), Directory()
        disk.root.change(("d", directory))
        disk.root.sync()
        safe, written, new = File(), File(), File()
        directory.change(("safe", safe))
        directory.change(("written", written))
        directory.sync()
        safe.write(b"safe", 0)
        safe.sync()
        written.write(b"old", 0)
        written.sync()
        written.write(b"new", 0)
        new.write(b"new", 0)
        new.sync()
        directory.change(("new", new))
        disk.lose_power(Random(seed))
        assert disk.file(Path("/d/safe")).data == b"safe"
        lost_content.add(bytes(disk.file(Path("/d/written")).data))
        lost_name.add(disk.find(Path("/d/new")) is None)
    assert lost_content == {b"old", b"nld", b"ned", b"new"}
    assert lost_name == {False, True}
