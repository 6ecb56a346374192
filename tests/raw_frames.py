"""Kafka's frames over a plain socket, made and taken by hand: nothing of our listener or client."""

from __future__ import annotations

import socket
import struct

SIZE = struct.Struct(">i")


def sized(frame: bytes) -> bytes:
    """A frame with its size in front."""
    return SIZE.pack(len(frame)) + frame


def receive(connection: socket.socket) -> bytes | None:
    """The next frame, without its size; None when the connection was closed."""
    head = _read(connection, SIZE.size)
    return None if head is None else _read(connection, *SIZE.unpack(head))


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data
