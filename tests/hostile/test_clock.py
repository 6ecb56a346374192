"""The virtual clock stands still while a thread works, also on a machine whose threads get no turn for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from threading import Event

import pytest

from migrator.machine import machine, running_on
from migrator.wire.aside import Lane
from tests.hostile.clock import VirtualLoop, VirtualMachine

VIRTUAL_SECONDS = 9.0
REAL_SECONDS = 0.1
"""As long as this the thread has nothing to do, in which virtual time would pass."""


async def _as_an_fsync(work: Callable[[], bool]) -> bool:
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def tell(_future: Future[bool]) -> None:
        loop.call_soon_threadsafe(told.set)

    future = machine().threads(1, "log-sync").submit(work)
    future.add_done_callback(tell)
    await told.wait()
    return future.result()


async def _on_a_lane(work: Callable[[], bool]) -> bool:
    return await Lane("decisions").run(work)


@pytest.mark.parametrize("run", [_as_an_fsync, _on_a_lane, asyncio.to_thread])
def test_no_session_ends_while_a_thread_works(run: Callable[[Callable[[], bool]], Awaitable[bool]]) -> None:
    loop = VirtualLoop()

    async def scenario() -> bool:
        session_ended = Event()
        loop.call_later(VIRTUAL_SECONDS, session_ended.set)
        ended_meanwhile = await run(lambda: session_ended.wait(REAL_SECONDS))
        await asyncio.sleep(VIRTUAL_SECONDS)
        assert session_ended.is_set()
        return ended_meanwhile

    with running_on(VirtualMachine(loop)), asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(scenario()) is False
