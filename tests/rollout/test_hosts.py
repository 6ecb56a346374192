"""Needs of later steps on each host, seen before the first step: with real commands, and in a whole rollout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from migrator.rollout.engine.hosts import LOOK
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.ports import ExecutorError, Trial
from tests.rollout.support.hosts import SERVER, Hands, end, node
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

CONTENT = b"broker.id=1\n"
NEEDED = 512 * 1024 * 1024 + 4 * 150 * 1_000
"""Bytes for 1,000 records."""


def worded(tmp_path: Path, **variables: str) -> Hands:
    hands = Hands(node(tmp_path / "server.properties", **variables))
    hands.path.write_bytes(CONTENT)
    return hands


def test_a_trial_leaves_everything_as_it_is(tmp_path: Path) -> None:
    """Except what a trial that was killed has left."""
    hands = worded(tmp_path)
    hands.path.with_name("server.properties.migrator-trial.aB3xY9").write_bytes(CONTENT)
    (kept := hands.path.with_name("server.properties.trial.backup")).write_bytes(CONTENT)
    hands.path.chmod(0o640)
    before = hands.path.stat()
    try:
        for _ in range(2):  # while it does not run, and while it does
            incarnation = hands.incarnation()
            assert hands.trial() == ([], ())
            assert (hands.read(), hands.names[:1], hands.incarnation()) == (CONTENT, [hands.path.name], incarnation)
            assert (hands.path.stat().st_ino, hands.path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
            assert [name for name in hands.names if "trial." in name] == [kept.name], "an operator's file stays"
            hands.start()
    finally:
        end(SERVER, str(hands.path))


def test_what_would_fail_is_named(tmp_path: Path) -> None:
    """No program; and a directory in which nothing can be written beside the file, which is not there."""
    faults, untried = worded(tmp_path, command="/nosuch/kafka {path}").trial()
    assert len(faults) == 1
    assert "a trial of the right to stop and start it failed: there is no program /nosuch/kafka" in faults[0]
    away = Hands(node(tmp_path / "away" / "server.properties"))
    faults, untried = away.trial()
    assert any("the command to write it ended with exit code" in fault for fault in faults)
    assert untried == ()


def test_the_last_lines_of_a_host_say_why(tmp_path: Path) -> None:
    """They come after a banner, and are bounded."""
    says = f"i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo notice $i {'x' * 200} >&2; done; echo no right to it >&2"
    hands = Hands(node(tmp_path / "server.properties"), commands={"write": f"sh -c '{says}; exit 1' {{write_script}}"})
    hands.path.write_bytes(CONTENT)
    ((fault,), _) = hands.trial()
    assert "no right to it" in fault
    assert "notice 39 " in fault
    assert "notice 1 " not in fault
    assert len(fault) < 1_300


def test_commands_of_the_inventory_are_not_tried(tmp_path: Path) -> None:
    """Their effects are unknown."""
    own = {action: f"touch {tmp_path}/{action}" for action in ("write", "restart", "stop", "start")}
    hands = Hands(node(tmp_path / "server.properties"), commands=own)
    hands.path.write_bytes(CONTENT)
    assert hands.trial() == ([], ("stop", "start", "restart", "write"))
    assert hands.names == [hands.path.name]


def test_what_no_step_will_run_does_not_stop_a_rollout(tmp_path: Path) -> None:
    """One of the preset's commands is not used, so its variable is not there, or its right is not given; or a pod is
    scaled, and never deleted."""
    there = Node("broker-1", NodeKind.BROKER, 1, "localhost", str(tmp_path / "server.properties"), "default", "", {})
    Path(there.properties).write_bytes(CONTENT)
    assert Hands(there, commands={"start": "start-it {path}"}).trial() == ([], ("start", "stop"))
    (rule := tmp_path / "sudo").write_text('#!/bin/sh\n[ "$1 $2" != "systemctl cat" ] || exit 1\nexec "$@"\n')
    rule.chmod(0o755)
    hands = Hands(there, "systemd", commands={"stop": "drain {name}"}, sudo=str(rule))
    assert hands.trial() == ([], ("stop", "start"))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        '#!/bin/sh\n[ "$1" = exec ] || { echo no; exit 1; }\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
    )
    kubectl.chmod(0o755)
    scaled = {"stop": "scale {name} 0", "start": "scale {name} 1"}
    hands = Hands(there, "statefulset", commands=scaled, kubectl=str(kubectl), pod="kafka-1")
    faults, untried = hands.trial()
    assert (faults, untried) == ([], ("stop", "start"))


def test_a_trial_changes_nothing_also_where_the_way_changes_the_content(tmp_path: Path) -> None:
    """A transport that puts a line break behind what it carries."""
    way = 'sh -c \'{ cat; echo; } | sh -c "$0" migrator "$1" ""\' {write_script} {path}'
    hands = Hands(node(tmp_path / "server.properties"), commands={"write": way})
    hands.path.write_bytes(CONTENT)
    assert hands.trial() == ([], ())
    assert hands.read() == CONTENT


def test_a_host_is_asked_one_thing_after_the_other(tmp_path: Path) -> None:
    """An sshd, or the one before it that all go through, refuses connections when more than a few begin at once."""
    sudo = tmp_path / "sudo"
    sudo.write_text(
        f'#!/bin/sh\nmkdir "{tmp_path}/busy" || exit 255\n[ "$1" = systemctl ] || "$@"\ncode=$?\n'
        f'sleep 0.2\nrmdir "{tmp_path}/busy"\nexit $code\n'
    )
    sudo.chmod(0o755)
    hands = Hands(node(tmp_path / "server.properties"), "systemd", sudo=str(sudo))
    hands.path.write_bytes(CONTENT)
    assert hands.trial() == ([], ())


def test_a_failed_trial_shows_no_file_of_a_unit_and_no_command_that_starts_a_node(tmp_path: Path) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = systemctl ] || exec "$@"\necho A=secret; echo B=C; exit 1\n')
    sudo.chmod(0o755)
    hands = Hands(node(tmp_path / "server.properties"), "systemd", sudo=str(sudo))
    hands.path.write_bytes(CONTENT)
    ((fault,), _) = hands.trial()
    assert "secret" not in fault
    assert "exit code 1" in fault
    words = "/nosuch/kafka -a -b -c -d -e -f {path}"
    ((fault,), _) = worded(tmp_path, command=words).trial()
    assert "the trial was:" in fault
    assert f"trial {hands.path}" in fault, "the whole: its end alone would start the node"


@pytest.mark.parametrize(
    ("said_by_java", "number"), [('openjdk version "11.0.2" 2019', 11), ('java version "1.8.0_452"', 8)]
)
def test_a_host_says_its_room_and_its_java(tmp_path: Path, said_by_java: str, number: int) -> None:
    """Of a directory that will be made; with the real shell."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said_by_java}' >&2\n")
    java.chmod(0o755)
    words = ["sh", "-c", LOOK, "migrator", "java", str(tmp_path / "not" / "yet")]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (said[0], said[-1]) == ("writable", f"java {number}")
    assert said[-2].split()[-1] in str(tmp_path)


