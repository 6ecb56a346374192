"""A new controller listens before it asks anybody: the others start now as well, and ask it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.drill.cluster import ControllerProcess
from migrator.parts.processes import free_port
from tests.node.support.cluster import until


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of a machine that takes connections and says nothing, ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_a_new_controller_listens_while_it_asks_others(tmp_path: Path, mute: int) -> None:
    port = free_port()
    controller = ControllerProcess(
        1,
        tmp_path,
        {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{port},2@127.0.0.1:{mute}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "migrator.quorum.require.bootstrap": "true",
        },
    )
    controller.format()
    controller.start()
    try:
        await until(lambda: said(controller, "asks controller 2 who leads"), "it says whom it asks")
        assert not said(controller, "is ready for requests"), "the question is not answered"
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await until(
            lambda: said(controller, "takes no part in elections.*no answer from controller 2"), "it says why it waits"
        )
    finally:
        controller.kill()


def said(controller: ControllerProcess, pattern: str) -> bool:
    return controller.process is not None and re.search(pattern, controller.process.output_text()) is not None
