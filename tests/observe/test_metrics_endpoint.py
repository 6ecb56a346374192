"""The metrics' door: who gets in, and that nobody outside can wear it out. With real sockets and certificates."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import Gauge

from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.observe import metrics_endpoint
from migrator.observe.beans import CONTROLLER, STATE, Beans
from migrator.observe.certificates import CertificateBook
from migrator.observe.health import STALL_MS_MAX, NodeHealth
from migrator.observe.logins import LoginBook
from migrator.observe.metrics_access import OPEN, AccessFiles
from migrator.observe.metrics_endpoint import HEAD_BYTES_MAX, MetricsEndpoint
from migrator.parts.certificates import Authority, PemFiles
from tests.patience import PATIENCE_SECONDS, until

SECRET = "correct horse"
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def served(
    access: AccessFiles = OPEN,
    beans: Callable[[], Beans] | None = None,
    health: Callable[[], NodeHealth] | None = None,
) -> Iterator[int]:
    gauge = Gauge("planted", "A figure", registry=None)
    endpoint = MetricsEndpoint("127.0.0.1", 0, [gauge], access=access, beans=beans, health=health)
    try:
        yield endpoint.port
    finally:
        endpoint.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def rest(connection: socket.socket) -> bytes:
    """Until the other side hangs up."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def asked(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    with connected(port) as plain:
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        with connection:
            connection.sendall(request)
            return rest(connection)


def status(answer: bytes) -> int:
    return int(answer.split(None, 2)[1])


def with_password(text: str) -> bytes:
    credentials = base64.b64encode(text.encode())
    return GET.replace(b"Host: x", b"Authorization: Basic " + credentials)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (GET, 200),
        (GET.replace(b"GET", b"HEAD"), 200),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
        (GET.replace(b"/metrics", b"/"), 404),
        (GET.replace(b"/metrics", b"/metrics/../../etc/passwd"), 404),
        (GET.replace(b"GET", b"POST"), 405),
        (GET.replace(b"GET", b"OPTIONS"), 405),
        (GET.replace(b"GET", b"<script>"), 405),
        (GET.replace(b"Host: x", b"Accept: application/openmetrics-text;version=broken"), 200),
        (GET.replace(b"Host: x", b"Accept: text/plain;version=1e999"), 200),
        (GET.replace(b"Host: x", b"Host: " + b"x" * HEAD_BYTES_MAX), 431),
        (b"x" * (HEAD_BYTES_MAX + 1), 431),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=lambda case: case[:60].decode() if isinstance(case, bytes) else str(case),
)
def test_one_path_one_answer(request_: bytes, expected: int) -> None:
    with served() as port:
        answer = asked(port, request_)
        assert status(answer) == expected
        assert (b"planted" in answer) is (expected == 200 and not request_.startswith(b"HEAD"))
        assert b"Traceback" not in answer
        assert b"Python" not in answer
        assert status(asked(port, GET)) == 200, "the next one is served"


JOLOKIA = GET.replace(b"/metrics", b"/jolokia/read/kafka.controller:type=KafkaController,name=ZkMigrationState")
STRIMZI = GET.replace(b"/metrics", b"/v1/kraft-migration/")
BULK = b"POST /jolokia/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (JOLOKIA, 200),
        (STRIMZI, 200),
        (STRIMZI.replace(b"migration/", b"migration"), 200),
        (JOLOKIA.replace(b" HTTP", b"/Value?ignoreErrors=true HTTP"), 200),
        (JOLOKIA.replace(b"name=", b"name=Other"), 200),
        (JOLOKIA.replace(b"/read/", b"/write/"), 404),
        (JOLOKIA.replace(b"/read/", b"/exec/"), 404),
        (JOLOKIA.replace(b"/jolokia/read/", b"/jolokia//read/"), 404),
        (JOLOKIA.replace(b"GET", b"POST"), 405),
        (STRIMZI.replace(b"GET", b"PUT"), 405),
        (BULK, 405),
        (BULK.replace(b"/jolokia/", b"/jolokia"), 405),
        (BULK.replace(b"/jolokia/", b"/elsewhere"), 404),
    ],
    ids=lambda case: case[:110].decode() if isinstance(case, bytes) else str(case),
)
def test_tools_that_poll_beans_get_the_same_door(request_: bytes, expected: int, tmp_path: Path) -> None:
    with served(beans=lambda: {f"{CONTROLLER}{STATE}": {"Value": 1}}) as port:
        answer = asked(port, request_)
        assert status(answer) == expected
        assert (b"application/json" in answer) is (expected == 200)
        assert (b'"Value":1' in answer or b'"value":1' in answer) is (
            expected == 200 and b"Other" not in request_
        ) or b'{"state":1}' in answer
    with served() as port:
        assert status(asked(port, request_)) == 404, "no beans are served here"
    access = AccessFiles(passwords=password_file(tmp_path, f"prometheus:{SECRET}"))
    with served(access, beans=dict) as port:
        assert status(asked(port, request_)) == 401


