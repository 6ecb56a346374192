"""`python -m tests.doors.costs.honest FILE`: honest callers, and a line in FILE.notes for each of their requests.

Brokers send heartbeats, a follower fetches the log to its end, an operator runs a command (a connection of its own for
each), Prometheus scrapes. A request that fails is made again at once; the line holds what it asked for, when it began
(monotonic seconds), how long it took with all of its attempts, and how many of these failed.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.drill.cluster import CLUSTER_ID
from migrator.raft.messages import FetchRequest, FetchResponse
from migrator.records.batch import iter_headers
from migrator.values import value
from migrator.wire.raft_codec import decode_raft_response, encode_raft_request
from tests.doors.support.caller import Caller, Login, ask, exchange

BROKERS, HEARTBEAT_SECONDS = 20, 0.5
FETCH_SECONDS, OPERATOR_SECONDS, SCRAPE_SECONDS = 0.1, 0.5, 0.5
RATES = "40 heartbeats, 10 Fetches, 2 commands of an operator and 2 scrapes a second"
"""The sums of these figures."""
HEARTBEAT, FETCH, OPERATOR, SCRAPE = "heartbeat", "fetch", "operator", "scrape"
REGISTRATION_KEY, HEARTBEAT_KEY, CREATE_TOPICS_KEY, DESCRIBE_CONFIGS_KEY = 62, 63, 19, 32
FETCH_VERSION = 17
FIRST_BROKER = 1_000
AGAIN_SECONDS = 0.02
ANSWER_SECONDS = 20.0
"""A caller without an answer by then connects again."""
SCRAPE_TIMEOUT_SECONDS = 10.0
"""As Prometheus waits by default; a scrape is not made again."""


@value
class Spec:
    """Where everybody goes, and with what.

    :param metrics: of the door, 0 where there is none.
    """

    sasl: int
    tls: int
    metrics: int
    authority: str
    voter: tuple[str, str]
    broker: tuple[str, str]
    operator: tuple[str, str]
    scraper: str
    epoch: int


class Honest:
    """All of them, each in a thread."""

    def __init__(self, spec: Spec, notes: Any) -> None:
        self._spec = spec
        self._notes = notes
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._broker = Caller(spec.authority, login=Login(*spec.broker))
        self._operator = Caller(spec.authority, login=Login(*spec.operator))
        self._voter = Caller(spec.authority, spec.voter)
        self._topics = 0

    def run(self) -> None:
        """Until SIGTERM; what was asked is waited for."""
        signal.signal(signal.SIGTERM, lambda *_: self._ended.set())
        brokers = range(FIRST_BROKER, FIRST_BROKER + BROKERS)
        works = [partial(self._heartbeats, number) for number in brokers]
        works += [partial(self._fetches), partial(self._commands)]
        works += [partial(self._scrapes)] if self._spec.metrics else []
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
            time.sleep(HEARTBEAT_SECONDS / len(works))  # so that they do not all ask at once
        for thread in threads:
            thread.join()

    def _each(self, what: str, seconds: float, attempt: Callable[[], bool]) -> None:
        """Make attempts until one succeeds, and note it; again and again."""
        while not self._ended.is_set():
            began, failures = time.monotonic(), 0
            while not self._succeeds(attempt):
                failures += 1
                if self._ended.is_set() or what == SCRAPE:
                    break
                time.sleep(AGAIN_SECONDS)
            with self._lock:
                self._notes.write(f"{what} {began:.4f} {time.monotonic() - began:.4f} {failures}\n")
            self._ended.wait(seconds)

    @staticmethod
    def _connected(caller: Caller, port: int) -> socket.socket:
        connection = caller.connect(port)
        connection.settimeout(ANSWER_SECONDS)
        return connection

    @staticmethod
    def _succeeds(attempt: Callable[[], bool]) -> bool:
        try:
            return attempt()
        except OSError:
            return False

    def _heartbeats(self, broker: int) -> None:
        session: tuple[socket.socket, int] | None = None

        def attempt() -> bool:
            nonlocal session
            connection, epoch = session or self._register(broker)
            session = None
            fields = {"broker_id": broker, "broker_epoch": epoch, "current_metadata_offset": epoch}
            answer = ask(connection, HEARTBEAT_KEY, 1, fields)
            if answer is None or answer.error_code is not ErrorCode.none:
                connection.close()
                return False
            session = connection, epoch
            return True

        self._each(HEARTBEAT, HEARTBEAT_SECONDS, attempt)

    def _register(self, broker: int) -> tuple[socket.socket, int]:
        connection = self._connected(self._broker, self._spec.sasl)
        fields = {
            "broker_id": broker,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": UUID(int=broker),
            "listeners": ({"name": "INSIDE", "host": "localhost", "port": 9092, "security_protocol": 0},),
            "features": (
                {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 21},
                {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1},
            ),
            "log_dirs": (UUID(int=broker << 64),),
            "previous_broker_epoch": -1,
        }
        answer = ask(connection, REGISTRATION_KEY, 4, fields)
        if answer is None or answer.error_code is not ErrorCode.none:
            connection.close()
            raise ConnectionRefusedError(str(answer))
        return connection, answer.broker_epoch

    def _fetches(self) -> None:
        connection: socket.socket | None = None
        offset, last_epoch = 0, 0

        def attempt() -> bool:
            nonlocal connection, offset, last_epoch
            with_it = connection or self._connected(self._voter, self._spec.tls)
            connection = None
            wanted = FetchRequest(CLUSTER_ID, -1, self._spec.epoch, offset, last_epoch, 0, 8 << 20)
            found = exchange(with_it, encode_raft_request(wanted, FETCH_VERSION))
            if found is None:
                return False
            answer = decode_raft_response(found)
            assert isinstance(answer, FetchResponse)
            if (answer.top_error, answer.error) != (ErrorCode.none, ErrorCode.none):
                return False
            if answer.snapshot_id is not None:  # who is behind would load it
                offset, last_epoch = answer.snapshot_id.offset, answer.snapshot_id.epoch
            for header in iter_headers(memoryview(answer.records), partial_tail=True):
                offset, last_epoch = header.next_offset, header.leader_epoch
            connection = with_it
            return True

        self._each(FETCH, FETCH_SECONDS, attempt)

    def _commands(self) -> None:
        def attempt() -> bool:
            with self._connected(self._operator, self._spec.sasl) as connection:
                self._topics += 1
                if self._topics % 2:
                    topic = {"name": f"honest-{self._topics}", "num_partitions": 1, "replication_factor": 1}
                    answer = ask(connection, CREATE_TOPICS_KEY, 7, {"topics": (topic,)})
                    return answer is not None and answer.topics[0].error_code is ErrorCode.none
                resource = {"resource_type": 2, "resource_name": f"honest-{self._topics - 1}"}
                answer = ask(connection, DESCRIBE_CONFIGS_KEY, 4, {"resources": (resource,)})
                return answer is not None and answer.results[0].error_code is ErrorCode.none

        self._each(OPERATOR, OPERATOR_SECONDS, attempt)

    def _scrapes(self) -> None:
        context = ssl.create_default_context(cadata=self._spec.authority)
        header = f"Authorization: Basic {base64.b64encode(self._spec.scraper.encode()).decode()}"

        def attempt() -> bool:
            plain = socket.create_connection(("127.0.0.1", self._spec.metrics), timeout=SCRAPE_TIMEOUT_SECONDS)
            with plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
                connection.sendall(
                    f"GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\nConnection: close\r\n\r\n".encode()
                )
                answer = b""
                while more := connection.recv(1 << 16):
                    answer += more
            return answer.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200"))

        self._each(SCRAPE, SCRAPE_SECONDS, attempt)


def main(path: Path) -> None:
    fields = json.loads(path.read_text(encoding="utf-8"))
    spec = Spec(**fields | {"voter": tuple(fields["voter"])})
    with path.with_suffix(".notes").open("w", buffering=1, encoding="ascii") as notes:
        Honest(spec, notes).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
