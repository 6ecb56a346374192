"""A quorum that cannot be seen is told with the reason, and proves nothing."""

from __future__ import annotations

import asyncio
import socket

import pytest

from migrator.config.load import typed_settings
from migrator.rollout.seeing.quorum import QuorumEyes, QuorumLook


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
