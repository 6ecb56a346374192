"""Children start, are waited for, and never stay."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from migrator.errors import OperatorError
from migrator.parts.processes import ChildProcess, free_port, port_is_open, run_to_end
from tests.patience import PATIENCE_SECONDS

PARENT = """
import sys
from pathlib import Path
from migrator.parts.processes import ChildProcess
child = ChildProcess("sleeper", ["sh", "-c", "sleep 600 & echo $!; wait"], output=Path(sys.argv[1]))
child.wait_for_output(r"[0-9]+", timeout_seconds=300)
print(child.pid, child.output_text().strip(), flush=True)
sys.stdin.read()
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_and_their_children_end_with_a_killed_parent(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(number)
        parent.wait(PATIENCE_SECONDS)
        left = [psutil.Process(pid) for pid in pids if not gone(pid)]
        psutil.wait_procs(left, timeout=PATIENCE_SECONDS)
        assert all(gone(pid) for pid in pids)
    finally:
        parent.kill()
        parent.stdin.close()
        parent.stdout.close()


def test_stop_kills_one_that_ignores_sigterm(tmp_path: Path) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    child = ChildProcess("deaf", [sys.executable, "-c", program], output=tmp_path / "log")
    child.wait_for_output("deaf", timeout_seconds=PATIENCE_SECONDS)
    assert child.stop(grace_seconds=0.2) == -signal.SIGKILL


def test_stop_ends_a_paused_child_and_the_group_it_left(tmp_path: Path) -> None:
    child = ChildProcess("shell", ["sh", "-c", "sleep 600 & echo $!; exec sleep 600"], output=tmp_path / "log")
    child.wait_for_output(r"\d+", timeout_seconds=PATIENCE_SECONDS)
    grandchild = int(child.output_text())
    child.pause()
    assert child.stop() == -signal.SIGTERM
    psutil.wait_procs([psutil.Process(grandchild)] if not gone(grandchild) else [], timeout=PATIENCE_SECONDS)
    assert gone(grandchild)


def test_a_child_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    child = ChildProcess("short", ["sh", "-c", "echo the reason; exit 3"], output=tmp_path / "log")
    with pytest.raises(OperatorError, match=r"(?s)exit code 3 before: output matching 'ready'.*the reason"):
        child.wait_for_output("ready", timeout_seconds=PATIENCE_SECONDS)


def test_a_child_that_is_late_is_reported(tmp_path: Path) -> None:
    child = ChildProcess("slow", ["sleep", "600"], output=tmp_path / "log")
    with pytest.raises(OperatorError, match="slow did not do this in 0 s: never"):
        child.wait_until(lambda: False, "never", timeout_seconds=0.05)
    child.kill()


def test_only_this_runs_output_counts(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("ready of yesterday\n")
    with ChildProcess("echo", ["sh", "-c", "echo today"], output=tmp_path / "log") as child:
        child.wait(timeout_seconds=PATIENCE_SECONDS)
        assert child.output_text() == "today\n"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="nobody could not be started"):
        ChildProcess("nobody", ["/nonexistent/program"], output=tmp_path / "log")


def test_run_to_end() -> None:
    assert (
        run_to_end("echo", ["sh", "-c", "echo out; echo error >&2"], timeout_seconds=PATIENCE_SECONDS) == "out\nerror\n"
    )
    with pytest.raises(OperatorError, match=r"(?s)false ended with exit code 1"):
        run_to_end("false", ["false"], timeout_seconds=PATIENCE_SECONDS)


def test_free_ports_can_be_bound_and_are_not_given_twice() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert not set(ports) & set(_kernels_ports()), "the kernel gives the port of a server that is down to another"
    another = "from migrator.parts.processes import free_port; print([free_port() for _ in range(150)])"
    assert not set(ports) & set(
        json.loads(run_to_end("another", [sys.executable, "-c", another], timeout_seconds=PATIENCE_SECONDS))
    )
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", ports[0]))
        server.listen()
        assert port_is_open(ports[0])
    assert not port_is_open(ports[1])


def _kernels_ports() -> range:
    """The kernel's range of ports for connections, and for servers that ask for any port."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first, last = map(int, limits.read_text().split()) if limits.exists() else (49_152, 65_535)
    return range(first, last + 1)


BUSY = """
import threading

def spin():
    while True:
        pass

for _ in range(8):
    threading.Thread(target=spin).start()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the state of each thread")
def test_no_thread_of_a_paused_child_runs_on(tmp_path: Path) -> None:
    """A server that is paused would answer once more."""
    with ChildProcess("busy", [sys.executable, "-c", BUSY], output=tmp_path / "out") as child:
        tasks = Path(f"/proc/{child.pid}/task")
        child.wait_until(lambda: len(list(tasks.iterdir())) > 8, "its threads run", timeout_seconds=PATIENCE_SECONDS)
        for _ in range(20):
            child.pause()
            states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}
            assert states == {"T"}
            child.pause()
            child.resume()
        child.kill()
        child.pause()
