"""The write gate, asked on two threads."""

from __future__ import annotations

import threading
from pathlib import Path

from migrator.controller.index import ControllerIndex
from migrator.image.model import EMPTY_IMAGE
from migrator.migration.write_behind.lag import Lag
from migrator.node.migration.write_gate import WriteGate
from migrator.wire.aside import DECISIONS
from tests.node.support.cluster import Cluster


async def test_only_the_event_loop_asks_for_the_lag(tmp_path: Path) -> None:
    """It moves the clock of the bound. A big decision is made, and its records are looked at, on another thread."""
    asked_on: list[threading.Thread] = []

    def lag() -> Lag:
        asked_on.append(threading.current_thread())
        return Lag(0, 0, 0)

    gate = WriteGate(Cluster(tmp_path, 1).settings(1))
    gate.measures(lag, lambda: True)
    await gate.admit()
    await DECISIONS.run(lambda: gate.check(EMPTY_IMAGE, ControllerIndex(), ()))
    assert asked_on == [threading.current_thread()]
