"""A cluster without ZooKeeper loses a broker, loses its leader and gets it back: ours and stock Kafka, one by one.

Three controllers, ten scripted brokers. Each row is a line in a file as soon as it is measured, with commit and
machine. A peer that has all its rows there is left out, so a run may be stopped and taken up again.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import psutil
from kio.schema.errors import ErrorCode
from rich.console import Console
from rich.table import Table

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light.broker import LightBrokerOptions
from migrator.errors import MigratorError, PeerError
from migrator.parts.java import Jvm
from migrator.parts.usage import ProcessorMeter
from migrator.raft.transport import TransportError
from migrator.values import value
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import DESCRIBE_CONFIGS, build, request_type
from tests import results
from tests.bench.figures import number_text
from tests.bench.kraft_brokers import LogWatch, ScriptedBroker
from tests.bench.peers import STOCK_JVM
from tests.bench.quorums import (
    PARTITIONS_A_TOPIC,
    REPLICAS,
    REQUEST_SECONDS,
    TITLES,
    creation,
    fill,
    prepared_log,
    running,
)
from tests.interop.support.changing_voters import ChangingVoters

BROKERS = range(101, 111)
SESSION_SECONDS = 9.0
"""Kafka's default of ``broker.session.timeout.ms``."""
LOOK_SECONDS = 0.02
REST_SECONDS, REST_PROCESSORS = 5.0, 0.25
"""Three controllers that use no more have nothing left to load or to write."""
LARGE = 1_000_000
"""So many partitions are not created one by one: the controllers begin with a log that has them."""
LARGE_JVM = Jvm(heap="5g", flags=())
PATIENCE_SECONDS, PARTITIONS_A_SECOND = 120.0, 5_000
"""A row that takes longer is not complete."""
NEW_TOPIC = "made-by-the-next-leader"
TOPIC = 2
_BLOCKED = re.compile(r"The event loop was blocked for (\d+) ms")


@value
class Row:
    """One thing that happens to the cluster. ``goal``: a multiple of stock's time, or seconds."""

    key: str
    label: str
    goal: str


ROWS = (
    Row("shutdown", "controlled shutdown of one of 10 brokers", "<= 0.5x"),
    Row("silence", "a broker falls silent: last record, less the session", "<= 0.5x"),
    Row("failover", "leader killed to next acknowledged CreateTopics", "<= 1x and <= 2 s"),
    Row("return", "killed controller is back and has caught up", "<= 20 s at 2,000,000"),
)
FIGURES = {
    "seconds": "s",
    "processor_s": "processor time of the leader, or of the one that is back, s",
    "all_processor_s": "processor time of all controllers that run, s",
    "others_percent": "the processors' share that others took, %",
    "stall_ms": "longest turn of ours above 100 ms, any node",
    "records": "records that change partitions",
    "partitions": "partitions that they change",
    "fenced": "other brokers that were fenced",
    "epochs": "epochs that began",
}


async def run(peer: str, directory: Path, partitions: int, lines: Path, console: Console) -> str | None:
    """Measure all rows of a peer, each a line of that file. Gives what failed."""
    measured = [_case(partitions, row, peer) for row in ROWS]
    if set(measured) <= results.passed_on(results.commit(), lines):
        _say(console, f"{peer}: all rows of {partitions:,} partitions are in {lines}")
        return None
    jvm, log = STOCK_JVM, None
    if partitions >= LARGE:
        _say(console, f"{peer}: a log with {partitions:,} partitions is written")
        jvm, log = LARGE_JVM, prepared_log(directory / "prepared", partitions, BROKERS)
    row = ROWS[0]
    try:
        async with (
            running(peer, directory, size=3, voters=3, jvm=jvm, log_level="WARN", log=log) as quorum,
            _Bench(quorum, partitions) as bench,
        ):
            await bench.begin()
            if log is None:
                _say(console, f"{peer}: {partitions:,} partitions are created")
                await bench.fill()
            else:
                _say(console, f"{peer}: the controllers come to rest")
                await bench.rest()
            for row in ROWS:
                _say(console, f"{peer}: {row.label}")
                seconds = await bench.measure(row)
                words = " ".join(f"{key}={number:.6g}" for key, number in bench.figures.items())
                results.append(lines, _case(partitions, row, peer), "passed", f"{seconds:.2f}", words)
    except (MigratorError, TransportError, PeerError, TimeoutError, OSError) as error:
        results.append(lines, _case(partitions, row, peer), "failed", "", "")
        return f"{row.label}: {type(error).__name__}: {error}"
    return None


