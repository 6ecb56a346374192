"""The benchmark sees what is there: requests are told apart by their bytes, figures are put side by side."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.wire.encode import encode_entity
from migrator.wire.legacy.messages import UpdateType
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import (
    API_VERSIONS,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    VersionRange,
    build,
    response_type,
)
from migrator.wire.server import KafkaListener
from tests.bench.figures import FIGURES, Result, ratio, table, to_json
from tests.bench.kraft import ROWS
from tests.bench.observers import stall_in
from tests.bench.pieces_memory import MEMORY_PIECES, Sample
from tests.bench.propagation import METADATA, METADATA_VERSION, REAL_CHANGES, measure_real
from tests.bench.quiet_broker import head_of
from tests.bench.reassignments import REASSIGNMENT_FIGURES, longest_pause_ms
from tests.bench.rolls import ROLL_FIGURES
from tests.bench.turns import longest, watch
from tests.drill.support.control_requests import (
    CONTROLLER,
    INCREMENTAL,
    Topics,
    leader_and_isr,
    state,
    stop_replica,
    topic_id,
    update_metadata,
)

TOPICS: Topics = {("a", topic_id(1)): [state(0, 1)]}
REQUESTS = {
    "unknown": (update_metadata(TOPICS, broker_epoch=5), UPDATE_METADATA, UpdateType.UNKNOWN),
    "full": (update_metadata(TOPICS, kind=2, broker_epoch=5), UPDATE_METADATA, UpdateType.FULL),
    "nothing in it": (update_metadata({}, kind=2, broker_epoch=5), UPDATE_METADATA, UpdateType.FULL),
    "leader": (leader_and_isr(TOPICS, kind=INCREMENTAL, broker_epoch=5), LEADER_AND_ISR, UpdateType.INCREMENTAL),
    "stop": (stop_replica("a", 0, leader_epoch=1, delete=True), STOP_REPLICA, UpdateType.UNKNOWN),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_control_request_is_known_by_its_first_and_last_bytes(case: str) -> None:
    request, api_key, kind = REQUESTS[case]
    body = memoryview(b"".join(encode_entity(request)))
    heard = head_of(api_key, body, 1.5)
    assert (heard.type, heard.controller_id, heard.size) == (kind, CONTROLLER, len(body))
    assert heard.broker_epoch == request.broker_epoch
    assert heard.controller_epoch == request.controller_epoch


def test_ratios_are_ours_by_stock_and_only_of_what_both_have() -> None:
    results = [
        Result("stock", "stock", {"claim_to_copied": 50.0, "leader_rss_mb": 1000.0}),
        Result("ours", "ours", {"claim_to_copied": 5.0, "stall_ms": 20.0}, "it failed then"),
    ]
    by_key = {figure.key: figure for figure in FIGURES}
    assert ratio(by_key["claim_to_copied"], results) == pytest.approx(0.1)
    written = to_json(results, {"partitions": 1})
    assert written["ours_to_stock"] == {"claim_to_copied": 0.1}
    assert written["peers"]["ours"]["failure"] == "it failed then"
    assert table(results, "").row_count == 3


def test_the_longest_stall_is_read_from_the_metrics() -> None:
    text = '# HELP x y\nmigrator_event_loop_stall_ms{epoch="3",role="Leader"} 41.5\nother 100\n'
    assert stall_in(text) == 41.5
    assert stall_in("other 100\n") is None


@pytest.mark.parametrize("piece", MEMORY_PIECES, ids=lambda piece: piece.name)
def test_every_piece_runs(piece: object) -> None:
    with Sample(200) as sample:
        note = piece.prepare(sample)()  # type: ignore[attr-defined]
    assert note


def test_the_documented_figures_are_those_that_are_measured() -> None:
    page = (Path(__file__).parents[2] / "docs/bench.md").read_text(encoding="utf-8")
    figures = (*FIGURES, *ROLL_FIGURES, *REASSIGNMENT_FIGURES)
    assert [figure.label for figure in figures if figure.target and figure.label not in page] == []
    assert [row.label for row in ROWS if row.label not in page] == []


class Forgetful:
    """A broker that knows a topic from the second time on that it is asked for it."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def handle(self, context: RequestContext, body: Any) -> Any:
        (topic,) = body.topics
        self.asked[topic.name] += 1
        error = ErrorCode.none if self.asked[topic.name] > 1 else ErrorCode.unknown_topic_or_partition
        answer = response_type(context.api_key, context.api_version)
        return build(answer, topics=({"name": topic.name, "error_code": error},))


async def test_a_topic_is_known_when_the_last_broker_names_it() -> None:
    brokers = [Forgetful(), Forgetful()]
    apis = {METADATA: VersionRange(0, METADATA_VERSION), API_VERSIONS: VersionRange(0, 4)}
    listeners = [KafkaListener("CLIENTS", broker, apis=apis) for broker in brokers]
    ports = [await listener.start("127.0.0.1", 0) for listener in listeners]
    created: list[str] = []
    told_ms = await measure_real(created.append, ",".join(f"127.0.0.1:{port}" for port in ports), "told")
    for listener in listeners:
        await listener.close(grace=0)
    assert len(created) == REAL_CHANGES
    assert all(broker.asked == dict.fromkeys(created, 2) for broker in brokers)
    assert told_ms > 0


@pytest.mark.parametrize(
    ("times", "pause_ms"),
    [
        ([1.0, 2.1, 2.2, 2.7, 9.0], 500.0),  # what lies outside of the stretch is none of its pauses
        ([2.9, 3.0], 900.0),  # nobody was answered at its beginning
        ([], 0.0),
    ],
)
def test_a_pause_is_between_two_acknowledgements_or_since_the_beginning(times: list[float], pause_ms: float) -> None:
    assert longest_pause_ms(times, 2.0, 3.0) == pytest.approx(pause_ms)


SLOW = """
import asyncio, time

def spin():
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass

async def main():
    asyncio.get_running_loop().call_soon(spin)
    await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_the_longest_turn_of_a_controller_is_noted_with_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("MIGRATOR_BENCH_TURNS", "")
    watch(tmp_path / "turns")
    (tmp_path / "slow.py").write_text(SLOW)
    for argument in ("controller", "status"):
        subprocess.run([sys.executable, tmp_path / "slow.py", argument], check=True)
    (turn,) = longest(tmp_path / "turns")
    assert int(turn.split()[0]) >= 300
    assert " spin < " in turn
