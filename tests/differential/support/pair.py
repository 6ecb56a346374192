"""A stock controller and one of ours, started with the same properties, and their answers to the same requests.

Tests take a scenario's steps through a `Pair`, and compare answers and records by common names.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.drill.cluster import ENCODER_SECRET, TOKEN_SECRET
from migrator.errors import OperatorError
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from tests.differential.support.sides import Ours, Side, Stock
from tests.differential.support.steps import NODE, Scenario, Step

RECORDS_SHOWN = 10
POLL_SECONDS = 0.02
SETTLE_SECONDS = 5.0
READS = frozenset({18, 29, 32, 60})

SUPER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": TOKEN_SECRET,
}


@dataclass(frozen=True)
class Outcome:
    """The result of a step on one side, with common names."""

    response: Any
    records: list[str]


@dataclass(frozen=True)
class Comparison:
    """One step, and what both sides made of it."""

    step: Step
    stock: Outcome
    ours: Outcome

    @property
    def equal(self) -> bool:
        return self.stock == self.ours

    def __str__(self) -> str:
        lines = [str(self.step)]
        if self.stock.response != self.ours.response:
            lines += [f"  stock answers {self.stock.response}", f"  ours answers  {self.ours.response}"]
        for who, one, other in (("stock", self.stock, self.ours), ("ours", self.ours, self.stock)):
            only = (Counter(one.records) - Counter(other.records)).elements()
            lines += [f"  only {who} writes {record}" for record in islice(only, RECORDS_SHOWN)]
        return "\n".join(lines)


class Pair:
    """Both controllers. Each is a quorum of one.

    :param release: and ``registers``, as `Side`'s.
    """

    def __init__(
        self,
        kafka: StockKafka,
        directory: Path,
        properties: Mapping[str, str],
        release: str = "3.9",
        *,
        registers: bool = True,
    ) -> None:
        ports = free_port(), free_port()
        self.stock = Stock(
            kafka,
            ports[0],
            directory / "stock",
            properties_of(ports[0]) | dict(properties),
            release,
            registers=registers,
        )
        self.ours = Ours(
            ports[1], directory / "ours", properties_of(ports[1]) | dict(properties), release, registers=registers
        )

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.stock, self.ours

    def ask(self, step: Step) -> Comparison:
        """Ask both; again for a while if the answers differ and nothing was written.

        What stock reads from its published image (ACLs, configurations) may be a moment behind what it has committed.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            comparison = self._ask_once(step)
            wrote = comparison.stock.records or comparison.ours.records
            if comparison.equal or wrote or not _reads(step) or time.monotonic() > deadline:
                return comparison
            time.sleep(POLL_SECONDS)

    def _ask_once(self, step: Step) -> Comparison:
        for side in self.sides:
            side.send(step)
        stock, ours = (Outcome(*side.receive(step)) for side in self.sides)
        return Comparison(step, stock, ours)

    def play(self, scenarios: Sequence[Scenario]) -> dict[str, list[Comparison]]:
        """Take every step of every scenario; the comparisons by scenario."""
        return {scenario.name: [self.ask(step) for step in scenario.steps] for scenario in scenarios}


def _reads(step: Step) -> bool:
    """Whether the answer is made of what is published, settings or the rights of the client, and should be equal."""
    return not step.label and (step.key in READS or step.by is not None)


@contextlib.contextmanager
def started(pairs: Sequence[Pair]) -> Iterator[None]:
    sides = [side for pair in pairs for side in pair.sides]
    try:
        for side in sides:
            side.start()
        for side in sides:
            side.wait_until_active()
        yield
    finally:
        for side in sides:
            with contextlib.suppress(OperatorError):  # it was never started
                side.stop()


def properties_of(port: int) -> dict[str, str]:
    """Of a quorum of one."""
    return {
        "process.roles": "controller",
        "node.id": str(NODE),
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{port}",
        "controller.quorum.append.linger.ms": "0",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "password.encoder.secret": ENCODER_SECRET,
        "auto.leader.rebalance.enable": "false",
        "broker.session.timeout.ms": "600000",
    }