class _Bench:
    """The brokers of one peer's quorum, and what happens to them."""

    def __init__(self, quorum: ChangingVoters, partitions: int) -> None:
        self.figures: dict[str, float] = {}
        self._quorum = quorum
        self._partitions = partitions
        self._patience = PATIENCE_SECONDS + partitions / PARTITIONS_A_SECOND
        self._watch = LogWatch(quorum.ports)
        ports = [("127.0.0.1", port) for port in quorum.ports.values()]
        options = [LightBrokerOptions(broker, CLUSTER_ID, "", ports) for broker in BROKERS]
        self._brokers = [ScriptedBroker(each, self._watch) for each in options]
        self._gone: set[int] = set()
        self._killed = -1

    async def __aenter__(self) -> Self:
        for broker in self._brokers:
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self._brokers:
            await broker.stop(controlled=False)
        await self._watch.close()

    async def begin(self) -> None:
        """Every broker is unfenced.

        :raises TimeoutError: the controllers do not come so far.
        """
        try:
            async with asyncio.timeout(self._patience):
                for broker in self._brokers:
                    await broker.running.wait()
        except TimeoutError:
            epoch = (await self._described()).leader_epoch
            raise TimeoutError(f"brokers are fenced after {self._patience:.0f} s, in epoch {epoch}") from None

    async def fill(self) -> None:
        """The topics are there, and every controller has them."""
        await fill(self._quorum, self._partitions, BROKERS)
        await self._quorum.until_caught_up()

    async def rest(self) -> None:
        """What the controllers began with is loaded, and stock's have written a snapshot of it."""
        async with asyncio.timeout(self._patience):
            busy = math.inf
            while busy > REST_PROCESSORS:
                meters = self._meters()
                await asyncio.sleep(REST_SECONDS)
                busy = sum(meter.seconds for meter in meters.values()) / REST_SECONDS

    async def measure(self, row: Row) -> float:
        """The seconds that it takes; `figures` has the rest.

        :raises TimeoutError: it takes too long.
        :raises MigratorError: the log cannot be followed.
        """
        phases: dict[str, Callable[[], Awaitable[float]]] = {
            "shutdown": self._shut_down,
            "silence": self._fall_silent,
            "failover": self._kill_the_leader,
            "return": self._bring_it_back,
        }
        self.figures = {}
        self._watch.begin()
        outputs = [controller.process.output for controller in self._quorum.controllers.values() if controller.process]
        sizes = [output.stat().st_size for output in outputs]
        epoch = (await self._described()).leader_epoch
        try:
            async with asyncio.timeout(self._patience):
                seconds = await phases[row.key]()
                await asyncio.to_thread(self._watch.decode)
        except TimeoutError:
            self._watch.check()
            raise TimeoutError(
                f"not complete in {self._patience:.0f} s; {self._watch.records:,} records came"
            ) from None
        changed = self._watch.partitions
        self.figures |= {
            "records": changed.total(),
            "partitions": len(changed),
            "fenced": len(set(self._watch.fenced) - self._gone),
            "epochs": (await self._described()).leader_epoch - epoch,
        }
        if blocked := [ms for output, size in zip(outputs, sizes, strict=True) for ms in _blocked(output, size)]:
            self.figures["stall_ms"] = max(blocked)
        return seconds

    async def _shut_down(self) -> float:
        leader = (await self._described()).leader_id
        broker = self._brokers.pop()
        self._gone.add(broker.options.broker_id)
        meters, began = self._meters(), time.monotonic()
        await broker.shut_down()
        seconds = time.monotonic() - began
        self._note(meters, leader)
        await self._every_partition_has_changed()
        await broker.stop(controlled=False)
        return seconds

    async def _fall_silent(self) -> float:
        leader = (await self._described()).leader_id
        broker = self._brokers.pop()
        self._gone.add(broker.options.broker_id)
        meters = self._meters()
        await broker.stop(controlled=False)
        await self._every_partition_has_changed()
        self._note(meters, leader)
        return self._watch.last_change_at - broker.heard_at - SESSION_SECONDS

    async def _kill_the_leader(self) -> float:
        self._killed = (await self._described()).leader_id
        meters = self._meters()
        del meters[self._killed]
        channel = ControllerChannel([("127.0.0.1", self._quorum.ports[node]) for node in meters], "bench")
        topic = {"name": NEW_TOPIC, "num_partitions": PARTITIONS_A_TOPIC, "replication_factor": REPLICAS}
        request = creation([{**topic, "assignments": (), "configs": ()}])
        codes = (ErrorCode.none, ErrorCode.topic_already_exists)  # the latter if an answer was lost
        try:
            began = time.monotonic()
            await asyncio.to_thread(self._quorum.controllers[self._killed].kill)
            while (code := await _created(channel, request)) not in codes:
                if code is not None:
                    raise MigratorError(f"CreateTopics was refused: {code.name}")
        finally:
            await channel.close()
        seconds = time.monotonic() - began
        self._note(meters, (await self._described()).leader_id)
        return seconds

    async def _bring_it_back(self) -> float:
        """It answers what it knows of a topic that was made while it was away."""
        controller = self._quorum.controllers[self._killed]
        began = time.monotonic()
        await asyncio.to_thread(controller.start)
        meters = self._meters()
        client = KafkaClient("127.0.0.1", self._quorum.ports[self._killed], "bench")
        resource = {"resource_type": TOPIC, "resource_name": NEW_TOPIC, "configuration_keys": None}
        request = build(request_type(DESCRIBE_CONFIGS, 4), resources=[resource])
        try:
            while not await _knows(client, request):
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await client.close()
        seconds = time.monotonic() - began
        self._note(meters, self._killed)
        return seconds

    async def _every_partition_has_changed(self) -> None:
        """Of the broker that is gone: three of each topic."""
        expected = REPLICAS * (self._partitions // PARTITIONS_A_TOPIC)
        seen = 0
        while len(self._watch.partitions) < expected:
            if self._watch.records < max(expected, seen + 1):
                await asyncio.sleep(LOOK_SECONDS)
                continue
            seen = self._watch.records
            await asyncio.to_thread(self._watch.decode)

    async def _described(self) -> Any:
        return await self._quorum.until(lambda _: True)

    def _meters(self) -> dict[int, ProcessorMeter]:
        processes = {node: controller.process for node, controller in self._quorum.controllers.items()}
        return {node: ProcessorMeter([process.pid]) for node, process in processes.items() if process}

    def _note(self, meters: dict[int, ProcessorMeter], node: int) -> None:
        self.figures |= {
            "processor_s": meters[node].seconds,
            "all_processor_s": sum(meter.seconds for meter in meters.values()),
            "others_percent": 100 * meters[node].others_share,
        }


async def _created(channel: ControllerChannel, request: Any) -> ErrorCode | None:
    """What the leader answers; None: the answer was lost."""
    try:
        answer = await channel.request(request, timeout_seconds=REQUEST_SECONDS)
    except TransportError:
        return None
    return ErrorCode(answer.topics[0].error_code)


async def _knows(client: KafkaClient, request: Any) -> bool:
    try:
        answer = await client.request(request, REQUEST_SECONDS)
    except TransportError:
        return False
    return bool(answer.results[0].error_code is ErrorCode.none)


def _blocked(output: Path, size: int) -> list[int]:
    """How long each turn was that a controller complained about behind the first bytes of its output."""
    with output.open("rb") as file:
        file.seek(size)
        return [int(ms) for ms in _BLOCKED.findall(file.read().decode("utf-8", "replace"))]


def table(partitions: int, lines: Path) -> Table:
    """All rows of that size that were measured on this commit and machine."""
    written = _written(lines)
    shown = Table(title=f"{partitions:,} partitions, 3 controllers, {len(BROKERS)} brokers", caption=machine())
    for column in ("row", "", *TITLES.values(), "ours/stock", "goal"):
        shown.add_column(column, justify="left" if column in ("row", "") else "right")
    for row in ROWS:
        stock, ours = (written.get(_case(partitions, row, peer), {}) for peer in TITLES)
        for key, label in FIGURES.items():
            pair = [each.get(key) for each in (stock, ours)]
            if any(pair) or key == "seconds":
                first = key == "seconds"
                share = f"{pair[1] / pair[0]:.2f}" if first and pair[0] and pair[1] is not None else ""
                head = row.label if first else ""
                shown.add_row(head, label, *map(number_text, pair), share, row.goal if first else "")
    return shown


def machine() -> str:
    """What a figure depends on, but no name."""
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} cores {names[0] if names else ''}, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def _case(partitions: int, row: Row, peer: str) -> str:
    return f"{partitions} {row.key} {peer} on {machine()}"


def _written(lines: Path) -> dict[str, dict[str, float]]:
    """The last figures of each case on this commit."""
    commit, found = results.commit(), {}
    for line in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else ():
        of, _, case, result, seconds, figures = line.split("\t")
        if (of, result) == (commit, "passed"):
            found[case] = {"seconds": float(seconds)}
            found[case] |= {key: float(number) for key, number in (word.split("=") for word in figures.split())}
    return found


def _say(console: Console, text: str) -> None:
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")
