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

from migrator.rollout.ports import ExecutorError, FileChangedError
from tests.rollout.support.hosts import SERVER, Hands, end, node, running
from tests.rollout.support.sshd import LoopbackSshd, require_sshd

pytestmark = pytest.mark.lane("test-all")
SUDO = """#!/bin/sh
[ "$1" = -n ] || exit 9
shift
if [ "$1" = -u ]; then shift 2; fi
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
# systemctl stop|start -- UNIT; systemctl show --property=... -- UNIT
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
  show)
    state=inactive; if runs; then state=active; fi
    printf 'LoadState=loaded\\nActiveState=%s\\nInvocationID=%s\\n' $state "$(cat "$id" 2>/dev/null)" ;;
  *) exit 9 ;;
esac
"""
KUBECTL = """#!/bin/sh
# kubectl exec [-i] -n NS [OPTIONS] POD -- WORDS; kubectl delete pod ...; kubectl get pod ...
echo "$@" >>"{directory}/asked"
case $1 in
  exec)
    while [ "$1" != -- ]; do last=$1; shift; done
    [ "$last" = kafka-1 ] || {{ echo 'pods "'$last'" not found' >&2; exit 1; }}
    shift
    exec "$@" ;;
  delete) cat /proc/sys/kernel/random/uuid >"{directory}/uid" ;;
  get) cat "{directory}/uid" ;;
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
    assert hands.read() == CONTENT
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
    assert "delete pod -n data --wait=true -- kafka-1\n" in asked
    assert "get pod -n data --ignore-not-found -o jsonpath={.metadata.uid} -- kafka-1\n" in asked
    assert "exec -i -n data -c kafka kafka-1 -- sh -c" in asked
    alone = Hands(
        there,
        "statefulset",
        {"stop": "{*kubectl} scale statefulset {name} --replicas=0", "start": "{*kubectl} scale {name} --replicas=1"},
        kubectl=str(kubectl),
    )
    assert alone.executor.stops_and_starts(there)
    gone = Hands(node(hands.path, "kafka-9.kafka", pod="kafka-9"), "statefulset", kubectl=str(kubectl))
    with pytest.raises(ExecutorError, match="not found"):
        gone.read()
