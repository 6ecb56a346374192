"""Two controllers that can be asked the same: ours in this process, and a stock one over its socket."""

from __future__ import annotations

import datetime as dt
import socket
import struct
import uuid
from typing import Any, cast

from migrator.apis.authorization import Unlimited
from migrator.apis.call import Call
from migrator.apis.registry import answer
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.principal import ANONYMOUS
from migrator.wire.schemas import (
    RequestHeader,
    build,
    decode_response_header,
    encode_request_header,
    request_type,
    response_type,
)
from migrator.wire.shapes import shapes_of
from tests.apis.asking import read
from tests.controller.world import World

NODE = 3000
PATIENCE = dt.timedelta(seconds=30)
MANY = 1 << 64
"""Above the Uuids that the steps make up."""
ANONYMOUS_FIELDS = frozenset(("throttle_time", "error_message", "documentation", "broker_epoch"))


class Side:
    """One of the two controllers: what it calls things that requests have to name."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {0: -7}
        self.topics: dict[str, uuid.UUID | None] = {}

    def send(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        """Ask and read the answer."""
        raise NotImplementedError

    def learn(self, key: int, response: Any) -> None:
        """Remember names from an answer."""
        if key == 19:
            for topic in response.topics:
                if topic.error_code == 0 and hasattr(topic, "topic_id"):
                    self.topics[topic.name] = topic.topic_id

    def plain(self, message: Any) -> Any:
        """An answer without what may differ."""
        if isinstance(message, uuid.UUID):
            names = {topic_id: name for name, topic_id in self.topics.items()}
            return names.get(message, str(message) if message.int < MANY else "random")
        if isinstance(message, tuple):
            return sorted((self.plain(item) for item in message), key=repr)
        if hasattr(message, "__type__"):
            return {
                shape.name: self.plain(getattr(message, shape.name))
                for shape in shapes_of(cast("Any", type(message)))
                if shape.name not in ANONYMOUS_FIELDS
            }
        return message


class Ours(Side):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(node_id=NODE, authorizer_class_name="")

    def send(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        body, _ = decode_entity(request_type(key, version), _encoded(key, version, fields))
        asked = Call(key, version, body, ANONYMOUS, Unlimited(), "CONTROLLER")
        return read(asked, self.world.commit(answer(asked, self.world.image, self.world.context())))


class Stock(Side):
    def __init__(self, port: int) -> None:
        super().__init__()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def close(self) -> None:
        self._socket.close()

    def send(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        header = b"".join(encode_request_header(RequestHeader(key, version, 1, "differential")))
        frame = header + _encoded(key, version, fields)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        try:
            (size,) = struct.unpack(">i", self._read(4))
        except TimeoutError:
            raise AssertionError(f"the stock controller does not answer API {key} v{version}: {fields}") from None
        response = self._read(size)
        _, offset = decode_response_header(key, version, response)
        return decode_entity(response_type(key, version), response, offset)[0]

    def _read(self, size: int) -> bytes:
        chunks = b""
        while len(chunks) < size:
            more = self._socket.recv(size - len(chunks))
            assert more, "the stock controller closed the connection"
            chunks += more
        return chunks


def _encoded(key: int, version: int, fields: dict[str, Any]) -> bytes:
    return b"".join(encode_entity(build(request_type(key, version), **{"timeout": PATIENCE, **fields})))
