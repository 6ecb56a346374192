"""Many controllers on one machine, each asked through its own socket."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from migrator.migration.machine.states import State
from migrator.rpc.operator_client import OperatorClient
from tests.rpc.support.operator_node import PlayedNode, served


async def test_each_answer_is_of_the_controller_that_was_asked(tmp_path: Path) -> None:
    """A socket is reached by the number of a descriptor, which is another directory's a moment later."""
    directories = [tmp_path / str(number) for number in range(3)]

    async def ask(number: int) -> int:
        async with OperatorClient.on_socket(directories[number]) as client:
            return (await client.status()).quorum.leader_id

    async with AsyncExitStack() as stack:
        for number, directory in enumerate(directories):
            directory.mkdir()
            node = PlayedNode(State.DUAL_WRITING, node_id=1, leader_id=number)
            await stack.enter_async_context(served(node, directory))
        for turn in range(20):
            order = [(turn + number) % 3 for number in range(3)]
            assert await asyncio.gather(*map(ask, order)) == order
            assert [await ask(number) for number in order] == order
