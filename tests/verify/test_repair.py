"""The repair: what is ordered, what is waited for, what is refused."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import cast

import pytest
from pyspark.sql import SparkSession

from migrator.errors import ExitCode, OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Force
from migrator.rpc.find_controller import active_controller
from migrator.rpc.operator_client import OperatorClient
from migrator.verify import job
from migrator.verify.comparison import Comparison, Difference, KindCounts
from migrator.verify.job import repair
from migrator.verify.recheck import Pair
from migrator.verify.verdict import Verdict, VerifyRequest
from tests.rpc.support.identities import command_config
from tests.rpc.support.operator_node import WRITTEN, PlayedNode, served

SPARK = cast("SparkSession", None)
DUAL_WRITING = State.DUAL_WRITING
EQUAL = Comparison({"topic": KindCounts(1, 1, 0, 0, 0)}, ())
DIFFERENT = Comparison({"topic": KindCounts(1, 1, 0, 0, 1)}, (Difference("topic", "a", "id", "1", "2"),))


def at(address: str) -> AbstractAsyncContextManager[OperatorClient]:
    """As the operator, who is nobody's controller."""
    return active_controller(None, address, command_config())


async def order(node: PlayedNode, wait_seconds: float = 20.0) -> tuple[str, list[str]]:
    told: list[str] = []
    async with served(node) as address:
        said = await repair(lambda: at(address), "5 differences", told.append, wait_seconds)
    return said, told


async def test_it_waits_for_dual_writing_orders_and_waits_again() -> None:
    node = PlayedNode(State.INFORMING_BROKERS, State.INFORMING_BROKERS, DUAL_WRITING)
    said, told = await order(node)
    assert said == WRITTEN
    assert node.orders == [(Force.RECONCILE, "5 differences")]
    ordered = told.index("ordered to reconcile")
    assert any("informing brokers" in sentence for sentence in told[:ordered])


async def test_a_takeover_in_between_is_waited_for() -> None:
    after = (State.RECONCILING, State.RECONCILING, State.INACTIVE, State.RECONCILING, State.RECONCILING, DUAL_WRITING)
    node = PlayedNode(DUAL_WRITING, after_force=after)
    said, told = await order(node)
    assert said == WRITTEN
    assert any("leads" in sentence for sentence in told)


async def test_held_deletes_are_the_operators_to_decide() -> None:
    node = PlayedNode(DUAL_WRITING, after_force=(State.RECONCILING, State.HOLDING))
    with pytest.raises(OperatorError, match=r"it is holding deletes\. Do something"):
        await order(node)


@pytest.mark.parametrize(
    ("state", "public"),
    [
        (State.WAITING_FOR_BROKERS, PublicState.MIGRATION_INELIGIBLE),
        (State.COPYING, PublicState.MIGRATE_ZK_DATA),
        (State.REFUSED, PublicState.DUAL_WRITE),
        (State.FINISHING, PublicState.DUAL_WRITE),
        (State.FINISHED, PublicState.FINISHED),
    ],
)
async def test_only_a_controller_that_dual_writes_is_ordered(state: State, public: PublicState) -> None:
    node = PlayedNode(state, public=public)
    with pytest.raises(OperatorError, match="cannot be repaired now") as refused:
        await order(node)
    assert refused.value.exit_code == ExitCode.REFUSED
    assert node.orders == []


async def test_no_controller_no_repair(unused_tcp_port: int) -> None:
    with pytest.raises(OperatorError, match="does not answer"):
        await repair(lambda: at(f"127.0.0.1:{unused_tcp_port}"), "", lambda _: None)


async def test_a_reconcile_that_does_not_end_is_not_waited_for_without_end() -> None:
    with pytest.raises(OperatorError, match=r"did not end within 1 s.*migrator status"):
        await order(PlayedNode(DUAL_WRITING, after_force=(State.RECONCILING,)), wait_seconds=1.0)


@pytest.mark.parametrize(
    ("comparisons", "mends", "code", "asked"),
    [
        ([EQUAL], True, ExitCode.OK, 0),
        ([DIFFERENT, EQUAL], True, ExitCode.OK, 1),
        ([DIFFERENT, DIFFERENT], True, ExitCode.DIFFERENT, 1),
        ([DIFFERENT], False, ExitCode.DIFFERENT, 1),
    ],
)
def test_the_last_comparison_is_the_verdict(
    comparisons: list[Comparison], mends: bool, code: ExitCode, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(comparisons)
    monkeypatch.setattr(job, "verify_in", lambda *_, **__: Verdict(left.pop(0), 0.1, Pair(1, 1)))
    seen: list[Verdict] = []

    def mend(verdict: Verdict) -> bool:
        seen.append(verdict)
        return mends

    assert job.VerifyJob(VerifyRequest("zk", "dir"), repair=mend).run(SPARK, print).exit_code is code
    assert (len(seen), left) == (asked, [])