def report(*codes: str) -> str:
    found = [
        {"code": code, "severity": "blocker", "title": code, "where": ["listeners"], "hosts": []} for code in codes
    ]
    return json.dumps({"findings": found, "unknown": [], "looked_at": {"records": 1_000}, "exit_code": 0})


def disk(free: int, first: str = "writable") -> str:
    return f"{first}\nFilesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 9 9 {free} 1% /data\njava 11\n"


def examined(operator: Operator) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((operator.state / "verdicts" / "preflight.json").read_text())
    return kept


def test_a_rollout_does_not_begin_when_a_host_cannot_do_its_part(tmp_path: Path) -> None:
    cluster, told = ModelCluster(model_inventory()), list[str]()
    operator = Operator(cluster, tmp_path)
    operator.hears = told.append
    cluster.prints |= {"preflight": report(), "sh": disk(NEEDED // 1024 - 1, "not writable")}
    refused = ExecutorError("sudo: a password is required", where="broker-2 on localhost", remedy="see the rule")
    absent = ExecutorError("Unit kafka.service not found", where="controller-3003-stock on localhost", remedy="install")
    cluster.trials = {"broker-2": Trial((refused,)), "controller-3002-stock": Trial((), ("start",))} | {
        "controller-3003-stock": Trial((absent,))
    }
    with pytest.raises(JobFailedError, match="preflight has found blockers"):
        operator.apply()
    said = "\n".join(told)
    assert "BLOCKER M601 A command of the rollout that would fail: broker 2, broker-2 on localhost: sudo" in said
    assert "  do: see the rule" in said
    found = {each["code"]: each for each in examined(operator)["findings"]}
    assert found.keys() == {"M601", "M602", "M603", "M605", "M606"}, "3.9 starts with Java 11"
    assert f"{NEEDED - NEEDED % 1024 - 1024:,} bytes are free, and the metadata need about {NEEDED:,}" in said
    assert set(found["M603"]["hosts"]) - set(found["M602"]["hosts"]) == {"controller 3001"}, (
        "preflight has looked there"
    )
    assert "localhost:/data/broker-1" in found["M602"]["where"]
    cluster.trials, cluster.prints["sh"] = {}, disk(NEEDED)
    operator.resume()
    assert not examined(operator)["findings"]


def test_a_look_that_nobody_can_take_stops_no_rollout_that_works_without_it(tmp_path: Path) -> None:
    """No step needs to run anything on a broker's host; and a placeholder may stand for its directory."""
    cluster = ModelCluster(model_inventory())
    operator = Operator(cluster, tmp_path)
    cluster.prints |= {"preflight": report(), "sh": disk(NEEDED)}
    one, other, *_ = cluster.inventory.brokers.nodes
    held = cluster.files[other.name, other.properties]
    cluster.files[other.name, other.properties] = held.replace(f"/data/{other.name}".encode(), b"${env:DATA}")

    def no_rule(action: str, node: Node) -> None:
        if (action, node) == ("sh", one):
            raise ExecutorError("sudo: a password is required", where=node.name, remedy="see the rule")

    cluster.fault = no_rule
    operator.apply()
    found = {each["hosts"][0]: each for each in examined(operator)["findings"]}
    assert {each["code"] for each in found.values()} == {"M605"}
    assert found[f"broker {one.node_id}"]["what"].endswith("sudo: a password is required. see the rule")
    assert "the path of ${env:DATA} is unknown" in found[f"broker {other.node_id}"]["what"]


def test_a_host_without_df_says_the_rest(tmp_path: Path) -> None:
    """Only with programs of the shell itself, and dirname."""
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    words = ["/bin/sh", "-c", LOOK, "migrator", "", str(tmp_path / "not" / "yet")]
    ended = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "writable\n")


ODD = json.dumps({"findings": [1, {"where": None, "severity": "warning"}], "unknown": 5})


@pytest.mark.parametrize(("name", "odd"), [("preflight", ODD), ("here", ODD), ("sh", f"java {'9' * 5_000}\n")])
def test_an_answer_of_another_form_is_no_crash(tmp_path: Path, name: str, odd: str) -> None:
    """A host may answer anything."""
    cluster = ModelCluster(model_inventory())
    operator = Operator(cluster, tmp_path)
    cluster.prints |= {"preflight": report(), "sh": disk(NEEDED), name: odd}
    operator.apply()


@pytest.mark.parametrize("text", ["no report", json.dumps({"findings": 1})])
def test_every_controllers_host_looks_at_itself(tmp_path: Path, text: str) -> None:
    cluster = ModelCluster(model_inventory())
    operator = Operator(cluster, tmp_path)
    cluster.prints |= {"preflight": report(), "here": report("M511"), "sh": disk(NEEDED)}
    with pytest.raises(JobFailedError):
        operator.apply()
    here = [words for words in cluster.commands if "--here" in words]
    assert [words[words.index("-c") + 1] for words in here] == ["/etc/c3002.properties", "/etc/c3003.properties"]
    assert all("--verify" in words and "--brokers" not in words for words in here)
    assert [each["where"] for each in examined(operator)["findings"]] == [["localhost:listeners"]] * 2
    cluster.prints["here"] = text
    with pytest.raises(JobFailedError):
        operator.resume()
    faults = [each for each in examined(operator)["findings"] if each["code"] == "M601"]
    assert {each["what"] for each in faults} == {"preflight ended with exit code 0"}
    assert any("Type there: migrator preflight -c /etc/c3002.properties" in each["remedy"] for each in faults)
