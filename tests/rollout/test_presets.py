"""The ready-made executors for systemd over ssh and for a StatefulSet.

The ssh is real. No machine of ours has a systemd that runs, or a Kubernetes: scripts stand in for ``systemctl``,
``sudo`` and ``kubectl``, and take exactly the words that the real ones take from the presets. They prove the words and
the quoting, not systemd or Kubernetes.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.rollout.ports import ExecutorError, FileChangedError, PlaceAwayError
from tests.patience import PATIENCE_SECONDS
from tests.rollout.support.hosts import SERVER, Hands, end, executor, node, running
from tests.rollout.support.sshd import LoopbackSshd, require_sshd

pytestmark = pytest.mark.lane("test-all")
SUDO = """#!/bin/sh
[ "$1" = -n ] || exit 9
shift
if [ "$1" = -u ]; then shift 2; fi
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
# systemctl stop|start|cat -- UNIT; systemctl show --property=... -- UNIT
action=$1
while [ "$1" != -- ]; do shift; done
pids="{directory}/$2.pid" id="{directory}/$2.id"
if [ "$2" != '{unit}' ]; then
  case $action in show) printf 'LoadState=not-found\\nActiveState=inactive\\nInvocationID=\\n'; exit 0 ;; esac
  echo "Unit $2 not found." >&2; exit 5
fi
runs() {{ # an orphan that has ended stays a zombie below the tests
  [ -e "$pids" ] || return 1
  case $(cat "/proc/$(cat "$pids")/stat" 2>/dev/null) in ''|*") Z "*) return 1 ;; esac
}}
case $action in
  stop) if runs; then kill "$(cat "$pids")"; while runs; do sleep 0.05; done; fi ;;
  start)
    runs && exit 0
    tr -d - </proc/sys/kernel/random/uuid >"$id"
    setsid {server} </dev/null >/dev/null 2>&1 &
    echo $! >"$pids" ;;
  cat) ;;
  show)
    state=inactive; if runs; then state=active; fi
    printf 'LoadState=loaded\\nActiveState=%s\\nInvocationID=%s\\n' $state "$(cat "$id" 2>/dev/null)" ;;
  *) exit 9 ;;
esac
"""
KUBECTL = """#!/bin/sh
# kubectl exec [-i] -n NS [OPTIONS] POD -- WORDS; kubectl delete pod ...; kubectl get pod ...; kubectl auth can-i ...
echo "$@" >>"{directory}/asked"
case $1 in
  exec)
    while [ "$1" != -- ]; do last=$1; shift; done
    [ "$last" = kafka-1 ] || {{ echo 'pods "'$last'" not found' >&2; exit 1; }}
    shift
    exec "$@" ;;
  auth) [ ! -e "{directory}/may-not" ] || {{ echo no; exit 1; }} ;;
  delete) cat /proc/sys/kernel/random/uuid >"{directory}/uid" ;;
  get)
    case "$@" in *.status.phase*-1) echo Running ;; *.status.phase*) ;; *) cat "{directory}/uid" ;; esac ;;
esac
"""
COMING = """#!/bin/sh
# As above. The pod is away, then Pending, and runs at the third look, if it comes back at all.
case $1 in
  get)
    echo look >>"{directory}/looks"
    case $(wc -l <"{directory}/looks") in 1) ;; 2) echo Pending ;; *) echo {at_last} ;; esac ;;
  exec)
    [ "$(wc -l <"{directory}/looks")" -ge 3 ] || {{
      echo 'Error from server (NotFound): pods "kafka-1" not found' >&2; exit 1; }}
    while [ "$1" != -- ]; do shift; done
    shift
    exec "$@" ;;
  delete) case "$*" in *--ignore-not-found*) ;; *) exit 1 ;; esac ;;