def password_file(directory: Path, *lines: str, mode: int = 0o440) -> str:
    path = directory / "passwords"
    path.unlink(missing_ok=True)
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return str(path)


def test_whoever_lacks_the_password_is_refused_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    access = AccessFiles(passwords=password_file(tmp_path, f"prometheus:{SECRET}", "other:x"))
    with served(access) as port:
        before = machine().own(LoginBook).read()["metrics"]
        wrong = [
            GET,
            with_password("prometheus:wrong"),
            with_password(f"nobody:{SECRET}"),
            with_password(""),
            with_password(":"),
            GET.replace(b"Host: x", b"Authorization: Basic \xff\xfe!"),
            GET.replace(b"Host: x", f"Authorization: Bearer {SECRET}".encode()),
            with_password("prometheus:wrong").replace(b"/metrics", b"/elsewhere"),
        ]
        for request in wrong:
            answer = asked(port, request)
            assert status(answer) == 401
            assert b'WWW-Authenticate: Basic realm="metrics"' in answer
        assert machine().own(LoginBook).read()["metrics"] == before + len(wrong)
        assert status(asked(port, with_password(f"prometheus:{SECRET}"))) == 200
        assert status(asked(port, with_password("other:x").replace(b"Basic", b"basic"))) == 200
        password_file(tmp_path, "prometheus:new")
        assert status(asked(port, with_password(f"prometheus:{SECRET}"))) == 401
        assert status(asked(port, with_password("prometheus:new"))) == 200
        (tmp_path / "passwords").unlink()
        assert status(asked(port, with_password("prometheus:new"))) == 200, "what cannot be used changes nothing"
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("lines", "mode"), [((), 0o400), (("nobody",), 0o400), (("user:",), 0o400), ((f"prometheus:{SECRET}",), 0o444)]
)
def test_a_file_of_passwords_that_cannot_be_used_is_refused(tmp_path: Path, lines: tuple[str, ...], mode: int) -> None:
    with (
        pytest.raises(OperatorError) as refused,
        served(AccessFiles(passwords=password_file(tmp_path, *lines, mode=mode))),
    ):
        pass
    assert refused.value.where == "migrator.metrics.basic.auth.file"
    assert SECRET not in str(refused.value)


