"""One of the two controllers of a `Pair`: its process, a connection to it, and its log."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID, ControllerProcess
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import ChildProcess, port_is_open
from migrator.records import metadata as rec
from migrator.records.batch import iter_batches
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import (
    API_VERSIONS,
    ENVELOPE,
    RequestHeader,
    build,
    decode_response_header,
    encode_request_header,
    request_type,
    response_type,
)
from tests.differential.support.names import Names
from tests.differential.support.steps import NODE, Step
from tests.patience import PATIENCE_SECONDS
from tests.raw_frames import receive, sized
from tests.wire.support.principals import encode_principal

ANSWER_SECONDS = 60.0
LOG = Path("__cluster_metadata-0/00000000000000000000.log")
PATIENCE = dt.timedelta(seconds=30)
CLOSED = "the connection was closed"


class Side(ABC):
    """Asked the same as the other one.

    :param port: of its listener.
    :param data: its metadata directory.
    :param release: whose metadata.version it begins with, e.g. ``3.9``.
    :param registers: whether it can register as a controller from the start.
    """

    def __init__(self, port: int, directory: Path, data: Path, release: str, *, registers: bool) -> None:
        self.names = Names({str(data): "DATA", str(directory): "DIRECTORY", str(port): "PORT"}, port)
        self.port = port
        self.release = release
        self._registers = registers
        self.opening: list[str] = []
        """The records of the log before the first request."""
        self.registrations: list[str] = []
        """Its own as a controller, which it makes when it can."""
        self._log = data / LOG
        self._position = 0
        self._socket: socket.socket | None = None

    @abstractmethod
    def start(self) -> None:
        """Format and start the process, without waiting."""

    @property
    @abstractmethod
    def process(self) -> ChildProcess:
        """The process, once it was started."""

    def wait_until_active(self) -> None:
        """Wait until it leads, and has registered where it can."""
        self.process.wait_until(self._is_active, "active", timeout_seconds=PATIENCE_SECONDS)

    def wait_until_registered(self) -> None:
        """Wait until its registration is in the log: after an upgrade it follows by itself, after the answer."""
        self.process.wait_until(self._has_registered, "registered", timeout_seconds=PATIENCE_SECONDS)

    def stop(self) -> None:
        """End the process."""
        self.hang_up()
        self.process.kill()

    def send(self, step: Step) -> None:
        if self._socket is None:
            self._socket = self._connected()
        self.names.asked_ms = wall_ms()
        self._socket.sendall(sized(_frame(step, step.fields(self.names))))

    def receive(self, step: Step) -> tuple[Any, list[str]]:
        """The answer to what was sent last, and the records that it has led to, both with common names."""
        raw = self._receive_frame(step)
        records = self.read_log()
        if raw is None:
            return CLOSED, records
        answer = _opened(step, raw)
        self.names.learn_answer(answer)
        return self.names.plain(answer), records

    def read_log(self) -> list[str]:
        """The records since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._position)
            data = log.read()
        written: list[tuple[rec.MetadataRecord, int]] = []
        for batch in iter_batches(data, partial_tail=True):
            self._position += batch.header.size
            written += [] if batch.header.is_control else batch.records()
        for record, _ in written:
            self.names.learn(record)
        own = [pair for pair in written if getattr(pair[0], "controller_id", None) == NODE]
        self.registrations += self.names.records(own)
        return self.names.records(pair for pair in written if pair not in own)

    def _is_active(self) -> bool:
        if self._log.exists():
            self.opening += self.read_log()
        begun = any("EndTransactionRecord" in record for record in self.opening)
        return begun and port_is_open(self.port) and bool(self.registrations or not self._registers)

    def _has_registered(self) -> bool:
        self.read_log()
        return bool(self.registrations)

    def hang_up(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        """A connection that is served: stock closes a few more after one whose request it could not parse."""
        deadline = time.monotonic() + ANSWER_SECONDS
        probe = sized(_request(API_VERSIONS, 0, {}))
        while True:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)
            with contextlib.suppress(ConnectionError):
                connection.sendall(probe)
                if receive(connection) is not None:
                    return connection
            connection.close()
            assert time.monotonic() < deadline, f"{type(self).__name__} serves no connection"

    def _receive_frame(self, step: Step) -> bytes | None:
        assert self._socket is not None
        frame = None
        try:
            with contextlib.suppress(ConnectionError):
                frame = receive(self._socket)
        except TimeoutError:
            raise AssertionError(f"{type(self).__name__} does not answer {step}") from None
        if frame is None:
            self.hang_up()
        return frame


class Stock(Side):
    """A stock controller."""

    def __init__(
        self,
        kafka: StockKafka,
        port: int,
        directory: Path,
        properties: Mapping[str, str],
        release: str,
        *,
        registers: bool,
    ) -> None:
        self._node = kafka.node("stock", directory, properties)
        super().__init__(port, directory, Path(self._node.properties["log.dirs"]), release, registers=registers)

    @property
    def process(self) -> ChildProcess:
        return self._node.process

    def start(self) -> None:
        self._node.format(CLUSTER_ID, release_version=self.release)
        self._node.launch()


class Ours(Side):
    """One of our controllers."""

    def __init__(
        self, port: int, directory: Path, properties: Mapping[str, str], release: str, *, registers: bool
    ) -> None:
        self._controller = ControllerProcess(NODE, directory, properties)
        super().__init__(port, directory, self._controller.metadata_directory, release, registers=registers)

    @property
    def process(self) -> ChildProcess:
        assert self._controller.process is not None
        return self._controller.process

    def start(self) -> None:
        self._controller.format(self.release)
        self.restart()

    def restart(self) -> None:
        """Start the process on what is there."""
        self._controller.start()


def _frame(step: Step, fields: dict[str, Any]) -> bytes:
    inner = _request(step.key, step.version, fields, step.client_id)
    if step.by is None:
        return inner
    envelope = {
        "request_data": inner,
        "request_principal": encode_principal(step.by),
        "client_host_address": ipaddress.ip_address(step.host).packed,
    }
    return _request(ENVELOPE, 0, envelope)


def _request(key: int, version: int, fields: dict[str, Any], client_id: str = "differential") -> bytes:
    header = encode_request_header(RequestHeader(key, version, 1, client_id))
    body = encode_entity(build(request_type(key, version), **{"timeout": PATIENCE, **fields}))
    return b"".join(header + body)


def _opened(step: Step, frame: bytes) -> Any:
    """The answer; of a forwarded request the inner one, or the envelope's error."""
    if step.by is None:
        return _response(step.key, step.version, frame)
    envelope = _response(ENVELOPE, 0, frame)
    if envelope.error_code is not ErrorCode.none:
        return f"the envelope is refused: {envelope.error_code.name}"
    return _response(step.key, step.version, envelope.response_data)


def _response(key: int, version: int, frame: bytes) -> Any:
    _, offset = decode_response_header(key, version, frame)
    return decode_entity(response_type(key, version), frame, offset)[0]
