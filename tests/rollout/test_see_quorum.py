"""A quorum that cannot be seen is told with the reason, and proves nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from migrator.config.load import typed_settings
from migrator.seeing import quorum
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from tests.wire.support.snapshot_leader import SnapshotLeader, serving


def look(**keys: str) -> QuorumLook:
    settings = typed_settings(
        {"controller.listener.names": "CONTROLLER", **{key.replace("_", "."): text for key, text in keys.items()}},
        "access",
    )

    async def once() -> QuorumLook:
        eyes = QuorumEyes(settings)
        try:
            return await eyes.look()
        finally:
            await eyes.close()

    return asyncio.run(once())


def test_nobody_listens(free_port: int) -> None:
    for key, text in (
        ("controller_quorum_voters", f"1@127.0.0.1:{free_port}"),
        ("controller_quorum_bootstrap_servers", f"127.0.0.1:{free_port}"),
    ):
        seen = look(**{key: text})
        assert (seen.seen, seen.image) == (None, None)
        (why,) = seen.unknown
        assert why.startswith("no controller answers: ")
        assert str(free_port) in why


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64, b""])
def test_whoever_listens_there_is_no_controller(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def serve() -> QuorumLook:
            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(1)
                writer.write(answer)
                writer.close()

            server.setblocking(False)
            async with await asyncio.start_server(talk, sock=server):
                return await asyncio.to_thread(look, controller_quorum_voters=f"1@127.0.0.1:{server.getsockname()[1]}")

        assert asyncio.run(serve()).seen is None


@asynccontextmanager
async def eyes_on(leader: SnapshotLeader) -> AsyncIterator[QuorumEyes]:
    async with serving(leader) as voters:
        keys = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": voters}
        eyes = QuorumEyes(typed_settings(keys, "access"))
        try:
            yield eyes
        finally:
            await eyes.close()


async def test_a_log_that_takes_longer_than_a_look_is_read_to_its_end_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that looks only once sees the brokers."""
    leader, told = SnapshotLeader(), list[str]()
    leader.silent_from = 1

    def tell(line: str) -> None:
        told.append(line)
        leader.silent_from = 2**63
        monkeypatch.undo()

    monkeypatch.setattr(quorum, "IMAGE_SECONDS", 0.3)
    async with eyes_on(leader) as eyes:
        cut_off = await eyes.look()
        assert cut_off.image is None
        assert cut_off.unknown[0].startswith("the metadata log is still being read: ")
        await eyes.catch_up(tell)
        (line,) = told
        assert line.startswith("the metadata log is still being read: ")
        seen = await eyes.look()
        assert seen.image is not None
        assert seen.image.provenance.offset == 99
        assert not seen.unknown


async def test_the_leader_is_read_from_and_no_time_is_spent_on_the_others() -> None:
    quorum = SnapshotLeader()
    quorum.leading = 2
    async with eyes_on(quorum) as eyes:
        assert (await eyes.look()).image is not None
    assert set(quorum.fetched) == {2}


async def test_nobody_waits_for_a_quorum_that_is_not_there(free_port: int) -> None:
    keys = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"1@127.0.0.1:{free_port}"}
    eyes = QuorumEyes(typed_settings(keys, "access"))
    await eyes.catch_up(pytest.fail)
    await eyes.close()


async def test_a_log_that_takes_too_long_is_left_to_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken controller may send it slower than anybody can wait."""
    leader = SnapshotLeader()
    leader.silent_from = 0
    monkeypatch.setattr(quorum, "IMAGE_SECONDS", 0.01)
    monkeypatch.setattr(quorum, "CATCH_UP_SECONDS", 0.1)
    async with eyes_on(leader) as eyes:
        await eyes.catch_up(lambda _: None)
        assert (await eyes.look()).image is None