def client(authority: Authority, own: PemFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def assert_refused(port: int, stranger: ssl.SSLContext) -> None:
    """TLS 1.3 tells a client that it is refused only behind its own handshake."""
    with suppress(ssl.SSLError, ConnectionError):
        assert asked(port, GET, stranger) == b""


def test_tls_asks_for_a_certificate_of_its_authority_and_reads_files_again(tmp_path: Path) -> None:
    ours, others = Authority("ours"), Authority("others")
    server = ours.files(tmp_path / "server", "metrics")
    access = AccessFiles(*map(str, server))
    with served(access) as port:
        prometheus = client(ours, ours.files(tmp_path / "client", "prometheus"))
        assert b"planted" in asked(port, GET, prometheus)
        for stranger in (client(ours), client(ours, others.files(tmp_path / "stranger", "prometheus"))):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                asked(port, GET, stranger)
        with pytest.raises(ssl.SSLError):
            asked(port, GET, client(others))
        assert asked(port, GET) == b"", "in the clear nobody is answered"
        assert machine().own(CertificateBook).ends()["metrics: certificate"] > time.time()

        failures = machine().own(CertificateBook).reload_failures().get("metrics", 0)
        server.certificate.write_text("half a certificate")
        assert b"planted" in asked(port, GET, prometheus), "the previous one stays"
        assert machine().own(CertificateBook).reload_failures()["metrics"] == failures + 1
        others.files(tmp_path / "server", "metrics")
        assert_refused(port, prometheus)
        assert b"planted" in asked(port, GET, client(others, others.files(tmp_path / "client2", "prometheus")))


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
def test_a_file_of_tls_that_cannot_be_used_is_refused(tmp_path: Path, part: str) -> None:
    files = Authority("ours").files(tmp_path, "metrics")
    getattr(files, part).write_text("nonsense")
    with pytest.raises(OperatorError), served(AccessFiles(*map(str, files))):
        pass


def test_who_keeps_connections_open_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also one that sends a byte now and then, in the clear or within TLS."""
    monkeypatch.setattr(metrics_endpoint, "CONNECTION_SECONDS", 0.2)
    for access in (OPEN, AccessFiles(*map(str, Authority("ours").files(tmp_path, "metrics")))):
        with served(access) as port, connected(port) as slow:
            slow.settimeout(0.01)

            def has_ended(connection: socket.socket = slow) -> bool:
                try:
                    connection.send(b"\x16")
                    return connection.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            until(has_ended)


@pytest.mark.parametrize("of_address", [True, False])
def test_a_silent_stranger_gives_way_to_who_comes_next(of_address: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty silent strangers kept 29 of 30 scrapes out."""
    monkeypatch.setattr(metrics_endpoint, "CONNECTIONS_OF_ADDRESS_MAX" if of_address else "CONNECTIONS_MAX", 8)
    for time_out in ("SILENCE_SECONDS", "CONNECTION_SECONDS"):  # who is hung up on for its silence is not counted
        monkeypatch.setattr(metrics_endpoint, time_out, 2 * PATIENCE_SECONDS)
    with served() as port:
        before = machine().own(LoginBook).read()["metrics"]
        waiting = [connected(port) for _ in range(20)]
        try:
            for _ in range(30):
                assert b"planted" in asked(port, GET)
            ended = sum(has_ended(connection) for connection in waiting)
            assert ended >= 12
            assert machine().own(LoginBook).read()["metrics"] - before >= ended, "each is counted"
        finally:
            for connection in waiting:
                connection.close()


def has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_nobody_who_is_being_answered_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "CONNECTIONS_MAX", 3)
    go_on = threading.Event()
    asked_for: list[int] = []

    def slow() -> NodeHealth:
        asked_for.append(1)
        assert go_on.wait(PATIENCE_SECONDS)
        return HEALTHY

    with served(health=slow) as port:
        answered = [connected(port) for _ in range(3)]
        try:
            for connection in answered:
                connection.sendall(READY)
            until(lambda: len(asked_for) == 3)
            until(lambda: rest_of_newcomer(port) == b"")
            go_on.set()
            assert [status(rest(connection)) for connection in answered] == [200] * 3
        finally:
            for connection in answered:
                connection.close()


def rest_of_newcomer(port: int) -> bytes | None:
    """None: it has a place, and nobody answers it."""
    with connected(port) as newcomer:
        newcomer.settimeout(0.1)
        try:
            return newcomer.recv(1)
        except TimeoutError:
            return None
        except OSError:
            return b""


READY = GET.replace(b"/metrics", b"/ready")
ALIVE = GET.replace(b"/metrics", b"/health")
HEALTHY = NodeHealth("follower", 7, 3, 0, is_caught_up=True, stall_ms=5)


@pytest.mark.parametrize(
    ("health", "alive", "ready"),
    [
        (HEALTHY, 200, 200),
        (replace(HEALTHY, leader_id=None), 200, 503),
        (replace(HEALTHY, is_caught_up=False, lag=9), 200, 503),
        (replace(HEALTHY, stall_ms=STALL_MS_MAX), 503, 503),
    ],
    ids=["well", "no leader", "not caught up", "the loop does not turn"],
)
def test_a_load_balancer_hears_one_line_without_a_password(
    health: NodeHealth, alive: int, ready: int, tmp_path: Path
) -> None:
    access = AccessFiles(passwords=password_file(tmp_path, f"prometheus:{SECRET}"))
    with served(access, health=lambda: health) as port:
        assert (status(asked(port, ALIVE)), status(asked(port, READY))) == (alive, ready)
        line = asked(port, READY).partition(b"\r\n\r\n")[2]
        assert json.loads(line) == {
            "role": "follower",
            "epoch": 7,
            "leader": health.leader_id,
            "lag": health.lag,
            "caught_up": health.is_caught_up,
            "ready": ready == 200,
        }
        assert line.count(b"\n") == 1
        assert status(asked(port, GET)) == 401
        assert status(asked(port, READY.replace(b"GET", b"POST"))) == 401
    with served() as port:
        assert status(asked(port, READY)) == 404, "a command has no health"
