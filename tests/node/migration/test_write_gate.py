"""The write gate, asked on two threads."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.index import ControllerIndex
from migrator.image.model import EMPTY_IMAGE
from migrator.migration.write_behind.lag import Lag
from migrator.node.migration.write_gate import WriteGate
from migrator.wire.aside import lanes
from migrator.wire.book import SMALL_BYTES, Book, Part, Stage
from migrator.wire.requests import REQUEST
from tests.node.support.cluster import Cluster
from tests.wire.support.rooms import Asked


async def test_only_the_event_loop_asks_for_the_lag(tmp_path: Path) -> None:
    """It moves the clock of the bound. A big decision is made, and its records are looked at, on another thread."""
    asked_on: list[threading.Thread] = []

    def lag() -> Lag:
        asked_on.append(threading.current_thread())
        return Lag(0, 0, 0)

    gate = WriteGate(Cluster(tmp_path, 1).settings(1))
    gate.measures(lag, lambda: True)
    await gate.admit()
    await lanes().decisions.run(lambda: gate.check(EMPTY_IMAGE, ControllerIndex(), ()))
    assert asked_on == [threading.current_thread()]


async def test_changes_that_wait_for_zookeeper_count_and_beyond_their_room_are_refused(tmp_path: Path) -> None:
    """Decoded requests of callers with rights had no bound while ZooKeeper lagged."""
    gate = WriteGate(Cluster(tmp_path, 1).settings(1))
    gate.measures(lambda: Lag(10**9, 10**9, 0), lambda: True)
    book = Book()
    room = book.rooms[Part.RIGHTS, Stage.PARKED]
    room.limit = 10 * SMALL_BYTES
    asked = [Asked(book) for _ in range(3)]
    for each in asked:
        each.charge.hold(Stage.READING, 5 * SMALL_BYTES)

    async def admit(one: Asked) -> None:
        REQUEST.set(one.request)
        await gate.admit()

    tasks = [asyncio.create_task(admit(each)) for each in asked]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = done
    error = refused.exception()
    assert isinstance(error, RefusedError)
    assert error.error.code is ErrorCode.request_timed_out
    assert "too many other changes wait" in (error.error.message or "")
    assert room.held == 10 * SMALL_BYTES
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