esac
"""
CONTENT = b"broker.id=1\n"


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LoopbackSshd]:
    require_sshd()
    unit = "kafka at $(work).service"
    server = shlex.join([sys.executable, "-c", SERVER, "unit", str(tmp_path), "0"])
    with LoopbackSshd(tmp_path / "sshd") as found:
        script(found.bin / "sudo", SUDO)
        script(found.bin / "systemctl", SYSTEMCTL.format(directory=tmp_path, unit=unit, server=server))
        yield found
        end(SERVER, str(tmp_path))


def test_a_unit_over_ssh(machine: LoopbackSshd, tmp_path: Path) -> None:
    there = node(tmp_path / "my $server.properties", "127.0.0.1", unit="kafka at $(work).service")
    hands = Hands(there, "ssh-systemd", ssh=machine.ssh)
    assert hands.incarnation() is None
    hands.start()
    first = hands.incarnation()
    assert first is not None
    assert len(first) == 32
    hands.write(CONTENT, None)
    assert hands.trial() == ([], ())
    assert (hands.read(), hands.incarnation()) == (CONTENT, first)
    hands.stop()
    assert hands.incarnation() is None
    assert running(SERVER, str(tmp_path)) == []
    hands.start()
    assert hands.incarnation() not in (None, first)
    assert hands.run("printf", "%s", "a 'b' $(c)").text == "a 'b' $(c)"


def test_a_unit_that_systemd_does_not_know_is_not_one_that_does_not_run(machine: LoopbackSshd, tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "f", "127.0.0.1", unit="other.service"), "ssh-systemd", ssh=machine.ssh)
    with pytest.raises(ExecutorError, match="does not know the unit"):
        hands.incarnation()
    with pytest.raises(ExecutorError, match="Unit other"):
        hands.start()
    ((fault,), _) = hands.trial()
    assert "a trial of the right to stop and start it failed: Unit other.service not found." in fault
    assert "systemctl cat -- other.service" in fault


def test_a_pod(tmp_path: Path) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    script(kubectl, KUBECTL.format(directory=tmp_path))
    (tmp_path / "uid").write_text("")
    there = node(tmp_path / "volume" / "server $(1).properties", "kafka-1.kafka", pod="kafka-1")
    (tmp_path / "volume").mkdir()
    hands = Hands(there, "statefulset", kubectl=str(kubectl), namespace="data", exec_options="-c kafka")
    assert hands.incarnation() is None
    assert hands.read() is None
    hands.write(CONTENT, None)
    with pytest.raises(FileChangedError):
        hands.write(CONTENT, None)
    assert hands.read() == CONTENT
    assert hands.trial() == ([], ())
    (tmp_path / "may-not").touch()
    ((fault,), _) = hands.trial()
    assert "stop and start it failed: no" in fault
    assert "kubectl auth can-i -n data delete pods/kafka-1" in fault
    assert not hands.executor.stops_and_starts(there)
    with pytest.raises(ExecutorError, match="no command to stop it"):
        hands.stop()
    hands.restart()
    first = hands.incarnation()
    hands.restart()
    assert None not in {first, hands.incarnation()}
    assert first != hands.incarnation()
    assert hands.run("printf", "%s", "a 'b' $(c)").text == "a 'b' $(c)"
    asked = (tmp_path / "asked").read_text()
    assert "delete pod -n data --ignore-not-found --wait=true -- kafka-1\n" in asked
    assert "get pod -n data --ignore-not-found -o jsonpath={.metadata.uid} -- kafka-1\n" in asked
    assert "exec -i -n data -c kafka kafka-1 -- sh -c" in asked
    alone = Hands(
        there,
        "statefulset",
        {"stop": "{*kubectl} scale statefulset {name} --replicas=0", "start": "{*kubectl} scale {name} --replicas=1"},
        kubectl=str(kubectl),
    )
    assert alone.executor.stops_and_starts(there)


def pod_that_comes(tmp_path: Path, at_last: str, seconds: float) -> Hands:
    kubectl = tmp_path / "kubectl"
    script(kubectl, COMING.format(directory=tmp_path, at_last=at_last))
    (tmp_path / "looks").touch()
    hands = Hands(node(tmp_path / "server.properties", "kafka-1.kafka", pod="kafka-1"), "statefulset", kubectl="x")
    variables = {"kubectl": str(kubectl), "namespace": "data"}
    hands.executor = executor(hands.node, "statefulset", variables=variables, seconds=seconds)
    return hands


@pytest.mark.parametrize("action", ["read", "write", "copy", "run"])
def test_a_pod_that_is_being_created_is_waited_for(tmp_path: Path, action: str) -> None:
    hands = pod_that_comes(tmp_path, "Running", PATIENCE_SECONDS)
    hands.restart()
    if action == "read":
        assert hands.read() is None
    elif action == "write":
        hands.write(CONTENT, None)
        assert hands.path.read_bytes() == CONTENT
    elif action == "copy":
        hands.copy(CONTENT)
        assert hands.path.read_bytes() == CONTENT
    else:
        assert hands.run("echo", "done").text == "done\n"


@pytest.mark.parametrize(
    ("at_last", "said"),
    [
        ("", "still not there"),
        ("Pending", "still Pending"),
        ("$(rm)", "still not there"),
        ("Failed/Evicted//", r"still Failed \(Evicted\)"),
        ("Running//CrashLoopBackOff/4", "restarts in a loop, 4 times"),
    ],
)
def test_a_pod_that_does_not_come_back_is_named(tmp_path: Path, at_last: str, said: str) -> None:
    hands = pod_that_comes(tmp_path, f"'{at_last}'", 2.0)
    with pytest.raises(PlaceAwayError, match=f"pod kafka-1 of the namespace data .*{said}") as away:
        hands.read()
    assert "resume" in away.value.remedy
    assert away.value.where == "broker-1 on kafka-1.kafka"


def test_a_command_that_fails_in_a_pod_that_runs_is_run_once(tmp_path: Path) -> None:
    hands = pod_that_comes(tmp_path, "Running", PATIENCE_SECONDS)
    hands.run("true")
    assert hands.run("sh", "-c", f"echo run >>{tmp_path}/runs; exit 1").exit_code == 1
    assert (tmp_path / "runs").read_text() == "run\n"
